"""A lasting session: brokers that come late, go, come back, or speak an older MQTT."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rig.fake_broker import Peer, fake_broker
from rig.mosquitto import Mosquitto, eventually, free_port
from rig.session import following

from clusterllm_mqtt.errors import PublishError
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
from clusterllm_mqtt.mqtt.events import Connected, Disconnected
from clusterllm_mqtt.mqtt.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterllm_mqtt.mqtt.events import ProtocolVersion

WILL = Message("test/availability", b"offline")
BOTH = pytest.mark.parametrize("protocol", ["5", "3.1.1"])


async def test_a_broker_that_comes_later_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Mosquitto(tmp_path)
    try:
        async with following(broker.options) as follower:
            await eventually(lambda: "trying again" in caplog.text)
            with pytest.raises(PublishError, match="not connected"):
                await follower.session.publish(Message("test/x", b"1"))
            broker.start()
            await follower.connected()
    finally:
        broker.stop()


async def test_a_name_that_nobody_knows_yet_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with following(BrokerOptions("no-such-host.invalid")) as follower:
        await eventually(lambda: "trying again" in caplog.text)
        assert follower.error is None


async def test_nobody_listens_there_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with following(BrokerOptions(port=free_port())):
        await asyncio.sleep(2.5)
    assert caplog.text.count("trying again") == 1


async def test_a_broker_that_never_answers_is_left_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def serve(peer: Peer) -> None:
        await peer.forever()

    async with fake_broker(serve) as options, following(options) as follower:
        await eventually(lambda: "no answer to CONNECT; trying again" in caplog.text)
        assert follower.error is None


async def test_a_session_that_cannot_go_on_says_so_instead_of_hanging() -> None:
    async with following(BrokerOptions(host="")) as follower:
        assert isinstance(await follower.ended(), ValueError)


@BOTH
async def test_a_broker_restart_is_told_and_survived(
    mosquitto: Mosquitto, protocol: ProtocolVersion
) -> None:
    async with following(replace(mosquitto.options, protocol=protocol)) as follower:
        await follower.connected()
        await asyncio.to_thread(mosquitto.restart)
        await follower.connected(times=2)
        assert [type(e) for e in follower.seen] == [Connected, Disconnected, Connected]
        await follower.session.publish(Message("test/x", b"1"))
    assert mosquitto.retained() == {"test/x": b"1"}


@pytest.mark.parametrize("is_persistent", [True, False])
async def test_what_a_broker_kept_over_a_restart_can_be_read_again(
    make_mosquitto: Callable[..., Mosquitto], tmp_path: Path, *, is_persistent: bool
) -> None:
    lines = ("persistence true", f"persistence_location {tmp_path}/") if is_persistent else ()
    broker = make_mosquitto(*lines)
    async with following(broker.options) as follower:
        await follower.connected()
        await follower.session.publish(Message("test/x", b"1"))
        await asyncio.to_thread(broker.restart)
        await follower.connected(times=2)
        await follower.session.subscribe("test/#")
        await follower.session.publish(Message("test/end", b""))
        await eventually(lambda: ("test/end", b"") in follower.messages())
        assert (("test/x", b"1") in follower.messages()) is is_persistent


async def test_a_reconnect_storm_ends_connected(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options) as follower:
        await follower.connected()
        for _ in range(5):
            await asyncio.to_thread(mosquitto.restart, signal.SIGKILL)
            await asyncio.sleep(0.05)
        await eventually(lambda: follower.session.is_connected, 20)
        await follower.session.publish(Message("test/x", b"1"))


@BOTH
async def test_the_will_of_a_killed_process_fires(
    mosquitto: Mosquitto, protocol: ProtocolVersion
) -> None:
    code = (
        "import asyncio\n"
        "from clusterllm_mqtt.mqtt.session import Session\n"
        "from clusterllm_mqtt.mqtt.messages import Message\n"
        "from clusterllm_mqtt.mqtt.broker_options import BrokerOptions\n"
        "async def main():\n"
        f"    options = BrokerOptions(port={mosquitto.port}, protocol={protocol!r})\n"
        f"    will = Message({WILL.topic!r}, {WILL.payload!r})\n"
        "    async with Session(options, client_id='dies', will=will) as session:\n"
        "        async for event in session.events():\n"
        f"            await session.publish(Message({WILL.topic!r}, b'online'))\n"
        "            print('ready', flush=True)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        assert mosquitto.retained() == {WILL.topic: b"online"}
    finally:
        process.kill()
        await process.wait()
    await eventually(lambda: mosquitto.retained() == {WILL.topic: b"offline"})


async def test_the_will_of_a_host_that_vanished_fires_within_30_seconds() -> None:
    async def serve(peer: Peer) -> None:
        first, body = await peer.packet()
        name_length = int.from_bytes(body[:2])
        keepalives.append(int.from_bytes(body[4 + name_length : 6 + name_length]))
        assert first == 0x10

    keepalives: list[int] = []
    async with fake_broker(serve) as options, following(options):
        await eventually(lambda: bool(keepalives))
    assert keepalives[0] * 1.5 <= 30


async def test_an_orderly_end_fires_no_will(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options, will=WILL) as follower:
        await follower.connected()
    assert mosquitto.retained() == {}


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_broker_without_mqtt_5_is_spoken_to_in_311(*, says_so: bool) -> None:
    async def serve(peer: Peer) -> None:
        levels.append(await peer.connect())
        if peer.level == 4:
            await peer.accept()
            await peer.forever()
        elif says_so:
            await peer.send(0x20, b"\x00\x01")  # what MQTT 3.1.1 has for it

    levels: list[int] = []
    async with fake_broker(serve) as options, following(options) as follower:
        await follower.connected()
        assert follower.seen == [Connected("3.1.1")]
        assert levels == ([5, 4] if says_so else [5, 5, 4])


async def test_a_configured_version_is_insisted_on(caplog: pytest.LogCaptureFixture) -> None:
    async def serve(peer: Peer) -> None:
        levels.append(await peer.connect())
        await peer.refuse(0x84)

    levels: list[int] = []
    async with fake_broker(serve) as options, following(replace(options, protocol="5")):
        await eventually(lambda: len(levels) == 2)
    assert levels == [5, 5]
    assert "does not speak MQTT 5; trying again" in caplog.text
