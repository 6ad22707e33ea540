"""The registry receiver in a process of its own, that can be killed and come back."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import httpx

from clusterllm_mqtt.demo.receiver import PATH
from rig.mosquitto import free_port

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "open-sesame-31337"  # noqa: S105


class ReceiverProcess:
    """`start` and `kill` as often as you like; it keeps its port and its journal."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._token_file = folder / "token"
        self._token_file.write_text(TOKEN + "\n", encoding="utf-8")
        self._journal = folder / "journal.jsonl"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start, and wait until it listens."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "clusterllm_mqtt.demo.receiver", "--port", str(self.port),
            "--token-file", str(self._token_file), "--journal", str(self._journal),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == f"{self.url}\n".encode()

    async def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def held(self) -> dict[str, Any]:
        """What it lists, by agent."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
            agents: dict[str, Any] = (await client.get(self.url + PATH)).json()["agents"]
        return agents

    def history(self) -> list[tuple[datetime, dict[str, Any]]]:
        """Every push that it ever accepted, and when."""
        if not self._journal.exists():
            return []
        lines = map(json.loads, self._journal.read_text(encoding="utf-8").splitlines())
        return [(datetime.fromisoformat(r["received_at"]), r["payload"]) for r in lines]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
