"""A pushed payload, read and checked as strictly as a registry may; pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.mqtt.records import read_record
from clusterllm_mqtt.outpost.payload import (
    CapacityReport,
    ClusterCapacity,
    RegistryModel,
    combine_hash,
    content_hash,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Push:
    """One push as it was received; `payload` has every field, unknown ones too."""

    agent_name: str
    content_hash: str
    payload: dict[str, Any]


def read_push(body: bytes) -> Push:
    """What a body says.

    Raises:
        RecordError: no JSON object, or a field that is missing, of the wrong type, or not true.
    """
    payload = read_record(body)
    agent_name = _text(payload, "agent_name")
    if not 0 < len(agent_name) <= _MAX_NAME:
        raise RecordError(f"agent_name has 1 to {_MAX_NAME} characters")
    _check_time(payload, "heartbeat_at")
    _read(CapacityReport, "capacity", payload.get("capacity"))
    cluster = None
    if payload.get("cluster") is not None:
        cluster = _read(ClusterCapacity, "cluster", payload["cluster"])
    expected = combine_hash(content_hash(_models(payload)), cluster)
    if _text(payload, "content_hash") != expected:
        raise RecordError("content_hash does not follow from models and cluster")
    return Push(agent_name, expected, payload)


def _models(payload: Mapping[str, Any]) -> list[RegistryModel]:
    rows = payload.get("models", "missing")
    if rows is None:
        return []
    if not isinstance(rows, list):
        raise RecordError("models is a list or null")
    models = [_read(RegistryModel, f"models.{number}", row) for number, row in enumerate(rows)]
    for number, row in enumerate(rows):
        if "modified_at" in row:
            _check_time(row, "modified_at", f"models.{number}.")
    return models


def _read(kind: Any, place: str, row: object) -> Any:  # noqa: ANN401  # one of three dataclasses
    """A row as a value; fields of newer versions are ignored."""
    if not isinstance(row, dict):
        raise RecordError(f"{place} is an object")
    if kind is RegistryModel:
        _text(row, "name", f"{place}.")
    values = {}
    for field in fields(kind):
        if field.name in row:
            values[field.name] = _value(str(field.type), f"{place}.{field.name}", row[field.name])
    return kind(**values)


def _value(type_: str, place: str, value: object) -> object:
    is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if type_.startswith("tuple") and is_texts:
        return tuple(value)  # type: ignore[arg-type]  # it is a list
    if type(value).__name__ != type_:
        raise RecordError(f"{place} is not {type_}")
    return value


def _text(row: Mapping[str, Any], name: str, place: str = "") -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise RecordError(f"{place}{name} is text")
    return value


def _check_time(row: Mapping[str, Any], name: str, place: str = "") -> None:
    try:
        moment = datetime.fromisoformat(_text(row, name, place))
    except ValueError:
        raise RecordError(f"{place}{name} is not RFC 3339") from None
    if moment.tzinfo is None:
        raise RecordError(f"{place}{name} has no time zone")
