"""A bridge among hostile neighbours: the others' probes stay on time, and memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from rig.mosquitto import Mosquitto, eventually

from clusterllm_mqtt.mqtt.topics import BridgeTopics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

TOPICS = BridgeTopics()
INTERVAL_S = 2.0
BOMB = gzip.compress(b" " * 50_000_000, compresslevel=9)


class Endpoint:
    """An HTTP server of this test; remembers when it was asked."""

    def __init__(self, answer: Serve) -> None:
        self._answer = answer
        self.port = 0
        self.asked_s: list[float] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            self.asked_s.append(time.monotonic())
            await self._answer(reader, writer)
        writer.close()


def body(content: bytes, *headers: bytes) -> Serve:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(content), *headers, b"", b""]
        writer.write(b"\r\n".join(lines) + content)
        await writer.drain()

    return answer


async def never(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"[")
        await writer.drain()
        await asyncio.sleep(1)


async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n")
    for _piece in range(800):
        writer.write(b"x" * 65536)
        await writer.drain()


async def circle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


HOSTILE = [
    never,
    drip,
    flood,
    circle,
    body(b"[" * 10_000),
    body(BOMB, b"Content-Encoding: gzip"),
    body(os.urandom(10_000)),
]


@contextlib.asynccontextmanager
async def serving(answers: list[Serve]) -> AsyncIterator[list[Endpoint]]:
    async with contextlib.AsyncExitStack() as stack:
        endpoints = [Endpoint(answer) for answer in answers]
        for endpoint in endpoints:
            server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
            stack.callback(server.close)
            endpoint.port = server.sockets[0].getsockname()[1]
        yield endpoints


def resident_mib(pid: int) -> float:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123  # procfs
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def test_hostile_neighbours_delay_nobody_and_cost_bounded_memory(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    models = json.dumps({"data": [{"id": "m", "owned_by": "llamacpp"}]}).encode()
    good = body(models, b"Server: llama.cpp", b"Content-Type: application/json")
    async with serving([good, *HOSTILE * 3]) as endpoints:
        settings = {
            "mqtt": {"host": "127.0.0.1", "port": mosquitto.port},
            "mdns": {"enabled": False},
            "probe": {"interval": INTERVAL_S},
            "endpoints": [
                {"url": f"http://127.0.0.1:{endpoint.port}", "name": f"box {number}"}
                for number, endpoint in enumerate(endpoints)
            ],
        }
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps(settings), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "clusterllm_mqtt", "bridge", str(config),
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await eventually(lambda: mosquitto.retained(TOPICS.availability) != {}, seconds=30)
            started = len(endpoints[0].asked_s)
            most_mib = 0.0
            for _ in range(20):
                await asyncio.sleep(1)
                most_mib = max(most_mib, resident_mib(process.pid))
            gaps = [b - a for a, b in pairwise(endpoints[0].asked_s[started:])]
        finally:
            process.terminate()
            code = await process.wait()
        assert code == 0
        assert len(gaps) >= 7
        assert max(gaps) <= INTERVAL_S * 1.1 + 1
        assert most_mib < 80
        states = [p for t, p in mosquitto.retained(TOPICS.info("+")).items() if "box-0" in t]
        assert b'"models":[{"name":"m"}]' in states[0]
