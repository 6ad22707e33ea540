"""Retained payloads, read back; pure.

Whoever may publish to the broker is a stranger: sizes, types and values are checked here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.models import MAX_BYTES, Info, ModelInfo, Source, State
from clusterllm_mqtt.mqtt.topics import KEY_PATTERN

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PAYLOAD: Final = 2**20
"""Larger records, in bytes, are not read back."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """An endpoint as an earlier life of the bridge left it on the broker."""

    name: str
    identity: str
    source: Source
    state_since: datetime
    info: Info


def read_record(payload: bytes) -> dict[str, Any]:
    """A JSON object from the broker.

    Raises:
        RecordError: it is larger than `MAX_PAYLOAD`, no UTF-8, no JSON, or no object.
    """
    if len(payload) > MAX_PAYLOAD:
        raise RecordError(f"{len(payload)} bytes are more than {MAX_PAYLOAD}")
    try:
        record = json.loads(payload.decode(), parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise RecordError("not JSON") from None
    if not isinstance(record, dict):
        raise RecordError("not a JSON object")
    return record


def _no_constant(name: str) -> NoReturn:
    """Python's reader takes NaN and Infinity for JSON; nobody else's does."""
    raise ValueError(name)


def _finite(spelled: str) -> float:
    value = float(spelled)
    return value if math.isfinite(value) else _no_constant(spelled)


def read_index(payload: bytes) -> frozenset[str]:
    """The keys that a bridge's status names; none can become a wildcard or another's topic.

    Raises:
        RecordError: the payload is no status record.
    """
    keys = read_record(payload).get("endpoints")
    if not isinstance(keys, list) or not all(map(_is_key, keys)):
        raise RecordError("endpoints is a list of keys")
    return frozenset(keys)


def _is_key(value: object) -> bool:
    return isinstance(value, str) and KEY_PATTERN.fullmatch(value) is not None


def read_recalled(info_payload: bytes, probe_payload: bytes) -> Recalled:
    """What an earlier life published about an endpoint.

    Raises:
        RecordError: a field is missing or has the wrong type.
    """
    probe = read_record(probe_payload)
    name, identity = probe.get("name"), probe.get("identity")
    if not isinstance(name, str) or not isinstance(identity, str):
        raise RecordError("name and identity are text")
    try:
        source = Source(probe.get("source", ""))
        state_since = datetime.fromisoformat(probe.get("state_since", ""))
        if state_since.tzinfo is None:
            raise RecordError("state_since has no time zone")
        state_since = state_since.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise RecordError("source or state_since is not what it should be") from None
    return Recalled(name, identity, source, state_since, info_from_wire(read_record(info_payload)))


def info_from_wire(record: object) -> Info:
    """Read a record back; fields of newer versions are ignored, counts saturate at `MAX_BYTES`.

    Raises:
        RecordError: it is no object, has no known `state`, or a field has the wrong type.
    """
    if not isinstance(record, dict):
        raise RecordError("an info record is a JSON object")
    try:
        state = State(record.get("state", ""))
    except (TypeError, ValueError):
        raise RecordError(f"unknown state {str(record.get('state'))[:40]!r}") from None
    rows = record.get("models", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RecordError("models is a list of objects")
    return Info(
        state=state,
        backend=_text(record, "backend"),
        endpoint=_text(record, "endpoint"),
        version=_text(record, "version"),
        member_count=_count(record, "member_count"),
        aggregate_vram_bytes=_count(record, "aggregate_vram_bytes"),
        models=tuple(ModelInfo(_text(row, "name"), _count(row, "size")) for row in rows),
    )


def _text(record: Mapping[str, object], name: str) -> str:
    value = record.get(name, "")
    if not isinstance(value, str):
        raise RecordError(f"{name} is text")
    return value


def _count(record: Mapping[str, object], name: str) -> int:
    value = record.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RecordError(f"{name} is an integer of at least 0")
    return min(value, MAX_BYTES)
