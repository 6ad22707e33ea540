"""How far one Mosquitto and one outpost go: time, CPU and memory by the number of endpoints.

    python benchmarks/outpost_scale.py                      # everything, about five minutes
    python benchmarks/outpost_scale.py --shapes 20x500      # 20 bridges with 500 endpoints each

For each shape: a Mosquitto with its default limits, everything retained as bridges retain it, then
the outpost, as people run it, until its first push. `heard` is what a plain subscriber is handed of
the indexes at QoS 1; `first` is how many of the models were in the first push. All on loopback.
Machines are noisy: read ratios, not figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
from clusterllm_mqtt.mqtt.events import Connected
from clusterllm_mqtt.mqtt.messages import Message, availability_message, encode
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.topics import BridgeTopics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TICKS = os.sysconf("SC_CLK_TCK")
SHAPES = ("1x10", "20x5", "20x50", "20x500", "20x1500", "900x10", "1000x10", "1500x1", "3000x1")
PATIENCE_S = 120.0
HEAD = " bridges endpoints  heard  first   of     s  CPU s  MiB  Mosquitto MiB, CPU s"


@dataclass
class Registry:
    """Takes every push; when the first came, and how many models each had."""

    first_s: float = float("nan")
    sizes: tuple[int, ...] = ()
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                if not self.came.is_set():
                    self.first_s = time.monotonic()
                self.came.set()
                self.sizes = (*self.sizes, len(json.loads(body).get("models") or ()))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                await writer.drain()
        writer.close()


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mib(pid: int) -> float:
    """Largest resident memory so far, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def program(*command: str, **environ: str) -> AsyncIterator[int]:
    """Run a program; its pid."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=quiet, stdout=quiet, stderr=quiet, env={**os.environ, **environ}
    )
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def mosquitto() -> AsyncIterator[tuple[int, int]]:
    """A Mosquitto with default limits; its port and pid."""
    port = free_port()
    async with program(shutil.which("mosquitto") or "/usr/sbin/mosquitto", "-p", str(port)) as pid:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            await asyncio.sleep(0.02)
        yield port, pid


def retained(bridges: int, endpoints: int) -> list[Message]:
    """What so many bridges retain; each endpoint has a model of its own and one that all have."""
    keys = [f"box-{number:05}" for number in range(endpoints)]
    messages = []
    for number in range(bridges):
        topics = BridgeTopics(bridge=f"home-{number:05}")
        for key in keys:
            info = {
                "state": "running",
                "backend": "gpustack",
                "endpoint": f"http://192.168.1.5/{key}",
                "version": "2.3.0",
                "member_count": 2,
                "aggregate_vram_bytes": 2**36,
                "models": [{"name": "common", "size": 1}, {"name": f"{topics.bridge}-{key}"}],
            }
            messages.append(Message(topics.info(key), encode(info)))
        messages.append(Message(topics.status, encode({"endpoints": keys})))
        messages.append(availability_message(topics, online=True))
    return messages


@contextlib.asynccontextmanager
async def publishing(port: int) -> AsyncIterator[Session]:
    """A connected session, which publishes as a bridge does."""
    async with Session(BrokerOptions(port=port), client_id="homes") as session:
        async for event in session.events():
            if isinstance(event, Connected):
                break
        yield session


async def heard(port: int) -> int:
    """How many indexes a plain subscriber is handed."""
    process = await asyncio.create_subprocess_exec(
        *("mosquitto_sub", "-p", str(port), "-q", "1", "-t", "clusterllm/bridge/+/status"),
        *("-F", "%t", "-W", "2"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    return len(output.split())


@contextlib.asynccontextmanager
async def heartbeats(session: Session, bridges: int) -> AsyncIterator[None]:
    """Every bridge says `online` once a minute, first those that the broker hands over last."""

    async def beat() -> None:
        while True:
            for number in reversed(range(bridges)):
                topics = BridgeTopics(bridge=f"home-{number:05}")
                await session.publish(availability_message(topics, online=True))
                await asyncio.sleep(60 / bridges)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def measure(bridges: int, endpoints: int, watch_s: float) -> None:
    """Print a row, and what came after the first push while it was watched."""
    registry = Registry()
    async with (
        mosquitto() as (port, broker),
        await asyncio.start_server(registry.serve, "127.0.0.1", 0) as server,
        publishing(port) as session,
    ):
        registry_port = server.sockets[0].getsockname()[1]
        await session.publish(*retained(bridges, endpoints))
        indexes, before_s = await heard(port), cpu_s(broker)
        async with heartbeats(session, bridges), outpost(port, registry_port) as pid:
            started_s = time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(registry.came.wait(), PATIENCE_S)
            took_s = registry.first_s - started_s
            print(
                f"{bridges:8} {bridges * endpoints:9} {indexes:6} {sum(registry.sizes[:1]):6} "
                f"{bridges * endpoints + 1:6} {took_s:5.1f} {cpu_s(pid):6.2f} {peak_mib(pid):4.0f} "
                f"{peak_mib(broker):8.0f} {cpu_s(broker) - before_s:11.2f}",
                flush=True,
            )
            await asyncio.sleep(watch_s)
    if watch_s:
        print(f"{'':9}pushes in the {watch_s:.0f} s after it: {registry.sizes[1:]}", flush=True)


@contextlib.asynccontextmanager
async def outpost(port: int, registry_port: int) -> AsyncIterator[int]:
    """The outpost as people run it; its pid."""
    async with program(
        *(sys.executable, "-m", "clusterllm_mqtt", "outpost"),
        CLUSTERLLM_MQTT__PORT=str(port),
        CLUSTERLLM_OUTPOST__CLOUDBOX_URL=f"http://127.0.0.1:{registry_port}",
        CLUSTERLLM_OUTPOST__TOKEN="sesame",  # noqa: S106
    ) as pid:
        yield pid


async def throughput(count: int) -> None:
    """How fast one Mosquitto takes retained QoS 1 messages, beside what its own client does."""
    messages = retained(20, count // 20)[:count]
    async with mosquitto() as (port, broker), publishing(port) as session:
        before_s, started_s = cpu_s(broker), time.monotonic()
        await session.publish(*messages)
        ours, ours_s = (time.monotonic() - started_s) / count, (cpu_s(broker) - before_s) / count
    lines = b"\n".join(message.payload for message in messages) + b"\n"
    async with mosquitto() as (port, broker):
        before_s, started_s = cpu_s(broker), time.monotonic()
        command = ("mosquitto_pub", "-p", str(port), "-q", "1", "-r", "-t", "bench", "-l")
        await asyncio.to_thread(subprocess.run, command, input=lines, check=True)
        its, its_s = (time.monotonic() - started_s) / count, (cpu_s(broker) - before_s) / count
    print(f"{count} retained QoS 1 messages of {len(lines) // count} bytes, one connection:")
    for name, each_s, broker_s in (("session", ours, ours_s), ("mosquitto_pub", its, its_s)):
        print(f"{name:14}{1 / each_s:6.0f} a second, Mosquitto {broker_s * 1e6:3.0f} us each")
    print(f"ratio {its / ours:.2f}; a Mosquitto core takes about {1 / ours_s:.0f} a second")


async def main() -> None:
    """One row for each shape, then the throughput."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", nargs="*", default=SHAPES, metavar="BRIDGESxENDPOINTS")
    parser.add_argument("--messages", type=int, default=20_000, help="0 leaves throughput out")
    parser.add_argument("--watch", type=float, default=15.0, help="seconds, above 1,000 bridges")
    args = parser.parse_args()
    print(HEAD)
    for shape in args.shapes:
        bridges, endpoints = map(int, shape.split("x"))
        await measure(bridges, endpoints, args.watch if bridges > 1000 else 0.0)
    if args.messages:
        await throughput(args.messages)


if __name__ == "__main__":
    asyncio.run(main())
