"""A second home on the same broker: a GPUStack, as one really answered, and a bridge of its own.

llama.cpp tells nobody of its memory and its members; this one does, and can lose them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Final, Self

from rig.captures import load_captures
from rig.program import COMMAND
from rig.stub import StubEndpoint

if TYPE_CHECKING:
    from pathlib import Path

BRIDGE: Final = "clusterllm_lab"
NAME: Final = "GPU lab"
_PATIENCE_S: Final = 20.0
_CAPTURES: Final = {capture.name: capture for capture in load_captures()}
_WHOLE: Final = _CAPTURES["gpustack-2.3.0-adminkey"]
_SHRUNK: Final = _CAPTURES["gpustack-2.3.0-adminkey-workers-lost"]


class Lab:
    """The endpoint and its bridge; `port` is the broker's, `folder` keeps the bridge's log."""

    def __init__(self, port: int, folder: Path) -> None:
        self._port = port
        self._log = folder / "lab.log"
        self._stub = StubEndpoint(_WHOLE.scenario)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._bridge: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._stub.__aenter__(), self._loop).result(_PATIENCE_S)
        with self._log.open("ab") as log:
            self._bridge = subprocess.Popen(
                [*COMMAND, "bridge"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ(),
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_bridge()
        asyncio.run_coroutine_threadsafe(self._stub.__aexit__(), self._loop).result(_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def stop_bridge(self) -> None:
        """End the bridge in order."""
        if self._bridge is not None and self._bridge.poll() is None:
            self._bridge.terminate()
            self._bridge.wait(_PATIENCE_S)

    def clear(self) -> None:
        """Remove what the bridge, which was stopped, left."""
        command = [*COMMAND, "clear", "--yes"]
        subprocess.run(command, env=self._environ(), check=True, timeout=_PATIENCE_S)

    # what happens to the endpoint

    def serve(self, *models: str) -> None:
        """Be whole, with other models."""
        answer = {"object": "list", "data": [{"id": m, "object": "model"} for m in models]}
        routes = dict(_WHOLE.scenario["routes"])
        for path in ("/v1-openai/models", "/v1/models"):
            routes[path] = {**routes[path], "body": json.dumps(answer)}
        self._become({"routes": routes})

    def lose_workers(self) -> None:
        """Lose one of two members, and all memory that was known."""
        self._become(_SHRUNK.scenario)

    def break_down(self) -> None:
        """Answer nobody: whoever connects is cut off."""
        self._become({"default": {"close": "reset"}})

    def _become(self, scenario: dict[str, Any]) -> None:
        self._loop.call_soon_threadsafe(self._stub.become, scenario)

    def _environ(self) -> dict[str, str]:
        endpoint = {"url": self._stub.url, "name": NAME, "api_key": _WHOLE.key}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CLUSTERLLM_")}
        return {
            **inherited,
            "CLUSTERLLM_BRIDGE__ID": "lab",
            "CLUSTERLLM_MQTT__HOST": "127.0.0.1",
            "CLUSTERLLM_MQTT__PORT": str(self._port),
            "CLUSTERLLM_MQTT__BASE_TOPIC": "clusterllm-lab",  # no business of the home's outpost
            "CLUSTERLLM_MDNS__ENABLED": "false",
            "CLUSTERLLM_PROBE__INTERVAL": "1s",
            "CLUSTERLLM_ENDPOINTS": json.dumps([endpoint]),
        }
