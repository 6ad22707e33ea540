"""Two clients with one id: one gives way; a broker that restarts is nobody's takeover."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rig.fake_broker import DISCONNECT, Peer, fake_broker
from rig.mosquitto import Mosquitto, eventually
from rig.session import following

from clusterllm_mqtt.errors import TakenOverError
from clusterllm_mqtt.mqtt.events import Connected, Disconnected
from clusterllm_mqtt.mqtt.messages import Message

if TYPE_CHECKING:
    from clusterllm_mqtt.mqtt.events import ProtocolVersion

BOTH = pytest.mark.parametrize("protocol", ["5", "3.1.1"])


async def test_being_told_ends_the_session_at_once() -> None:
    async def serve(peer: Peer) -> None:
        await peer.connect()
        await peer.accept()
        await peer.send(DISCONNECT, b"\x8e\x00")

    async with fake_broker(serve) as options, following(options) as follower:
        error = await follower.ended()
        assert isinstance(error, TakenOverError)
        assert "another client connected to" in str(error)
        assert "'test'" in str(error)
        assert follower.count(Connected) == 1


@BOTH
async def test_one_of_two_gives_way_soon_and_the_other_stays(
    mosquitto: Mosquitto, protocol: ProtocolVersion
) -> None:
    options = replace(mosquitto.options, protocol=protocol)
    async with following(options) as first, following(options) as second:
        await eventually(lambda: bool(first.error or second.error))
        loser, winner = (first, second) if first.error else (second, first)
        assert isinstance(loser.error, TakenOverError)
        assert loser.count(Connected) <= 3
        await eventually(lambda: winner.session.is_connected)
        await winner.session.publish(Message("test/x", b"1"))
        assert winner.error is None


@BOTH
async def test_a_broker_that_restarts_often_is_no_takeover(
    mosquitto: Mosquitto, protocol: ProtocolVersion
) -> None:
    async with following(replace(mosquitto.options, protocol=protocol)) as follower:
        for times in range(1, 5):
            await follower.connected(times)
            await asyncio.to_thread(mosquitto.restart, signal.SIGKILL)
        await follower.connected(5)


async def test_a_proxy_whose_broker_restarts_is_no_takeover() -> None:
    async def serve(peer: Peer) -> None:
        levels.append(await peer.connect())
        if len(levels) % 2:
            await peer.accept()
            await asyncio.sleep(0.02)

    levels: list[int] = []
    async with fake_broker(serve) as options, following(options) as follower:
        await follower.connected(times=4)
        assert set(levels) == {5}, "a version that worked is kept"


async def test_a_broker_that_says_why_it_disconnects_is_no_takeover_and_not_hurried() -> None:
    async def serve(peer: Peer) -> None:
        await peer.connect()
        await peer.accept()
        await peer.send(DISCONNECT, b"\x8b\x00")

    async with fake_broker(serve) as options, following(options) as follower:
        await eventually(lambda: follower.count(Disconnected) == 3)
        assert follower.error is None
        assert Disconnected("Server shutting down") in follower.seen
        await asyncio.sleep(0.5)
        assert follower.count(Connected) == 3
