"""`status`: what a broker holds for a bridge."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from clusterllm_mqtt.cli.figures import ago
from clusterllm_mqtt.cli.reading import reading
from clusterllm_mqtt.cli.render import Row, endpoint_table
from clusterllm_mqtt.cli.streams import say
from clusterllm_mqtt.config.bridge import bridge_topics
from clusterllm_mqtt.config.settings import Settings, load_settings
from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.models import State
from clusterllm_mqtt.mqtt.messages import ONLINE
from clusterllm_mqtt.mqtt.records import info_from_wire, read_recalled, read_record
from clusterllm_mqtt.mqtt.retained import indexed_topics
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from clusterllm_mqtt.mqtt.topics import BridgeTopics

SILENT_S: Final = 900.0
_PIPE_WIDTH: Final = 160


@dataclass(frozen=True, slots=True)
class Report:
    """What a broker holds for a bridge; `unreadable` are keys without a usable record.

    `silent_s` is how long ago the latest probe facts were made. They are published every few
    minutes, so a retained `online` beside old ones is left from a bridge that died with its broker.
    """

    says_online: bool
    rows: tuple[Row, ...]
    unreadable: tuple[str, ...]
    silent_s: float = 0.0

    @property
    def is_online(self) -> bool:
        """Whether the bridge says that it lives, and shows it."""
        return self.says_online and self.silent_s < SILENT_S

    @property
    def is_fine(self) -> bool:
        """Whether the bridge lives and everything that it knows runs."""
        all_run = all(row.info.state is State.RUNNING for row in self.rows)
        return self.is_online and all_run and not self.unreadable


def run(args: argparse.Namespace) -> int:
    """Print a table, trouble first; 1 when the bridge or an endpoint is down."""
    settings = load_settings(args.file)
    topics = bridge_topics(settings)
    held = asyncio.run(_read(settings, topics))
    report = read_report(topics, held, now=datetime.now(UTC))
    if args.json:
        print(json.dumps(_records(topics, held, is_online=report.is_online)))
    else:
        _print_report(topics, report)
    return 0 if report.is_fine else 1


def _print_report(topics: BridgeTopics, report: Report) -> None:
    from rich.console import Console  # noqa: PLC0415  # 6 MB that --json need not pay

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)
    console.print(f"bridge {topics.bridge}: {'online' if report.is_online else 'offline'}")
    if report.says_online and not report.is_online:
        console.print(f"it says online, but its last sign of life is {ago(report.silent_s)} old")
    console.print(endpoint_table(report.rows, age="For") if report.rows else "no endpoints")
    for key in report.unreadable:
        say(f"{clean(key, 80)}: its record is missing or unreadable; restart the bridge")


def read_report(topics: BridgeTopics, held: Mapping[str, bytes], *, now: datetime) -> Report:
    """The endpoints among retained topics, and those that the bridge's index promises."""
    rows, unreadable = [], []
    for key in sorted(_keys(topics, held)):
        try:
            rows.append(_row(topics, key, held, now))
        except RecordError:
            unreadable.append(key)
    says_online = held.get(topics.availability) == ONLINE
    return Report(says_online, tuple(rows), tuple(unreadable), _silent_s(topics, held, now))


def _silent_s(topics: BridgeTopics, held: Mapping[str, bytes], now: datetime) -> float:
    """How old the latest probe facts are; 0 when there are none to tell."""
    ages = []
    for topic, payload in held.items():
        parsed = topics.parse_endpoint(topic)
        if parsed is not None and parsed.leaf == "probe":
            with contextlib.suppress(RecordError, TypeError, ValueError):
                probed_at = datetime.fromisoformat(read_record(payload).get("probed_at", ""))
                ages.append((now - probed_at).total_seconds())
    return min(ages, default=0.0)


def _keys(topics: BridgeTopics, held: Mapping[str, bytes]) -> set[str]:
    topics_known = held.keys() | indexed_topics(topics, held)
    return {p.key for topic in topics_known if (p := topics.parse_endpoint(topic)) is not None}


def _row(topics: BridgeTopics, key: str, held: Mapping[str, bytes], now: datetime) -> Row:
    """Raises `RecordError` when the info record is none; probe facts may be missing."""
    payload, probe = held.get(topics.info(key), b""), held.get(topics.probe(key), b"")
    info = info_from_wire(read_record(payload))
    try:
        known = read_recalled(payload, probe)
    except RecordError:
        return Row(key, info.backend, info)
    reason = read_record(probe).get("reason")
    age_s = (now - known.state_since).total_seconds()
    return Row(known.name, info.backend, info, str(reason) if reason else None, age_s)


def _records(topics: BridgeTopics, held: Mapping[str, bytes], *, is_online: bool) -> dict[str, Any]:
    """All records of a bridge as one document."""
    endpoints: dict[str, dict[str, Any]] = {}
    for topic, payload in sorted(held.items()):
        parsed = topics.parse_endpoint(topic)
        if parsed is not None:
            endpoints.setdefault(parsed.key, {})[parsed.leaf] = _record_or_none(payload)
    return {
        "bridge": topics.bridge,
        "online": is_online,
        "status": _record_or_none(held.get(topics.status, b"")),
        "endpoints": endpoints,
    }


def _record_or_none(payload: bytes) -> dict[str, Any] | None:
    try:
        return read_record(payload)
    except RecordError:
        return None


async def _read(settings: Settings, topics: BridgeTopics) -> dict[str, bytes]:
    expected = partial(indexed_topics, topics)
    async with reading(settings, topics.own_filters(), expected) as (_, snapshot):
        return snapshot.held
