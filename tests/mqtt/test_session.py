"""The MQTT session against a real Mosquitto."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trustme
from pydantic import SecretStr
from rig.mosquitto import Mosquitto, eventually, free_port

from clusterllm_mqtt.errors import (
    BrokerRefusedError,
    ConfigError,
    PublishError,
    TakenOverError,
)
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
from clusterllm_mqtt.mqtt.events import (
    Connected,
    Disconnected,
    ProtocolVersion,
    Received,
    SessionEvent,
)
from clusterllm_mqtt.mqtt.messages import Message
from clusterllm_mqtt.mqtt.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

WILL = Message("test/availability", b"offline")


class Follower:
    """Reads a session's events, and keeps them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.seen: list[SessionEvent] = []
        self.error: Exception | None = None
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        try:
            async for event in self.session.events():
                self.seen.append(event)
        except Exception as error:  # noqa: BLE001  # kept for the test to look at
            self.error = error

    def count(self, kind: type[SessionEvent]) -> int:
        return sum(isinstance(event, kind) for event in self.seen)

    async def connected(self, times: int = 1) -> None:
        await eventually(lambda: self.count(Connected) >= times or self.error is not None)
        if self.error is not None:
            raise self.error

    def messages(self) -> list[tuple[str, bytes]]:
        return [(e.topic, e.payload) for e in self.seen if isinstance(e, Received)]

    def close(self) -> None:
        self._task.cancel()


@contextlib.asynccontextmanager
async def following(
    options: BrokerOptions, *, client_id: str = "test", will: Message | None = None
) -> AsyncIterator[Follower]:
    async with Session(options, client_id=client_id, will=will) as session:
        follower = Follower(session)
        try:
            yield follower
        finally:
            follower.close()


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_what_is_published_is_acknowledged_retained_and_received(
    mosquitto: Mosquitto, protocol: ProtocolVersion
) -> None:
    options = replace(mosquitto.options, protocol=protocol)
    async with following(options) as follower:
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


async def test_user_and_password(make_mosquitto: Callable[..., Mosquitto], tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    process = await asyncio.create_subprocess_exec(
        "mosquitto_passwd", "-b", "-c", str(passwords), "me", "right"
    )
    assert await process.wait() == 0
    broker = make_mosquitto(f"password_file {passwords}", anonymous=False)
    right = replace(broker.options, username="me", password=SecretStr("right"))
    async with following(right) as follower:
        await follower.connected()
    protocols: tuple[ProtocolVersion, ...] = ("5", "3.1.1")
    for protocol in protocols:
        wrong = replace(right, password=SecretStr("s3cret-wrong"), protocol=protocol)
        async with following(wrong) as follower:
            with pytest.raises(BrokerRefusedError, match=r"mqtt\.username") as caught:
                await follower.connected()
        assert "s3cret" not in str(caught.value) + repr(wrong)


@pytest.fixture
def tls_broker(
    make_mosquitto: Callable[..., Mosquitto], tmp_path: Path
) -> tuple[Mosquitto, BrokerOptions, trustme.CA]:
    """A broker with a private CA that wants a client certificate."""
    ca = trustme.CA()
    server, client = ca.issue_cert("127.0.0.1"), ca.issue_cert("client")
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key", "mine", "my_key")}
    ca.cert_pem.write_to_path(str(files["ca"]))
    server.cert_chain_pems[0].write_to_path(str(files["cert"]))
    server.private_key_pem.write_to_path(str(files["key"]))
    client.cert_chain_pems[0].write_to_path(str(files["mine"]))
    client.private_key_pem.write_to_path(str(files["my_key"]))
    broker = make_mosquitto(
        f"cafile {files['ca']}",
        f"certfile {files['cert']}",
        f"keyfile {files['key']}",
        "require_certificate true",
    )
    options = replace(
        broker.options,
        tls=True,
        ca_file=str(files["ca"]),
        cert_file=str(files["mine"]),
        key_file=str(files["my_key"]),
    )
    return broker, options, ca


async def test_tls_with_a_private_ca_and_a_client_certificate(
    tls_broker: tuple[Mosquitto, BrokerOptions, trustme.CA],
) -> None:
    _, options, _ = tls_broker
    async with following(options) as follower:
        await follower.connected()
        await follower.session.publish(Message("test/x", b"1"))


async def test_a_certificate_that_does_not_match_is_refused_with_the_remedy(
    tls_broker: tuple[Mosquitto, BrokerOptions, trustme.CA], tmp_path: Path
) -> None:
    _, options, _ = tls_broker
    other_ca = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other_ca))
    for wrong in (replace(options, host="localhost"), replace(options, ca_file=str(other_ca))):
        async with following(wrong) as follower:
            with pytest.raises(BrokerRefusedError, match=r"mqtt\.ca_file"):
                await follower.connected()


