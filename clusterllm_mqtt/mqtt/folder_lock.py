"""One process and its child at a time have a folder."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import BinaryIO

PATIENCE_S: Final = 2.0
_POLL_S: Final = 0.05


@contextlib.asynccontextmanager
async def folder_lock(folder: Path, *, patience_s: float = PATIENCE_S) -> AsyncIterator[int]:
    """Make and hold a folder; a child that inherits the descriptor holds it as long as it lives.

    `patience_s` is for the child of a process that was killed, which ends a moment later.

    Raises:
        ConfigError: another process holds it.
        OSError: it cannot be made or written.
    """
    with _lock_file(folder) as file:
        deadline_s = asyncio.get_running_loop().time() + patience_s
        while not _is_ours(file.fileno()):
            if asyncio.get_running_loop().time() > deadline_s:
                raise ConfigError(f"another process uses {folder}; stop it first")
            await asyncio.sleep(_POLL_S)
        yield file.fileno()


def _lock_file(folder: Path) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return (folder / "lock").open("wb")


def _is_ours(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
