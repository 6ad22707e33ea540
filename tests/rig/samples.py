"""Sample values, so that a test states only what it is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from clusterllm_mqtt.inventory import mdns_identity
from clusterllm_mqtt.models import (
    Config,
    Detection,
    Endpoint,
    EndpointState,
    Info,
    ProbeResult,
    Reason,
    Service,
    Source,
    State,
)
from clusterllm_mqtt.mqtt.topics import endpoint_key

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment of the samples' own calendar."""
    return EPOCH + timedelta(seconds=seconds)


def configured(name: str = "box", url: str = "http://192.168.1.5:8080") -> Endpoint:
    """An endpoint from the configuration."""
    identity = f"configured:{name}"
    return Endpoint(endpoint_key(name, identity), name, identity, Source.CONFIGURED, Config(url))


def service(
    name: str = "box",
    url: str = "http://192.168.1.5:8080",
    hosts: frozenset[str] = frozenset(),
    service_type: str = "_llamacpp._tcp.local.",
) -> Service:
    """A cleaned mDNS record."""
    return Service(f"{name}.{service_type}", name, url, hosts)


def browsed(name: str = "box", url: str = "http://192.168.1.5:8080") -> Endpoint:
    """The endpoint that `service()` becomes."""
    identity = mdns_identity(service(name).instance)
    return Endpoint(endpoint_key(name, identity), name, identity, Source.MDNS, Config(url))


def up(
    endpoint: Endpoint, seconds: float = 0, *, reason: Reason | None = None, **info: object
) -> ProbeResult:
    """A probe that found the endpoint running."""
    fields = {"backend": "llamacpp", "member_count": 1, **info}
    found = Info(State.RUNNING, endpoint=endpoint.config.endpoint, **fields)  # type: ignore[arg-type]
    return _result(endpoint, Detection(found, reason, identified=True), seconds)


def down(endpoint: Endpoint, seconds: float = 0, reason: Reason = Reason.REFUSED) -> ProbeResult:
    """A probe that got no answer."""
    info = Info(State.NOT_REACHABLE, backend="gpustack", endpoint=endpoint.config.endpoint)
    return _result(endpoint, Detection(info, reason), seconds)


def _result(endpoint: Endpoint, detection: Detection, seconds: float) -> ProbeResult:
    return ProbeResult(endpoint.key, detection, at(seconds), seconds, 0.01)


def endpoint_state(
    endpoint: Endpoint, info: Info, *, reason: Reason | None = None, backend: str = ""
) -> EndpointState:
    """A state that began 5 s into the samples' calendar and was probed at 10 s."""
    return EndpointState(
        endpoint=endpoint,
        info=info,
        reason=reason,
        detail="",
        state_since=at(5),
        probed_at=at(10),
        duration_s=0.0123,
        backend=backend,
    )
