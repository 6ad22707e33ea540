"""Keeps an outpost's own retained topics true: its availability, its status, its device."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.errors import BrokerError, BrokerRefusedError
from clusterllm_mqtt.mqtt.discovery import outpost_discovery
from clusterllm_mqtt.mqtt.events import Connected, Disconnected
from clusterllm_mqtt.mqtt.messages import (
    OFFLINE,
    ONLINE,
    availability_message,
    outpost_status_message,
)
from clusterllm_mqtt.mqtt.presence import HEARTBEAT_S, RETRY_S, greeting_delay_s, say_goodbye

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterllm_mqtt.mqtt.events import Received, SessionEvent
    from clusterllm_mqtt.mqtt.messages import Message, OutpostFacts
    from clusterllm_mqtt.mqtt.presence import BrokerSession
    from clusterllm_mqtt.mqtt.topics import OutpostTopics

_COALESCE_S: Final = 0.5
_LOGGER = logging.getLogger(__name__)


class Reporter:
    """`run` until cancelled; `facts` is asked for what is true then."""

    def __init__(
        self,
        session: BrokerSession,
        topics: OutpostTopics,
        facts: Callable[[], OutpostFacts],
        *,
        home_assistant: bool = True,
        heartbeat_s: float = HEARTBEAT_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._session = session
        self._topics = topics
        self._facts = facts
        self._home_assistant = home_assistant
        self._heartbeat_s = heartbeat_s
        self._retry_s = retry_s
        self._retry_at_s = float("inf")
        self._greeting: asyncio.Task[None] | None = None
        self._is_connected = False
        self._sent: dict[str, bytes] = {}
        self._dirty = asyncio.Event()
        self._noted = ""

    def changed(self) -> None:
        """The facts may have changed."""
        self._dirty.set()

    def take(self, event: SessionEvent, tasks: asyncio.TaskGroup) -> None:
        """Follow the session."""
        if isinstance(event, Connected):
            self._is_connected, self._noted = True, ""
            self._say_again()
            tasks.create_task(self._listen(), name="listen")
        elif isinstance(event, Disconnected):
            self._is_connected = False
        elif event.topic == self._topics.home_assistant_status and event.payload == ONLINE:
            if self._greeting is not None:
                self._greeting.cancel()
            self._greeting = tasks.create_task(self._greet(), name="greet Home Assistant")
        elif event.topic == self._topics.availability:
            self._saw_availability(event)

    async def run(self) -> None:
        """Publish what changed, and say `online` every minute."""
        loop = asyncio.get_running_loop()
        beat_s = loop.time() + self._heartbeat_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(beat_s, self._retry_at_s)):
                    await self._dirty.wait()
                    await asyncio.sleep(_COALESCE_S)
            self._retry_at_s = float("inf")
            if loop.time() >= beat_s:
                beat_s = loop.time() + self._heartbeat_s
                self._sent.pop(self._topics.availability, None)
            self._dirty.clear()
            if self._is_connected:
                await self._tell()

    async def goodbye(self) -> None:
        """The last words, acknowledged; for a clean end."""
        status = outpost_status_message(self._topics, self._facts())
        offline = availability_message(self._topics, online=False)
        await say_goodbye(self._session, self._topics.agent, status, offline)

    async def _listen(self) -> None:
        """Subscribe to what an outpost can do without."""
        wanted = [(self._topics.availability, 1)]
        if self._home_assistant:
            wanted.append((self._topics.home_assistant_status, 0))
        for topic, qos in wanted:
            try:
                await self._session.subscribe(topic, qos=qos)
            except BrokerError as error:
                self._note(error)

    def _saw_availability(self, message: Received) -> None:
        """The will of a half-dead earlier connection of ours must not stand."""
        if message.payload == OFFLINE and self._sent.get(message.topic) == ONLINE:
            self._sent.pop(message.topic)
            self._dirty.set()

    async def _greet(self) -> None:
        """Home Assistant came up: tell it everything again, not all of us at once."""
        await asyncio.sleep(greeting_delay_s())
        self._say_again()

    def _say_again(self) -> None:
        self._sent.clear()
        self._dirty.set()

    def _desired(self) -> list[Message]:
        """In order: the device before what its entities read, `online` last."""
        device = [outpost_discovery(self._topics)] if self._home_assistant else []
        status = outpost_status_message(self._topics, self._facts())
        return [*device, status, availability_message(self._topics, online=True)]

    async def _tell(self) -> None:
        """Publish what the broker has not got from this connection."""
        news = [m for m in self._desired() if self._sent.get(m.topic) != m.payload]
        # before they are acknowledged: what arrives meanwhile may ask to say them once more
        self._sent.update((message.topic, message.payload) for message in news)
        try:
            await self._session.publish(*news)
        except BrokerRefusedError as error:  # it would only refuse it again
            self._note(error)
        except BrokerError as error:
            self._note(error)
            self._sent.clear()
            self._retry_at_s = asyncio.get_running_loop().time() + self._retry_s

    def _note(self, error: BrokerError) -> None:
        """Tell each trouble once a connection."""
        if str(error) != self._noted:
            _LOGGER.warning("%s: %s", self._topics.agent, error)
        self._noted = str(error)
