"""Keeps what the broker holds for one bridge equal to what that bridge desires.

The one place that publishes. The order of truth on a new connection: read what is retained, let the
bridge learn it back and probe all of it, publish everything true, and only then say `online`.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from clusterllm_mqtt.errors import BrokerError, BrokerRefusedError
from clusterllm_mqtt.mqtt.events import Connected, Disconnected, Received
from clusterllm_mqtt.mqtt.in_flight import InFlight
from clusterllm_mqtt.mqtt.messages import ONLINE, availability_message
from clusterllm_mqtt.mqtt.patience import Patience
from clusterllm_mqtt.mqtt.presence import (
    HEARTBEAT_S,
    RETRY_S,
    BrokerSession,
    greeting_delay_s,
    say_goodbye,
)
from clusterllm_mqtt.mqtt.retained import diff, indexed_topics
from clusterllm_mqtt.mqtt.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from clusterllm_mqtt.mqtt.messages import Message
    from clusterllm_mqtt.mqtt.topics import BridgeTopics

_LOGGER = logging.getLogger(__name__)


class Truth(Protocol):
    """What the publisher needs of the bridge."""

    def desired(self) -> Mapping[str, Message]:
        """Everything that should be retained now, except the availability."""
        ...

    def recall(self, held: Mapping[str, bytes]) -> None:
        """Learn back what an earlier life published; called once, before anything is published."""
        ...

    async def all_probed(self) -> None:
        """Return when every endpoint that is known by now has been probed in this life."""
        ...

    def command(self, topic: str) -> None:
        """Somebody asks to probe."""
        ...

    def note_error(self, text: str) -> None:
        """Something between us and the broker went wrong."""
        ...


class Publisher:
    """The MQTT side of a bridge; `run` until cancelled."""

    def __init__(
        self,
        session: BrokerSession,
        topics: BridgeTopics,
        truth: Truth,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._session = session
        self._topics = topics
        self._truth = truth
        self._heartbeat_s = heartbeat_s
        self._retry_s = retry_s
        self._snapshot = Snapshot(topics.own_filters(), partial(indexed_topics, topics))
        self._events: list[Message] = []
        self._dirty = asyncio.Event()
        self._is_synced = False
        self._has_recalled = False
        self._noted = ""
        self._patience = Patience()
        self._in_flight: list[InFlight] = []
        self._syncing: asyncio.Task[None] | None = None
        self._greeting: asyncio.Task[None] | None = None

    def changed(self, events: Iterable[Message] = ()) -> None:
        """The desired set may have changed; `events` are told once, after it is published."""
        if self._is_synced:
            self._events += events
        self._dirty.set()

    async def run(self) -> None:
        """Follow the session.

        Raises:
            BrokerError: the session ended for good.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish_changes(), name="publish changes")
            tasks.create_task(self._beat(), name="heartbeat")
            async for event in self._session.events():
                _stop(self._syncing if not isinstance(event, Received) else None)
                if isinstance(event, Connected):
                    self._noted = ""
                    self._syncing = tasks.create_task(self._synchronise(), name="synchronise")
                elif isinstance(event, Disconnected):
                    self._is_synced = False
                    self._events.clear()  # told later, they would be lies
                    self._truth.note_error(f"connection to the broker lost: {event.detail}")
                else:
                    self._received(event, tasks)

    async def goodbye(self) -> None:
        """Say `offline`, acknowledged; for a clean end."""
        self._is_synced = False
        offline = availability_message(self._topics, online=False)
        await say_goodbye(self._session, self._topics.bridge, offline)

    async def _synchronise(self) -> None:
        """From a new connection to `online`."""
        while not self._is_synced:
            try:
                await self._tell_everything()
            except BrokerError as error:
                self._note(error)
                await asyncio.sleep(self._retry_s)
            else:
                self._is_synced = True
                self._dirty.set()

    async def _tell_everything(self) -> None:
        """Raises `BrokerError` when our own topics cannot be read, or an answer does not come."""
        await self._listen(*self._topics.command_filters())
        await self._listen(self._topics.home_assistant_status, qos=0)
        ours = set(self._snapshot.held)
        missing = await self._snapshot.read(self._session)
        if missing:
            text = "%s: the broker did not hand over %d retained topics"
            _LOGGER.warning(text, self._topics.bridge, len(missing))
        if not self._has_recalled:
            self._has_recalled = True
            self._truth.recall(self._snapshot.held)
        await self._truth.all_probed()
        stale = dict.fromkeys(ours | self._snapshot.held.keys() | missing, b"")
        await self._publish(diff(self._topics, self._truth.desired(), stale))
        await self._publish([availability_message(self._topics, online=True)])

    async def _listen(self, *filters: str, qos: int = 1) -> None:
        """Subscribe to what a bridge can do without."""
        try:
            await self._session.subscribe(*filters, qos=qos)
        except BrokerRefusedError as error:
            self._note(error)

    async def _publish_changes(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if self._is_synced:
                events, self._events = self._events, []
                changes = diff(self._topics, self._truth.desired(), self._snapshot.held)
                await self._publish_or_note([*changes, *events])

    async def _beat(self) -> None:
        """Repeat `online`, which expires, and tell with it what could wait, as probe facts can."""
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if self._is_synced:
                await self._publish_or_note([availability_message(self._topics, online=True)])
                self._dirty.set()

    def _received(self, message: Received, tasks: asyncio.TaskGroup) -> None:
        topics = self._topics
        if message.topic == topics.home_assistant_status:
            if message.payload == ONLINE:
                _stop(self._greeting)
                self._greeting = tasks.create_task(self._greet(), name="greet Home Assistant")
        elif message.topic.endswith("/command/probe"):
            if not message.retain:
                self._truth.command(message.topic)
        else:
            self._saw(message, tasks)

    def _saw(self, message: Received, tasks: asyncio.TaskGroup) -> None:
        """One of our own topics: an echo, what an earlier life left, or somebody else's doing."""
        before = self._snapshot.held.get(message.topic, b"")
        self._snapshot.saw(message.topic, message.payload, is_retained=message.retain)
        echoes = [batch.heard(message.topic, message.payload) for batch in self._in_flight]
        if any(echoes) or not self._is_synced or message.payload == before:
            return
        if message.topic != self._topics.availability:
            self._mend(message)
        elif message.payload != ONLINE:  # the will of a half-dead earlier connection
            online = availability_message(self._topics, online=True)
            tasks.create_task(self._publish_or_note([online]), name="say online again")

    def _mend(self, message: Received) -> None:
        """Somebody else's doing is undone, but by two of the same id ever more slowly."""
        loop = asyncio.get_running_loop()
        pause_s = self._patience.pause_s(message.topic, loop.time())
        loop.call_later(pause_s, self._dirty.set)
        if pause_s > 1:
            us = f"{message.topic} is written to by others, too"
            self._note(BrokerError(f"{us}; is there another bridge {self._topics.bridge!r}?"))

    async def _greet(self) -> None:
        """Home Assistant came up: tell it everything again, not all bridges at once."""
        await asyncio.sleep(greeting_delay_s())
        if self._is_synced:
            online = availability_message(self._topics, online=True)
            await self._publish_or_note([*self._truth.desired().values(), online])

    async def _publish_or_note(self, messages: list[Message]) -> None:
        try:
            await self._publish(messages)
        except BrokerError as error:
            self._note(error)

    def _note(self, error: BrokerError) -> None:
        """Tell each trouble once a connection."""
        self._truth.note_error(str(error))
        if str(error) != self._noted:
            _LOGGER.warning("%s: %s", self._topics.bridge, error)
        self._noted = str(error)

    async def _publish(self, messages: list[Message]) -> None:
        """Send, and remember what was told.

        What the broker refused counts, too: it would only refuse it again, and one message that is
        too large, or that an ACL forbids, keeps back nothing else.
        """
        batch = InFlight(messages)
        self._in_flight.append(batch)
        try:
            await self._session.publish(*messages)
        except BrokerRefusedError as error:
            self._note(error)
        finally:
            self._in_flight.remove(batch)
        for topic, payload in batch.landed.items():
            self._snapshot.saw(topic, payload)


def _stop(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
