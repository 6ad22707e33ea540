"""The program as a person, a script and a service manager run it: in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final, Self

from clusterllm_mqtt.cli.main import main

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping

COMMAND: Final = (sys.executable, "-m", "clusterllm_mqtt")
PATIENCE_S: Final = 20.0


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("CLUSTERLLM_")}
    return {**inherited, **extra}


def run(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run to the end, without a terminal."""
    return subprocess.run(
        [*COMMAND, *argv],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        stdin=subprocess.DEVNULL,
        env=_environment(environ),
    )


def call(*argv: str) -> int:
    """Run in this process, which leaves its logging as it was; the exit code."""
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    root.handlers.clear()
    try:
        return main(argv)
    finally:
        root.handlers[:], logging.raiseExceptions = handlers, raises
        root.setLevel(level)


class Program:
    """A command that runs until it is stopped, in a process group of its own."""

    def __init__(
        self,
        *argv: str,
        environ: Mapping[str, str] | None = None,
        stderr: int = asyncio.subprocess.PIPE,
    ) -> None:
        self._argv = argv
        self._stderr = stderr
        self._environ = environ or {}
        self.said = ""
        self.printed = ""

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *self._argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._stderr,
            env=_environment(self._environ),
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def says(self, text: str) -> None:
        """Wait for a text on its standard error."""
        self.said = await _read_until(self.process.stderr, self.said, text)

    async def prints(self, text: str) -> None:
        """Wait for a text on its standard output."""
        self.printed = await _read_until(self.process.stdout, self.printed, text)

    async def ends(self) -> int:
        """Its exit code, when it ends by itself; `said` is complete then."""
        async with asyncio.timeout(PATIENCE_S):
            if self.process.stderr is not None:
                self.said += (await self.process.stderr.read()).decode()
            return await self.process.wait()

    async def ends_by(self, number: signal.Signals) -> int:
        """Stop it; its exit code."""
        self.process.send_signal(number)
        return await self.ends()

    async def ends_by_key(self, number: signal.Signals) -> int:
        """Stop it as a terminal does: the signal goes to its whole process group."""
        os.killpg(self.process.pid, number)
        return await self.ends()


async def _read_until(stream: asyncio.StreamReader | None, seen: str, text: str) -> str:
    assert stream is not None
    async with asyncio.timeout(PATIENCE_S):
        while text not in seen:
            line = await stream.readline()
            assert line, f"ended without {text!r}: {seen}"
            seen += line.decode()
    return seen
