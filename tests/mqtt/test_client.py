"""What goes over one connection: publishing, subscribing, and the limits of both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rig.fake_broker import PUBACK, PUBLISH_QOS1, SUBACK, Peer, fake_broker
from rig.mosquitto import Mosquitto, eventually
from rig.session import following

from clusterllm_mqtt.errors import BrokerRefusedError, PublishError
from clusterllm_mqtt.mqtt.events import Connected, Disconnected, ProtocolVersion, Received
from clusterllm_mqtt.mqtt.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROTOCOLS: list[ProtocolVersion] = ["5", "3.1.1"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_is_published_is_acknowledged_retained_and_received(
    mosquitto: Mosquitto, protocol: ProtocolVersion
) -> None:
    async with following(replace(mosquitto.options, protocol=protocol)) as follower:
        await follower.connected()
        assert follower.seen == [Connected(protocol)]
        await follower.session.subscribe("test/#")
        messages = [Message(f"test/{n}", b'{"n":%d}' % n, expiry_s=60) for n in range(50)]
        await follower.session.publish(*messages)
        await eventually(lambda: follower.count(Received) == 50)
        assert follower.messages() == [(m.topic, m.payload) for m in messages]
        await follower.session.unsubscribe("test/#")
        await follower.session.publish(Message("test/0", b""), Message("test/q0", b"x", qos=0))
    assert "test/0" not in mosquitto.retained()
    assert mosquitto.retained()["test/q0"] == b"x"


async def test_mqtt_5_carries_content_type_and_expiry(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options) as follower:
        await follower.connected()
        process = await asyncio.create_subprocess_exec(
            "mosquitto_sub", "-p", str(mosquitto.port), "-V", "5", "-t", "test/x",
            "-F", "%C %E", "-C", "1", "-W", "5", stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        await follower.session.publish(Message("test/x", b"{}", expiry_s=180))
        output, _ = await process.communicate()
    content_type, expiry = output.split()
    assert content_type == b"application/json"
    assert 170 < int(expiry) <= 180


async def test_a_message_that_expires_is_not_handed_to_late_readers(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options) as follower:
        await follower.connected()
        await follower.session.publish(Message("test/x", b"online", expiry_s=1))
        assert mosquitto.retained() == {"test/x": b"online"}
        await eventually(lambda: mosquitto.retained() == {})


async def test_what_is_retained_is_told_from_what_happens(mosquitto: Mosquitto) -> None:
    mosquitto.publish("test/x", "before", "-r")
    async with following(mosquitto.options) as follower:
        await follower.connected()
        await follower.session.subscribe("test/x")
        await eventually(lambda: follower.count(Received) == 1)
        mosquitto.publish("test/x", "after", "-r")
        await eventually(lambda: follower.count(Received) == 2)
    assert follower.seen[1:] == [
        Received("test/x", b"before", retain=True),
        Received("test/x", b"after", retain=False),
    ]


async def test_traffic_both_ways_at_once_neither_blocks_nor_mixes(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options) as follower:
        await follower.connected()
        await follower.session.subscribe("test/#")
        batches = [[Message(f"test/{b}/{n}", b"x" * 500) for n in range(600)] for b in range(3)]
        await asyncio.gather(*(follower.session.publish(*batch) for batch in batches))
        await eventually(lambda: follower.count(Received) == 1800)
    sent = [message.topic for batch in batches for message in batch]
    assert [topic for topic, _ in follower.messages()] == sent


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_broker_that_hangs_makes_publishing_fail_not_wait(
    mosquitto: Mosquitto, protocol: ProtocolVersion
) -> None:
    options = replace(mosquitto.options, protocol=protocol, ack_timeout_s=0.5)
    async with following(options) as follower:
        await follower.connected()
        os.kill(mosquitto.pid, signal.SIGSTOP)
        with pytest.raises(PublishError, match="not acknowledged within"):
            await follower.session.publish(Message("test/x", b"1"))
        await eventually(lambda: not follower.session.is_connected)
        with pytest.raises(PublishError, match="not connected"):
            await follower.session.publish(Message("test/x", b"1"))
        os.kill(mosquitto.pid, signal.SIGCONT)
        await follower.connected(times=2)
        await follower.session.publish(Message("test/x", b"2"))
    assert mosquitto.retained() == {"test/x": b"2"}


async def test_a_broker_that_hangs_keeps_nobody_from_leaving(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options) as follower:
        await follower.connected()
        os.kill(mosquitto.pid, signal.SIGSTOP)
        flood = [Message(f"test/{n}", b"x" * 500_000) for n in range(20)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await follower.session.publish(*flood)
        started_s = time.monotonic()
    assert time.monotonic() - started_s < 3


async def test_a_lost_connection_fails_what_was_not_acknowledged(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options) as follower:
        await follower.connected()
        os.kill(mosquitto.pid, signal.SIGSTOP)
        publishing = asyncio.create_task(follower.session.publish(Message("test/x", b"1")))
        await asyncio.sleep(0.1)
        mosquitto.stop(signal.SIGKILL)
        with pytest.raises(PublishError, match="ended before"):
            await publishing


async def test_a_lost_acknowledgement_costs_the_connection_not_a_place_in_its_window() -> None:
    async def serve(peer: Peer) -> None:
        await peer.connect()
        await peer.accept()
        is_first = not lives
        lives.append(peer)
        while True:
            packet_id = await peer.publish()
            if not is_first:
                await peer.send(PUBACK, packet_id)

    lives: list[Peer] = []
    async with fake_broker(serve, ack_timeout_s=0.3) as options, following(options) as follower:
        await follower.connected()
        with pytest.raises(PublishError):
            await follower.session.publish(Message("test/x", b"1"))
        await follower.connected(times=2)
        assert [type(event) for event in follower.seen] == [Connected, Disconnected, Connected]
        await follower.session.publish(Message("test/x", b"1"))


async def test_the_servers_receive_maximum_is_honoured() -> None:
    async def serve(peer: Peer) -> None:
        await peer.connect()
        await peer.accept(b"\x21\x00\x02")
        in_flight: list[bytes] = []
        for _ in range(3):
            in_flight += [await peer.publish(), await peer.publish()]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    in_flight.append(await peer.publish())
            most.append(len(in_flight))
            while in_flight:
                await peer.send(PUBACK, in_flight.pop())
        await peer.forever()

    most: list[int] = []
    async with fake_broker(serve) as options, following(options) as follower:
        await follower.connected()
        await follower.session.publish(*(Message(f"test/{n}", b"x") for n in range(6)))
    assert most == [2, 2, 2]


async def test_a_message_beyond_the_servers_limit_is_refused_the_others_go_out(
    make_mosquitto: Callable[..., Mosquitto],
) -> None:
    broker = make_mosquitto("max_packet_size 2000")
    async with following(broker.options) as follower:
        await follower.connected()
        messages = Message("test/big", b"x" * 3000), Message("test/small", b"x")
        with pytest.raises(BrokerRefusedError, match=r"test/big \(more than 2000 bytes\)"):
            await follower.session.publish(*messages)
        assert follower.count(Disconnected) == 0
    assert list(broker.retained()) == ["test/small"]


async def test_what_an_acl_forbids_to_publish_is_named(
    make_mosquitto: Callable[..., Mosquitto], tmp_path: Path
) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite allowed/#\n", encoding="utf-8")
    broker = make_mosquitto(f"acl_file {acl}")
    async with following(broker.options) as follower:
        await follower.connected()
        with pytest.raises(BrokerRefusedError, match=r"forbidden/x \(Not authorized\)"):
            await follower.session.publish(Message("forbidden/x", b"1"), Message("allowed/x", b"1"))
        await follower.session.subscribe("allowed/#")
    assert broker.retained("allowed/#") == {"allowed/x": b"1"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_filter_that_is_refused_is_named(protocol: ProtocolVersion) -> None:
    async def serve(peer: Peer) -> None:
        await peer.connect()
        await peer.accept()
        _, body = await peer.packet()
        no_properties = b"\x00" if peer.level == 5 else b""
        await peer.send(SUBACK, body[:2] + no_properties + b"\x01\x80")
        await peer.forever()

    async with (
        fake_broker(serve) as options,
        following(replace(options, protocol=protocol)) as follower,
    ):
        await follower.connected()
        with pytest.raises(BrokerRefusedError, match=r"refused to subscribe b/\+: check its ACL"):
            await follower.session.subscribe("a", "b/+")


async def test_a_topic_that_is_no_text_costs_that_message_only() -> None:
    async def serve(peer: Peer) -> None:
        await peer.connect()
        await peer.accept()
        for topic in (b"\xff\xfe", b"ok"):
            await peer.send(PUBLISH_QOS1, b"\x00\x02" + topic + b"\x00\x07\x00payload")
        await peer.forever()

    async with fake_broker(serve) as options, following(options) as follower:
        await eventually(lambda: follower.count(Received) == 1)
        assert follower.messages() == [("ok", b"payload")]
        assert follower.session.is_connected
