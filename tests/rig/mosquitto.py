"""A real Mosquitto on a free loopback port, with its own configuration; ended by pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from clusterllm_mqtt.mqtt.broker_options import BrokerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin") or "mosquitto"


def free_port() -> int:
    """A loopback port that nobody has at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Mosquitto:
    """One broker; `lines` are added to its configuration."""

    def __init__(self, folder: Path, *lines: str, anonymous: bool = True) -> None:
        self.folder = folder
        self.port = free_port()
        self._config = folder / f"mosquitto-{self.port}.conf"
        user = ["user root"] if os.geteuid() == 0 else []
        allow = f"allow_anonymous {str(anonymous).lower()}"
        text = [f"listener {self.port} 127.0.0.1", allow, "log_dest none", *user, *lines]
        self._config.write_text("\n".join(text) + "\n", encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> BrokerOptions:
        """How to reach it."""
        return BrokerOptions(port=self.port)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it listens."""
        self._process = subprocess.Popen(
            [PROGRAM, "-c", str(self._config)], stderr=subprocess.DEVNULL
        )
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
                break
        pytest.fail("mosquitto did not start")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, by default in order, which saves what is persistent."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait(10)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop, and start a moment later, as a service manager does."""
        self.stop(number)
        time.sleep(0.2)
        self.start()

    def retained(self, topic_filter: str = "#", quiet_s: float = 0.2) -> dict[str, bytes]:
        """What is retained, as an independent client sees it within a moment."""
        command = [
            "mosquitto_sub", "-h", "127.0.0.1", "-p", str(self.port), "-t", topic_filter,
            "--retained-only", "-F", "%t %p",
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            try:
                output, _ = process.communicate(timeout=quiet_s)
            except subprocess.TimeoutExpired:
                process.terminate()
                output, _ = process.communicate()
        pairs = (line.partition(b" ") for line in output.splitlines())
        return {topic.decode(): payload for topic, _, payload in pairs}

    def publish(self, topic: str, payload: str, *options: str) -> None:
        """Publish by an independent client."""
        command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(self.port), "-t", topic]
        subprocess.run([*command, "-m", payload, *options], check=True)

    def publish_many(self, lines: dict[str, str]) -> None:
        """Retain many messages, at the speed of the broker."""
        for topic, payload in lines.items():
            self.publish(topic, payload, "-r", "-q", "1")


async def eventually(check: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something is so; fail when it is not in time."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not check():
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"not within {seconds:g} s")
        await asyncio.sleep(0.02)


@pytest.fixture
def make_mosquitto(tmp_path: Path) -> Iterator[Callable[..., Mosquitto]]:
    """Start brokers with configuration lines; all are ended with the test."""
    brokers: list[Mosquitto] = []

    def make(*lines: str, anonymous: bool = True) -> Mosquitto:
        broker = Mosquitto(tmp_path, *lines, anonymous=anonymous)
        brokers.append(broker)
        broker.start()
        return broker

    yield make
    for broker in brokers:
        broker.stop()


@pytest.fixture
def mosquitto(make_mosquitto: Callable[..., Mosquitto]) -> Mosquitto:
    """A broker with default limits that lets everybody in."""
    return make_mosquitto()
