"""A link on loopback between a client and a server that a test can slow down or stop."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"


class Link:
    """Passes bytes on; what the server says may be late, held back, or split before a mark.

    `late_s` delays every piece, all is held back while `flows` is not set, and what starts with
    `mark` (and the 4 bytes before it) comes `mark_late_s` after the rest, once.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.late_s = 0.0
        self.flows = asyncio.Event()
        self.flows.set()
        self.mark = b""
        self.mark_late_s = 0.0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection(HOST, self._target)
            for work in (self._up(reader, back), self._down(there, writer)):
                task = asyncio.create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _closing(writer):
            while piece := await reader.read(2**16):
                writer.write(piece)
                await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _closing(writer):
            while piece := await reader.read(2**16):
                await self.flows.wait()
                await asyncio.sleep(self.late_s)
                start = piece.find(self.mark) - 4 if self.mark else -1
                if start >= 0:
                    self.mark = b""
                    writer.write(piece[:start])
                    await asyncio.sleep(self.mark_late_s)
                    piece = piece[start:]  # the rest of it
                writer.write(piece)
                await writer.drain()


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        with contextlib.suppress(OSError):
            yield
    finally:
        writer.close()
