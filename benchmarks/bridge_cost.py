"""What a bridge costs: CPU per steady-state probe and memory, beside blackbox-exporter in one run.

    python benchmarks/bridge_cost.py --endpoints 200 --interval 5 --seconds 60

Both probe the same loopback URLs at the same pace: the bridge from its configuration, the exporter
(Debian's `prometheus-blackbox-exporter`) because this script asks it to. Machines are noisy: read
the ratio, not the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TICKS = os.sysconf("SC_CLK_TCK")
MODELS = {
    "object": "list",
    "data": [
        {"id": "tiny.gguf", "object": "model", "owned_by": "llamacpp", "meta": {"size": 86912}}
    ],
}
PROPS = {"total_slots": 4, "build_info": "b11549-0", "model_path": "tiny.gguf"}


def answer(path: bytes) -> bytes:
    """A llama.cpp server's answer."""
    bodies = {b"/v1/models": MODELS, b"/props": PROPS, b"/health": {"status": "ok"}}
    found = path in bodies
    body = json.dumps(bodies.get(path, {"error": {"code": 404}})).encode()
    head = (
        f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\nServer: llama.cpp\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection of a fake endpoint."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(answer(head.split(b" ", 2)[1]))
            await writer.drain()
            if b"connection: close" in head.lower():
                break
    writer.close()


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mib(pid: int) -> float:
    """Resident memory in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def program(*command: str) -> AsyncIterator[int]:
    """Run a program; its pid."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def scrape(port: int, urls: list[str], interval_s: float) -> None:
    """Ask the exporter to probe every URL once an interval, evenly spread."""
    while True:
        for url in urls:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                path = f"/probe?module=http_2xx&target={url}/v1/models"
                writer.write(
                    f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
                )
                await reader.read()
                writer.close()
            await asyncio.sleep(interval_s / len(urls))


async def measure(pids: dict[str, int], seconds: float, probes: float) -> dict[str, float]:
    """CPU ms per probe of each process, and a line about it."""
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    await asyncio.sleep(seconds)
    cost = {}
    for name, pid in pids.items():
        used_s = cpu_s(pid) - before[name]
        cost[name] = used_s * 1000 / probes
        share = 100 * used_s / seconds
        memory = f"{rss_mib(pid):5.1f} MiB"
        print(f"{name:10} {cost[name]:6.2f} ms/probe  {share:5.2f} % of a core  {memory}")
    return cost


def configuration(folder: Path, broker_port: int, urls: list[str], interval_s: float) -> str:
    """A configuration file for the bridge (JSON is a subset of YAML)."""
    path = folder / "config.yaml"
    settings = {
        "mqtt": {"host": "127.0.0.1", "port": broker_port},
        "mdns": {"enabled": False},
        "probe": {"interval": interval_s},
        "endpoints": [{"url": url, "name": f"box {n}"} for n, url in enumerate(urls)],
    }
    path.write_text(json.dumps(settings), encoding="utf-8")
    return str(path)


@contextlib.asynccontextmanager
async def endpoints(count: int) -> AsyncIterator[list[str]]:
    """The URLs of so many fake servers."""
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for _ in range(count):
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            await stack.enter_async_context(server)
            urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield urls


@contextlib.asynccontextmanager
async def bridge(folder: Path, urls: list[str], interval_s: float) -> AsyncIterator[int]:
    """A bridge with a Mosquitto of its own; the bridge's pid."""
    port = free_port()
    mosquitto = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    config = configuration(folder, port, urls, interval_s)
    command = (sys.executable, "-m", "clusterllm_mqtt", "bridge", config)
    async with program(mosquitto, "-p", str(port)), program(*command) as pid:
        yield pid


@contextlib.asynccontextmanager
async def exporter(folder: Path, urls: list[str], interval_s: float) -> AsyncIterator[int | None]:
    """blackbox-exporter, kept busy; its pid, None where it is not installed."""
    found = shutil.which("prometheus-blackbox-exporter")
    if found is None:
        yield None
        return
    rules, port = folder / "blackbox.yml", free_port()
    rules.write_text("modules: {http_2xx: {prober: http}}\n", encoding="utf-8")
    listen = f"--web.listen-address=127.0.0.1:{port}"
    async with program(found, f"--config.file={rules}", listen) as pid:
        task = asyncio.create_task(scrape(port, urls, interval_s))
        yield pid
        task.cancel()


async def main() -> None:
    """Start everything on loopback, wait until it is steady, measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--endpoints", type=int, default=200)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            endpoints(args.endpoints) as urls,
            bridge(folder, urls, args.interval) as bridge_pid,
            exporter(folder, urls, args.interval) as exporter_pid,
        ):
            await asyncio.sleep(3 * args.interval)
            pids = {"bridge": bridge_pid}
            if exporter_pid is not None:
                pids["exporter"] = exporter_pid
            cost = await measure(pids, args.seconds, args.endpoints * args.seconds / args.interval)
    if exporter_pid is not None:
        print(f"ratio      {cost['bridge'] / max(cost['exporter'], 1e-9):6.2f}")


if __name__ == "__main__":
    asyncio.run(main())
