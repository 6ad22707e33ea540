"""Reading what a broker retains, also when it drops silently."""

from __future__ import annotations

import asyncio
import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING

from rig.mosquitto import Mosquitto, eventually

from clusterllm_mqtt.mqtt.events import Connected, Received
from clusterllm_mqtt.mqtt.messages import Message
from clusterllm_mqtt.mqtt.retained import indexed_topics
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.snapshot import Snapshot
from clusterllm_mqtt.mqtt.topics import BridgeTopics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


TOPICS = BridgeTopics()


def new_snapshot() -> Snapshot:
    return Snapshot(TOPICS.own_filters(), partial(indexed_topics, TOPICS))


@contextlib.asynccontextmanager
async def feeding(broker: Mosquitto, snapshot: Snapshot) -> AsyncIterator[Session]:
    async with Session(broker.options, client_id="reader") as session:
        events = session.events()
        assert isinstance(await anext(events), Connected)

        async def feed() -> None:
            async for event in events:
                if isinstance(event, Received):
                    snapshot.saw(event.topic, event.payload, is_retained=event.retain)

        task = asyncio.create_task(feed())
        yield session
        task.cancel()


def tree(count: int) -> list[Message]:
    """The retained topics of a bridge with many endpoints."""
    keys = [f"k{n:04}" for n in range(count)]
    records = [Message(t, b"{}") for k in keys for t in (TOPICS.info(k), TOPICS.probe(k))]
    return [*records, Message(TOPICS.status, json.dumps({"endpoints": keys}).encode())]


async def test_nothing_retained_is_a_complete_snapshot(mosquitto: Mosquitto) -> None:
    snapshot = new_snapshot()
    async with feeding(mosquitto, snapshot) as session:
        assert await snapshot.read(session, quiet_s=0.2) == frozenset()
    assert snapshot.held == {}


async def test_more_than_a_default_mosquitto_hands_over_is_read_whole(mosquitto: Mosquitto) -> None:
    snapshot = new_snapshot()
    messages = tree(1500)
    async with feeding(mosquitto, new_snapshot()) as writer:
        await writer.publish(*messages)
    async with feeding(mosquitto, snapshot) as session:
        first_burst = Snapshot(["clusterllm/#"], lambda _: frozenset())
        assert await snapshot.read(session) == frozenset()
        assert snapshot.held == {m.topic: m.payload for m in messages}
    async with feeding(mosquitto, first_burst) as session:
        await first_burst.read(session)
    assert len(first_burst.held) < len(messages), "the broker dropped nothing: this proves nothing"


async def test_ten_thousand_endpoints_of_twenty_bridges_are_read_within_15_seconds(
    mosquitto: Mosquitto,
) -> None:
    bridges = [BridgeTopics(bridge=f"home-{n}") for n in range(20)]
    keys = [f"k{n:04}" for n in range(500)]

    def infos(held: Mapping[str, bytes]) -> frozenset[str]:
        named = (topic for topics in bridges for topic in indexed_topics(topics, held))
        return frozenset(topic for topic in named if topic.endswith("/info"))

    filters = ["clusterllm/bridge/+/status", "clusterllm/bridge/+/endpoint/+/info"]
    snapshot = Snapshot(filters, infos)
    index = json.dumps({"endpoints": keys}).encode()
    async with feeding(mosquitto, new_snapshot()) as writer:
        for topics in bridges:
            records = (Message(topics.info(key), b'{"state":"running"}') for key in keys)
            await writer.publish(*records, Message(topics.status, index))
    async with feeding(mosquitto, snapshot) as session, asyncio.timeout(15):
        assert await snapshot.read(session) == frozenset()
    assert len(snapshot.held) == 20 * 501


async def test_who_reads_anew_forgets_what_the_broker_forgot(mosquitto: Mosquitto) -> None:
    snapshot = new_snapshot()
    async with feeding(mosquitto, snapshot) as session:
        snapshot.saw(TOPICS.info("gone"), b"{}")
        await snapshot.read(session, quiet_s=0.2)
    assert snapshot.held == {}


