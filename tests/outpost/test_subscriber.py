"""When an outpost knows what runs: after the burst, without a gap, and with a broker."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from rig.mosquitto import Mosquitto, eventually

from clusterllm_mqtt.errors import BrokerRefusedError
from clusterllm_mqtt.mqtt.events import Connected, Disconnected, Received
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.topics import OutpostTopics
from clusterllm_mqtt.outpost.leases import GRACE_S, LEASE_S
from clusterllm_mqtt.outpost.subscriber import CROWD, REFRESH_S, Subscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from clusterllm_mqtt.mqtt.events import SessionEvent

ROOT = "clusterllm/bridge/home"
RUNNING = b'{"state":"running"}'


class Broker:
    """Hands over what it retains, as far as it likes to; `dropped` topics never arrive."""

    def __init__(self) -> None:
        self.retained: dict[str, bytes] = {}
        self.dropped: set[str] = set()
        self.refuses = False
        self.asked: list[tuple[str, ...]] = []
        self.now_s = 1000.0
        self.changes = 0
        self.subscriber = Subscriber(
            self,
            OutpostTopics(),
            self._changed,
            clock=lambda: self.now_s,
            quiet_s=0.01,
            again_s=0.01,
        )
        self._tasks: asyncio.TaskGroup | None = None

    def _changed(self) -> None:
        self.changes += 1

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        assert qos == 1
        self.asked.append(filters)
        if self.refuses:
            raise BrokerRefusedError("127.0.0.1:1883 refused to subscribe: check its ACL")
        for topic, payload in self.retained.items():
            if topic not in self.dropped:
                self.take(Received(topic, payload, retain=True))

    async def unsubscribe(self, *filters: str) -> None:
        """Nothing to do."""

    def take(self, event: SessionEvent) -> None:
        assert self._tasks is not None
        self.subscriber.take(event, self._tasks)

    def live(self, topic: str, payload: bytes) -> None:
        self.take(Received(f"{ROOT}/{topic}", payload, retain=False))

    def retain(self, *keys: str, availability: bytes = b"online") -> None:
        for key in keys:
            self.retained[f"{ROOT}/endpoint/{key}/info"] = RUNNING
        self.retained[f"{ROOT}/status"] = json.dumps({"endpoints": keys}).encode()
        self.retained[f"{ROOT}/availability"] = availability

    @property
    def keys(self) -> list[str] | None:
        running = self.subscriber.running()
        return None if running is None else [one.key for one in running]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Broker]:
        async with asyncio.TaskGroup() as self._tasks:
            yield self
            self.take(Disconnected("the end"))


async def test_nothing_is_known_before_the_broker_was_read() -> None:
    broker = Broker()
    assert broker.keys is None
    broker.retain("a", "b")
    async with broker.open():
        broker.take(Connected("5"))
        assert broker.keys is None
        await eventually(lambda: broker.keys == ["a", "b"])
    assert broker.keys is None


async def test_an_empty_broker_is_known_to_have_nothing() -> None:
    async with Broker().open() as broker:
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == [])


async def test_a_live_message_changes_it_and_a_repeated_one_does_not() -> None:
    async with Broker().open() as broker:
        broker.retain("a")
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == ["a"])
        before = broker.changes
        broker.live("availability", b"online")
        broker.live("endpoint/a/info", RUNNING)
        assert broker.changes == before
        broker.live("endpoint/a/info", b'{"state":"not_reachable"}')
        assert broker.changes == before + 1
        assert broker.keys == []


async def test_what_is_missing_is_asked_for_again_exactly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker().open() as broker:
        broker.retain("a", "b")
        gap = f"{ROOT}/endpoint/b/info"
        broker.dropped = {gap}
        broker.take(Connected("5"))
        await eventually(lambda: (gap,) in broker.asked)
        await eventually(lambda: gap in broker.subscriber.trouble)
        assert broker.keys is None
        await eventually(lambda: "nothing is pushed meanwhile" in caplog.text)
        assert caplog.text.count("have not arrived") == 1
        broker.dropped = set()
        await eventually(lambda: broker.keys == ["a", "b"])
        assert broker.subscriber.trouble == ""


async def test_a_gap_that_a_live_message_fills_is_none() -> None:
    async with Broker().open() as broker:
        broker.retain("a", "b")
        broker.dropped = {f"{ROOT}/endpoint/b/info"}
        broker.take(Connected("5"))
        await eventually(lambda: bool(broker.subscriber.trouble))
        broker.live("endpoint/b/info", RUNNING)
        await eventually(lambda: broker.keys == ["a", "b"])


async def test_an_availability_that_was_dropped_is_asked_for() -> None:
    async with Broker().open() as broker:
        broker.retain("a")
        broker.dropped = {f"{ROOT}/availability"}
        broker.take(Connected("5"))
        await eventually(lambda: (f"{ROOT}/availability",) in broker.asked)


async def test_a_refused_subscription_is_told_and_nothing_is_known() -> None:
    async with Broker().open() as broker:
        broker.refuses = True
        broker.take(Connected("5"))
        await eventually(lambda: "check its ACL" in broker.subscriber.trouble)
        assert broker.keys is None
        broker.refuses = False
        await eventually(lambda: broker.keys == [])


async def test_a_record_that_cannot_be_read_is_told_and_the_others_count() -> None:
    async with Broker().open() as broker:
        broker.retain("a", "b")
        broker.retained[f"{ROOT}/endpoint/b/info"] = b"garbage"
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == ["a"])
        assert "endpoint/b/info" in broker.subscriber.trouble


async def test_of_a_crowd_those_that_the_broker_left_out_are_waited_for() -> None:
    async with Broker().open() as broker:
        for number in range(CROWD):
            broker.retained[f"clusterllm/bridge/b{number}/status"] = b'{"endpoints":[]}'
            broker.retained[f"clusterllm/bridge/b{number}/availability"] = b"online"
        broker.retain("a")
        broker.dropped = {f"{ROOT}/{leaf}" for leaf in ("availability", "status")}
        broker.take(Connected("5"))
        await asyncio.sleep(0.1)
        assert broker.keys is None
        broker.dropped = set()
        broker.live("availability", b"online")
        broker.now_s += GRACE_S
        await eventually(lambda: broker.keys == ["a"])


@pytest.mark.parametrize(
    "topic",
    [
        "clusterllm/bridge/home/endpoint/a/probe",
        "clusterllm/bridge/Home/availability",
        "clusterllm/bridge/home/endpoint/A B/info",
        "clusterllm/bridge/home/endpoint/a/info/more",
        "clusterllm/bridge/outpost/availability",
        "clusterllm/outpost/home/availability",
        "other/bridge/home/availability",
        "clusterllm/bridge//availability",
    ],
)
async def test_what_no_bridge_of_ours_publishes_is_ignored(topic: str) -> None:
    async with Broker().open() as broker:
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == [])
        before = broker.changes
        broker.take(Received(topic, b"online", retain=False))
        assert broker.changes == before


async def test_without_a_broker_nothing_is_known_and_later_that_nobody_is_online() -> None:
    async with Broker().open() as broker:
        broker.retain("a")
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == ["a"])
        broker.take(Disconnected("gone"))
        assert broker.keys is None
        assert broker.subscriber.lapses_in_s() == LEASE_S
        broker.now_s += LEASE_S - 0.1
        assert broker.keys is None
        broker.now_s += 0.1
        assert broker.keys == []
        assert broker.subscriber.lapses_in_s() > 0


async def test_a_broker_that_comes_and_goes_keeps_no_old_state_alive() -> None:
    async with Broker().open() as broker:
        broker.retain("a")
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == ["a"])
        for _ in range(int(LEASE_S / 20)):
            broker.take(Disconnected("again"))
            broker.take(Connected("5"))
            broker.now_s += 20
            assert broker.keys is None
        broker.take(Disconnected("again"))
        assert broker.keys == []


async def test_a_refusal_while_all_is_known_is_asked_again_soon() -> None:
    async with Broker().open() as broker:
        broker.retain("a")
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == ["a"])
        broker.refuses = True
        broker.now_s += REFRESH_S
        broker.live("availability", b"online")
        await eventually(lambda: "check its ACL" in broker.subscriber.trouble)
        assert broker.keys == ["a"]
        broker.refuses = False
        await eventually(lambda: broker.subscriber.trouble == "")


async def test_a_broker_that_never_was_there_is_the_same() -> None:
    broker = Broker()
    broker.now_s += LEASE_S
    assert broker.keys == []


async def test_after_a_restart_of_the_broker_its_bridges_are_waited_for() -> None:
    async with Broker().open() as broker:
        broker.retain("a")
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == ["a"])
        broker.take(Disconnected("restart"))
        broker.retained.clear()
        broker.take(Connected("5"))
        await eventually(lambda: "waiting to hear from bridges" in broker.subscriber.trouble)
        assert broker.keys is None
        broker.live("endpoint/a/info", RUNNING)
        broker.live("status", b'{"endpoints":["a"]}')
        broker.live("availability", b"online")
        await eventually(lambda: broker.keys == ["a"])


async def test_a_bridge_that_died_with_the_broker_is_not_waited_for_in_vain() -> None:
    async with Broker().open() as broker:
        broker.retain("a")
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == ["a"])
        broker.take(Disconnected("restart"))
        broker.retained.clear()
        broker.take(Connected("5"))
        await eventually(lambda: "waiting to hear from bridges" in broker.subscriber.trouble)
        assert broker.subscriber.lapses_in_s() == GRACE_S
        broker.now_s += GRACE_S
        await eventually(lambda: broker.keys == [])


async def test_everything_is_read_anew_from_time_to_time() -> None:
    async with Broker().open() as broker:
        broker.retain("a")
        broker.take(Connected("5"))
        await eventually(lambda: broker.keys == ["a"])
        broker.retained[f"{ROOT}/endpoint/a/info"] = b'{"state":"not_reachable"}'  # dropped live
        assert broker.keys == ["a"]
        broker.live("availability", b"online")
        broker.now_s += REFRESH_S
        broker.live("availability", b"online")
        await eventually(lambda: broker.keys == [])


async def test_only_the_chosen_bridges_are_read(mosquitto: Mosquitto) -> None:
    for bridge in ("one", "two", "three"):
        root = f"clusterllm/bridge/{bridge}"
        mosquitto.publish_many(
            {
                f"{root}/endpoint/a/info": '{"state":"running"}',
                f"{root}/status": '{"endpoints":["a"]}',
                f"{root}/availability": "online",
            }
        )
    async with Session(mosquitto.options, client_id="outpost") as session:
        topics = OutpostTopics(bridges=("one", "three"))
        subscriber = Subscriber(session, topics, lambda: None, quiet_s=0.1)
        async with asyncio.TaskGroup() as tasks:

            async def follow() -> None:
                async for event in session.events():
                    subscriber.take(event, tasks)

            following = tasks.create_task(follow())
            await eventually(lambda: subscriber.running() is not None)
            assert [one.bridge for one in subscriber.running() or ()] == ["one", "three"]
            following.cancel()
            subscriber.take(Disconnected("the end"), tasks)


async def test_a_real_broker_tells_how_old_a_retained_online_is(mosquitto: Mosquitto) -> None:
    mosquitto.publish(f"{ROOT}/status", '{"endpoints":[]}', "-r")
    mosquitto.publish(
        f"{ROOT}/availability", "online", "-r", "-V", "5", "-D", "publish",
        "message-expiry-interval", "180",
    )  # fmt: skip
    await asyncio.sleep(1.1)
    async with Session(mosquitto.options, client_id="outpost") as session:
        await session.events().__anext__()
        await session.subscribe(f"{ROOT}/availability")
        message = await session.events().__anext__()
    assert isinstance(message, Received)
    assert message.expires_in_s in {177, 178, 179}
