"""A home beside a Home Assistant: broker, llama.cpp, bridge, outpost and registry, as processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import httpx

from rig.llamacpp import _CHILD as LLAMA_CHILD
from rig.mosquitto import Mosquitto, free_port
from rig.program import COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clusterllm_mqtt.demo.receiver import Receiver

TOKEN: Final = "open-sesame-31337"  # noqa: S105
INTERVAL_S: Final = 1.0
_PATIENCE_S: Final = 30.0


@dataclass
class LiveHome:
    """Start and end its parts by name: llama, bridge, outpost."""

    folder: Path
    model: Path
    broker: Mosquitto
    registry: Receiver
    llama_port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, *parts: str) -> None:
        """Start parts; llama.cpp is waited for."""
        for part in parts:
            command = [*COMMAND, part]
            if part == "llama":
                options = {"model": str(self.model), "port": self.llama_port}
                command = [sys.executable, str(LLAMA_CHILD), json.dumps(options)]
            with (self.folder / f"{part}.log").open("ab") as log:
                self.processes[part] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ()
                )
            if part == "llama":
                self._wait_for_llama()

    def _wait_for_llama(self) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(httpx.HTTPError):
                url = f"http://127.0.0.1:{self.llama_port}/health"
                if httpx.get(url, trust_env=False).status_code == httpx.codes.OK:
                    return
            time.sleep(0.05)
        raise AssertionError("llama.cpp did not start")

    def kill(self, part: str) -> float:
        """End it as a power cut would; when, by the monotonic clock."""
        process = self.processes.pop(part)
        process.kill()
        killed_s = time.monotonic()
        process.wait()
        return killed_s

    def stop(self, part: str) -> None:
        """End it in order."""
        process = self.processes.pop(part)
        process.terminate()
        process.wait(20)

    def close(self) -> None:
        """End whatever runs."""
        for part in list(self.processes):
            self.kill(part)

    def run(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command of ours to its end."""
        return subprocess.run(
            [*COMMAND, *argv], env=self._environ(), capture_output=True, check=True, timeout=30
        )

    def _environ(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self.llama_port}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CLUSTERLLM_")}
        return {
            **inherited,
            "CLUSTERLLM_MQTT__HOST": "127.0.0.1",
            "CLUSTERLLM_MQTT__PORT": str(self.broker.port),
            "CLUSTERLLM_MDNS__ENABLED": "false",
            "CLUSTERLLM_PROBE__INTERVAL": f"{INTERVAL_S:g}s",
            "CLUSTERLLM_ENDPOINTS": f"[{{url: '{url}', name: Big box}}]",
            "CLUSTERLLM_OUTPOST__CLOUDBOX_URL": self.registry.url,
            "CLUSTERLLM_OUTPOST__TOKEN": TOKEN,
        }


class MqttObserver:
    """An independent client that notes each message and when it came, by the monotonic clock."""

    def __init__(self, port: int) -> None:
        command = ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(port), "-t", "clusterllm/#"]
        self._process = subprocess.Popen([*command, "-F", "%t %p"], stdout=subprocess.PIPE)
        self.messages: list[tuple[float, str, str]] = []
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            topic, _, payload = line.decode().rstrip("\n").partition(" ")
            self.messages.append((time.monotonic(), topic, payload))

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def observing(port: int) -> Iterator[MqttObserver]:
    """An observer for as long as it is needed."""
    observer = MqttObserver(port)
    try:
        yield observer
    finally:
        observer.close()
