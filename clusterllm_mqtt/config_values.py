"""Settings -> the values that the parts of the house take."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from clusterllm_mqtt.bridge import BridgeOptions
from clusterllm_mqtt.config_source import read_secret
from clusterllm_mqtt.endpoint_url import check_endpoint_url
from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.mdns.browser import SERVICE_TYPES, MdnsOptions
from clusterllm_mqtt.models import Config, Endpoint, Source
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
from clusterllm_mqtt.mqtt.topics import BridgeTopics, endpoint_key

if TYPE_CHECKING:
    from pydantic import SecretStr

    from clusterllm_mqtt.config import EndpointSettings, MdnsSettings, MqttSettings, Settings


def bridge_options(settings: Settings, broker: BrokerOptions) -> BridgeOptions:
    """What a bridge does.

    Raises:
        ConfigError: two endpoints have the same name, URL or key, or a secret file is of no use.
    """
    mdns = settings.mdns
    return BridgeOptions(
        topics=bridge_topics(settings),
        broker=broker,
        endpoints=endpoints(settings.endpoints),
        mdns=mdns_options(mdns) if mdns.enabled else None,
        interval_s=settings.probe.interval,
        failure_threshold=settings.probe.failure_threshold,
        forget_after_s=mdns.forget_after,
        max_browsed=mdns.max_endpoints,
        home_assistant=settings.home_assistant.enabled,
        ca_file=settings.probe.ca_file,
    )


def bridge_topics(settings: Settings) -> BridgeTopics:
    """Raises `ConfigError` when a name cannot be part of a topic."""
    return BridgeTopics(
        settings.mqtt.base_topic, settings.bridge.id, settings.home_assistant.discovery_prefix
    )


def broker_options(mqtt: MqttSettings) -> BrokerOptions:
    """Raises `ConfigError` when the password file is of no use, or settings lack their partner."""
    password = secret(mqtt.password, mqtt.password_file, "mqtt.password")
    for name, value, partner, also in (
        ("cert_file", mqtt.cert_file, "key_file", mqtt.key_file),
        ("key_file", mqtt.key_file, "cert_file", mqtt.cert_file),
        ("cert_file", mqtt.cert_file, "tls", mqtt.tls),
        ("ca_file", mqtt.ca_file, "tls", mqtt.tls),
        ("tls", mqtt.tls, "host", mqtt.host),
        ("password", password, "username", mqtt.username),
        ("username", mqtt.username, "host", mqtt.host),
    ):
        if value and not also:
            raise ConfigError(f"mqtt.{name} is set without mqtt.{partner}; set both or none")
    if any(c in mqtt.host for c in "/@ ") or (":" in mqtt.host and not _is_ipv6(mqtt.host)):
        raise ConfigError(f"mqtt.host {mqtt.host[:80]!r}: write the name alone, port apart")
    return BrokerOptions(
        host=mqtt.host,
        port=mqtt.port,
        username=mqtt.username,
        password=password,
        tls=mqtt.tls,
        ca_file=mqtt.ca_file,
        cert_file=mqtt.cert_file,
        key_file=mqtt.key_file,
        protocol=mqtt.protocol,
    )


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6  # noqa: PLR2004
    except ValueError:
        return False


def mdns_options(mdns: MdnsSettings) -> MdnsOptions:
    """What to browse for."""
    types = dict.fromkeys((*SERVICE_TYPES, *mdns.extra_service_types))
    return MdnsOptions(
        service_types=tuple(types),
        interfaces=tuple(map(str, mdns.interfaces)),
        allowed_networks=mdns.allowed_networks,
        max_services=mdns.max_endpoints,
    )


def endpoints(settings: tuple[EndpointSettings, ...]) -> tuple[Endpoint, ...]:
    """The configured endpoints, all different.

    Raises:
        ConfigError: a URL is none, or two endpoints share a name, URL or key.
    """
    found: list[Endpoint] = []
    for number, one in enumerate(settings):
        endpoint = _endpoint(one, f"endpoints.{number}")
        for other_number, other in enumerate(found):
            both = f"endpoints.{other_number} and endpoints.{number}"
            if endpoint.name == other.name:
                raise ConfigError(f"{both} have the same name {endpoint.name!r}; rename one")
            if endpoint.config.endpoint == other.config.endpoint:
                raise ConfigError(f"{both} have the same url; remove one")
            if endpoint.key == other.key:
                raise ConfigError(f"{both} have the same key {endpoint.key!r}; change one")
        found.append(endpoint)
    return tuple(found)


def _endpoint(settings: EndpointSettings, place: str) -> Endpoint:
    url = check_endpoint_url(settings.url)
    api_key = secret(settings.api_key, settings.api_key_file, f"{place}.api_key")
    name = settings.name or url
    identity = f"configured:{name}"
    config = Config(url, api_key or "", settings.backend)
    key = settings.key or endpoint_key(settings.name or url.partition("://")[2], identity)
    return Endpoint(key, name, identity, Source.CONFIGURED, config)


def secret(value: SecretStr | None, path: Path | None, what: str) -> SecretStr | None:
    """A secret from its setting or from its file.

    Raises:
        ConfigError: both are set, or the file is of no use.
    """
    if path is None:
        return value
    if value is not None:
        raise ConfigError(f"{what} and {what}_file are both set; keep one")
    return read_secret(path, f"{what}_file")


def state_folder() -> Path:
    """Where this user's programs keep what should survive a restart (XDG base directories)."""
    home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state"
    return base / "clusterllm-mqtt"
