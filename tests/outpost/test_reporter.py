"""An outpost's own topics: said once, repeated when it matters, said again when they were lost."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from rig.mosquitto import eventually
from rig.samples import at

from clusterllm_mqtt.errors import BrokerRefusedError, PublishError
from clusterllm_mqtt.mqtt.events import Connected, Disconnected, Received
from clusterllm_mqtt.mqtt.messages import OutpostFacts
from clusterllm_mqtt.mqtt.topics import OutpostTopics
from clusterllm_mqtt.outpost.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from clusterllm_mqtt.errors import BrokerError
    from clusterllm_mqtt.mqtt.events import SessionEvent
    from clusterllm_mqtt.mqtt.messages import Message

TOPICS = OutpostTopics()


class Broker:
    """Records what it is sent; `error` is what it answers to the next publish."""

    def __init__(self, *, home_assistant: bool = True, heartbeat_s: float = 60.0) -> None:
        self.sent: list[Message] = []
        self.asked: list[str] = []
        self.error: BrokerError | None = None
        self.refused: set[str] = set()
        self.pushes = 0
        self.leaves_will = False
        self.reporter = Reporter(
            self, TOPICS, self._facts, home_assistant=home_assistant,
            heartbeat_s=heartbeat_s, retry_s=0.05,
        )  # fmt: skip
        self._tasks: asyncio.TaskGroup | None = None

    def _facts(self) -> OutpostFacts:
        return OutpostFacts("1", at(0), "cloudbox", self.pushes)

    async def events(self) -> AsyncIterator[SessionEvent]:
        none: tuple[SessionEvent, ...] = ()
        for event in none:
            yield event

    async def publish(self, *messages: Message) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.sent += messages

    def leave_will(self, *, leave: bool = True) -> None:
        self.leaves_will = leave

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        self.asked += filters
        if self.refused & set(filters):
            raise BrokerRefusedError(f"refused to subscribe {filters[0]} {qos}")

    async def unsubscribe(self, *filters: str) -> None:
        """Nothing to do."""

    def take(self, event: SessionEvent) -> None:
        assert self._tasks is not None
        self.reporter.take(event, self._tasks)

    def hears(self, topic: str, payload: bytes) -> None:
        self.take(Received(topic, payload, retain=False))

    @property
    def topics(self) -> list[str]:
        return [message.topic for message in self.sent]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Broker]:
        with suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as self._tasks:
                running = self._tasks.create_task(self.reporter.run())
                try:
                    self.take(Connected("5"))
                    yield self
                finally:
                    running.cancel()


EVERYTHING = [TOPICS.discovery, TOPICS.status, TOPICS.availability]


async def test_the_device_comes_first_and_online_last() -> None:
    async with Broker().open() as broker:
        await eventually(lambda: broker.topics == EVERYTHING)
    assert broker.sent[-1].payload == b"online"
    assert broker.sent[-1].expiry_s == 180


async def test_what_changed_is_said_and_nothing_else() -> None:
    async with Broker().open() as broker:
        await eventually(lambda: broker.topics == EVERYTHING)
        broker.pushes = 7
        for _ in range(100):
            broker.reporter.changed()
        await eventually(lambda: broker.topics == [*EVERYTHING, TOPICS.status])


async def test_online_is_repeated_also_while_much_changes() -> None:
    async with Broker(heartbeat_s=0.7).open() as broker:
        await eventually(lambda: broker.topics == EVERYTHING)
        for number in range(20):
            broker.pushes = number
            broker.reporter.changed()
            await asyncio.sleep(0.1)
        assert broker.topics.count(TOPICS.availability) >= 3


async def test_what_was_not_acknowledged_is_said_again() -> None:
    broker = Broker()
    broker.error = PublishError("not acknowledged in time")
    async with broker.open():
        await eventually(lambda: broker.topics == EVERYTHING)


async def test_what_was_refused_is_told_once_and_not_said_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    broker.error = BrokerRefusedError("refused clusterllm/outpost/home/status")
    async with broker.open():
        await eventually(lambda: "refused" in caplog.text)
        broker.reporter.changed()
        await asyncio.sleep(0.8)
        assert broker.sent == []


async def test_a_new_connection_is_told_everything_at_once() -> None:
    async with Broker().open() as broker:
        await eventually(lambda: broker.topics == EVERYTHING)
        broker.take(Disconnected("restart"))
        broker.reporter.changed()
        await asyncio.sleep(0.7)
        assert broker.topics == EVERYTHING
        broker.take(Connected("5"))
        await eventually(lambda: broker.topics == EVERYTHING * 2)


async def test_many_births_are_answered_once() -> None:
    async with Broker().open() as broker:
        await eventually(lambda: broker.topics == EVERYTHING)
        for _ in range(500):
            broker.hears(TOPICS.home_assistant_status, b"online")
        await asyncio.sleep(0)
        greeting = [task for task in asyncio.all_tasks() if "greet" in task.get_name()]
        assert len(greeting) == 1
        await eventually(lambda: broker.topics == EVERYTHING * 2)


async def test_an_offline_that_is_not_ours_is_answered() -> None:
    async with Broker().open() as broker:
        await eventually(lambda: broker.topics == EVERYTHING)
        broker.hears(TOPICS.availability, b"offline")
        await eventually(lambda: broker.topics == [*EVERYTHING, TOPICS.availability])


async def test_one_subscription_that_is_refused_does_not_cost_the_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    broker.refused = {TOPICS.availability}
    async with broker.open():
        await eventually(lambda: TOPICS.home_assistant_status in broker.asked)
    assert f"refused to subscribe {TOPICS.availability}" in caplog.text


async def test_without_home_assistant_there_is_no_device_and_nobody_is_listened_to() -> None:
    async with Broker(home_assistant=False).open() as broker:
        await eventually(lambda: broker.topics == EVERYTHING[1:])
    assert broker.asked == [TOPICS.availability]


async def test_the_last_words_are_the_status_and_offline() -> None:
    broker = Broker()
    await broker.reporter.goodbye()
    assert [(m.topic, m.payload) for m in broker.sent][1:] == [(TOPICS.availability, b"offline")]
    assert broker.topics == [TOPICS.status, TOPICS.availability]
    assert not broker.leaves_will


async def test_last_words_that_nobody_hears_end_it_all_the_same() -> None:
    broker = Broker()
    broker.error = PublishError("not connected")
    await broker.reporter.goodbye()
    assert broker.sent == []
    assert broker.leaves_will
