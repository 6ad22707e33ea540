"""The frozen values that travel through the house; no I/O, no clock.

service record -> `Endpoint` -> `Info` -> `ProbeResult` -> `EndpointState` -> messages
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

if TYPE_CHECKING:
    from datetime import datetime

BACKEND_GPUSTACK: Final = "gpustack"
BACKEND_LLAMACPP: Final = "llamacpp"
DEFAULT_ENDPOINT: Final = "http://127.0.0.1:18080"

MAX_BYTES: Final = 2**63 - 1
"""Byte counts saturate here instead of wrapping."""


class State(StrEnum):
    """What an endpoint is, as far as a GET can tell."""

    UNCONFIGURED = "unconfigured"
    RUNNING = "running"
    NOT_REACHABLE = "not_reachable"


class Reason(StrEnum):
    """Why a probe failed, or why a running endpoint is known only in part."""

    REFUSED = "refused"
    TIMEOUT = "timeout"
    DNS = "dns"
    TLS = "tls"
    BAD_RESPONSE = "bad_response"
    LOADING = "loading"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    RATE_LIMITED = "rate_limited"


class Source(StrEnum):
    """Where an endpoint came from."""

    CONFIGURED = "configured"
    MDNS = "mdns"


@dataclass(frozen=True, slots=True)
class Config:
    """What to ask and how: a base URL, an optional key, an optional backend label.

    `backend="llamacpp"` asks the llama.cpp paths only and never sends the key to a management API.
    """

    endpoint: str = ""
    api_key: SecretStr | str = field(default="", repr=False)
    backend: str = ""

    def __post_init__(self) -> None:
        """Wrap a plain key, so that no later `repr` or traceback can show it."""
        if not isinstance(self.api_key, SecretStr):
            object.__setattr__(self, "api_key", SecretStr(self.api_key))

    @property
    def secret(self) -> str:
        """The key as configured; for the one line that makes the header."""
        assert isinstance(self.api_key, SecretStr)  # noqa: S101  # __post_init__ made it one
        return self.api_key.get_secret_value()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A language model that an endpoint serves; `size` in bytes, 0 = unknown."""

    name: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Info:
    """The record that is published and that outposts read.

    `member_count` counts machines (0 = not running), `aggregate_vram_bytes` is 0 when unknown.
    """

    state: State
    backend: str = ""
    endpoint: str = ""
    version: str = ""
    member_count: int = 0
    aggregate_vram_bytes: int = 0
    models: tuple[ModelInfo, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """The JSON record, in the contract's order: empty fields left out, `state` always there."""
        record: dict[str, Any] = {
            "backend": self.backend,
            "state": str(self.state),
            "endpoint": self.endpoint,
            "version": self.version,
            "member_count": self.member_count,
            "aggregate_vram_bytes": self.aggregate_vram_bytes,
            "models": [
                {"name": m.name, "size": m.size} if m.size else {"name": m.name}
                for m in self.models
            ],
        }
        return {name: value for name, value in record.items() if value}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One base URL that we watch.

    `key` is its stable name in topics, `identity` what the key is made from, `name` what people
    read. Only a configured endpoint's `config` may hold an API key.
    """

    key: str
    name: str
    identity: str
    source: Source
    config: Config


@dataclass(frozen=True, slots=True)
class Service:
    """One mDNS service instance, already cleaned: a candidate endpoint.

    `instance` is the full service name (`box._llamacpp._tcp.local.`), `url` the chosen address,
    `hosts` every address and the host name that the record gives (lower case, no trailing dot);
    `backend` and `txt` are hints of an untrusted neighbour.
    """

    instance: str
    name: str
    url: str
    hosts: frozenset[str] = frozenset()
    backend: str = ""
    txt: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointFound:
    """A browser saw (or saw again, changed) a service."""

    service: Service


@dataclass(frozen=True, slots=True)
class EndpointLost:
    """A service said goodbye or expired: a reason to probe at once, not a verdict."""

    instance: str


class MdnsState(StrEnum):
    """Whether browsing works."""

    OFF = "off"
    OK = "ok"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MdnsHealth:
    """How browsing goes; `services` are the instances that are named at this moment."""

    state: MdnsState = MdnsState.OFF
    services: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Detection:
    """What one look at an endpoint brought; `detail` is one sentence for people, without secrets.

    `identified` is False while `info.backend` is only the configured label.
    """

    info: Info
    reason: Reason | None = None
    detail: str = ""
    identified: bool = False


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A `Detection` and when it was made: UTC for people, monotonic seconds for arithmetic."""

    key: str
    detection: Detection
    probed_at: datetime
    monotonic_s: float
    duration_s: float


class EventType(StrEnum):
    """The live transitions that an endpoint's event topic tells."""

    RUNNING = "running"
    NOT_REACHABLE = "not_reachable"
    MEMBERS_CHANGED = "members_changed"
    VRAM_CHANGED = "vram_changed"
    MODELS_CHANGED = "models_changed"
    VERSION_CHANGED = "version_changed"


@dataclass(frozen=True, slots=True)
class Transition:
    """One change that was seen to happen; `old` and `new` are JSON values."""

    key: str
    event_type: EventType
    old: str | int | tuple[str, ...]
    new: str | int | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndpointState:
    """What we hold true of an endpoint after debouncing.

    `info` is what is published; `backend` what was identified, "" while `info.backend` is but the
    configured label; `state_since` is when the `state` began (UTC); `advertised` says whether mDNS
    names the endpoint at this moment.
    """

    endpoint: Endpoint
    info: Info
    reason: Reason | None
    detail: str
    state_since: datetime
    probed_at: datetime
    duration_s: float
    advertised: bool = False
    backend: str = ""
