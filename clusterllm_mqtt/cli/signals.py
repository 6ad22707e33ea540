"""Ending in order on SIGINT and SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def until_signal(work: Coroutine[object, object, None]) -> None:
    """Let the work end in order when somebody stops the process; PID 1 needs a handler for it."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
