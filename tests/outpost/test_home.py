"""A whole home, of real parts: llama.cpp, bridge, broker, outpost and registry, each in a process.

Whatever is killed, and in whatever order they start, the registry ends with the truth, and each
push that it took was true.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest
from rig.llamacpp import LlamaServer, llama_server
from rig.mosquitto import Mosquitto, free_port
from rig.program import Program
from rig.receiver import TOKEN, ReceiverProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WITHIN_S: Final = 10.0
"""From the last start to the truth at the registry."""

NOTICED_S: Final = 7.0
"""From a death to the push that says so: interval, second look, timeouts, coalescing."""

PARTS: Final = ("broker", "llama", "bridge", "outpost", "receiver")


@dataclass
class Home:
    """Each part can be started and killed; its port stays."""

    folder: Path
    model: Path
    stack: contextlib.AsyncExitStack
    llama_port: int = field(default_factory=free_port)
    parts: dict[str, contextlib.AsyncExitStack] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The parts that are more than a process."""
        self.broker = Mosquitto(self.folder)
        self.receiver = ReceiverProcess(self.folder)
        self.llama: LlamaServer | None = None

    async def start(self, part: str) -> None:
        """Start it, and wait until it runs, not until it is ready."""
        stack = await self.stack.enter_async_context(contextlib.AsyncExitStack())
        self.parts[part] = stack
        match part:
            case "broker":
                self.broker.start()
                stack.callback(self.broker.stop, signal.SIGKILL)
            case "receiver":
                await self.receiver.start()
                stack.push_async_callback(self.receiver.kill)
            case "llama":
                server = llama_server(self.model, port=self.llama_port, wait_until="ready")
                self.llama = await stack.enter_async_context(server)
            case _:
                program = Program(part, environ=self._environ())
                self.programs[part] = await stack.enter_async_context(program)

    async def kill(self, part: str) -> None:
        """End it with SIGKILL."""
        await self.parts.pop(part).aclose()

    def _environ(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self.llama_port}"
        return {
            "CLUSTERLLM_MQTT__HOST": "127.0.0.1",
            "CLUSTERLLM_MQTT__PORT": str(self.broker.port),
            "CLUSTERLLM_MDNS__ENABLED": "false",
            "CLUSTERLLM_PROBE__INTERVAL": "1s",
            "CLUSTERLLM_ENDPOINTS": f"[{{url: '{url}', name: Tiny}}]",
            "CLUSTERLLM_OUTPOST__CLOUDBOX_URL": self.receiver.url,
            "CLUSTERLLM_OUTPOST__TOKEN": TOKEN,
        }

    async def is_told(self) -> bool:
        """Whether the registry holds what runs."""
        payload = (await self.receiver.held()).get("home", {}).get("payload", {})
        cluster = payload.get("cluster") == {"member_count": 1, "backend": "llamacpp"}
        return cluster and len(payload["models"]) == 1

    async def converges(self) -> float:
        """Wait for the truth; how many seconds it took."""
        started_s = time.monotonic()
        while not await self.is_told():
            assert time.monotonic() - started_s < WITHIN_S, await self.receiver.held()
            await asyncio.sleep(0.1)
        return time.monotonic() - started_s

    def pushed_between(self, begin: datetime, end: datetime) -> list[bool]:
        """For each push: did it say that the cluster runs?"""
        history = self.receiver.history()
        return ["cluster" in payload for at, payload in history if begin < at <= end]


@pytest.fixture
async def home(tmp_path: Path, tiny_model: Path) -> AsyncIterator[Home]:
    async with contextlib.AsyncExitStack() as stack:
        yield Home(tmp_path, tiny_model, stack)


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize("seed", range(4))
async def test_in_whatever_order_they_start_the_registry_ends_with_the_truth(
    home: Home, seed: int
) -> None:
    order = random.Random(seed).sample(PARTS, len(PARTS))  # noqa: S311  # a reproducible order
    for part in order:
        await home.start(part)
        await asyncio.sleep(0.5)
    await home.converges()


async def test_whatever_is_killed_comes_back_and_no_push_was_untrue(home: Home) -> None:
    for part in PARTS:
        await home.start(part)
    await home.converges()
    # A registry, an outpost or a broker that dies makes nothing untrue of what was pushed.
    for part in ("receiver", "outpost", "broker"):
        begin = now()
        await home.kill(part)
        await asyncio.sleep(1)
        await home.start(part)
        await home.converges()
        await asyncio.sleep(3)
        assert False not in home.pushed_between(begin, now()), part
    for part in ("bridge", "llama"):
        killed = now()
        await home.kill(part)
        await asyncio.sleep(NOTICED_S)
        assert not await home.is_told(), part
        noticed = now()
        await asyncio.sleep(1)
        assert True not in home.pushed_between(noticed, now()), part
        assert False in home.pushed_between(killed, noticed), part
        await home.start(part)
        await home.converges()


@pytest.mark.parametrize("keeps", [False, True], ids=["forgets", "keeps its old state"])
async def test_an_endpoint_that_dies_while_the_broker_is_away_is_not_told_for_true(
    home: Home, tmp_path: Path, *, keeps: bool
) -> None:
    """A broker that saved `running` and `online` before it was killed brings both back."""
    saves = f"persistence_location {tmp_path}/", "autosave_on_changes true", "autosave_interval 1"
    home.broker = Mosquitto(tmp_path, *(("persistence true", *saves) if keeps else ()))
    for part in PARTS:
        await home.start(part)
    await home.converges()
    await home.kill("broker")
    await home.kill("llama")
    died = now()
    await asyncio.sleep(2)
    await home.start("broker")
    if keeps:
        retained = home.broker.retained("clusterllm/bridge/home/#")
        assert b"online" in retained.values(), "nothing old came back: this proves nothing"
    deadline_s = time.monotonic() + WITHIN_S
    while await home.is_told():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.1)
    assert True not in home.pushed_between(died, now())


async def test_a_bridge_that_is_slow_to_come_back_to_a_broker_that_forgot_it_is_waited_for(
    home: Home,
) -> None:
    for part in PARTS:
        await home.start(part)
    await home.converges()
    begin = now()
    await home.kill("broker")
    home.programs["bridge"].process.send_signal(signal.SIGSTOP)
    await home.start("broker")
    await asyncio.sleep(6)
    assert home.pushed_between(begin, now()) == []
    home.programs["bridge"].process.send_signal(signal.SIGCONT)
    await home.converges()
    assert False not in home.pushed_between(begin, now())


async def test_a_broker_that_stops_in_order_and_restores_everybodys_will_takes_nobody_out(
    home: Home, tmp_path: Path
) -> None:
    home.broker = Mosquitto(tmp_path, "persistence true", f"persistence_location {tmp_path}/")
    for part in PARTS:
        await home.start(part)
    await home.converges()
    begin = now()
    bridge = home.programs["bridge"].process
    bridge.send_signal(signal.SIGSTOP)
    home.broker.stop()
    await home.kill("broker")
    await home.start("broker")
    retained = home.broker.retained("clusterllm/bridge/home/availability")
    assert b"offline" in retained.values(), "the will did not come back: this proves nothing"
    await asyncio.sleep(4)
    bridge.send_signal(signal.SIGCONT)
    await home.converges()
    await asyncio.sleep(2)
    assert False not in home.pushed_between(begin, now())
