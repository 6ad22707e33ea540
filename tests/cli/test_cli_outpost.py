"""`outpost` as a process: what it needs, how it ends, and what it never loads."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rig.mosquitto import Mosquitto, eventually, free_port
from rig.program import Program, run
from rig.stub import StubEndpoint

from clusterllm_mqtt.mqtt.topics import OutpostTopics
from clusterllm_mqtt.outpost.registry import PATH

TOPICS = OutpostTopics()
TOKEN = "open-sesame-31337"  # noqa: S105
CLOUDBOX = "CLUSTERLLM_OUTPOST__CLOUDBOX_URL"


def environ(port: int, url: str = "http://127.0.0.1:9", **more: str) -> dict[str, str]:
    return {
        "CLUSTERLLM_MQTT__PORT": str(port),
        "CLUSTERLLM_OUTPOST__TOKEN": TOKEN,
        CLOUDBOX: url,
        **more,
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_in_order_with_exit_code_0(
    mosquitto: Mosquitto, number: signal.Signals
) -> None:
    async with (
        StubEndpoint({"routes": {PATH: {"status": 200}}}) as registry,
        Program("outpost", environ=environ(mosquitto.port, registry.url)) as program,
    ):
        await program.says("pushed: 0 models, no cluster")
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")
        assert await program.ends_by(number) == 0
    assert mosquitto.retained()[TOPICS.availability] == b"offline"
    assert "Traceback" not in program.said
    assert TOKEN not in program.said


async def test_a_revoked_token_is_exit_code_4(mosquitto: Mosquitto) -> None:
    async with (
        StubEndpoint({"routes": {PATH: {"status": 401, "body": f"no {TOKEN}"}}}) as registry,
        Program("outpost", "--debug", environ=environ(mosquitto.port, registry.url)) as program,
    ):
        assert await program.ends() == 4
    assert "HTTP 401: no …; the registry does not accept the token any more" in program.said
    assert "trying again" not in program.said
    assert TOKEN not in program.said


async def test_a_broker_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    async with Program("outpost", environ=environ(broker.port)) as program:
        await program.says("trying again")
        broker.start()
        try:
            await program.says("mqtt: connected")
        finally:
            broker.stop()


def test_it_loads_nothing_of_the_probing_side() -> None:
    """The very modules that import-linter forbids, and the browser's libraries."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    forbidden = next(c["forbidden_modules"] for c in contracts if c["type"] == "forbidden")
    code = "import sys, clusterllm_mqtt.cli.outpost; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    loaded = set(output.decode().split())
    assert "clusterllm_mqtt.outpost.runner" in loaded
    assert {"zeroconf", "ifaddr", *forbidden} & loaded == set()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({CLOUDBOX: ""}, "outpost.cloudbox_url is missing; write it as https://host"),
        ({CLOUDBOX: "http://example.org"}, "use https, so that nobody reads the token"),
        ({CLOUDBOX: "http://8.8.8.8"}, "use https, so that nobody reads the token"),
        ({CLOUDBOX: "http://[::ffff:8.8.8.8]"}, "use https, so that nobody reads the token"),
        ({CLOUDBOX: "http://127.0.0.1.example.org"}, "use https, so that nobody reads"),
        ({CLOUDBOX: "ftp://x"}, "outpost.cloudbox_url 'ftp://x': write it as http://host:port"),
        ({CLOUDBOX: f"https://me:{TOKEN}@x"}, "take user and password out of the URL"),
        ({CLOUDBOX: "https://x/?a=1"}, "leave out the query and the fragment"),
        ({"CLUSTERLLM_OUTPOST__TOKEN": ""}, "outpost.token is missing; set it"),
        ({"CLUSTERLLM_OUTPOST__TOKEN": "a b"}, "outpost.token has white space"),
        ({"CLUSTERLLM_OUTPOST__AGENT": "My Home"}, "outpost agent 'My Home': use 1 to 64 of"),
        ({"CLUSTERLLM_OUTPOST__BRIDGES": "[a, b/c]"}, "bridge id 'b/c': use 1 to 64 of"),
        ({"CLUSTERLLM_OUTPOST__OLLAMA_URL": "box"}, "outpost.ollama_url 'box': write it as"),
    ],
)
def test_a_setting_that_cannot_work_is_exit_code_2(changed: dict[str, str], sentence: str) -> None:
    done = run("outpost", **{**environ(free_port()), **changed})
    assert done.returncode == 2
    assert sentence in done.stderr
    assert TOKEN not in done.stderr


@pytest.mark.parametrize(
    "url",
    ["https://cloudbox.example.org/base/", "http://192.168.1.9:8000", "http://[fd00::1]:80",
     "http://localhost:8000", "http://10.0.0.1"],
)  # fmt: skip
def test_what_can_work_passes_the_check(url: str) -> None:
    assert run("config", "check", **environ(1883, url)).returncode == 0


def test_clear_removes_an_outpost_that_is_offline(mosquitto: Mosquitto) -> None:
    mosquitto.publish_many(
        {TOPICS.discovery: "{}", TOPICS.status: "{}", TOPICS.availability: "online"}
    )
    bridge = "clusterllm/bridge/home/status"
    mosquitto.publish(bridge, "{}", "-r")
    port = str(mosquitto.port)
    online = run("clear", "--outpost", "--yes", CLUSTERLLM_MQTT__PORT=port)
    assert (online.returncode, "is online" in online.stderr) == (2, True)
    mosquitto.publish(TOPICS.availability, "offline", "-r")
    done = run("clear", "--outpost", "--yes", CLUSTERLLM_MQTT__PORT=port)
    assert (done.returncode, done.stdout) == (0, "outpost home: 3 topics cleared\n")
    assert set(mosquitto.retained()) == {bridge}


def test_clear_asks_first() -> None:
    done = run("clear", "--outpost")
    assert done.returncode == 2
    assert "remove all retained topics of outpost home? Say so with --yes" in done.stderr
    assert "never awaited" not in done.stderr
