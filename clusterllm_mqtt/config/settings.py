"""The settings; values go down from here, settings do not.

Unknown keys are errors: a mistyped setting that is silently ignored costs an evening.
"""

from __future__ import annotations

import difflib
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from clusterllm_mqtt.config.source import Place, Source, read_list, read_source
from clusterllm_mqtt.config.types import (
    BackendLabel,
    CheckedNetwork,
    Duration,
    Protocol,
    ServiceType,
)
from clusterllm_mqtt.defaults import (
    FAILURE_THRESHOLD,
    FORGET_AFTER_S,
    INTERVAL_S,
    MAX_BROWSED,
    PRIVATE_NETWORKS,
)
from clusterllm_mqtt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_REMEDIES: Final = {
    "float_parsing": "write a time, like 15s, 10m, 12h or 7d",
    "float_type": "write a time, like 15s, 10m, 12h or 7d",
    "string_type": "write text; a number goes in quotes",
    "tuple_type": "write a list, like [a, b]",
    "model_type": "write its settings below it, by name",
}
"""Where pydantic's message speaks of Python."""

_PATTERNS: Final = {
    "key": "write 1 to 64 of a-z, 0-9, _ and -",
    "extra_service_types": "write a service type, like _ollama._tcp",
}
"""What people may write where pydantic shows a regular expression."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_empty(cls, data: object) -> object:
        """`mqtt:` with nothing but comments below it is null to YAML, and the default to people."""
        if not isinstance(data, dict):
            return data
        return {k: v for k, v in data.items() if v is not None or k not in cls.model_fields}


class MqttSettings(_Section):
    """The broker. Without `host`, `bridge` starts a private one on this machine."""

    host: str = Field("", description="Host name or address of the broker.")
    port: int = Field(1883, ge=1, le=65535, description="Its port; 8883 is usual with TLS.")
    username: str = Field("", description="User name, if the broker wants one.")
    password: SecretStr | None = Field(None, description="Password; better in a file.")
    password_file: Path | None = Field(None, description="File that holds the password.")
    tls: bool = Field(default=False, description="Whether to use TLS.")
    ca_file: str = Field("", description="CA that signed the broker's certificate, as PEM.")
    cert_file: str = Field("", description="Client certificate, as PEM.")
    key_file: str = Field("", description="Key of the client certificate, as PEM.")
    protocol: Protocol = Field(
        "auto", description="MQTT version; `auto` is 5, and 3.1.1 where the broker has no 5."
    )
    base_topic: str = Field("clusterllm", description="First level of all topics.")


class BridgeSettings(_Section):
    """This bridge among others."""

    id: str = Field("home", description="Its name in topics: a-z, 0-9 and -.")


class HomeAssistantSettings(_Section):
    """Devices and entities in Home Assistant."""

    enabled: bool = Field(default=True, description="Whether to publish discovery.")
    discovery_prefix: str = Field(
        "homeassistant", description="Discovery prefix of Home Assistant's MQTT integration."
    )


class EndpointSettings(_Section):
    """One endpoint that does not announce itself, or that needs a key."""

    url: str = Field(description="Base URL: `http://host:port`, with a path if there is a prefix.")
    name: str = Field("", description="What people read; the URL when empty.")
    key: str = Field(
        "",
        pattern="^([a-z0-9_-]{1,64})?$",
        description="Keeps the topics and entities of an endpoint that mDNS found before.",
    )
    api_key: SecretStr | None = Field(None, description="API key; better in a file.")
    api_key_file: Path | None = Field(None, description="File that holds the API key.")
    backend: BackendLabel = Field(
        "", description="`llamacpp` asks llama.cpp's paths only; empty finds out by itself."
    )


class MdnsSettings(_Section):
    """Browsing for endpoints."""

    enabled: bool = Field(default=True, description="Whether to browse.")
    extra_service_types: Annotated[tuple[ServiceType, ...], BeforeValidator(read_list)] = Field(
        (), description="More service types, like `_ollama._tcp` (needs a TXT hint)."
    )
    interfaces: Annotated[tuple[IPv4Address, ...], BeforeValidator(read_list)] = Field(
        (), description="Addresses of this host to browse on; empty means all."
    )
    allowed_networks: Annotated[tuple[CheckedNetwork, ...], BeforeValidator(read_list)] = Field(
        PRIVATE_NETWORKS, description="Where browsed endpoints may be; private ranges by default."
    )
    max_endpoints: int = Field(
        MAX_BROWSED, ge=1, le=10_000, description="How many endpoints neighbours can make us watch."
    )
    forget_after: Duration = Field(
        FORGET_AFTER_S,
        ge=0,
        description="An endpoint that is unadvertised and unreachable for so long is forgotten; "
        "0 never.",
    )


class ProbeSettings(_Section):
    """How endpoints are looked at."""

    interval: Duration = Field(INTERVAL_S, ge=1, le=3600, description="Time between probes.")
    failure_threshold: int = Field(
        FAILURE_THRESHOLD,
        ge=1,
        le=10,
        description="Failures in a row until an endpoint is not reachable.",
    )
    ca_file: str = Field("", description="CA of endpoints with https, as PEM.")


class OutpostSettings(_Section):
    """Pushes to a registry; only `clusterllm-mqtt outpost` does them."""

    cloudbox_url: str = Field(
        "", description="Base URL of the cloudbox; https, or http to a private address."
    )
    token: SecretStr | None = Field(None, description="Its token; better in a file.")
    token_file: Path | None = Field(None, description="File that holds the token.")
    agent: str = Field("home", description="This outpost's name: a-z, 0-9 and -.")
    bridges: Annotated[tuple[str, ...], BeforeValidator(read_list)] = Field(
        (), description="Ids of the bridges to read; empty means all on this broker."
    )
    ollama_url: str = Field(
        "",
        description="Base URL of an Ollama whose models are told as well, like "
        "`http://127.0.0.1:11434`.",
    )
    ca_file: str = Field("", description="CA of a cloudbox with a private one, as PEM.")


class LogSettings(_Section):
    """Log lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least important lines to write."
    )