async def test_tls_to_a_plain_port_and_the_reverse_say_what_may_be_wrong(
    mosquitto: Mosquitto,
    tls_broker: tuple[Mosquitto, BrokerOptions, trustme.CA],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with following(replace(mosquitto.options, tls=True)):
        await eventually(lambda: "is this the broker's TLS port?" in caplog.text)
    async with following(tls_broker[0].options):
        await eventually(lambda: "does it want TLS" in caplog.text)


async def test_unreadable_tls_files_are_a_configuration_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    for options in (
        BrokerOptions(tls=True, ca_file=missing),
        BrokerOptions(tls=True, cert_file=missing, key_file=missing),
    ):
        with pytest.raises(ConfigError, match=r"none\.pem"):
            async with Session(options, client_id="x"):
                pass


async def test_a_broker_that_comes_later_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Mosquitto(tmp_path)
    async with following(broker.options) as follower:
        await eventually(lambda: "trying again" in caplog.text)
        with pytest.raises(PublishError, match="not connected"):
            await follower.session.publish(Message("test/x", b"1"))
        broker.start()
        await follower.connected()
    broker.stop()


async def test_a_broker_restart_is_told_and_survived(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options) as follower:
        await follower.connected()
        mosquitto.restart(signal.SIGKILL)
        await follower.connected(times=2)
        assert [type(e) for e in follower.seen] == [Connected, Disconnected, Connected]
        await follower.session.publish(Message("test/x", b"1"))


async def test_a_reconnect_storm_ends_connected(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options) as follower:
        await follower.connected()
        for _ in range(5):
            mosquitto.restart(signal.SIGKILL)
            await asyncio.sleep(0.05)
        await eventually(lambda: follower.session.is_connected, 20)
        await follower.session.publish(Message("test/x", b"1"))


async def test_the_will_of_a_killed_process_fires(mosquitto: Mosquitto) -> None:
    code = (
        "import asyncio\n"
        "from clusterllm_mqtt.mqtt.session import Session\n"
        "from clusterllm_mqtt.mqtt.messages import Message\n"
        "from clusterllm_mqtt.mqtt.broker_options import BrokerOptions\n"
        "async def main():\n"
        f"    options = BrokerOptions(port={mosquitto.port})\n"
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
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    assert mosquitto.retained() == {WILL.topic: b"online"}
    process.kill()
    await process.wait()
    await eventually(lambda: mosquitto.retained() == {WILL.topic: b"offline"})


async def test_an_orderly_end_fires_no_will(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options, will=WILL) as follower:
        await follower.connected()
    assert mosquitto.retained() == {}


async def test_being_told_of_a_takeover_ends_the_session_at_once() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)
        writer.write(b"\x20\x03\x00\x00\x00" + b"\xe0\x02\x8e\x00")  # CONNACK, DISCONNECT 142
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        options = BrokerOptions(port=server.sockets[0].getsockname()[1])
        async with following(options) as follower:
            await eventually(lambda: follower.error is not None)
            assert isinstance(follower.error, TakenOverError)
            assert "'test'" in str(follower.error)
            assert follower.count(Connected) == 1


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_one_of_two_with_the_same_id_gives_way_instead_of_a_fight(
    mosquitto: Mosquitto, protocol: ProtocolVersion
) -> None:
    options = replace(mosquitto.options, protocol=protocol)
    async with following(options) as first, following(options) as second:
        await eventually(lambda: bool(first.error or second.error), 30)
        loser = first if first.error else second
        assert isinstance(loser.error, TakenOverError)
        assert loser.count(Connected) <= 3


async def test_a_broker_without_mqtt_5_is_spoken_to_in_311() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = await reader.readexactly(2)
        body = await reader.readexactly(header[1])
        level = body[6]
        writer.write(b"\x20\x02\x00\x00" if level == 4 else b"\x20\x02\x00\x01")
        await writer.drain()
        if level == 4:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readexactly(2)  # DISCONNECT
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with following(BrokerOptions(port=port)) as follower:
            await follower.connected()
            assert follower.seen == [Connected("3.1.1")]


async def test_a_broker_that_hangs_makes_publishing_fail_not_wait(
    mosquitto: Mosquitto,
) -> None:
    async with following(replace(mosquitto.options, ack_timeout_s=0.5)) as follower:
        await follower.connected()
        os.kill(mosquitto.pid, signal.SIGSTOP)
        with pytest.raises(PublishError, match="not acknowledged"):
            await follower.session.publish(Message("test/x", b"1"))
        os.kill(mosquitto.pid, signal.SIGCONT)


async def test_a_lost_connection_fails_what_was_not_acknowledged(mosquitto: Mosquitto) -> None:
    async with following(mosquitto.options) as follower:
        await follower.connected()
        os.kill(mosquitto.pid, signal.SIGSTOP)
        publishing = asyncio.create_task(follower.session.publish(Message("test/x", b"1")))
        await asyncio.sleep(0.1)
        mosquitto.stop(signal.SIGKILL)
        with pytest.raises(PublishError, match="ended before"):
            await publishing


async def test_a_message_beyond_the_servers_limit_is_refused_the_others_go_out(
    make_mosquitto: Callable[..., Mosquitto],
) -> None:
    broker = make_mosquitto("max_packet_size 2000")
    async with following(broker.options) as follower:
        await follower.connected()
        messages = Message("test/big", b"x" * 3000), Message("test/small", b"x")
        with pytest.raises(BrokerRefusedError, match="test/big"):
            await follower.session.publish(*messages)
    assert list(broker.retained()) == ["test/small"]


async def test_what_an_acl_forbids_is_named(
    make_mosquitto: Callable[..., Mosquitto], tmp_path: Path
) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite allowed/#\n", encoding="utf-8")
    broker = make_mosquitto(f"acl_file {acl}")
    async with following(broker.options) as follower:
        await follower.connected()
        with pytest.raises(BrokerRefusedError, match="forbidden/x"):
            await follower.session.publish(Message("forbidden/x", b"1"), Message("allowed/x", b"1"))
        await follower.session.subscribe("allowed/#")


async def test_nobody_listens_there_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with following(BrokerOptions(port=free_port())):
        await asyncio.sleep(2.5)
    assert caplog.text.count("trying again") == 1
