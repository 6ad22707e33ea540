"""What should be retained, and what has to be sent to get there; pure.

The order is what a reader may rely on at every moment: discovery first, so that entities exist;
then each endpoint's `probe` and `info`; then `status`, which counts and names them; clears last, so
that the index never names what is already gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterllm_mqtt.mqtt.messages import Message, clear_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from clusterllm_mqtt.mqtt.topics import BridgeTopics


def diff(
    topics: BridgeTopics, desired: Mapping[str, Message], held: Mapping[str, bytes]
) -> list[Message]:
    """The messages that turn `held` into `desired`, in the order of `desired`, clears last.

    Only topics of this bridge are cleared, whatever `held` contains.
    """
    changed = [m for topic, m in desired.items() if held.get(topic) != m.payload]
    fallen = [topic for topic in held if topic not in desired]
    return changed + [clear_message(topic) for topic in _clearable(topics, fallen)]


def _clearable(topics: BridgeTopics, fallen: Iterable[str]) -> Iterator[str]:
    """Discovery follows from the key, so it goes with its endpoint even if nobody saw it."""
    cleared = set()
    for topic in sorted(fallen):
        parsed = topics.parse_endpoint(topic)
        if parsed is not None:
            cleared.add(topics.discovery(parsed.key))
            cleared.add(topic)
        elif topics.is_own_discovery(topic):
            cleared.add(topic)
    yield from sorted(cleared, key=lambda topic: (topics.parse_endpoint(topic) is not None, topic))
