"""A private broker on loopback, for whoever has none: `mosquitto`, else the `iotcore` package.

It runs as a child that ends with this process, and is started again if it dies by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import shutil
import socket
import sys
from typing import TYPE_CHECKING, Final, Self

from clusterllm_mqtt.errors import BrokerUnavailableError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

HOST: Final = "127.0.0.1"
PORT: Final = 1883
PROGRAMS: Final = ("mosquitto", "iotcore")
START_TIMEOUT_S: Final = 10.0
MAX_RESTARTS: Final = 5
_PATHS: Final = "/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/sbin"
_POLL_S: Final = 0.05
_STOP_TIMEOUT_S: Final = 5.0
_MOSQUITTO_CONF: Final = """\
listener {port} {host}
allow_anonymous true
persistence true
persistence_location {folder}/
autosave_interval 30
max_queued_messages 100000
log_type error
log_type warning
"""
_IOTCORE: Final = (
    "import sys; from iotcore import Broker; "
    "Broker(port=int(sys.argv[1]), listen=sys.argv[2], max_payload_size=2**20).run_forever()"
)
_LOGGER = logging.getLogger(__name__)


class PrivateBroker:
    """A broker for this process; `folder` keeps Mosquitto's retained messages over a restart.

    Port 1883 if it is free, else any. iotcore keeps nothing, and stalls beyond about a hundred
    retained topics.

    Raises:
        ConfigError: (on entering) there is no broker program; the message says how to get one.
        BrokerUnavailableError: (on entering) it did not start.
    """

    def __init__(
        self, folder: Path, *, port: int = PORT, programs: tuple[str, ...] = PROGRAMS
    ) -> None:
        self._folder = folder
        self._programs = programs
        self._wanted_port = port
        self._process: asyncio.subprocess.Process | None = None
        self._guard: asyncio.Task[None] | None = None
        self.host: Final = HOST
        self.port = port
        self.kind = ""

    async def __aenter__(self) -> Self:
        self.port = _free_port(self._wanted_port)
        command = self._command()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            await self._start(command)
        except BaseException:
            await self._stop()
            raise
        self._guard = asyncio.create_task(self._keep_running(command), name="private broker")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._guard is not None:
            self._guard.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._guard
        await self._stop()

    @property
    def pid(self) -> int:
        """The broker's process, 0 when it does not run."""
        return self._process.pid if self._process is not None else 0

    def _command(self) -> list[str]:
        """How to start what is installed, so that it dies with us where the system can do that."""
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
        mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path=_PATHS)
        if mosquitto and "mosquitto" in self._programs:
            self.kind = "mosquitto"
            return [*prefix, mosquitto, "-c", str(self._folder / "mosquitto.conf")]
        if "iotcore" in self._programs and importlib.util.find_spec("iotcore"):
            self.kind = "iotcore"
            return [*prefix, sys.executable, "-I", "-c", _IOTCORE, str(self.port), self.host]
        raise ConfigError(
            "no broker is configured and none is installed: set mqtt.host, or install mosquitto "
            "(Debian: apt install mosquitto), or the extra: pip install 'clusterllm-mqtt[broker]'"
        )

    async def _start(self, command: list[str]) -> None:
        if self.kind == "mosquitto":
            text = _MOSQUITTO_CONF.format(port=self.port, host=self.host, folder=self._folder)
            (self._folder / "mosquitto.conf").write_text(text + _as_this_user(), encoding="utf-8")
        with (self._folder / "broker.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # a Ctrl-C is ours: we say offline to it before it ends
            )
        deadline_s = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while not await self._accepts():
            is_late = asyncio.get_running_loop().time() > deadline_s
            if is_late or self._process.returncode is not None:
                raise BrokerUnavailableError(
                    f"the private broker ({self.kind}) did not start; see {log.name}"
                )
            await asyncio.sleep(_POLL_S)

    async def _accepts(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def _keep_running(self, command: list[str]) -> None:
        for _ in range(MAX_RESTARTS):
            assert self._process is not None  # noqa: S101  # the first start succeeded
            code = await self._process.wait()
            _LOGGER.warning("private broker: ended with code %s; starting it again", code)
            with contextlib.suppress(BrokerUnavailableError):
                await self._start(command)
        _LOGGER.error("private broker: died too often; install or configure another one")

    async def _stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _free_port(wanted: int) -> int:
    """The wanted loopback port if nobody has it, else any."""
    for port in (wanted, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            found: int = probe.getsockname()[1]
            return found
    raise BrokerUnavailableError("no free port on loopback")


def _as_this_user() -> str:
    """Started by root, Mosquitto would change to a user that cannot write our folder."""
    return "user root\n" if os.geteuid() == 0 else ""
