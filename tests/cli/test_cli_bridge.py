"""`bridge` as a process: what it says, how it ends, and what it outlives."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from typing import TYPE_CHECKING

import pytest
from rig.mosquitto import Mosquitto, eventually, free_port
from rig.program import Program

from clusterllm_mqtt.mqtt.topics import BridgeTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOPICS = BridgeTopics()
QUIET = {
    "CLUSTERLLM_MDNS__ENABLED": "false",
    "CLUSTERLLM_ENDPOINTS": "[{url: 'http://127.0.0.1:9', name: My box}]",
}


def environ(broker: Mosquitto, **more: str) -> dict[str, str]:
    """A bridge with one endpoint that is down, on this broker."""
    where = {"CLUSTERLLM_MQTT__HOST": "127.0.0.1", "CLUSTERLLM_MQTT__PORT": str(broker.port)}
    return {**QUIET, **where, **more}


def bridge(*argv: str, **environ: str) -> Program:
    return Program("bridge", *argv, environ=environ)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_in_order_with_exit_code_0(
    mosquitto: Mosquitto, number: signal.Signals
) -> None:
    async with bridge(**environ(mosquitto)) as program:
        await program.says(" INFO my-box-")
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")
        assert await program.ends_by(number) == 0
    assert mosquitto.retained()[TOPICS.availability] == b"offline"
    assert "Traceback" not in program.said


async def test_on_a_fresh_machine_it_starts_a_broker_and_says_what_to_do_next(
    tmp_path: Path,
) -> None:
    port = free_port()
    fresh = {**QUIET, "XDG_STATE_HOME": str(tmp_path), "CLUSTERLLM_MQTT__PORT": str(port)}
    async with bridge(**fresh) as program:
        await program.says("mqtt: connected")
        for text in (
            "no broker is configured (mqtt.host): a private one, mosquitto, serves this machine",
            f"mosquitto_sub -h 127.0.0.1 -p {port} -v -t 'clusterllm/#'",
            f"CLUSTERLLM_MQTT__PORT={port} clusterllm-mqtt status",
            "clusterllm-mqtt advertise --port 8080",
            f"add its MQTT integration with broker 127.0.0.1, port {port}",
        ):
            assert text in program.said
        await program.says("not_reachable")
        assert await program.ends_by_key(signal.SIGINT) == 0
    assert "offline not published" not in program.said
    assert "starting it again" not in program.said
    assert (tmp_path / "clusterllm-mqtt/broker/mosquitto.db").exists()


async def test_without_a_place_for_its_broker_it_says_so() -> None:
    async with bridge(XDG_STATE_HOME="/dev/null") as program:
        assert await program.ends() == 1
    assert program.said == "clusterllm-mqtt: /dev/null/clusterllm-mqtt/broker: Not a directory\n"


async def test_a_broker_that_refuses_is_exit_code_3(
    make_mosquitto: Callable[..., Mosquitto], tmp_path: Path
) -> None:
    (tmp_path / "passwords").write_text("", encoding="utf-8")
    broker = make_mosquitto(f"password_file {tmp_path / 'passwords'}", anonymous=False)
    user = {"CLUSTERLLM_MQTT__USERNAME": "me", "CLUSTERLLM_MQTT__PASSWORD": "s3cret"}
    async with bridge(**environ(broker, **user)) as program:
        assert await program.ends() == 3
    last = program.said.splitlines()[-1]
    assert last.startswith(f"clusterllm-mqtt: 127.0.0.1:{broker.port} refused the connection")
    assert "s3cret" not in program.said


async def test_of_two_with_the_same_id_one_gives_way_with_exit_code_5(
    mosquitto: Mosquitto,
) -> None:
    async with bridge(**environ(mosquitto)) as first:
        await first.says("mqtt: connected")
        async with bridge(**environ(mosquitto)) as second:
            ends = [asyncio.create_task(program.process.wait()) for program in (first, second)]
            async with asyncio.timeout(60):
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            codes = {end.result() for end in ends if end.done()}
            for end in ends:
                end.cancel()
    assert codes == {5}


async def test_a_file_and_its_log_level_are_obeyed(mosquitto: Mosquitto, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    text = f"mqtt: {{host: 127.0.0.1, port: {mosquitto.port}}}\nmdns: {{enabled: false}}\n"
    path.write_text(text + "bridge: {id: attic}\nlog: {level: warning}", encoding="utf-8")
    async with bridge(str(path)) as program:
        topic = BridgeTopics(bridge="attic").availability
        await eventually(lambda: mosquitto.retained().get(topic) == b"online")
        assert await program.ends_by(signal.SIGTERM) == 0
    assert program.said == ""


@pytest.fixture
def full_disk() -> Iterator[int]:
    number = os.open("/dev/full", os.O_WRONLY)
    yield number
    os.close(number)


async def test_a_log_on_a_full_disk_ends_nothing(mosquitto: Mosquitto, full_disk: int) -> None:
    async with Program("bridge", stderr=full_disk, environ=environ(mosquitto)) as program:
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")
        assert await program.ends_by(signal.SIGTERM) == 0
    assert mosquitto.retained()[TOPICS.availability] == b"offline"


async def test_a_log_that_nobody_reads_any_more_ends_nothing(mosquitto: Mosquitto) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    async with Program("bridge", stderr=writer, environ=environ(mosquitto)) as program:
        os.close(writer)
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")
        assert await program.ends_by(signal.SIGTERM) == 0


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal of 140 columns."""
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    os.set_blocking(leader, False)
    try:
        yield leader, follower
    finally:
        os.close(leader)
        os.close(follower)


async def test_on_a_terminal_a_table_lives_below_the_log(mosquitto: Mosquitto) -> None:
    seen = bytearray()
    with terminal() as (leader, follower):

        def shows(*words: bytes) -> bool:
            with contextlib.suppress(BlockingIOError):
                seen.extend(os.read(leader, 65536))
            return all(word in seen for word in words)

        environment = environ(mosquitto, TERM="xterm")
        async with Program("bridge", stderr=follower, environ=environment) as program:
            words = (b"My box", b"Last probe", b"not_reachable", b"refused")
            await eventually(lambda: shows(*words))
            assert await program.ends_by(signal.SIGTERM) == 0
