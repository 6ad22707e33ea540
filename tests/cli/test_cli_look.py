"""`probe`, `browse` and `advertise`: one endpoint and the network, explained."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid

import pytest
from rig.captures import Capture, load_captures
from rig.mosquitto import free_port
from rig.program import Program, call, run
from rig.stub import StubEndpoint

from clusterllm_mqtt.cli.browse import line
from clusterllm_mqtt.cli.probe import explained
from clusterllm_mqtt.models import (
    Detection,
    EndpointFound,
    EndpointLost,
    Info,
    ModelInfo,
    Reason,
    Service,
    State,
)

LOOPBACK = ("--interface", "127.0.0.1")
HOSTILE = "\x1b[31m\u202eevil\n"


def capture(backend: str) -> Capture:
    """A real server of this kind that is seen whole without a key."""
    return next(
        c for c in load_captures()
        if c.expect["backend"] == backend and c.expect.get("models") and not (c.key or c.reason)
    )  # fmt: skip


async def test_a_running_endpoint_is_exit_code_0_and_explained() -> None:
    server = capture("llamacpp")
    async with StubEndpoint(server.scenario) as stub:
        url = server.config_for(stub).endpoint
        done = await asyncio.to_thread(run, "probe", url)
        record = await asyncio.to_thread(run, "probe", url, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "state    running\nbackend  llamacpp\n" in done.stdout
    assert record.returncode == 0
    assert json.loads(record.stdout) == {**server.expect, "endpoint": url}


async def test_the_key_comes_from_a_file_and_is_never_shown(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("keys") / "key"
    path.write_text("s3cret\n", encoding="utf-8")
    async with StubEndpoint({"default": {"status": 401}}) as stub:
        done = await asyncio.to_thread(run, "--debug", "probe", stub.url, "--key-file", str(path))
    assert "Bearer s3cret" in {request.authorization for request in stub.requests}
    assert "reason   unauthorized" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_nobody_there_is_exit_code_1_with_reason_and_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert call("probe", url) == 1
    out = capsys.readouterr().out
    assert "state    not_reachable\n" in out
    assert "reason   refused\n" in out
    assert "is the server up?" in out
    assert call("probe", url, "--json") == 1
    record = json.loads(capsys.readouterr().out)
    assert record == {"backend": "gpustack", "state": "not_reachable", "endpoint": url}


def test_a_strangers_text_reaches_no_terminal() -> None:
    info = Info(State.RUNNING, HOSTILE, "", HOSTILE, 1, 2**30, (ModelInfo(f"/a/{HOSTILE}"),))
    lines = explained(Detection(info, Reason.LOADING, HOSTILE, identified=True))
    assert all(text.isprintable() for text in lines)
    assert "memory   1.0 GiB" in lines
    service = Service(HOSTILE, HOSTILE, "http://10.0.0.1:1", txt=(("model", HOSTILE),))
    assert line(EndpointFound(service)).isprintable()
    assert line(EndpointLost(HOSTILE)).isprintable()


def test_browsing_where_nothing_is_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code = call("browse", "--seconds", "0.2", *LOOPBACK)
    shown = capsys.readouterr()
    assert code == (0 if "found" in shown.out else 1)
    assert "browsing _llamacpp._tcp" in shown.err


@pytest.mark.parametrize("argv", [("browse",), ("advertise", "--port", "1")])
def test_an_address_of_another_host_is_a_sentence(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*argv, "--interface", "192.0.2.1") == 1
    assert "clusterllm-mqtt: no multicast on 192.0.2.1" in capsys.readouterr().err


def test_a_type_that_is_none_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("advertise", "--port", "1", "--type", "llama", *LOOPBACK) == 1
    assert capsys.readouterr().err.endswith("and a service type like _llamacpp._tcp\n")


async def test_what_is_advertised_is_browsed_until_it_is_stopped() -> None:
    name = f"Box {uuid.uuid4().hex[:8]}"
    options = ("--port", "8080", "--name", name, "--path", "/llm/", "--model", "m", *LOOPBACK)
    async with Program("advertise", *options) as advertiser:
        await advertiser.says("advertised with port 8080")
        async with Program("browse", "--seconds", "8", *LOOPBACK) as browser:
            found = f"found {name}._llamacpp._tcp.local. http://127.0.0.1:8080/llm "
            await browser.prints(found + "backend=llamacpp model=m path=/llm proto=http")
            assert await advertiser.ends_by(signal.SIGINT) == 0
            await browser.prints(f"lost  {name}._llamacpp._tcp.local.")
            assert await browser.ends_by(signal.SIGINT) == 0


async def test_a_service_that_is_ignored_is_named_with_the_reason() -> None:
    name = f"Far {uuid.uuid4().hex[:8]}"
    elsewhere = {"CLUSTERLLM_MDNS__ALLOWED_NETWORKS": "[192.0.2.0/24]"}
    async with Program("advertise", "--port", "80", "--name", name, *LOOPBACK) as advertiser:
        await advertiser.says("advertised")
        async with Program("browse", *LOOPBACK, environ=elsewhere) as browser:
            await browser.says(
                f"mdns: {name}._llamacpp._tcp.local.: ignored: no address in the allowed networks"
            )
