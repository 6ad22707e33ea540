"""What should be retained, and what has to be sent to get there; pure.

The order is what a reader may rely on at every moment: discovery first, so that entities exist;
then each endpoint's `probe` and `info`; then `status`, which counts and names them; clears last, so
that the index never names what is already gone.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    from clusterllm_mqtt.models import Endpoint, EndpointState, Info
    from clusterllm_mqtt.mqtt.topics import BridgeTopics


@dataclass(frozen=True, slots=True)
class _Kept:
    """The messages of one endpoint, and the very objects that they were made from."""

    endpoint: Endpoint
    info: Info
    backend: str
    told: EndpointState
    devices: tuple[Message, ...]
    records: tuple[Message, ...]

    def tells(self, state: EndpointState, told: EndpointState) -> bool:
        """Whether nothing has changed; objects are compared, which are never written to."""
        return (
            self.endpoint is state.endpoint
            and self.info is state.info
            and self.backend == state.backend
            and self.told is told
        )


class RetainedMessages:
    """What should be retained for one bridge.

    An endpoint's messages are kept until what they tell changes: a bridge of thousands tells one
    change without spelling out all the others again.
    """

    def __init__(self, topics: BridgeTopics, *, home_assistant: bool = True) -> None:
        self._topics = topics
        self._home_assistant = home_assistant
        self._kept: dict[str, _Kept] = {}

    def keep(self, state: EndpointState, told: EndpointState) -> _Kept:
        """Make an endpoint's messages, where they are not what was kept.

        `told` is the state whose probe facts are told. It lags behind `state`, since those facts
        change with every probe and are told every few minutes only.
        """
        key = state.endpoint.key
        kept = self._kept.get(key)
        if kept is None or not kept.tells(state, told):
            kept = self._kept[key] = self._make(state, told)
        return kept

    def forget(self, key: str) -> None:
        """Keep nothing of an endpoint that is no longer watched."""
        self._kept.pop(key, None)

    def all(
        self,
        facts: BridgeFacts,
        states: Sequence[EndpointState],
        probed: Mapping[str, EndpointState],
    ) -> dict[str, Message]:
        """Everything except the availability, in order; `probed` has the `told` of each key."""
        kept = [self.keep(s, probed.get(s.endpoint.key, s)) for s in states]
        messages = [bridge_discovery(self._topics)] if self._home_assistant else []
        messages += [device for one in kept for device in one.devices]
        messages += [record for one in kept for record in one.records]
        messages.append(status_message(self._topics, facts, states))
        return {message.topic: message for message in messages}

    def _make(self, state: EndpointState, told: EndpointState) -> _Kept:
        topics, endpoint = self._topics, state.endpoint
        devices: tuple[Message, ...] = ()
        if self._home_assistant:
            devices = (endpoint_discovery(topics, endpoint, state.backend),)
        records = probe_message(topics, told), info_message(topics, state)
        return _Kept(endpoint, state.info, state.backend, told, devices, records)


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
    if held.keys() <= desired.keys():
        return changed
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
