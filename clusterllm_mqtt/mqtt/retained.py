"""What should be retained, and what has to be sent to get there; pure.

The order is what a reader may rely on at every moment: discovery first, so that entities exist;
then each endpoint's `probe` and `info`; then `status`, which counts and names them; clears last, so
that the index never names what is already gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.mqtt.discovery import bridge_discovery, endpoint_discovery
from clusterllm_mqtt.mqtt.messages import (
    BridgeFacts,
    Message,
    clear_message,
    info_message,
    probe_message,
    status_message,
)
from clusterllm_mqtt.mqtt.records import read_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clusterllm_mqtt.models import EndpointState
    from clusterllm_mqtt.mqtt.topics import BridgeTopics


def desired_messages(
    topics: BridgeTopics,
    facts: BridgeFacts,
    states: Sequence[EndpointState],
    probed: Mapping[str, EndpointState],
    *,
    home_assistant: bool = True,
) -> dict[str, Message]:
    """Everything that should be retained for a bridge, except its availability, in order.

    `probed` holds for each key the state whose probe facts are told; it lags behind `states`, since
    those facts change with every probe and are told every few minutes only.
    """
    messages = []
    if home_assistant:
        messages.append(bridge_discovery(topics))
        messages += [endpoint_discovery(topics, s.endpoint, s.backend) for s in states]
    for state in states:
        messages.append(probe_message(topics, probed.get(state.endpoint.key, state)))
        messages.append(info_message(topics, state))
    messages.append(status_message(topics, facts, states))
    return {message.topic: message for message in messages}


def indexed_topics(topics: BridgeTopics, held: Mapping[str, bytes]) -> frozenset[str]:
    """What a bridge's own index says should be retained."""
    try:
        keys = read_index(held.get(topics.status, b""))
    except RecordError:
        return frozenset()
    return frozenset(t for key in keys for t in (topics.info(key), topics.probe(key)))


def diff(
    topics: BridgeTopics, desired: Mapping[str, Message], held: Mapping[str, bytes]
) -> list[Message]:
    """The messages that turn `held` into `desired`, in the order of `desired`, clears last.

    Only topics of this bridge are cleared, whatever `held` contains.
    """
    changed = [m for topic, m in desired.items() if held.get(topic) != m.payload]
    fallen = _own_and_derived(topics, desired, held) - desired.keys()
    return changed + [clear_message(topic) for topic in _clearing_order(topics, fallen)]


def _own_and_derived(
    topics: BridgeTopics, desired: Mapping[str, Message], held: Mapping[str, bytes]
) -> set[str]:
    """What of `held` is ours to clear, and the devices of its endpoints, which nobody reads back.

    The bridge's own device tells that there are devices at all: Home Assistant warns when one is
    cleared that never was.
    """
    parsed = {topic: topics.parse_endpoint(topic) for topic in held}
    own = {t for t in held if parsed[t] is not None or topics.is_own_discovery(t)}
    if topics.bridge_discovery in desired or topics.bridge_discovery in held:
        own |= {topics.discovery(found.key) for found in parsed.values() if found is not None}
    return own


def _clearing_order(topics: BridgeTopics, fallen: Iterable[str]) -> list[str]:
    """Devices before the records that their entities read; the mark that there are any last."""
    return sorted(
        fallen, key=lambda t: (t == topics.bridge_discovery, not topics.is_own_discovery(t), t)
    )
