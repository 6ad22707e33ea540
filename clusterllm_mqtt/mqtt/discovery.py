"""Home Assistant device discovery payloads, made from the tables in `entities`; pure.

They follow the schema of Home Assistant 2024.11 to 2026.11. At the device level one unknown key
makes it drop the whole payload, so only keys that every one of those releases knows stand there.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from clusterllm_mqtt._version import __version__
from clusterllm_mqtt.models import BACKEND_GPUSTACK, BACKEND_LLAMACPP
from clusterllm_mqtt.mqtt.entities import (
    BRIDGE_COMPONENTS,
    ENDPOINT_COMPONENTS,
    OUTPOST_COMPONENTS,
    RETIRED_COMPONENTS,
    Component,
)
from clusterllm_mqtt.mqtt.messages import Message, encode
from clusterllm_mqtt.mqtt.topics import slug
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from clusterllm_mqtt.models import Endpoint
    from clusterllm_mqtt.mqtt.topics import BridgeTopics, OutpostTopics

_MODEL_NAMES: Final = {BACKEND_GPUSTACK: "GPUStack", BACKEND_LLAMACPP: "llama.cpp"}
_MAX_NAME: Final = 100
_RUNNING: Final = "{{ 'online' if value_json.state == 'running' else 'offline' }}"


def endpoint_discovery(topics: BridgeTopics, endpoint: Endpoint, backend: str) -> Message:
    """The device of one endpoint; it does not change while the endpoint comes and goes.

    `backend` is the identified one, "" while unknown.
    """
    key = endpoint.key
    sources = {
        "info": topics.info(key),
        "probe": topics.probe(key),
        "event": topics.event(key),
        "availability": topics.availability,
        "": topics.endpoint_command_probe(key),
    }
    name = clean(endpoint.name, _MAX_NAME) or key
    device = {"name": name, "via_device": _device_id(topics)}
    if backend in _MODEL_NAMES:
        device["model"] = _MODEL_NAMES[backend]
    if _is_web_page(endpoint.config.endpoint):
        device["configuration_url"] = endpoint.config.endpoint
    payload = _device(_device_id(topics, key), device, ENDPOINT_COMPONENTS, sources)
    return Message(topics.discovery(key), encode(payload))


@lru_cache(maxsize=8)
def bridge_discovery(topics: BridgeTopics) -> Message:
    """The device of the bridge itself."""
    sources = {
        "status": topics.status,
        "availability": topics.availability,
        "": topics.command_probe,
    }
    device = {"name": f"LLM bridge {topics.bridge}", "sw_version": __version__}
    payload = _device(_device_id(topics), device, BRIDGE_COMPONENTS, sources)
    return Message(topics.bridge_discovery, encode(payload))


@lru_cache(maxsize=8)
def outpost_discovery(topics: OutpostTopics) -> Message:
    """The device of an outpost."""
    sources = {"status": topics.status, "availability": topics.availability}
    device = {"name": f"LLM outpost {topics.agent}", "sw_version": __version__}
    payload = _device(f"clusterllm_outpost_{topics.agent}", device, OUTPOST_COMPONENTS, sources)
    return Message(topics.discovery, encode(payload))


def _device_id(topics: BridgeTopics, key: str = "") -> str:
    return f"clusterllm_{topics.bridge}_{key}" if key else f"clusterllm_{topics.bridge}"


def _device(
    device_id: str,
    device: Mapping[str, str],
    components: Iterable[Component],
    sources: Mapping[str, str],
    retired: Mapping[str, str] = RETIRED_COMPONENTS,
) -> dict[str, Any]:
    stem = _entity_stem(device["name"], device_id)
    rendered: dict[str, Any] = {id_: {"platform": p} for id_, p in retired.items()}
    for component in components:
        rendered[component.id] = _component(component, device_id, stem, sources)
    return {
        "device": {"identifiers": [device_id], **device},
        "origin": {"name": "clusterllm-mqtt", "sw_version": __version__},
        "components": rendered,
        "qos": 1,
    }


def _entity_stem(name: str, device_id: str) -> str:
    """Home Assistant's entity ids have no dash, and no underscore beside another or at an end."""
    words = re.findall("[a-z0-9]+", slug(name))
    return "_".join(["clusterllm", *words] if words else re.findall("[a-z0-9]+", device_id))


def _component(
    component: Component, device_id: str, stem: str, sources: Mapping[str, str]
) -> dict[str, Any]:
    topic = sources[component.source]
    rendered: dict[str, Any] = {"platform": component.platform, **component.keys}
    if component.platform == "device_automation":
        return {**rendered, "topic": topic}
    rendered["unique_id"] = f"{device_id}_{component.id}"
    rendered["default_entity_id"] = f"{component.platform}.{stem}_{component.id}"
    rendered["command_topic" if component.platform == "button" else "state_topic"] = topic
    if "json_attributes_template" in component.keys:
        rendered["json_attributes_topic"] = topic
    if component.source != "availability" and not component.is_last_word:
        rendered["availability"] = _availability(component, sources)
        rendered["availability_mode"] = "all"
    return rendered


def _availability(component: Component, sources: Mapping[str, str]) -> list[dict[str, str]]:
    """The bridge; for figures also that the endpoint runs."""
    availability = [{"topic": sources["availability"]}]
    if component.needs_running:
        availability.append({"topic": sources["info"], "value_template": _RUNNING})
    return availability


def _is_web_page(url: str) -> bool:
    """Home Assistant refuses the whole device for a configuration URL that it cannot read."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "%" not in parts.netloc
        )
    except ValueError:
        return False
