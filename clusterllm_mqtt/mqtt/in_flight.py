"""What was sent and is not acknowledged yet, and who else spoke on its topics meanwhile; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clusterllm_mqtt.mqtt.messages import Message


class InFlight:
    """A batch of messages under way; only the retained ones leave something behind."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._sent = {message.topic: message.payload for message in messages if message.retain}
        self._overruled: set[str] = set()

    def heard(self, topic: str, payload: bytes) -> bool:
        """Take in what the broker says on a topic; whether it is our own echo."""
        sent = self._sent.get(topic)
        if sent is None:
            return False
        if sent == payload:
            self._overruled.discard(topic)
            return True
        self._overruled.add(topic)
        return False

    @property
    def landed(self) -> dict[str, bytes]:
        """What the broker holds of it: all but where somebody else had the last word."""
        return {t: payload for t, payload in self._sent.items() if t not in self._overruled}
