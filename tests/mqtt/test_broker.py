"""The private broker: a real child process on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import pytest
from rig.mosquitto import eventually

from clusterllm_mqtt.errors import BrokerUnavailableError, ConfigError
from clusterllm_mqtt.mqtt.broker import MAX_DEATHS, PORT, PrivateBroker
from clusterllm_mqtt.mqtt.events import Connected
from clusterllm_mqtt.mqtt.messages import Message
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.snapshot import Snapshot

if TYPE_CHECKING:
    from pathlib import Path


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def publish_and_read(broker: PrivateBroker, *messages: Message) -> dict[str, bytes]:
    async with Session(broker.options, client_id="test") as session:
        events = session.events()
        assert isinstance(await anext(events), Connected)
        await session.publish(*messages)
        snapshot = Snapshot(["test/#"], lambda _: frozenset())

        async def feed() -> None:
            async for event in events:
                snapshot.saw(event.topic, event.payload)  # type: ignore[union-attr]

        task = asyncio.create_task(feed())
        await snapshot.read(session, quiet_s=0.3)
        task.cancel()
        return snapshot.held


async def test_mosquitto_serves_on_loopback_and_keeps_what_is_retained(tmp_path: Path) -> None:
    async with PrivateBroker(tmp_path, port=0) as broker:
        assert (broker.kind, broker.host) == ("mosquitto", "127.0.0.1")
        await publish_and_read(broker, Message("test/x", b"1"))
        pid = broker.pid
    assert not is_running(pid)
    async with PrivateBroker(tmp_path, port=0) as broker:
        assert await publish_and_read(broker) == {"test/x": b"1"}


async def test_the_usual_port_is_taken_only_when_it_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with PrivateBroker(tmp_path, port=port) as broker:
            assert broker.port != port
    assert PrivateBroker(tmp_path).port == PORT


async def test_a_key_pressed_for_us_does_not_reach_the_broker(tmp_path: Path) -> None:
    async with PrivateBroker(tmp_path, port=0) as broker:
        assert os.getpgid(broker.pid) == broker.pid != os.getpgid(0)


async def test_a_broker_that_dies_is_started_again(tmp_path: Path) -> None:
    async with PrivateBroker(tmp_path, port=0) as broker:
        pid = broker.pid
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: broker.pid not in (0, pid))
        await eventually(lambda: is_running(broker.pid))
        await asyncio.sleep(0.3)
        assert await publish_and_read(broker, Message("test/x", b"1")) == {"test/x": b"1"}


async def test_a_broker_that_cannot_live_is_given_up_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with PrivateBroker(tmp_path, port=0) as broker:
        for death in range(1, MAX_DEATHS + 1):
            pid = broker.pid
            os.kill(pid, signal.SIGKILL)
            if death == MAX_DEATHS:
                await eventually(lambda: "died too often" in caplog.text)
            else:
                await eventually(lambda pid=pid: broker.pid != pid)  # type: ignore[misc]
    assert caplog.text.count("starting it again") == MAX_DEATHS - 1


async def test_a_port_that_is_taken_for_a_moment_is_no_end(tmp_path: Path) -> None:
    async with PrivateBroker(tmp_path, port=0) as broker:
        os.kill(broker.pid, signal.SIGKILL)
        with take_port(broker.port):
            await asyncio.sleep(0.5)
        await eventually(lambda: b"Z" not in status_of(broker.pid) and is_serving(broker.port))
        assert await publish_and_read(broker, Message("test/x", b"1")) == {"test/x": b"1"}


def take_port(port: int) -> socket.socket:
    """Listen where a process was that has just been killed."""
    for _ in range(200):
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
        time.sleep(0.005)
    pytest.fail("the port is not free")


def is_serving(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


async def test_a_second_process_does_not_share_the_folder(tmp_path: Path) -> None:
    async with PrivateBroker(tmp_path, port=0):
        with pytest.raises(ConfigError, match="another process uses"):
            async with PrivateBroker(tmp_path, port=0):
                pass


async def test_a_broker_that_does_not_end_is_ended(tmp_path: Path) -> None:
    async with PrivateBroker(tmp_path, port=0) as broker:
        pid = broker.pid
        os.kill(pid, signal.SIGSTOP)
    assert not is_running(pid)


@pytest.mark.parametrize("program", ["mosquitto", "iotcore"])
async def test_the_broker_does_not_outlive_a_killed_parent(tmp_path: Path, program: str) -> None:
    code = (
        "import asyncio, pathlib, sys\n"
        "from clusterllm_mqtt.mqtt.broker import PrivateBroker\n"
        "async def main():\n"
        "    folder, program = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
        "    async with PrivateBroker(folder, port=0, programs=(program,)) as broker:\n"
        "        print(broker.pid, flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path), program, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()
    await eventually(lambda: not is_running(pid) or b"Z" in status_of(pid))


def status_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # short
            return file.read().rpartition(b")")[2][:3]
    except OSError:
        return b"Z"


async def test_iotcore_serves_where_there_is_no_mosquitto(tmp_path: Path) -> None:
    async with PrivateBroker(tmp_path, port=0, programs=("iotcore",)) as broker:
        assert broker.kind == "iotcore"
        messages = [Message(f"test/{n}", b"{" + b"x" * 20_000) for n in range(50)]
        assert len(await publish_and_read(broker, *messages)) == 50
    assert (tmp_path / "broker.log").stat().st_size < 1000, "it logs every packet"


async def test_without_any_broker_the_remedy_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="apt install mosquitto"):
        async with PrivateBroker(tmp_path, programs=()):
            pass


async def test_a_broker_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    folder = tmp_path / "two\nlines"  # makes a configuration that Mosquitto refuses
    with pytest.raises(BrokerUnavailableError, match=r"broker\.log"):
        async with PrivateBroker(folder, port=0):
            pass


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "broker.log").mkdir()
    with pytest.raises(BrokerUnavailableError, match=r"did not start: .*broker\.log"):
        async with PrivateBroker(tmp_path, port=0):
            pass


async def test_a_database_that_a_power_cut_broke_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mosquitto.db").write_bytes(os.urandom(5000))
    async with PrivateBroker(tmp_path, port=0) as broker:
        assert broker.pid
    assert "its database is set aside" in caplog.text
    assert (tmp_path / "mosquitto.db.broken").stat().st_size == 5000


_SLOW = """#!{python} -I
import os, pathlib, socket, sys, time
port = int(pathlib.Path(sys.argv[2]).read_text().split()[1])
open({log!r}, "a").write(f"{{os.getpid()}}\\n")
time.sleep({seconds})
server = socket.create_server(("127.0.0.1", port))
while True:
    server.accept()[0].close()
"""


def slow_program(folder: Path, seconds: float) -> tuple[str, Path]:
    """A `mosquitto` that listens late, as with a large database on a slow card; its pids."""
    log, program = folder / "pids", folder / "mosquitto"
    text = _SLOW.format(python=sys.executable, log=str(log), seconds=seconds)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return str(program), log


async def test_a_broker_that_starts_slowly_keeps_its_database_and_leaves_no_orphan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    _, log = slow_program(tmp_path / "bin", 1.5)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / "mosquitto.db").write_text("all that was retained", encoding="utf-8")
    broker = PrivateBroker(folder, port=0, programs=("mosquitto",), start_timeout_s=0.7)
    with pytest.raises(BrokerUnavailableError):
        async with broker:
            pass
    assert (folder / "mosquitto.db").read_text(encoding="utf-8") == "all that was retained"
    assert [pid for pid in map(int, log.read_text().split()) if is_running(pid)] == []
