"""What goes over the wire; pure.

JSON is compact and in a fixed order, so that equal states are equal bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from clusterllm_mqtt.models import (
    MAX_BYTES,
    EndpointState,
    Info,
    MdnsHealth,
    State,
    Transition,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterllm_mqtt.mqtt.topics import BridgeTopics, OutpostTopics

ONLINE: Final = b"online"
OFFLINE: Final = b"offline"
ONLINE_EXPIRY_S: Final = 180


@dataclass(frozen=True, slots=True)
class Message:
    """One MQTT message; an empty retained payload clears the topic.

    `expiry_s` is MQTT 5's message expiry in seconds; a 3.1.1 connection leaves it out.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True
    expiry_s: int | None = None


@dataclass(frozen=True, slots=True)
class BridgeFacts:
    """What a bridge tells of itself, beside its endpoints."""

    version: str
    started_at: datetime
    mdns: MdnsHealth
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class OutpostFacts:
    """What an outpost tells of itself; figures are those of the last successful push.

    `cloudbox` is host and port of the registry, `reason` a word and `last_error` a sentence for
    what is wrong now, both empty when nothing is.
    """

    version: str
    started_at: datetime
    cloudbox: str
    pushes: int = 0
    last_push_at: datetime | None = None
    models: int = 0
    member_count: int = 0
    max_model_bytes: int = 0
    reason: str = ""
    last_error: str = ""


class _Speaker(Protocol):
    """Whoever says that it lives."""

    @property
    def availability(self) -> str:
        """The topic."""
        ...


def encode(value: object) -> bytes:
    """JSON as UTF-8; what cannot be encoded becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def timestamp(moment: datetime) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clear_message(topic: str) -> Message:
    """Remove what is retained on a topic."""
    return Message(topic, b"")


def availability_message(topics: _Speaker, *, online: bool) -> Message:
    """Birth, heartbeat and (offline) will: same topic, same QoS, same retain."""
    if online:
        return Message(topics.availability, ONLINE, expiry_s=ONLINE_EXPIRY_S)
    return Message(topics.availability, OFFLINE)


def info_message(topics: BridgeTopics, state: EndpointState) -> Message:
    """The `Info` record, nothing else: what outposts read."""
    return Message(topics.info(state.endpoint.key), encode(state.info.to_wire()))


def probe_message(topics: BridgeTopics, state: EndpointState) -> Message:
    """The facts of a probe, and what is needed to know the endpoint again after a restart."""
    endpoint = state.endpoint
    record = {
        "probed_at": timestamp(state.probed_at),
        "duration_ms": round(state.duration_s * 1000),
        "reason": state.reason,
        "source": endpoint.source,
        "name": endpoint.name,
        "identity": endpoint.identity,
        "state_since": timestamp(state.state_since),
    }
    return Message(topics.probe(endpoint.key), encode(record), qos=0)


def event_message(topics: BridgeTopics, transition: Transition) -> Message:
    """A live transition; never retained, so that it is told once."""
    record = {
        "event_type": transition.event_type,
        "old": transition.old,
        "new": transition.new,
    }
    return Message(topics.event(transition.key), encode(record), retain=False)


def status_message(
    topics: BridgeTopics, facts: BridgeFacts, states: Sequence[EndpointState]
) -> Message:
    """The bridge's own record; `endpoints` is the index that readers check completeness against."""
    running = [s.info for s in states if s.info.state is State.RUNNING]
    record = {
        "version": facts.version,
        "started_at": timestamp(facts.started_at),
        "state": _bridge_state(states, running),
        "endpoints": sorted(s.endpoint.key for s in states),
        "counts": {
            "endpoints": len(states),
            "running": len(running),
            "not_reachable": len(states) - len(running),
            "members": sum(info.member_count for info in running),
            "models": len({model.name for info in running for model in info.models}),
        },
        "aggregate_vram_bytes": min(sum(i.aggregate_vram_bytes for i in running), MAX_BYTES),
        "mdns": {
            "state": facts.mdns.state,
            "services": facts.mdns.services,
            "detail": facts.mdns.detail,
        },
        "last_error": facts.last_error or None,
    }
    return Message(topics.status, encode(record))


def outpost_status_message(topics: OutpostTopics, facts: OutpostFacts) -> Message:
    """An outpost's own record."""
    record = {
        "version": facts.version,
        "started_at": timestamp(facts.started_at),
        "cloudbox": facts.cloudbox,
        "pushes": facts.pushes,
        "last_push_at": timestamp(facts.last_push_at) if facts.last_push_at else None,
        "models": facts.models,
        "member_count": facts.member_count,
        "max_model_bytes": facts.max_model_bytes,
        "reason": facts.reason or None,
        "last_error": facts.last_error or None,
    }
    return Message(topics.status, encode(record))


def _bridge_state(states: Sequence[EndpointState], running: Sequence[Info]) -> State:
    if not states:
        return State.UNCONFIGURED
    return State.RUNNING if running else State.NOT_REACHABLE
