"""What an outpost pushes to a registry: the models, the cluster, and their hashes; pure.

The receiver compares hashes that programs in other languages compute, so each byte of the hashed
text counts: field order, omitted fields, escapes, and the sorting by code point.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from clusterllm_mqtt.text import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_RFC_3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII
)
_ZERO_TIME: Final = "0001-01-01T00:00:00Z"
_ESCAPES: Final = str.maketrans(
    {c: f"\\u{ord(c):04x}" for c in ("<", ">", "&", "\u2028", "\u2029")}
)


@dataclass(frozen=True, slots=True)
class RegistryModel:
    """A model that this home serves; `size` in bytes, `context_length` in tokens, 0 = unknown.

    `modified_at` is RFC 3339 text; it is told, but does not enter the hash.
    """

    name: str
    digest: str = ""
    size: int = 0
    modified_at: str = ""
    family: str = ""
    parameter_size: str = ""
    quantization: str = ""
    capabilities: tuple[str, ...] = ()
    context_length: int = 0

    def __post_init__(self) -> None:
        """Lone surrogates are replaced from the start, so that equal texts have equal hashes."""
        for name in ("name", "digest", "family", "parameter_size", "quantization"):
            object.__setattr__(self, name, _whole(getattr(self, name)))
        object.__setattr__(self, "capabilities", tuple(map(_whole, self.capabilities)))

    def _fields(self, *, is_hashed: bool) -> dict[str, Any]:
        capabilities = sorted(self.capabilities) if is_hashed else self.capabilities
        return {
            "name": self.name,
            **_filled(
                digest=self.digest,
                size=self.size,
                modified_at="" if is_hashed else _time(self.modified_at),
                family=self.family,
                parameter_size=self.parameter_size,
                quantization=self.quantization,
                capabilities=capabilities,
                context_length=self.context_length,
            ),
        }


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    """The one cluster of a push; `max_model_bytes` is its memory, 0 = unknown."""

    max_model_bytes: int = 0
    member_count: int = 0
    backend: str = ""

    def __post_init__(self) -> None:
        """See `RegistryModel`."""
        object.__setattr__(self, "backend", _whole(self.backend))

    def _fields(self) -> dict[str, Any]:
        return _filled(
            max_model_bytes=self.max_model_bytes,
            member_count=self.member_count,
            backend=self.backend,
        )


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """How much this home takes at once; an outpost knows the first two at most."""

    max_parallel: int = 4
    in_flight: int = 0
    version: int = 0
    queued: int = 0
    loaded_models: tuple[str, ...] = ()
    swapping: bool = False
    num_loaded_max: int = 0
    keep_alive_s: int = 0
    max_queue: int = 0
    instance_id: str = ""

    def _fields(self) -> dict[str, Any]:
        return {
            **_filled(version=self.version),
            "max_parallel": self.max_parallel,
            "in_flight": self.in_flight,
            **_filled(
                queued=self.queued,
                loaded_models=self.loaded_models,
                swapping=self.swapping,
                num_loaded_max=self.num_loaded_max,
                keep_alive_s=self.keep_alive_s,
                max_queue=self.max_queue,
                instance_id=self.instance_id,
            ),
        }


@dataclass(frozen=True, slots=True)
class RegistryPushPayload:
    """One push: all that the registry holds of this agent is replaced by it.

    `content_hash` follows from models and cluster, and lets the receiver skip work. `models` may be
    None, which the receiver reads as an empty list.
    """

    agent_name: str
    heartbeat_at: datetime
    models: tuple[RegistryModel, ...] | None = ()
    cluster: ClusterCapacity | None = None
    version: str = ""
    capacity: CapacityReport = field(default_factory=CapacityReport)
    lan_endpoint: str = ""
    warm_budget_bytes: int = 0
    busy: bool = False
    content_hash: str = field(init=False)

    def __post_init__(self) -> None:
        """Compute the hash, once."""
        combined = combine_hash(content_hash(self.models), self.cluster)
        object.__setattr__(self, "content_hash", combined)

    def to_json(self) -> bytes:
        """The body of the POST."""
        models = self.models
        record = {
            "agent_name": self.agent_name,
            **_filled(version=self.version),
            "heartbeat_at": _time(self.heartbeat_at.astimezone(UTC).isoformat()),
            "models": None if models is None else [m._fields(is_hashed=False) for m in models],
            "capacity": self.capacity._fields(),
            **({} if self.cluster is None else {"cluster": self.cluster._fields()}),
            **_filled(
                lan_endpoint=self.lan_endpoint,
                warm_budget_bytes=self.warm_budget_bytes,
                busy=self.busy,
            ),
            "content_hash": self.content_hash,
        }
        return _canonical_json(record)


def content_hash(models: Iterable[RegistryModel] | None) -> str:
    """SHA-256 (hex) of the models, in whatever order they come; None counts as no models."""
    ordered = sorted(models or (), key=lambda model: model.name)
    return hashlib.sha256(_canonical_json([m._fields(is_hashed=True) for m in ordered])).hexdigest()


def combine_hash(base: str, cluster: ClusterCapacity | None) -> str:
    """The content hash, with the cluster in it where there is one, even one of which all is 0."""
    if cluster is None:
        return base
    tag = f"|cluster:{cluster.backend}:{cluster.member_count}:{cluster.max_model_bytes}"
    return hashlib.sha256(f"{base}{tag}".encode()).hexdigest()


def merge_models(
    base: Sequence[RegistryModel] | None, extra: Sequence[RegistryModel]
) -> tuple[RegistryModel, ...] | None:
    """The base list with the cluster's models in it, sorted by name.

    What has no name is dropped; of a model that the base knows only an unknown size is filled in.
    Without `extra` the base is returned as it is.
    """
    if not extra:
        return None if base is None else tuple(base)
    merged = [model for model in base or () if model.name.strip(WHITE_SPACE)]
    place = {model.name: index for index, model in enumerate(merged)}
    for model in extra:
        if model.name in place:
            known = merged[place[model.name]]
            if not known.size and model.size > 0:
                merged[place[model.name]] = replace(known, size=model.size)
        elif model.name.strip(WHITE_SPACE):
            place[model.name] = len(merged)
            merged.append(model)
    return tuple(sorted(merged, key=lambda model: model.name))


def _filled(**fields: object) -> dict[str, object]:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value}


def _whole(text: str) -> str:
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _time(text: str) -> str:
    """RFC 3339 in its shortest spelling; "" for the zero time and for what is no time at all."""
    parts = _RFC_3339.fullmatch(text)
    if parts is None or not _is_moment(f"{parts[1]}{parts[3]}"):
        return ""
    fraction = (parts[2] or "").rstrip("0")
    zone = "Z" if parts[3] == "+00:00" else parts[3]
    spelled = f"{parts[1]}.{fraction}{zone}" if fraction else f"{parts[1]}{zone}"
    return "" if spelled == _ZERO_TIME else spelled


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _canonical_json(value: object) -> bytes:
    """Compact JSON in UTF-8 as the receivers' own encoder writes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _whole(text.translate(_ESCAPES)).encode()
