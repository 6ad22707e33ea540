"""docs/mosquitto/acl on a real Mosquitto: what we need is permitted, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from rig.mosquitto import Mosquitto
from rig.program import Program, run
from rig.receiver import TOKEN, ReceiverProcess
from rig.stub import StubEndpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

EXAMPLES: Final = Path(__file__).parents[2] / "docs" / "mosquitto"
PASSWORD: Final = "pass-31337"  # noqa: S105
USERS: Final = ("clusterllm-bridge", "clusterllm-outpost", "homeassistant", "observer")

MAY_WRITE: Final[dict[str, frozenset[str]]] = {
    "clusterllm-bridge": frozenset(
        {
            "clusterllm/bridge/home/availability",
            "clusterllm/bridge/home/status",
            "clusterllm/bridge/home/endpoint/box-1/info",
            "clusterllm/bridge/home/endpoint/box-1/command/probe",
            "homeassistant/device/clusterllm_home/config",
            "homeassistant/device/clusterllm_outpost_home/config",
        }
    ),
    "clusterllm-outpost": frozenset(
        {
            "clusterllm/outpost/home/availability",
            "clusterllm/outpost/home/status",
            "homeassistant/device/clusterllm_outpost_home/config",
        }
    ),
    "homeassistant": frozenset(
        {"clusterllm/bridge/home/endpoint/box-1/command/probe", "homeassistant/status"}
    ),
}
TOPICS: Final = frozenset[str]().union(
    *MAY_WRITE.values(),
    {
        "clusterllm/bridge/other/availability",
        "clusterllm/bridge/other/endpoint/box-1/info",
        "clusterllm/outpost/other/status",
        "clusterllm",
        "homeassistant/light/kitchen/config",
        "homeassistant/device/clusterllm_home/config/deeper",
        "zigbee2mqtt/door/set",
    },
)
MAY_READ: Final[dict[str, frozenset[str]]] = {
    "clusterllm-bridge": frozenset(
        t for t in TOPICS if t.startswith("clusterllm/bridge/home/") or t.endswith("home/config")
    )
    | {"homeassistant/status"},
    "clusterllm-outpost": frozenset(
        t for t in TOPICS if t.startswith("clusterllm/bridge/") and "command" not in t
    )
    | {t for t in TOPICS if "outpost" in t and "home" in t}
    | {"homeassistant/status"},
    "homeassistant": TOPICS - {"zigbee2mqtt/door/set"},
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """With the example's lines, its files in a folder of the test, and a user who sees all."""
    passwords, acl = tmp_path / "passwords", tmp_path / "acl"
    passwords.touch(mode=0o600)
    for user in USERS:
        subprocess.run(["mosquitto_passwd", "-b", passwords, user, PASSWORD], check=True)
    example = (EXAMPLES / "acl").read_text(encoding="utf-8")
    acl.write_text(f"{example}\nuser observer\ntopic readwrite #\n", encoding="utf-8")
    lines = (EXAMPLES / "mosquitto.conf").read_text(encoding="utf-8")
    lines = lines.replace("listener 1883\nallow_anonymous false\n", "")
    lines = lines.replace("/etc/mosquitto", str(tmp_path)).replace(
        "/var/lib/mosquitto", str(tmp_path)
    )
    broker = Mosquitto(tmp_path, *lines.splitlines(), anonymous=False)
    broker.start()
    yield broker
    broker.stop()


