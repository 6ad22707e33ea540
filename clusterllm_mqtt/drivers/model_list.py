"""OpenAI-style model lists -> `ModelInfo`s; pure.

Names are what the API calls a model. Sizes come from wherever a server puts them: llama.cpp has
`meta.size`, others `size`, `size_bytes` and the like.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from clusterllm_mqtt.drivers.json_reader import (
    Malformed,
    Number,
    fields,
    plain,
    positive,
    rows,
    trim,
)
from clusterllm_mqtt.models import ModelInfo

_NAME_KEYS: Final = ("id", "name", "model")
_SIZE_KEYS: Final = ("size", "size_bytes", "bytes", "file_size", "disk_size")
_NESTED_KEYS: Final = ("meta", "metadata")
_SPELLED_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = float(2**63)

Row = dict[str, Any]


def model_rows(document: object) -> list[Row]:
    """The rows of a list.

    Raises:
        Malformed: no list of objects in `data`, or a number that fits no double.
    """
    found = rows(fields(document), "data")
    if not all(isinstance(row, dict) for row in found if row is not None):
        raise Malformed("a model is no object")
    if not all(_is_finite(row) for row in found):
        raise Malformed("a number is out of range")
    return [row for row in found if row is not None]


def models_from_rows(found: list[Row]) -> tuple[ModelInfo, ...]:
    """The models in the list's order, duplicates included; rows without a name are skipped."""
    return tuple(ModelInfo(name, _size(row)) for row in found if (name := model_name(row)))


def model_name(row: Row) -> str:
    """What the API calls a model, "" when the row does not say."""
    for key in _NAME_KEYS:
        value = row.get(key)
        if isinstance(value, str) and not isinstance(value, Number) and trim(value):
            return plain(trim(value))
    return ""


def owners(found: list[Row]) -> frozenset[str]:
    """Whom the rows are `owned_by`: what kind of server this is."""
    values = (row.get("owned_by") for row in found)
    return frozenset(v for v in values if isinstance(v, str) and not isinstance(v, Number) and v)


def _size(row: Row) -> int:
    sizes = (_integer(row.get(key)) for key in _SIZE_KEYS)
    nested = (_size(inner) for key in _NESTED_KEYS if isinstance(inner := row.get(key), dict))
    return next((size for group in (sizes, nested) for size in group if size), 0)


def _integer(value: object) -> int:
    if isinstance(value, Number):
        as_float = float(value)
        return int(as_float) if 0 < as_float < _INT64 else 0
    if isinstance(value, str) and _SPELLED_INTEGER.fullmatch(trimmed := trim(value)):
        return positive(trimmed.removeprefix("+").lstrip("0") or "0")
    return 0


def _is_finite(value: object) -> bool:
    """Walked without recursion: how deep a row nests is the sender's choice."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, Number) and not math.isfinite(float(item)):
            return False
    return True
