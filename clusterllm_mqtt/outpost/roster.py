"""Which endpoints run, as far as the retained topics of bridges tell; pure.

An endpoint counts when its bridge is online, names it in its index, and says in its `info` that it
runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.models import Info, State
from clusterllm_mqtt.mqtt.records import info_from_wire, read_index, read_record
from clusterllm_mqtt.mqtt.topics import BridgeTopic
from clusterllm_mqtt.outpost.leases import Leases

if TYPE_CHECKING:
    from collections.abc import Iterator


MAX_BRIDGES: Final = 10_000
"""More would be somebody's flood; then it is not known what runs."""


@dataclass(frozen=True, slots=True)
class Running:
    """An endpoint that counts."""

    bridge: str
    key: str
    info: Info


@dataclass(slots=True)
class _Records:
    """What one bridge retains; None for what cannot be read."""

    has_index: bool = False
    index: frozenset[str] | None = None
    infos: dict[str, Info | None] = field(default_factory=dict)


class Roster:
    """What a broker tells of all bridges; times in monotonic seconds."""

    def __init__(self) -> None:
        self._leases = Leases()
        self._bridges: dict[str, _Records] = {}
        self.is_flooded = False

    def lost(self, now_s: float) -> None:
        """The connection to the broker ended."""
        self._leases.lost(now_s)

    def start_over(self, now_s: float) -> None:
        """A new connection: everything is read anew."""
        self._bridges.clear()
        self.is_flooded = False
        self._leases.start_over(now_s)

    def saw(
        self,
        topic: BridgeTopic,
        payload: bytes,
        now_s: float,
        *,
        is_retained: bool = False,
        expires_in_s: int | None = None,
    ) -> bool:
        """Take in a message; whether something that counts may have changed."""
        if topic.bridge not in self._bridges and len(self._bridges) >= MAX_BRIDGES:
            is_news, self.is_flooded = not self.is_flooded, True
            return is_news
        records = self._bridges.setdefault(topic.bridge, _Records())
        if topic.leaf == "availability":
            return self._leases.heard(
                topic.bridge, payload, now_s, is_retained=is_retained, expires_in_s=expires_in_s
            )
        if topic.leaf == "status":
            before = records.has_index, records.index
            records.has_index, records.index = bool(payload), _index(payload)
            return before != (records.has_index, records.index)
        if not payload:
            return records.infos.pop(topic.key, None) is not None
        is_new = topic.key not in records.infos
        known, records.infos[topic.key] = records.infos.get(topic.key), _info(payload)
        return is_new or known != records.infos[topic.key]

    def running(self, now_s: float) -> tuple[Running, ...] | None:
        """The endpoints that count, by bridge and key; None while not all of them are known."""
        if self.is_flooded or self.awaited(now_s) or self.missing(now_s):
            return None
        if self._has_unreadable_index(now_s):
            return None
        return tuple(
            Running(name, key, info)
            for name, records in self._online(now_s)
            for key in sorted(records.index or ())
            if (info := records.infos[key]) is not None and info.state is State.RUNNING
        )

    @property
    def bridges(self) -> int:
        """How many were heard of."""
        return len(self._bridges)

    def awaited(self, now_s: float) -> tuple[str, ...]:
        """The bridges that have to be heard of again after a lost connection."""
        return self._leases.awaited(now_s)

    def missing(self, now_s: float) -> tuple[BridgeTopic, ...]:
        """What should be retained of the bridges that are online, and has not arrived."""
        return tuple(
            topic
            for name, records in self._online(now_s)
            for topic in sorted(_expected(name, records), key=lambda t: (t.leaf, t.key))
            if not _has(records, topic)
        )

    def unreadable(self, now_s: float) -> tuple[BridgeTopic, ...]:
        """What arrived of the bridges that are online, and is no record.

        An `info` that cannot be read only does not count; without its index nobody knows what a
        bridge has.
        """
        return tuple(
            topic for name, records in self._online(now_s) for topic in _unreadable(name, records)
        )

    def expected(self) -> frozenset[BridgeTopic]:
        """Everything that should be retained of the bridges that were heard of."""
        return frozenset(
            topic for name, records in self._bridges.items() for topic in _expected(name, records)
        )

    def lapses_s(self, now_s: float) -> float:
        """When something changes by itself, if nothing arrives until then."""
        return self._leases.lapses_s(now_s)

    def _has_unreadable_index(self, now_s: float) -> bool:
        return any(records.index is None for _, records in self._online(now_s))

    def _online(self, now_s: float) -> Iterator[tuple[str, _Records]]:
        return ((name, self._bridges[name]) for name in self._leases.online(now_s))


def _expected(name: str, records: _Records) -> Iterator[BridgeTopic]:
    yield BridgeTopic(name, "availability")
    yield BridgeTopic(name, "status")
    for key in records.index or ():
        yield BridgeTopic(name, "info", key)


def _has(records: _Records, topic: BridgeTopic) -> bool:
    """Whether something is retained there; of a bridge that is online, `availability` is."""
    if topic.leaf == "status":
        return records.has_index
    return topic.leaf == "availability" or topic.key in records.infos


def _unreadable(name: str, records: _Records) -> Iterator[BridgeTopic]:
    if records.has_index and records.index is None:
        yield BridgeTopic(name, "status")
    for key in sorted(records.index or ()):
        if records.infos.get(key, ...) is None:
            yield BridgeTopic(name, "info", key)


def _index(payload: bytes) -> frozenset[str] | None:
    try:
        return read_index(payload)
    except RecordError:
        return None


def _info(payload: bytes) -> Info | None:
    try:
        return info_from_wire(read_record(payload))
    except RecordError:
        return None
