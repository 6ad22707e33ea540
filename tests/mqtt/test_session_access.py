"""Being let in by a broker: user and password, certificates, and what is said when it is not."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trustme
from pydantic import SecretStr
from rig.fake_broker import Peer, fake_broker
from rig.mosquitto import Mosquitto, eventually
from rig.session import following

from clusterllm_mqtt.errors import BrokerRefusedError, ConfigError
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
from clusterllm_mqtt.mqtt.events import Connected
from clusterllm_mqtt.mqtt.messages import Message
from clusterllm_mqtt.mqtt.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterllm_mqtt.mqtt.events import ProtocolVersion

BOTH = pytest.mark.parametrize("protocol", ["5", "3.1.1"])


@pytest.fixture
def password_broker(make_mosquitto: Callable[..., Mosquitto], tmp_path: Path) -> Mosquitto:
    """A broker that lets in `me` with `right`."""
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "me", "right"], check=True)
    return make_mosquitto(f"password_file {passwords}", anonymous=False)


@BOTH
async def test_the_right_password_lets_in(
    password_broker: Mosquitto, protocol: ProtocolVersion
) -> None:
    options = replace(password_broker.options, username="me", password=SecretStr("right"))
    async with following(replace(options, protocol=protocol)) as follower:
        await follower.connected()


@BOTH
async def test_a_wrong_password_ends_with_the_remedy_and_is_never_told(
    password_broker: Mosquitto, protocol: ProtocolVersion, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options = replace(
        password_broker.options, username="me", password=SecretStr("s3cret"), protocol=protocol
    )
    async with following(options) as follower:
        error = await follower.ended()
    assert isinstance(error, BrokerRefusedError)
    assert str(error).endswith("check mqtt.username and password")
    assert "s3cret" not in f"{error!r} {options!r} {caplog.text}"


async def test_nobody_without_a_name_is_let_in(password_broker: Mosquitto) -> None:
    async with following(password_broker.options) as follower:
        assert isinstance(await follower.ended(), BrokerRefusedError)


@BOTH
async def test_a_broker_that_is_busy_at_first_is_waited_for(protocol: ProtocolVersion) -> None:
    async def serve(peer: Peer) -> None:
        attempts.append(await peer.connect())
        if len(attempts) == 1:
            await peer.refuse(0x88 if peer.level == 5 else 3)
        else:
            await peer.accept()
            await peer.forever()

    attempts: list[int] = []
    async with (
        fake_broker(serve) as options,
        following(replace(options, protocol=protocol)) as follower,
    ):
        await follower.connected()
        assert len(attempts) == 2


async def test_a_broker_that_let_us_in_once_may_refuse_for_a_while() -> None:
    async def serve(peer: Peer) -> None:
        attempts.append(await peer.connect())
        if len(attempts) == 2:
            await peer.refuse(0x87)  # its authentication backend is away
        else:
            await peer.accept()
            await asyncio.sleep(0.1)

    attempts: list[int] = []
    async with fake_broker(serve) as options, following(options) as follower:
        await follower.connected(times=2)
        assert len(attempts) >= 3


async def test_a_broker_that_lacks_what_we_need_is_refused(
    make_mosquitto: Callable[..., Mosquitto],
) -> None:
    for line, missing in (("retain_available false", "retained"), ("max_qos 0", "QoS 1")):
        async with following(make_mosquitto(line).options) as follower:
            error = await follower.ended()
        assert isinstance(error, BrokerRefusedError)
        assert missing in str(error)


TlsBroker = tuple[Mosquitto, BrokerOptions]


@pytest.fixture
def tls_broker(make_mosquitto: Callable[..., Mosquitto], tmp_path: Path) -> TlsBroker:
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
    return broker, options


@BOTH
async def test_tls_with_a_private_ca_and_a_client_certificate(
    tls_broker: TlsBroker, protocol: ProtocolVersion
) -> None:
    _, options = tls_broker
    async with following(replace(options, protocol=protocol)) as follower:
        await follower.connected()
        await follower.session.publish(Message("test/x", b"1"))


async def test_another_name_than_the_certificates_is_refused(tls_broker: TlsBroker) -> None:
    async with following(replace(tls_broker[1], host="localhost")) as follower:
        error = await follower.ended()
    assert isinstance(error, BrokerRefusedError)
    assert "mqtt.host to a name in it" in str(error)


async def test_an_unknown_ca_is_refused(tls_broker: TlsBroker, tmp_path: Path) -> None:
    other_ca = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other_ca))
    for ca_file in (str(other_ca), ""):
        async with following(replace(tls_broker[1], ca_file=ca_file)) as follower:
            error = await follower.ended()
        assert isinstance(error, BrokerRefusedError)
        assert "set mqtt.ca_file to the CA that signed it" in str(error)


async def test_a_missing_client_certificate_is_hinted_at(
    tls_broker: TlsBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(replace(tls_broker[1], cert_file="", key_file="")) as follower:
        await eventually(lambda: "does it want TLS, or a certificate?" in caplog.text)
        assert follower.count(Connected) == 0


async def test_tls_to_a_plain_port_and_the_reverse_say_what_may_be_wrong(
    mosquitto: Mosquitto, tls_broker: TlsBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(replace(mosquitto.options, tls=True)):
        await eventually(lambda: "is this the broker's TLS port?" in caplog.text)
    async with following(tls_broker[0].options):
        await eventually(lambda: "does it want TLS" in caplog.text)


async def test_something_else_than_tls_is_refused() -> None:
    async def serve(peer: Peer) -> None:
        await peer.send(0x48, b"TTP/1.1 400 Bad Request\r\n\r\n")

    async with (
        fake_broker(serve) as options,
        following(replace(options, tls=True)) as follower,
    ):
        error = await follower.ended()
    assert isinstance(error, BrokerRefusedError)
    assert str(error).endswith("is this the broker's TLS port?")


async def test_tls_files_of_no_use_are_a_configuration_error(
    tls_broker: TlsBroker, tmp_path: Path
) -> None:
    _, good = tls_broker
    missing, no_pem, secret_key = (tmp_path / name for name in ("none.pem", "no.pem", "secret.pem"))
    no_pem.write_text("no certificate", encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        "openssl", "ec", "-aes128", "-passout", "pass:x", "-in", good.key_file, "-out", secret_key,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await process.wait() == 0
    for wrong in (
        replace(good, ca_file=str(missing)),
        replace(good, ca_file=str(no_pem)),
        replace(good, cert_file=str(missing), key_file=str(missing)),
        replace(good, key_file=str(secret_key)),
    ):
        with pytest.raises(ConfigError, match=r"^mqtt TLS files \(.*\.pem\): "):
            async with Session(wrong, client_id="x"):
                pass
