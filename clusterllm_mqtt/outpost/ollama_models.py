"""What Ollama answers to `/api/tags` and `/api/show` -> the models of this machine; pure.

Rows have a digest and sizes in every release, `details` since 0.1.15, `remote_host` for what the
cloud serves since 0.12.0, `capabilities` and a context length since 0.30.0. Until then only a show
tells those two: the context length since 0.1.45, the capabilities since 0.6.4.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.models import MAX_BYTES
from clusterllm_mqtt.outpost.payload import RegistryModel
from clusterllm_mqtt.text import WHITE_SPACE

MAX_MODELS: Final = 2000
MAX_TEXT: Final = 512
"""In characters; a name or a field that is longer is left out."""

MAX_TEXTS: Final = 32
_DIGITS: Final = 19
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Details:
    """What is told about a model; `context_length` in tokens; "", () and 0 are unknown."""

    family: str = ""
    parameter_size: str = ""
    quantization: str = ""
    capabilities: tuple[str, ...] = ()
    context_length: int = 0


@dataclass(frozen=True, slots=True)
class Tag:
    """A row of the list; `size` in bytes, `modified_at` as it was told.

    `is_remote`: it only stands for a model that another machine serves, mostly Ollama's cloud.
    """

    name: str
    digest: str = ""
    size: int = 0
    modified_at: str = ""
    details: Details = Details()
    is_remote: bool = False

    @property
    def is_showable(self) -> bool:
        """Whether this Ollama answers a show by itself, once and for all.

        Since 0.18.0 it forwards one for a name that ends in `:cloud` or `-cloud` to its cloud.
        Without a digest nobody knows when the answer is outdated.
        """
        _, colon, label = self.name.rpartition(":")
        is_cloud = bool(colon) and f"-{label.strip().lower()}".endswith("-cloud")
        return bool(self.digest) and not self.is_remote and not is_cloud


def read_tags(body: bytes) -> tuple[Tag, ...]:
    """The list, at most `MAX_MODELS` rows of it; of a name that comes twice the first counts.

    A row without a usable name is left out, and so is a field of the wrong type.

    Raises:
        RecordError: it is no JSON object with a list `models`; `null` is an empty one.
    """
    record = _read_object(body)
    rows = record.get("models", ...)
    if rows is None:  # so Ollama said "none" up to 0.1.13
        rows = []
    if not isinstance(rows, list):
        raise RecordError("not a list of models")
    tags: dict[str, Tag] = {}
    for row in rows:
        if len(tags) == MAX_MODELS:
            break
        tag = _tag(row)
        if tag is not None:
            tags.setdefault(tag.name, tag)
    return tuple(tags.values())


def read_show(body: bytes) -> Details:
    """What a show tells; a field of the wrong type is left out.

    Raises:
        RecordError: it is no JSON object.
    """
    record = _read_object(body)
    info = _object(record, "model_info")
    architecture = _text(info, "general.architecture")
    return _details(
        _object(record, "details"),
        capabilities=_texts(record, "capabilities"),
        context_length=_count(info, f"{architecture}.context_length"),
        architecture=architecture,
    )


def registry_model(tag: Tag, details: Details | None) -> RegistryModel:
    """A row, and what a show of it told where the row tells nothing.

    The row comes first: it is read anew each time, and a newer Ollama may know more about the same
    digest than the one that was asked for it.
    """
    told, shown = tag.details, details or Details()
    return RegistryModel(
        name=tag.name,
        digest=tag.digest,
        size=tag.size,
        modified_at=tag.modified_at,
        family=told.family or shown.family,
        parameter_size=told.parameter_size or shown.parameter_size,
        quantization=told.quantization or shown.quantization,
        capabilities=told.capabilities or shown.capabilities,
        context_length=told.context_length or shown.context_length,
    )


def _tag(row: object) -> Tag | None:
    if not isinstance(row, dict):
        return None
    name = _text(row, "name") or _text(row, "model")
    if not name.strip(WHITE_SPACE):
        return None
    details = _object(row, "details")
    return Tag(
        name=name,
        digest=_text(row, "digest"),
        size=_count(row, "size"),
        modified_at=_text(row, "modified_at"),
        details=_details(
            details,
            capabilities=_texts(row, "capabilities"),
            context_length=_count(details, "context_length"),
        ),
        is_remote=bool(row.get("remote_host") or row.get("remote_model")),
    )


def _details(
    found: dict[str, Any],
    *,
    capabilities: tuple[str, ...],
    context_length: int,
    architecture: str = "",
) -> Details:
    families = _texts(found, "families")
    quantization = _text(found, "quantization_level")
    return Details(
        family=_text(found, "family") or (families[0] if families else architecture),
        parameter_size=_text(found, "parameter_size"),
        quantization="" if quantization == "unknown" else quantization,
        capabilities=capabilities,
        context_length=context_length,
    )


def _read_object(body: bytes) -> dict[str, Any]:
    """A JSON object; invalid UTF-8 becomes U+FFFD."""
    try:
        text = body.decode("utf-8", "replace")
        record = json.loads(text, parse_constant=_no_constant, parse_int=_integer)
    except (ValueError, RecursionError):
        raise RecordError("not JSON") from None
    if not isinstance(record, dict):
        raise RecordError("not a JSON object")
    return record


def _no_constant(name: str) -> NoReturn:
    """Python's reader takes NaN and Infinity for JSON; nobody else's does."""
    raise ValueError(name)


def _integer(spelled: str) -> int:
    """Bounded: Python refuses the whole document for one integer of more than 4,300 digits."""
    if len(spelled) > _DIGITS:
        return -1 if spelled.startswith("-") else MAX_BYTES
    return int(spelled)


def _object(found: dict[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def _text(found: dict[str, Any], name: str) -> str:
    return _short(found.get(name))


def _texts(found: dict[str, Any], name: str) -> tuple[str, ...]:
    """The texts of a list, each once."""
    value = found.get(name)
    texts = filter(None, map(_short, value)) if isinstance(value, list) else ()
    return tuple(dict.fromkeys(texts))[:MAX_TEXTS]


def _short(value: object) -> str:
    """Text that can be encoded, "" for what is none, or too long to be what it should be."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return ""
    return _SURROGATES.sub("\ufffd", value)


def _count(found: dict[str, Any], name: str) -> int:
    """An integer from 0 to `MAX_BYTES`; 0 for everything that is none."""
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return min(max(value, 0), MAX_BYTES)
