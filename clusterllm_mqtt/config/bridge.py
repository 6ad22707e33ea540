"""Settings -> the values that the parts of the house take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from clusterllm_mqtt.bridge import BridgeOptions
from clusterllm_mqtt.config.broker import secret
from clusterllm_mqtt.endpoint_url import check_endpoint_url
from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.mdns.browser import SERVICE_TYPES, MdnsOptions
from clusterllm_mqtt.models import Config, Endpoint, Source
from clusterllm_mqtt.mqtt.topics import BridgeTopics, endpoint_key

if TYPE_CHECKING:
    from clusterllm_mqtt.config.settings import EndpointSettings, MdnsSettings, Settings
    from clusterllm_mqtt.mqtt.broker_options import BrokerOptions


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


def state_folder() -> Path:
    """Where this user's programs keep what should survive a restart (XDG base directories)."""
    home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state"
    return base / "clusterllm-mqtt"