def client(program: str, broker: Mosquitto, user: str, *options: str) -> str:
    """Run a client of Mosquitto's; what it printed."""
    login = ["-h", "127.0.0.1", "-p", str(broker.port), "-u", user, "-P", PASSWORD]
    command = [program, *login, "-q", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout


def held(broker: Mosquitto, user: str) -> dict[str, str]:
    """The retained topics that a user gets."""
    printed = client(
        "mosquitto_sub", broker, user, "-t", "#", "--retained-only", "-W", "1", "-F", "%t %p"
    )
    return dict(line.split(" ", 1) for line in printed.splitlines())


@pytest.mark.parametrize("user", MAY_WRITE)
def test_a_user_writes_what_is_its_own_and_nothing_else(broker: Mosquitto, user: str) -> None:
    for topic in TOPICS:
        client("mosquitto_pub", broker, user, "-t", topic, "-r", "-m", user)
    assert held(broker, "observer").keys() == MAY_WRITE[user]


@pytest.mark.parametrize("user", MAY_READ)
def test_a_user_reads_what_it_needs_and_nothing_else(broker: Mosquitto, user: str) -> None:
    for topic in TOPICS:
        client("mosquitto_pub", broker, "observer", "-t", topic, "-r", "-m", "x")
    assert held(broker, user).keys() == MAY_READ[user]


def test_nobody_enters_without_a_password(broker: Mosquitto) -> None:
    for login in ([], ["-u", "clusterllm-bridge", "-P", "wrong"]):
        command = ["mosquitto_pub", "-p", str(broker.port), *login, "-t", "x", "-m", "x"]
        assert subprocess.run(command, capture_output=True, check=False, timeout=20).returncode


def environment(broker: Mosquitto, user: str, **more: str) -> dict[str, str]:
    return {
        "CLUSTERLLM_MQTT__HOST": "127.0.0.1",
        "CLUSTERLLM_MQTT__PORT": str(broker.port),
        "CLUSTERLLM_MQTT__USERNAME": user,
        "CLUSTERLLM_MQTT__PASSWORD": PASSWORD,
        "CLUSTERLLM_MDNS__ENABLED": "false",
        **more,
    }


async def until(what: str, is_so: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again, for a while."""
    for _ in range(40):
        if await is_so():
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"not within the time: {what}")


async def until_held(broker: Mosquitto, part: str, text: str) -> None:
    """Wait until a topic with a part in its name holds a text."""

    async def is_held() -> bool:
        retained = await asyncio.to_thread(held, broker, "observer")
        return any(part in topic and text in payload for topic, payload in retained.items())

    await until(f"{text!r} on {part}", is_held)


async def is_pushed(receiver: ReceiverProcess) -> bool:
    return "qwen" in str(await receiver.held())


async def test_with_it_bridge_outpost_status_and_clear_work(
    broker: Mosquitto, tmp_path: Path
) -> None:
    receiver = ReceiverProcess(tmp_path)
    await receiver.start()
    models = {"body": '{"data": [{"id": "qwen", "owned_by": "llamacpp"}]}'}
    llama = {"headers": {"Server": "llama.cpp"}}
    routes = {"/v1/models": models | llama, "/props": {"body": '{"total_slots": 1}'} | llama}
    async with StubEndpoint({"routes": routes}) as stub:
        bridge = environment(
            broker,
            "clusterllm-bridge",
            CLUSTERLLM_ENDPOINTS=f"[{{url: '{stub.url}', name: Big box}}]",
        )
        outpost = environment(
            broker,
            "clusterllm-outpost",
            CLUSTERLLM_OUTPOST__CLOUDBOX_URL=receiver.url,
            CLUSTERLLM_OUTPOST__TOKEN=TOKEN,
        )
        async with Program("bridge", environ=bridge), Program("outpost", environ=outpost):
            await until_held(broker, "/info", '"state":"running"')
            await until_held(broker, "homeassistant/device/clusterllm_home_big-box", "Big box")
            await until_held(broker, "outpost/home/availability", "online")
            await until("a push", partial(is_pushed, receiver))
            shown = await asyncio.to_thread(lambda: run("status", **bridge))
            assert shown.returncode == 0, shown.stderr
    await receiver.kill()
    cleared = await asyncio.to_thread(lambda: run("clear", "--yes", **bridge))
    assert cleared.returncode == 0, cleared.stderr
    assert not [topic for topic in held(broker, "observer") if "outpost" not in topic]
