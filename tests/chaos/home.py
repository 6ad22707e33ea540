"""The parts of a home as processes that can be killed, stopped and frozen, and an observer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rig.mosquitto import PROGRAM as MOSQUITTO
from rig.mosquitto import free_port
from rig.program import COMMAND
from rig.tiny_gguf import write_model

from chaos.gpustack_child import CAPTURE
from chaos.plan import BRIDGES, ENDPOINTS, OUTPOSTS
from clusterllm_mqtt.demo.receiver import PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN: Final = "open-sesame-31337"  # noqa: S105
INTERVAL_S: Final = 1.0
LLAMA: Final = Path(__file__).parents[1] / "rig" / "llamacpp_child.py"
GPUSTACK: Final = Path(__file__).with_name("gpustack_child.py")


class ChaosHome:
    """Starts and ends parts by name; the logs of all lives of a part lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.broker_port, self.registry_port = free_port(), free_port()
        self._ports = {endpoint: free_port() for endpoint in ENDPOINTS}
        model = write_model(folder / "tiny.gguf")
        (folder / "token").write_text(TOKEN, encoding="utf-8")
        user = ["user root"] if os.geteuid() == 0 else []
        lines = [f"listener {self.broker_port} 127.0.0.1", "allow_anonymous true", *user]
        lines += ["persistence true", f"persistence_location {folder}/", "log_dest none"]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._commands: dict[str, list[str]] = {
            "broker": [MOSQUITTO, "-c", str(folder / "mosquitto.conf")],
            "registry": [
                *(sys.executable, "-m", "clusterllm_mqtt.demo.receiver"),
                *("--port", str(self.registry_port), "--token-file", str(folder / "token")),
                *("--journal", str(folder / "journal.jsonl")),
            ],
            "gpustack": [sys.executable, str(GPUSTACK), str(self._ports["gpustack"])],
            **{bridge: [*COMMAND, "bridge"] for bridge in BRIDGES},
            **{outpost: [*COMMAND, "outpost"] for outpost in OUTPOSTS},
        }
        for llama in ENDPOINTS[:3]:
            options = {"model": str(model), "port": self._ports[llama]}
            self._commands[llama] = [sys.executable, str(LLAMA), json.dumps(options)]

    @property
    def parts(self) -> tuple[str, ...]:
        """In an order in which they may start."""
        return tuple(self._commands)

    def start(self, part: str) -> None:
        """Start a part; it says what it has to say into its log."""
        with (self.folder / f"{part}.log").open("ab") as log:
            self.processes[part] = subprocess.Popen(
                self._commands[part], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environ(part),
            )  # fmt: skip

    def fail(self, part: str, kind: str) -> None:
        """Kill (-9), stop in order, or freeze a part."""
        process = self.processes[part]
        if kind == "pause":
            process.send_signal(signal.SIGSTOP)
            return
        process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        process.wait(20)

    def recover(self, part: str, kind: str) -> None:
        """Let it go on, or start it again."""
        if kind == "pause":
            self.processes[part].send_signal(signal.SIGCONT)
        else:
            self.start(part)

    def ended(self) -> Iterator[str]:
        """Parts that ended by themselves; ask while no fault is on."""
        for part, process in self.processes.items():
            if process.poll() is not None:
                yield part

    def close(self) -> None:
        """End everything, by pid."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def logs(self) -> dict[str, list[str]]:
        """What the parts said, all their lives."""
        return {
            part: (self.folder / f"{part}.log").read_text(errors="replace").splitlines()
            for part in (*BRIDGES, *OUTPOSTS)
        }

    def resident_kb(self, part: str) -> int:
        """Resident memory of a part."""
        status = Path(f"/proc/{self.processes[part].pid}/status").read_text(encoding="ascii")
        return int(next(line.split()[1] for line in status.splitlines() if "VmRSS" in line))

    def retained(self) -> dict[str, str]:
        """What the broker holds, asked anew."""
        command = ["mosquitto_sub", "-p", str(self.broker_port), "-t", "#", "-W", "1"]
        command += ["--retained-only", "-F", "%t %p"]
        got = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        return dict(line.partition(" ")[::2] for line in got.stdout.splitlines())

    def registered(self) -> dict[str, Any]:
        """What the registry holds of each outpost, but the time."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.registry_port}{PATH}",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310
            agents = json.load(response)["agents"]
        return {name: {**agent["payload"], "heartbeat_at": None} for name, agent in agents.items()}

    def _environ(self, part: str) -> dict[str, str]:
        urls = {name: f"http://127.0.0.1:{port}" for name, port in self._ports.items()}
        endpoints = [
            {"url": url, "name": name, **({"api_key": CAPTURE.key} if name == "gpustack" else {})}
            for name, url in urls.items()
        ]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CLUSTERLLM_")}
        return {
            **inherited,
            "CLUSTERLLM_MQTT__HOST": "127.0.0.1",
            "CLUSTERLLM_MQTT__PORT": str(self.broker_port),
            "CLUSTERLLM_BRIDGE__ID": part,
            "CLUSTERLLM_MDNS__ENABLED": "false",
            "CLUSTERLLM_PROBE__INTERVAL": f"{INTERVAL_S:g}s",
            "CLUSTERLLM_ENDPOINTS": json.dumps(endpoints),
            "CLUSTERLLM_OUTPOST__AGENT": part,
            "CLUSTERLLM_OUTPOST__CLOUDBOX_URL": f"http://127.0.0.1:{self.registry_port}",
            "CLUSTERLLM_OUTPOST__TOKEN": TOKEN,
        }


class Observer:
    """As Home Assistant would: connected all along, it takes in every message."""

    def __init__(self, port: int) -> None:
        self.retained: dict[str, str] = {}
        self.messages = 0
        command = ["mosquitto_sub", "-p", str(port), "-t", "clusterllm/#", "-F", "%t %p"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            topic, _, payload = line.rstrip("\n").partition(" ")
            self.messages += 1
            self.retained[topic] = payload

    def forget(self) -> None:
        """What a broker held that is gone says nothing."""
        self.retained.clear()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._thread.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()


def wait_until_s(until_s: float) -> None:
    """Sleep until a time of the monotonic clock."""
    time.sleep(max(until_s - time.monotonic(), 0))
