"""Keeps what the broker holds for one bridge equal to what that bridge desires.

The one place that publishes. `held` is what the broker is known to hold of our own topics: what it
showed us, and what it acknowledged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from clusterllm_mqtt.errors import BrokerError
from clusterllm_mqtt.mqtt.messages import availability_message
from clusterllm_mqtt.mqtt.retained import diff

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from clusterllm_mqtt.mqtt.messages import Message
    from clusterllm_mqtt.mqtt.topics import BridgeTopics

_LOGGER = logging.getLogger(__name__)


class PublishingClient(Protocol):
    """What the publisher needs of the MQTT client."""

    async def publish(self, *messages: Message) -> None:
        """Send in this order; return when all are acknowledged.

        Raises:
            BrokerError: one was not.
        """
        ...


class Publisher:
    """The retained topics of one bridge."""

    def __init__(self, client: PublishingClient, topics: BridgeTopics) -> None:
        self._client = client
        self._topics = topics
        self._held: dict[str, bytes] = {}

    def hold(self, held: Mapping[str, bytes]) -> None:
        """Start from what the broker showed, after a connect."""
        self._held = dict(held)

    def saw(self, topic: str, payload: bytes) -> None:
        """Take note of a message on one of our own topics, ours or somebody else's."""
        if payload:
            self._held[topic] = payload
        else:
            self._held.pop(topic, None)

    async def reconcile(self, desired: Mapping[str, Message], *, everything: bool = False) -> bool:
        """Publish what differs (or `everything`), clear what fell out; False when that failed."""
        held = self._held
        if everything:
            held = dict.fromkeys(held, b"")
        return await self._send(diff(self._topics, desired, held))

    async def republish(self, messages: Iterable[Message]) -> bool:
        """Publish again what is held already, for a reader that has just come."""
        return await self._send(messages)

    async def announce(self, *, online: bool) -> bool:
        """Say `online` or `offline`."""
        return await self._send([availability_message(self._topics, online=online)])

    async def _send(self, messages: Iterable[Message]) -> bool:
        messages = tuple(messages)
        try:
            await self._client.publish(*messages)
        except BrokerError as error:
            _LOGGER.warning("%s: not published: %s", self._topics.bridge, error)
            return False
        for message in messages:
            if message.retain:
                self.saw(message.topic, message.payload)
        return True