class Settings(_Section):
    """Everything that can be configured."""

    mqtt: MqttSettings = Field(default_factory=MqttSettings)
    bridge: BridgeSettings = Field(default_factory=BridgeSettings)
    home_assistant: HomeAssistantSettings = Field(default_factory=HomeAssistantSettings)
    endpoints: Annotated[tuple[EndpointSettings, ...], BeforeValidator(read_list)] = ()
    mdns: MdnsSettings = Field(default_factory=MdnsSettings)
    probe: ProbeSettings = Field(default_factory=ProbeSettings)
    outpost: OutpostSettings = Field(default_factory=OutpostSettings)
    log: LogSettings = Field(default_factory=LogSettings)


def load_settings(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """The file under the environment, checked.

    Raises:
        ConfigError: a line for each mistake, with its place and the remedy; never with a value,
            which might be a secret.
    """
    source = read_source(path, environ)
    try:
        return Settings.model_validate(source.values)
    except ValidationError as error:
        lines = [_sentence(source, e["loc"], e["type"], e["msg"]) for e in error.errors()]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from None


def _sentence(source: Source, place: Place, kind: str, message: str) -> str:
    where = source.origin(place)
    name = ".".join(map(str, place))
    if kind == "extra_forbidden":
        return f"{where}: {name} is no setting{_nearest(place)}"
    if kind == "missing":
        return f"{where}: {name} is missing"
    said = _REMEDIES.get(kind, message.removeprefix("Value error, "))
    if kind == "string_pattern_mismatch":
        said = next(_PATTERNS[part] for part in reversed(place) if part in _PATTERNS)
    return f"{where}: {name}: {said[:1].lower()}{said[1:]}"


def _nearest(place: Place) -> str:
    known = list(_fields(place[:-1]))
    close = difflib.get_close_matches(str(place[-1]), known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known here: {', '.join(known)}" if known else ""


def _fields(place: Place) -> dict[str, Any]:
    """The settings that a section knows."""
    section: Any = Settings
    for part in place:
        if part == "endpoints":
            section = EndpointSettings
        elif isinstance(part, str):
            section = section.model_fields[part].annotation
    return dict(getattr(section, "model_fields", {}))
