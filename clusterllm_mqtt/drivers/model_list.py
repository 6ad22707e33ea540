"""OpenAI-style model lists -> what they name; pure.

Names are what the API calls a model. Sizes come from wherever a server puts them: llama.cpp has
`meta.size`, others `size`, `size_bytes` and the like. A llama.cpp router adds a `status`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import islice, pairwise
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

MAX_MODELS: Final = 4096
"""More of a list are not kept: it may be a stranger's."""

_NAME_KEYS: Final = ("id", "name", "model")
_SIZE_KEYS: Final = ("size", "size_bytes", "bytes", "file_size", "disk_size")
_NESTED_KEYS: Final = ("meta", "metadata")
_MAX_NESTING: Final = 16
_SPELLED_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = float(2**63)
_RPC: Final = "--rpc"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Served:
    """A model of a list.

    `owner` is `owned_by`: what kind of server this is. A router's `state` is its word for it
    (`loaded`, `unloaded`, ...); `workers` are the RPC workers that its command line names.
    """

    model: ModelInfo
    owner: str = ""
    state: str = ""
    workers: tuple[str, ...] = ()


def served_models(document: object) -> tuple[Served, ...]:
    """The models in the list's order, duplicates included; rows without a name are skipped.

    Raises:
        Malformed: no list of objects in `data`, or a number that fits no double.
    """
    found = [row for row in rows(fields(document), "data") if row is not None]
    if not all(isinstance(row, dict) for row in found):
        raise Malformed("a model is no object")
    if not _is_finite(found):
        raise Malformed("a number is out of range")
    return tuple(_served(row, name) for row, name in islice(_named(found), MAX_MODELS))


def _named(found: list[Row]) -> list[tuple[Row, str]]:
    return [(row, name) for row in found if (name := model_name(row))]


def _served(row: Row, name: str) -> Served:
    status = row.get("status")
    status = status if isinstance(status, dict) else {}
    return Served(
        ModelInfo(name, _size(row)),
        owner=_text(row, "owned_by"),
        state=_text(status, "value"),
        workers=_rpc_workers(status.get("args")),
    )


def model_name(row: Row) -> str:
    """What the API calls a model, "" when the row does not say."""
    return next((name for key in _NAME_KEYS if (name := _text(row, key))), "")


def _text(row: Row, key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or isinstance(value, Number):
        return ""
    return plain(trim(value))


def _rpc_workers(args: object) -> tuple[str, ...]:
    """The addresses behind `--rpc` in a child's command line (seen in b11434)."""
    words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
    lists = [after for word, after in pairwise(words) if word == _RPC]
    return tuple(address for found in lists for address in found.split(",") if address)


def _size(row: Row, depth: int = 0) -> int:
    sizes = [_integer(row.get(key)) for key in _SIZE_KEYS]
    if depth < _MAX_NESTING:
        nested = (row.get(key) for key in _NESTED_KEYS)
        sizes += [_size(inner, depth + 1) for inner in nested if isinstance(inner, dict)]
    return next((size for size in sizes if size), 0)


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
