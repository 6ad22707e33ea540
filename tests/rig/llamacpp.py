"""A real llama.cpp server (the xllamacpp wheel) in a process of its own, on a free loopback port.

async with llama_server(model) as server:
    server.url, server.pid, server.kill()
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from rig.tiny_gguf import write_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST: Final = "127.0.0.1"
START_S: Final = 30.0
_CHILD: Final = Path(__file__).with_name("llamacpp_child.py")


@dataclass(frozen=True)
class LlamaServer:
    """A running server; `url` includes its `--api-prefix`."""

    url: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self.process.pid

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Let it hang: its port stays open and nobody answers."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def llama_server(
    model: Path,
    *,
    port: int = 0,
    wait_until: str = "ready",
    log: Path | None = None,
    **options: object,
) -> AsyncIterator[LlamaServer]:
    """Start a server and end it, whatever happens.

    `options` are xllamacpp's parameters: `api_keys`, `api_prefix`, `sleep_idle_seconds`, ...
    `wait_until` is "ready" (the model is loaded), "open" (it answers, perhaps with 503) or "".
    """
    port = port or _free_port()
    settings = {"model": str(model), "port": port, **options}
    log = log or model.parent / f"llamacpp-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220  # starting takes no time
            [sys.executable, _CHILD, json.dumps(settings)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    server = LlamaServer(f"http://{HOST}:{port}{options.get('api_prefix', '')}", port, process, log)
    try:
        await _wait(server, wait_until)
        yield server
    finally:
        server.resume()
        server.kill()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


async def _wait(server: LlamaServer, until: str) -> None:
    deadline = time.monotonic() + START_S
    async with httpx.AsyncClient(trust_env=False) as client:
        while until and not await _is(client, server, until):
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(server.log.read_text(errors="replace")[-2000:])
            await asyncio.sleep(0.02)


async def _is(client: httpx.AsyncClient, server: LlamaServer, state: str) -> bool:
    try:
        status = (await client.get(f"{server.url}/health", timeout=2)).status_code
    except httpx.HTTPError:
        return False
    return state == "open" or status != httpx.codes.SERVICE_UNAVAILABLE


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 90 kB."""
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="session")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes a while to load."""
    return write_model(tmp_path_factory.mktemp("model") / "slow.gguf", dim=1024, layers=8)
