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
from typing import TYPE_CHECKING, Final, Literal, Self

from clusterllm_mqtt.errors import BrokerUnavailableError, ConfigError
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
from clusterllm_mqtt.mqtt.folder_lock import folder_lock

if TYPE_CHECKING:
    from pathlib import Path

HOST: Final = "127.0.0.1"
PORT: Final = 1883
PROGRAMS: Final = ("mosquitto", "iotcore")
START_TIMEOUT_S: Final = 10.0
MAX_DEATHS: Final = 5
"""A broker that died so many times in a row, each time young, is not started again."""

YOUNG_S: Final = 60.0
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
# rumqttd logs every packet as an error; it never comes back to Python for a handler of SIGTERM
_IOTCORE: Final = """\
import logging, signal, sys
from iotcore import Broker
signal.signal(signal.SIGTERM, signal.SIG_DFL)
logging.getLogger("rumqttd").setLevel(logging.CRITICAL)
Broker(port=int(sys.argv[1]), listen=sys.argv[2], max_payload_size=2**20).run_forever()
"""
# PR_SET_PDEATHSIG is 1; util-linux's setpriv would do, but Alpine's does not know --pdeathsig
_TETHER: Final = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
_LOGGER = logging.getLogger(__name__)


class PrivateBroker:
    """A broker for this process; `folder` keeps Mosquitto's retained messages over a restart.

    Port 1883 if it is free, else any. iotcore keeps nothing, and stalls beyond about a hundred
    retained topics.

    Raises:
        ConfigError: (on entering) there is no broker program, or another process uses the folder.
        OSError: (on entering) the folder cannot be made or written.
        BrokerUnavailableError: (on entering) it did not start.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = PORT,
        programs: tuple[str, ...] = PROGRAMS,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._folder = folder
        self._programs = programs
        self._wanted_port = port
        self._start_timeout_s = start_timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._lock = -1
        self.host: Final = HOST
        self.port = port
        self.kind = ""
        self._ending = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as ending:
            self._lock = await ending.enter_async_context(folder_lock(self._folder))
            self.port = _free_port(self._wanted_port)
            if self._wanted_port not in (0, self.port):
                text = "private broker: port %d is taken, perhaps by another broker; using %d"
                _LOGGER.warning(text, self._wanted_port, self.port)
            command = self._command()
            ending.push_async_callback(self._stop)
            await self._start_afresh(command)
            guard = asyncio.create_task(self._keep_running(command), name="private broker")
            ending.push_async_callback(asyncio.wait, [guard])
            ending.callback(guard.cancel)
            self._ending = ending.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ending.aclose()

    @property
    def options(self) -> BrokerOptions:
        """How to connect to it; iotcore's port speaks MQTT 3.1.1 only."""
        protocol: Literal["auto", "3.1.1"] = "3.1.1" if self.kind == "iotcore" else "auto"
        return BrokerOptions(self.host, self.port, protocol=protocol)

    @property
    def pid(self) -> int:
        """The broker's process, 0 when it does not run."""
        return self._process.pid if self._process is not None else 0

    def _command(self) -> list[str]:
        """How to start what is installed, so that it dies with us where the system can do that."""
        is_linux = sys.platform == "linux"
        python = [sys.executable, "-I", "-c"]
        prefix = [*python, _TETHER, str(os.getpid())] if is_linux else []
        mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path=_PATHS)
        if mosquitto and "mosquitto" in self._programs:
            self.kind = "mosquitto"
            return [*prefix, mosquitto, "-c", str(self._folder / "mosquitto.conf")]
        if "iotcore" in self._programs and importlib.util.find_spec("iotcore"):
            self.kind = "iotcore"
            return [*prefix, *python, _IOTCORE, str(self.port), self.host]
        raise ConfigError(
            "no broker is configured and none is installed: set mqtt.host, or install mosquitto "
            "(Debian: apt install mosquitto), or the extra: pip install 'clusterllm-mqtt[broker]'"
        )

    async def _start_afresh(self, command: list[str]) -> None:
        """Start; a database that a power cut broke is set aside: all of it is published again."""
        try:
            await self._start(command)
        except BrokerUnavailableError:
            database = self._folder / "mosquitto.db"
            is_slow = self._process is None or self._process.returncode is None
            await self._stop()
            if is_slow or not database.is_file():
                raise
            database.replace(database.with_suffix(".db.broken"))
            _LOGGER.warning("private broker: did not start; its database is set aside")
            await self._start(command)

    async def _start(self, command: list[str]) -> None:
        try:
            self._process = await self._spawn(command)
        except OSError as error:
            text = f"the private broker ({self.kind}) did not start: {error}"
            raise BrokerUnavailableError(text) from None
        deadline_s = asyncio.get_running_loop().time() + self._start_timeout_s
        while not await self._accepts():
            is_late = asyncio.get_running_loop().time() > deadline_s
            if is_late or self._process.returncode is not None:
                log = self._folder / "broker.log"
                raise BrokerUnavailableError(
                    f"the private broker ({self.kind}) did not start; see {log}"
                )
            await asyncio.sleep(_POLL_S)

    async def _spawn(self, command: list[str]) -> asyncio.subprocess.Process:
        if self.kind == "mosquitto":
            text = _MOSQUITTO_CONF.format(port=self.port, host=self.host, folder=self._folder)
            (self._folder / "mosquitto.conf").write_text(text + _as_this_user(), encoding="utf-8")
        with (self._folder / "broker.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[self._lock],
                process_group=0,  # a Ctrl-C is ours: we say offline to it before it ends
            )

    async def _accepts(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def _keep_running(self, command: list[str]) -> None:
        clock = asyncio.get_running_loop().time
        deaths = 0
        while True:
            assert self._process is not None  # noqa: S101  # the first start succeeded
            started_s = clock()
            code = await self._process.wait()
            deaths = deaths + 1 if clock() - started_s < YOUNG_S else 1
            if deaths == MAX_DEATHS:
                _LOGGER.error("private broker: died too often; install or configure another one")
                return
            _LOGGER.warning("private broker: ended with code %s; starting it again", code)
            await asyncio.sleep(deaths - 1)
            try:
                await self._start(command)
            except BrokerUnavailableError:
                await self._stop()  # one that hangs would be waited for without end

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
