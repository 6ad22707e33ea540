# ruff: noqa: INP001  # a program in an image, no package
"""Starts the bridge, and the outpost when it is configured, from what the Supervisor knows.

The Supervisor's options are our settings as they stand. What is added is the broker: its MQTT
service tells host, user and password. Secrets go through a file that only we can read, in memory;
never over a command line or the environment. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from supervisor import StartError, say, with_broker

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND: Final = "clusterllm-mqtt"
SECRET_VARIABLES: Final = ("SUPERVISOR_TOKEN", "HASSIO_TOKEN")
FINAL_CODES: Final = {
    2: "its configuration is of no use",
    4: "the registry no longer accepts its token",
    5: "another outpost has its name",
}
"""Exit codes of an outpost that no new start mends, and why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Read the options, become the user, find the broker, and run; the exit code."""
    args = _parser().parse_args(argv)
    try:
        options = read_options(args.options)
        become(args.user)
        token = os.environ.get(SECRET_VARIABLES[0], "")
        settings = with_broker(options, args.supervisor, token, args.patience)
        file = write_settings(settings, args.folder)
    except StartError as error:
        say(str(error))
        return error.exit_code
    environ = {k: v for k, v in os.environ.items() if k not in SECRET_VARIABLES}
    if not settings.get("outpost", {}).get("cloudbox_url"):
        os.execvpe(COMMAND, [COMMAND, "bridge", str(file)], environ)  # noqa: S606  # replaces us
    return Pair(file, environ).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Start the app; the defaults are the Supervisor's."
    )
    parser.add_argument("--options", type=Path, default=Path("/data/options.json"))
    parser.add_argument("--supervisor", default="http://supervisor", help="URL of its API")
    parser.add_argument("--user", default="clusterllm", help="whom root becomes")
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))  # noqa: S108  # in memory
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for the broker")
    return parser


def read_options(path: Path) -> dict[str, Any]:
    """Raises `StartError` when they cannot be read, or are none."""
    try:
        options = json.loads(path.read_bytes())
    except OSError as error:
        raise StartError(f"{path}: {error.strerror}; start this as an app") from None
    except ValueError:
        raise StartError(f"{path}: no JSON; save the app's configuration again") from None
    if not isinstance(options, dict):
        raise StartError(f"{path}: no options by name; save the app's configuration again")
    return without_empty(options)


def without_empty(options: dict[str, Any]) -> dict[str, Any]:
    """A form's empty field is a setting that nobody made, not one of nothing."""
    kept = {}
    for name, value in options.items():
        inner = without_empty(value) if isinstance(value, dict) else value
        if inner not in ("", [], {}, None):
            kept[name] = inner
    return kept


def become(user: str) -> None:
    """Give up root for good; whoever is not root stays who it is.

    Raises:
        StartError: there is no such user.
    """
    if os.geteuid() != 0:
        return
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise StartError(f"there is no user {user!r} in this image; build it anew") from None
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def write_settings(settings: dict[str, Any], folder: Path) -> Path:
    """A file that only this user can read; JSON is YAML."""
    handle, name = tempfile.mkstemp(".json", f"{COMMAND}-", folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        # YAML has no surrogate pairs, so what is not ASCII stands as it is
        json.dump(settings, file, ensure_ascii=False)
    return Path(name)


class Pair:
    """Bridge and outpost beside each other, until the bridge ends or one of them fails."""

    def __init__(self, file: Path, environ: dict[str, str]) -> None:
        self._file = file
        self._environ = environ
        self._children: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._is_stopping = False
        self._exit_code = 0

    def run(self) -> int:
        """The bridge's exit code, or that of an outpost that a new start may mend."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        for what in ("bridge", "outpost"):
            command = [COMMAND, what, str(self._file)]
            child = subprocess.Popen(command, env=self._environ)  # noqa: S603  # ours
            self._children[child.pid] = what, child
        if self._is_stopping:  # before both were there
            self._stop()
        while self._children:
            self._ended(*self._next_end())
        return self._exit_code

    def _stop(self, *_signal: object) -> None:
        self._is_stopping = True
        for _, child in self._children.values():
            child.terminate()

    def _next_end(self) -> tuple[str, int]:
        """Wait for the next child that ends: what it was, and its exit code as a shell has it."""
        while True:
            pid, status = os.wait()
            if pid in self._children:  # else PID 1 inherited it
                what, child = self._children.pop(pid)
                code = child.returncode = os.waitstatus_to_exitcode(status)
                return what, code if code >= 0 else 128 - code

    def _ended(self, what: str, code: int) -> None:
        if what == "outpost" and code in FINAL_CODES and not self._is_stopping:
            say(f"the outpost ended: {FINAL_CODES[code]} ({code}); the bridge goes on")
            return
        self._exit_code = self._exit_code or code
        if not self._is_stopping:
            self._stop()


if __name__ == "__main__":
    sys.exit(main())
