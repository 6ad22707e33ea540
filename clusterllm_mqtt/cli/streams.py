"""Standard streams and log lines that fail without taking the process along."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from pathlib import Path
from typing import Final

from clusterllm_mqtt.text import clean

_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
_CHATTY: Final = ("httpx", "httpcore", "zeroconf", "asyncio")
_MAX_LINE: Final = 2000


class LineFormatter(logging.Formatter):
    """One line for each event, whatever control characters strangers put into it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """The line, without a traceback that may follow it."""
        record.message = clean(record.message, _MAX_LINE)
        return super().formatMessage(record)


def set_up_logging(level: int) -> None:
    """Lines go to standard error; one that cannot be written ends nothing."""
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def say(text: str) -> None:
    """Tell a person something, if anybody listens."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def open_streams() -> None:
    """Make both streams usable: Python has None for one that the caller closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # for good
            setattr(sys, name, nowhere)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def close_streams() -> None:
    """Drop what cannot be written: at exit it would turn the exit code into 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
