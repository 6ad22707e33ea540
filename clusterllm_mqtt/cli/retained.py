"""`status` and `clear`: what a broker holds for a bridge."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from clusterllm_mqtt.cli.render import Row, endpoint_table
from clusterllm_mqtt.config import Settings, load_settings
from clusterllm_mqtt.config_values import bridge_topics, broker_options
from clusterllm_mqtt.errors import BrokerUnavailableError, ConfigError, RecordError
from clusterllm_mqtt.models import State
from clusterllm_mqtt.mqtt.broker import HOST
from clusterllm_mqtt.mqtt.events import Connected, Received
from clusterllm_mqtt.mqtt.messages import ONLINE, clear_message
from clusterllm_mqtt.mqtt.records import read_recalled, read_record
from clusterllm_mqtt.mqtt.retained import indexed_topics
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.snapshot import Snapshot

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Mapping

    from clusterllm_mqtt.mqtt.topics import BridgeTopics

CONNECT_TIMEOUT_S: Final = 10.0


def status(args: argparse.Namespace) -> int:
    """Print a table, trouble first; 1 when the bridge or an endpoint is down."""
    settings = load_settings(args.file)
    topics = bridge_topics(settings)
    held = asyncio.run(_read(settings, topics))
    is_online = held.get(topics.availability) == ONLINE
    rows = status_rows(topics, held, now=datetime.now(UTC))
    if args.json:
        print(json.dumps(_records(topics, held, is_online=is_online), ensure_ascii=False))
    else:
        _print_status(topics, rows, is_online=is_online)
    return 0 if is_online and all(row.info.state is State.RUNNING for row in rows) else 1


def _print_status(topics: BridgeTopics, rows: list[Row], *, is_online: bool) -> None:
    from rich.console import Console  # noqa: PLC0415  # 6 MB that --json need not pay

    console = Console()
    console.print(f"bridge {topics.bridge}: {'online' if is_online else 'offline'}")
    console.print(endpoint_table(rows, age="For") if rows else "no endpoints")


def status_rows(topics: BridgeTopics, held: Mapping[str, bytes], *, now: datetime) -> list[Row]:
    """The endpoints among retained topics; unreadable records are left out."""
    rows = []
    for topic, payload in held.items():
        parsed = topics.parse_endpoint(topic)
        if parsed is None or parsed.leaf != "info":
            continue
        probe = held.get(topics.probe(parsed.key), b"")
        try:
            known = read_recalled(payload, probe)
            reason = read_record(probe).get("reason")
        except RecordError:
            continue
        age_s = (now - known.state_since).total_seconds()
        rows.append(Row(known.name, known.info, str(reason) if reason else None, age_s))
    return rows


def _records(topics: BridgeTopics, held: Mapping[str, bytes], *, is_online: bool) -> dict[str, Any]:
    """All records of a bridge as one document."""
    endpoints: dict[str, dict[str, Any]] = {}
    for topic, payload in sorted(held.items()):
        parsed = topics.parse_endpoint(topic)
        if parsed is not None:
            endpoints.setdefault(parsed.key, {})[parsed.leaf] = json.loads(payload)
    status_record = json.loads(held.get(topics.status, b"null"))
    return {
        "bridge": topics.bridge,
        "online": is_online,
        "status": status_record,
        "endpoints": endpoints,
    }


def clear(args: argparse.Namespace) -> int:
    """Remove every retained topic of a bridge that is offline."""
    settings = load_settings(args.file)
    topics = bridge_topics(settings)
    if not args.yes and not _confirmed(f"remove all retained topics of bridge {topics.bridge}?"):
        return 1
    count = asyncio.run(_clear(settings, topics, force=args.force))
    print(f"bridge {topics.bridge}: {count} topics cleared")
    return 0


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Say so with --yes")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


async def _clear(settings: Settings, topics: BridgeTopics, *, force: bool) -> int:
    async with _snapshot(settings, topics) as (session, snapshot):
        held = snapshot.held
        if held.get(topics.availability) == ONLINE and not force:
            raise ConfigError(
                f"bridge {topics.bridge} is online and would publish everything again; "
                "stop it first, or use --force"
            )
        keys = {p.key for topic in held if (p := topics.parse_endpoint(topic)) is not None}
        discovery = [topics.discovery(key) for key in sorted(keys)] if keys else []
        own = [*discovery, *sorted(held), *([topics.bridge_discovery] if held else [])]
        await session.publish(*(clear_message(topic) for topic in own))
        return len(own)


async def _read(settings: Settings, topics: BridgeTopics) -> dict[str, bytes]:
    async with _snapshot(settings, topics) as (_, snapshot):
        return snapshot.held


@asynccontextmanager
async def _snapshot(
    settings: Settings, topics: BridgeTopics
) -> AsyncIterator[tuple[Session, Snapshot]]:
    """Everything that a broker retains for a bridge, and the session to act on it.

    Raises:
        BrokerError: the broker refuses us, or cannot be reached within 10 s.
    """
    options = broker_options(settings.mqtt)
    options = replace(options, host=options.host or HOST)
    snapshot = Snapshot(topics.own_filters(), partial(indexed_topics, topics))
    async with Session(options, client_id=f"clusterllm-cli-{uuid.uuid4().hex[:12]}") as session:
        events = session.events()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                while not isinstance(await anext(events), Connected):
                    pass
        except TimeoutError:
            raise BrokerUnavailableError(f"{options}: no connection; is the broker up?") from None
        feeding = asyncio.create_task(_feed(events, snapshot), name="feed snapshot")
        try:
            await snapshot.read(session)
            yield session, snapshot
        finally:
            feeding.cancel()


async def _feed(events: AsyncIterator[object], snapshot: Snapshot) -> None:
    async for event in events:
        if isinstance(event, Received):
            snapshot.saw(event.topic, event.payload)
