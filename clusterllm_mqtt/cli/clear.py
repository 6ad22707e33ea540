"""`clear`: removes what a bridge, or an outpost, left on a broker."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from clusterllm_mqtt.cli.reading import reading
from clusterllm_mqtt.cli.status import read_report
from clusterllm_mqtt.config.bridge import bridge_topics
from clusterllm_mqtt.config.outpost import outpost_topics
from clusterllm_mqtt.config.settings import Settings, load_settings
from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.mqtt.messages import ONLINE, clear_message
from clusterllm_mqtt.mqtt.retained import diff, indexed_topics

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from clusterllm_mqtt.mqtt.messages import Message
    from clusterllm_mqtt.mqtt.topics import BridgeTopics, OutpostTopics


def run(args: argparse.Namespace) -> int:
    """Remove every retained topic of a bridge, or of an outpost, that is offline."""
    settings = load_settings(args.file)
    if args.outpost:
        outpost = outpost_topics(settings)
        whose, work = f"outpost {outpost.agent}", partial(_clear_outpost, settings, outpost)
    else:
        bridge = bridge_topics(settings)
        whose, work = f"bridge {bridge.bridge}", partial(_clear_bridge, settings, bridge)
    if not args.yes and not _confirmed(f"remove all retained topics of {whose}?"):
        return 1
    print(f"{whose}: {asyncio.run(work(force=args.force))} topics cleared")
    return 0


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Say so with --yes")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


async def _clear_bridge(settings: Settings, topics: BridgeTopics, *, force: bool) -> int:
    expected = partial(indexed_topics, topics)
    filters = (topics.bridge_discovery, f"{topics.root}/#")
    async with reading(settings, filters, expected) as (session, snapshot):
        held = snapshot.held
        if read_report(topics, held, now=datetime.now(UTC)).is_online and not force:
            raise ConfigError(
                f"bridge {topics.bridge} is online and would publish everything again; "
                "stop it first, or use --force"
            )
        messages = clearing_messages(topics, held)
        await session.publish(*messages)
        return len(messages)


def clearing_messages(topics: BridgeTopics, held: Mapping[str, bytes]) -> list[Message]:
    """What removes a bridge from its broker, Home Assistant's devices first.

    What lies below the bridge's root and no release of ours could have put there goes as well.
    """
    known = dict.fromkeys(held.keys() | indexed_topics(topics, held), b"")
    messages = diff(topics, {}, known)
    last = (topics.status, topics.availability)
    strange = held.keys() - {message.topic for message in messages} - set(last)
    own = [*sorted(strange), *(topic for topic in last if topic in held)]
    return messages + [clear_message(topic) for topic in own]


async def _clear_outpost(settings: Settings, topics: OutpostTopics, *, force: bool) -> int:
    own = (topics.discovery, topics.status, topics.availability)
    async with reading(settings, own, lambda _: frozenset()) as (session, snapshot):
        if snapshot.held.get(topics.availability) == ONLINE and not force:
            raise ConfigError(
                f"outpost {topics.agent} is online and would publish everything again; "
                "stop it first, or use --force"
            )
        messages = [clear_message(topic) for topic in own if topic in snapshot.held]
        await session.publish(*messages)
        return len(messages)
