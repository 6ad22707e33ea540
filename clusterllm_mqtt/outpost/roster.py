"""Which endpoints run, as far as the retained topics of bridges tell; pure.

An endpoint counts when its bridge is online, names it in its index, and says in its `info` that it
runs. A bridge is online while the last `online` of it is younger than 180 s by our own clock: a
broker that died together with a bridge, and came back, fools nobody for longer. How old a retained
`online` is follows from what is left of its expiry; where it has none (MQTT 3.1.1), reading it once
more does not make it younger.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.models import Info, State
from clusterllm_mqtt.mqtt.messages import ONLINE, ONLINE_EXPIRY_S
from clusterllm_mqtt.mqtt.records import info_from_wire, read_index, read_record
from clusterllm_mqtt.mqtt.topics import BridgeTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

LEASE_S: Final = float(ONLINE_EXPIRY_S)
GRACE_S: Final = 75.0
"""A bridge says `online` every 60 s."""

_LAST_WORDS_S: Final = 2.0
_EXPIRY_GRAIN_S: Final = 1.0
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class Running:
    """An endpoint that counts."""

    bridge: str
    key: str
    info: Info


@dataclass(slots=True)
class _Bridge:
    """What one bridge retains; an `infos` value is None where the record cannot be read."""

    online_s: float = _NEVER
    index: frozenset[str] | None = None
    infos: dict[str, Info | None] = field(default_factory=dict)


class Roster:
    """What a broker tells of all bridges; times in monotonic seconds."""

    def __init__(self) -> None:
        self._bridges: dict[str, _Bridge] = {}
        self._heard_s: dict[str, float] = {}
        self._went_s: dict[str, float] = {}
        self._awaited: dict[str, float] = {}
        self._lost_s = _NEVER

    def lost(self, now_s: float) -> None:
        """The connection to the broker ended.

        One that stops tells the wills of everybody just before, ours not being the only connection
        that it ends.
        """
        last_s = now_s - _LAST_WORDS_S
        went = {name for name, went_s in self._went_s.items() if went_s > last_s}
        self._awaited = dict.fromkeys(self.online(now_s) | went, _NEVER) | self._awaited
        self._lost_s = now_s

    def start_over(self, now_s: float) -> None:
        """A new connection: everything is read anew.

        What this broker retains may be older than what we know, or all gone. So we wait to hear
        from the bridges that were online, for a little longer than they need to say so again.
        """
        self._bridges.clear()
        self._awaited = dict.fromkeys(self._awaited, now_s + GRACE_S)

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
        bridge = self._bridges.setdefault(topic.bridge, _Bridge())
        if topic.leaf == "availability":
            said_s = _NEVER
            if payload == ONLINE:
                known_s = self._heard_s.get(topic.bridge, now_s) if is_retained else now_s
                said_s = _said_s(known_s, now_s, expires_in_s)
            return self._heard(topic.bridge, said_s, now_s)
        if topic.leaf == "status":
            before, bridge.index = bridge.index, _index(payload)
            return before != bridge.index
        if not payload:
            return bridge.infos.pop(topic.key, None) is not None
        is_new = topic.key not in bridge.infos
        known, bridge.infos[topic.key] = bridge.infos.get(topic.key), _info(payload)
        return is_new or known != bridge.infos[topic.key]

    def _heard(self, name: str, said_s: float, now_s: float) -> bool:
        bridge = self._bridges[name]
        was_online = _is_online(bridge, now_s)
        bridge.online_s = said_s
        if said_s != _NEVER:
            self._heard_s[name] = said_s
        elif self._heard_s.pop(name, None) is not None:
            self._went_s[name] = now_s
        is_news = said_s == _NEVER or said_s >= self._lost_s - _EXPIRY_GRAIN_S
        was_awaited = is_news and self._awaited.pop(name, None) is not None
        return was_awaited or was_online != _is_online(bridge, now_s)

    def online(self, now_s: float) -> frozenset[str]:
        """The bridges that count."""
        return frozenset(name for name, b in self._bridges.items() if _is_online(b, now_s))

    def running(self, now_s: float) -> tuple[Running, ...]:
        """The endpoints that count, by bridge and key."""
        return tuple(
            Running(name, key, info)
            for name, bridge in sorted(self._online(now_s))
            for key in sorted(bridge.index or ())
            if (info := bridge.infos.get(key)) is not None and info.state is State.RUNNING
        )

    def expected(self) -> frozenset[BridgeTopic]:
        """Everything that should be retained of the bridges that were heard of."""
        return frozenset(
            topic for name, bridge in self._bridges.items() for topic in _expected(name, bridge)
        )

    def missing(self, now_s: float) -> tuple[BridgeTopic, ...]:
        """What has to arrive before the running endpoints are all of them."""
        awaited = [BridgeTopic(b, "availability") for b, s in self._awaited.items() if s > now_s]
        gaps = [
            topic
            for name, bridge in self._online(now_s)
            for topic in _expected(name, bridge)
            if not _has(bridge, topic)
        ]
        return (*awaited, *sorted(gaps, key=lambda t: (t.bridge, t.key)))

    def unreadable(self, now_s: float) -> tuple[BridgeTopic, ...]:
        """The `info` topics of online bridges whose records are none; they do not count."""
        return tuple(
            BridgeTopic(name, "info", key)
            for name, bridge in sorted(self._online(now_s))
            for key in sorted(bridge.index or ())
            if key in bridge.infos and bridge.infos[key] is None
        )

    def lapses_s(self, now_s: float) -> float:
        """When something changes by itself, if nothing arrives until then."""
        leases = [bridge.online_s + LEASE_S for _, bridge in self._online(now_s)]
        waits = [until_s for until_s in self._awaited.values() if until_s > now_s]
        return min([*leases, *waits], default=now_s + LEASE_S)

    def _online(self, now_s: float) -> Iterator[tuple[str, _Bridge]]:
        return ((name, b) for name, b in self._bridges.items() if _is_online(b, now_s))


def _said_s(known_s: float, now_s: float, expires_in_s: int | None) -> float:
    """When an `online` was said; `known_s` is what we would think without its expiry."""
    return known_s if expires_in_s is None else now_s - max(LEASE_S - expires_in_s, 0.0)


def _is_online(bridge: _Bridge, now_s: float) -> bool:
    return now_s - bridge.online_s < LEASE_S


def _expected(name: str, bridge: _Bridge) -> Iterator[BridgeTopic]:
    yield BridgeTopic(name, "availability")
    yield BridgeTopic(name, "status")
    for key in bridge.index or ():
        yield BridgeTopic(name, "info", key)


def _has(bridge: _Bridge, topic: BridgeTopic) -> bool:
    """Whether something was retained there; `availability` is, for a bridge that is online."""
    if topic.leaf == "status":
        return bridge.index is not None
    return topic.leaf == "availability" or topic.key in bridge.infos


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