async def test_after_reading_the_filters_still_tell_what_changes(mosquitto: Mosquitto) -> None:
    snapshot = new_snapshot()
    async with feeding(mosquitto, snapshot) as session:
        await session.publish(Message(TOPICS.status, b'{"endpoints":["gone"]}'))
        await snapshot.read(session, quiet_s=0.2)
        assert snapshot.missing == {TOPICS.info("gone"), TOPICS.probe("gone")}
        mosquitto.publish(TOPICS.info("gone"), "{}", "-r")
        await eventually(lambda: TOPICS.info("gone") in snapshot.held)


async def test_what_really_is_not_there_is_told(mosquitto: Mosquitto) -> None:
    snapshot = new_snapshot()
    async with feeding(mosquitto, snapshot) as session:
        index = Message(TOPICS.status, b'{"endpoints":["here","gone"]}')
        here = [Message(TOPICS.info("here"), b"{}"), Message(TOPICS.probe("here"), b"{}")]
        await session.publish(index, *here)
        missing = await snapshot.read(session, quiet_s=0.2)
    assert missing == {TOPICS.info("gone"), TOPICS.probe("gone")}


async def test_a_withdrawal_while_reading_is_taken_in(mosquitto: Mosquitto) -> None:
    snapshot = new_snapshot()
    async with feeding(mosquitto, snapshot) as session:
        await session.publish(Message(TOPICS.info("k"), b"{}"))
        await snapshot.read(session, quiet_s=0.2)
        assert TOPICS.info("k") in snapshot.held
        await session.publish(Message(TOPICS.info("k"), b""))
        await asyncio.sleep(0.2)
    assert snapshot.held == {}


async def test_the_time_is_bounded() -> None:
    class Silent:
        async def subscribe(self, *filters: str, qos: int = 1) -> None:
            """Nothing ever comes."""

        async def unsubscribe(self, *filters: str) -> None:
            """Nothing to do."""

    snapshot = Snapshot(["a"], lambda _: frozenset({"b"}))
    async with asyncio.timeout(5):
        assert await snapshot.read(Silent(), quiet_s=0.05, limit_s=0.3) == {"b"}


async def test_steady_live_traffic_does_not_keep_it_from_asking_for_what_is_missing() -> None:
    class Busy:
        """Drops `b` in the burst, hands it over when asked, and repeats `a` all the time."""

        def __init__(self) -> None:
            self.chatter: asyncio.Task[None] | None = None

        async def subscribe(self, *filters: str, qos: int = 1) -> None:
            assert qos == 1
            if self.chatter is None:
                self.chatter = asyncio.create_task(self.repeat())
            if "b" in filters:
                snapshot.saw("b", b"1")

        async def unsubscribe(self, *filters: str) -> None:
            """Nothing to do."""

        async def repeat(self) -> None:
            for number in range(500):
                snapshot.saw("a", str(number).encode())
                await asyncio.sleep(0.01)

    broker = Busy()
    snapshot = Snapshot(["+"], lambda _: frozenset({"a", "b"}))
    async with asyncio.timeout(2):
        assert await snapshot.read(broker, quiet_s=0.1) == frozenset()
    assert broker.chatter is not None
    broker.chatter.cancel()


async def test_live_messages_do_not_keep_a_burst_from_settling(mosquitto: Mosquitto) -> None:
    """Of many bridges some are first heard of by what they say now."""
    snapshot = new_snapshot()
    async with feeding(mosquitto, snapshot) as session:
        await session.publish(Message(TOPICS.status, b'{"endpoints":["k"]}'))

        async def chatter() -> None:
            for number in range(500):
                await session.publish(Message(f"{TOPICS.root}/endpoint/new{number}/info", b"{}"))
                await asyncio.sleep(0.02)

        chattering = asyncio.create_task(chatter())
        async with asyncio.timeout(5):
            missing = await snapshot.read(session, quiet_s=0.2)
        chattering.cancel()
    assert missing == {TOPICS.info("k"), TOPICS.probe("k")}


async def test_what_a_broker_drops_once_more_is_asked_for_once_more() -> None:
    class Forgetful:
        """Hands over `b` only when it is asked for the second time."""

        asked = 0

        async def subscribe(self, *filters: str, qos: int = 1) -> None:
            assert qos == 1
            self.asked += "b" in filters
            if self.asked == 2:
                snapshot.saw("b", b"1")

        async def unsubscribe(self, *filters: str) -> None:
            """Nothing to do."""

    snapshot = Snapshot(["+"], lambda _: frozenset({"b"}))
    assert await snapshot.read(Forgetful(), quiet_s=0.05) == frozenset()
