"""What an earlier life of a bridge left on the broker -> endpoints to watch again; pure.

The broker is input like any other: types and sizes are checked, the allowed networks hold, and no
API key ever goes to a recalled endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from clusterllm_mqtt.endpoint_url import check_endpoint_url
from clusterllm_mqtt.errors import ConfigError, RecordError
from clusterllm_mqtt.models import Config, Endpoint, Source, State
from clusterllm_mqtt.mqtt.records import Recalled, read_recalled
from clusterllm_mqtt.mqtt.topics import endpoint_key
from clusterllm_mqtt.service_record import is_allowed_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from clusterllm_mqtt.defaults import Network
    from clusterllm_mqtt.mqtt.topics import BridgeTopics


def recalled_endpoints(
    topics: BridgeTopics, held: Mapping[str, bytes], *, allowed: Iterable[Network]
) -> list[tuple[Endpoint, Recalled]]:
    """The browsed endpoints among the held records, those that ran first.

    A record whose key does not follow from its identity was not made by us, and falls out.
    """
    networks = tuple(allowed)
    found = []
    for topic, payload in held.items():
        parsed = topics.parse_endpoint(topic)
        if parsed is None or parsed.leaf != "info":
            continue
        try:
            recalled = read_recalled(payload, held.get(topics.probe(parsed.key), b""))
            url = check_endpoint_url(recalled.info.endpoint)
        except (RecordError, ConfigError):
            continue
        endpoint = _endpoint(recalled, url)
        if endpoint.key == parsed.key and _may_be_watched(endpoint, networks):
            found.append((endpoint, recalled))
    return sorted(found, key=lambda pair: (pair[1].info.state is not State.RUNNING, pair[0].key))


def _endpoint(recalled: Recalled, url: str) -> Endpoint:
    key = endpoint_key(recalled.name, recalled.identity)
    return Endpoint(key, recalled.name, recalled.identity, recalled.source, Config(url))


def _may_be_watched(endpoint: Endpoint, networks: Iterable[Network]) -> bool:
    host = urlsplit(endpoint.config.endpoint).hostname or ""
    return endpoint.source is Source.MDNS and is_allowed_host(host.replace("%25", "%"), networks)
