"""The order of truth between a bridge and its broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest
from paho.mqtt.client import topic_matches_sub
from rig.mosquitto import eventually

from clusterllm_mqtt.errors import BrokerError, BrokerRefusedError, PublishError, TakenOverError
from clusterllm_mqtt.mqtt.events import Connected, Disconnected, Received, SessionEvent
from clusterllm_mqtt.mqtt.messages import Message
from clusterllm_mqtt.mqtt.publisher import Publisher
from clusterllm_mqtt.mqtt.topics import BridgeTopics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

TOPICS = BridgeTopics()
ONLINE = (TOPICS.availability, b"online")
OFFLINE = (TOPICS.availability, b"offline")
INFO = Message(TOPICS.info("k"), b'{"state":"running"}')
STATUS = Message(TOPICS.status, b'{"endpoints":["k"]}')
DISCOVERY = Message(TOPICS.discovery("k"), b'{"dev":1}')
GHOST = TOPICS.info("ghost")


class FakeSession:
    """A broker and the way to it: keeps what is retained, and echoes to whoever subscribed."""

    def __init__(self, retained: Mapping[str, bytes] | None = None) -> None:
        self.retained = dict(retained or {})
        self.sent: list[tuple[str, bytes]] = []
        self.filters: list[str] = []
        self.refuses: set[str] = set()
        self.unanswered = 0
        self.leaves_will = False
        self.answers = asyncio.Event()
        self.answers.set()
        self._events: asyncio.Queue[SessionEvent | BrokerError] = asyncio.Queue()

    def tell(self, event: SessionEvent | BrokerError) -> None:
        if isinstance(event, Connected):
            self.filters.clear()
        self._events.put_nowait(event)

    def receive(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.tell(Received(topic, payload, retain))

    async def events(self) -> AsyncIterator[SessionEvent]:
        while True:
            event = await self._events.get()
            if isinstance(event, BrokerError):
                raise event
            yield event

    def leave_will(self, *, leave: bool = True) -> None:
        self.leaves_will = leave

    async def publish(self, *messages: Message) -> None:
        await self.answers.wait()
        self._answer()
        for message in messages:
            if message.topic in self.refuses:
                continue
            self.sent.append((message.topic, message.payload))
            if message.retain:
                self.retained[message.topic] = message.payload
            if any(topic_matches_sub(f, message.topic) for f in self.filters):
                self.receive(message.topic, message.payload)
        if refused := self.refuses & {message.topic for message in messages}:
            raise BrokerRefusedError(f"refused {refused}")

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        assert qos in (0, 1)
        self._answer()
        if refused := self.refuses & set(filters):
            raise BrokerRefusedError(f"refused {refused}")
        self.filters += filters
        for topic, payload in self.retained.items():
            if payload and any(topic_matches_sub(f, topic) for f in filters):
                self.receive(topic, payload, retain=True)

    async def unsubscribe(self, *filters: str) -> None:
        for topic_filter in filters:
            self.filters.remove(topic_filter)

    def _answer(self) -> None:
        if self.unanswered:
            self.unanswered -= 1
            raise PublishError("not acknowledged")


class FakeTruth:
    """A bridge whose truth a test sets."""

    def __init__(self, *messages: Message) -> None:
        self.messages = messages
        self.recalled: list[dict[str, bytes]] = []
        self.commands: list[str] = []
        self.errors: list[str] = []
        self.probed = asyncio.Event()
        self.probed.set()

    def desired(self) -> Mapping[str, Message]:
        return {message.topic: message for message in self.messages}

    def recall(self, held: Mapping[str, bytes]) -> None:
        self.recalled.append(dict(held))

    async def all_probed(self) -> None:
        await self.probed.wait()

    def command(self, topic: str) -> None:
        self.commands.append(topic)

    def note_error(self, text: str) -> None:
        self.errors.append(text)


@contextlib.asynccontextmanager
async def running(
    session: FakeSession, truth: FakeTruth, *, heartbeat_s: float = 60
) -> AsyncIterator[Publisher]:
    publisher = Publisher(session, TOPICS, truth, heartbeat_s=heartbeat_s, retry_s=0.1)
    task = asyncio.create_task(publisher.run())
    session.tell(Connected("5"))
    try:
        yield publisher
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def online(session: FakeSession, times: int = 1) -> None:
    await eventually(lambda: session.sent.count(ONLINE) >= times)


async def test_everything_is_said_before_online_and_ghosts_are_gone() -> None:
    session = FakeSession({GHOST: b"{}", TOPICS.bridge_discovery: b"{}", "other/x": b"{}"})
    truth = FakeTruth(DISCOVERY, INFO, STATUS)
    async with running(session, truth):
        await online(session)
    told = [(m.topic, m.payload) for m in (DISCOVERY, INFO, STATUS)]
    assert session.sent[:3] == told
    assert session.sent[-1] == ONLINE
    assert set(session.sent[3:-1]) == {
        (GHOST, b""),
        (TOPICS.discovery("ghost"), b""),
        (TOPICS.bridge_discovery, b""),
    }


async def test_nothing_is_published_before_what_was_recalled_has_been_probed() -> None:
    session = FakeSession({INFO.topic: b'{"state":"running"}'})
    truth = FakeTruth(INFO)
    truth.probed.clear()
    async with running(session, truth):
        await eventually(lambda: bool(truth.recalled))
        await asyncio.sleep(0.1)
        assert session.sent == []
        assert truth.recalled == [{INFO.topic: INFO.payload}]
        truth.probed.set()
        await online(session)


async def test_what_an_index_names_and_nobody_hands_over_is_cleared() -> None:
    session = FakeSession({STATUS.topic: json.dumps({"endpoints": ["gone"]}).encode()})
    async with running(session, FakeTruth(STATUS)):
        await online(session)
    assert (TOPICS.info("gone"), b"") in session.sent


async def test_on_each_new_connection_everything_is_said_again_and_recalled_only_once() -> None:
    session = FakeSession()
    truth = FakeTruth(INFO, STATUS)
    async with running(session, truth):
        await online(session)
        session.retained.clear()  # the broker lost its memory
        session.tell(Disconnected("gone"))
        session.tell(Connected("5"))
        await online(session, 2)
    assert session.sent.count((INFO.topic, INFO.payload)) == 2
    assert len(truth.recalled) == 1
    assert truth.errors == ["connection to the broker lost: gone"]


async def test_a_connection_lost_on_the_way_says_no_online() -> None:
    session = FakeSession()
    truth = FakeTruth(INFO)
    truth.probed.clear()
    async with running(session, truth):
        await eventually(lambda: bool(truth.recalled))
        session.tell(Disconnected("gone"))
        truth.probed.set()
        await asyncio.sleep(0.2)
        assert session.sent == []


async def test_changes_are_published_then_their_events() -> None:
    session = FakeSession()
    truth = FakeTruth(INFO)
    event = Message(TOPICS.event("k"), b"{}", retain=False)
    async with running(session, truth) as publisher:
        publisher.changed([event])  # not live yet: what happens before online is no news
        await online(session)
        truth.messages = (Message(INFO.topic, b"new"),)
        publisher.changed([event])
        await eventually(lambda: session.sent[-2:] == [(INFO.topic, b"new"), (event.topic, b"{}")])
    assert session.sent.count((event.topic, b"{}")) == 1


async def test_what_did_not_go_out_goes_out_with_the_next_change() -> None:
    session = FakeSession()
    truth = FakeTruth(INFO)
    async with running(session, truth) as publisher:
        await online(session)
        session.unanswered = 1
        truth.messages = (Message(INFO.topic, b"new"),)
        publisher.changed()
        await eventually(lambda: truth.errors == ["not acknowledged"])
        publisher.changed()
        await eventually(lambda: session.sent[-1] == (INFO.topic, b"new"))


async def test_a_step_that_is_not_answered_is_taken_again() -> None:
    session = FakeSession()
    session.unanswered = 3
    truth = FakeTruth(INFO)
    async with running(session, truth):
        await online(session)
    assert truth.errors == ["not acknowledged"] * 3


async def test_a_refused_message_keeps_nothing_else_back_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = FakeSession()
    session.refuses = {DISCOVERY.topic}  # too large, or forbidden by an ACL
    truth = FakeTruth(DISCOVERY, INFO, STATUS)
    async with running(session, truth) as publisher:
        await online(session)
        for n in range(3):
            truth.messages = (DISCOVERY, Message(INFO.topic, b"%d" % n), STATUS)
            publisher.changed()
            await eventually(lambda n=n: session.sent[-1] == (INFO.topic, b"%d" % n))  # type: ignore[misc]
    assert len(truth.errors) == 1
    assert caplog.text.count("refused") == 1


async def test_home_assistants_topics_can_be_done_without() -> None:
    session = FakeSession()
    session.refuses = {TOPICS.home_assistant_status, TOPICS.command_probe}
    async with running(session, FakeTruth(INFO)):
        await online(session)


async def test_our_own_topics_cannot_be_done_without(caplog: pytest.LogCaptureFixture) -> None:
    session = FakeSession()
    session.refuses = {TOPICS.info("+")}
    truth = FakeTruth(INFO)
    async with running(session, truth):
        await eventually(lambda: len(truth.errors) > 2)
        assert session.sent == []
        session.refuses = set()
        await online(session)
    assert caplog.text.count("refused") == 1


async def test_online_is_repeated_with_its_expiry() -> None:
    session = FakeSession()
    async with running(session, FakeTruth(), heartbeat_s=0.1):
        await online(session, 3)
        session.tell(Disconnected("gone"))
        await eventually(lambda: len(session.sent) > 0)
        before = session.sent.count(ONLINE)
        await asyncio.sleep(0.3)
        assert session.sent.count(ONLINE) <= before + 1


async def test_a_late_will_of_an_earlier_connection_is_answered_with_online() -> None:
    session = FakeSession()
    async with running(session, FakeTruth()):
        await online(session)
        session.receive(*OFFLINE)
        await online(session, 2)


async def test_what_a_stranger_writes_over_ours_is_mended() -> None:
    session = FakeSession()
    async with running(session, FakeTruth(INFO)):
        await online(session)
        for payload in (b"wrong", b""):
            before = len(session.sent)
            session.receive(INFO.topic, payload)
            await eventually(lambda n=before: session.sent[n:] == [(INFO.topic, INFO.payload)])  # type: ignore[misc]


async def test_home_assistants_birth_brings_everything_again_its_will_nothing() -> None:
    session = FakeSession()
    async with running(session, FakeTruth(DISCOVERY, INFO)):
        await online(session)
        before = len(session.sent)
        session.receive(TOPICS.home_assistant_status, b"offline")
        await asyncio.sleep(0.1)
        session.receive(TOPICS.home_assistant_status, b"online")
        session.receive(TOPICS.home_assistant_status, b"online")
        await eventually(lambda: len(session.sent) > before)
        await asyncio.sleep(0.1)
    topics = [topic for topic, _ in session.sent[before:]]
    assert topics == [DISCOVERY.topic, INFO.topic, TOPICS.availability]


async def test_a_command_is_passed_on_a_retained_one_is_stale() -> None:
    session = FakeSession()
    truth = FakeTruth()
    async with running(session, truth):
        await online(session)
        session.receive(TOPICS.command_probe, b"x", retain=True)
        session.receive(TOPICS.endpoint_command_probe("k"), b"x")
        session.receive(TOPICS.command_probe, b"")
        await eventually(lambda: len(truth.commands) == 2)
    assert truth.commands == [TOPICS.endpoint_command_probe("k"), TOPICS.command_probe]


async def test_goodbye_is_offline_and_nothing_after_it() -> None:
    session = FakeSession()
    async with running(session, FakeTruth(INFO), heartbeat_s=0.05) as publisher:
        await online(session)
        await publisher.goodbye()
        publisher.changed()
        await asyncio.sleep(0.2)
        assert session.sent[-1] == OFFLINE


async def test_goodbye_without_a_broker_is_left_to_the_will() -> None:
    session = FakeSession()
    async with running(session, FakeTruth()) as publisher:
        await online(session)
        session.unanswered = 1
        await publisher.goodbye()
    assert OFFLINE not in session.sent


async def test_the_end_of_the_session_is_the_end() -> None:
    session = FakeSession()
    publisher = Publisher(session, TOPICS, FakeTruth())
    session.tell(TakenOverError("another client"))
    with pytest.raises(ExceptionGroup) as caught:
        await publisher.run()
    assert caught.group_contains(TakenOverError)


async def test_an_event_that_is_over_is_not_told_after_a_reconnect() -> None:
    session, truth = FakeSession(), FakeTruth(STATUS)
    over = Message(TOPICS.event("k"), b'{"event_type":"not_reachable"}', retain=False)
    async with running(session, truth) as publisher:
        await online(session)
        await asyncio.sleep(0.05)
        session.answers.clear()
        truth.messages = (INFO, STATUS)
        publisher.changed()
        await asyncio.sleep(0.05)
        publisher.changed([over])
        session.tell(Disconnected("an acknowledgement is overdue"))
        await asyncio.sleep(0.05)
        session.answers.set()
        session.tell(Connected("5"))
        await online(session, 2)
        await asyncio.sleep(0.1)
    assert over.topic not in [topic for topic, _ in session.sent]


async def test_who_cannot_say_goodbye_leaves_the_will() -> None:
    session, truth = FakeSession(), FakeTruth(STATUS)
    async with running(session, truth) as publisher:
        await online(session)
        session.unanswered = 1
        await publisher.goodbye()
        assert session.leaves_will
        await publisher.goodbye()
        assert not session.leaves_will
