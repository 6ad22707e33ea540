"""A broker that does what a test tells it, packet by packet: what no real one can be made to do."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.mqtt.broker_options import BrokerOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

CONNECT: Final = 0x10
CONNACK: Final = 0x20
PUBLISH_QOS1: Final = 0x32
PUBACK: Final = 0x40
SUBACK: Final = 0x90
DISCONNECT: Final = 0xE0


class Peer:
    """One connection, seen from the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.level = 0

    async def packet(self) -> tuple[int, bytes]:
        """First byte (kind and flags) and body of the next packet."""
        [first] = await self._reader.readexactly(1)
        length, shift = 0, 0
        while True:
            [byte] = await self._reader.readexactly(1)
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return first, await self._reader.readexactly(length)

    async def send(self, first: int, body: bytes) -> None:
        """One packet with a body below 128 bytes."""
        self._writer.write(bytes([first, len(body)]) + body)
        await self._writer.drain()

    async def connect(self) -> int:
        """Read CONNECT; the protocol level: 4 is MQTT 3.1.1, 5 is 5."""
        first, body = await self.packet()
        assert first == CONNECT
        self.level = body[6]
        return self.level

    async def accept(self, properties: bytes = b"") -> None:
        """Answer CONNECT with success."""
        rest = bytes([len(properties)]) + properties if self.level == 5 else b""
        await self.send(CONNACK, b"\x00\x00" + rest)

    async def refuse(self, code: int) -> None:
        """Answer CONNECT with a reason code."""
        await self.send(CONNACK, bytes([0, code]) + (b"\x00" if self.level == 5 else b""))

    async def publish(self) -> bytes:
        """Read a PUBLISH at QoS 1; its packet id."""
        first, body = await self.packet()
        while first & 0xF0 != 0x30:
            first, body = await self.packet()
        topic_length = int.from_bytes(body[:2])
        return body[2 + topic_length : 4 + topic_length]

    async def forever(self) -> None:
        """Read on, and answer nothing, until the client goes."""
        while True:
            await self.packet()


@contextlib.asynccontextmanager
async def fake_broker(
    serve: Callable[[Peer], Awaitable[None]], **options: float
) -> AsyncIterator[BrokerOptions]:
    """Call `serve` for each connection, which is closed when it returns."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await serve(Peer(reader, writer))
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(run(reader, writer)))

    async with await asyncio.start_server(accepted, "127.0.0.1", 0) as server:
        try:
            yield BrokerOptions(port=server.sockets[0].getsockname()[1], **options)  # type: ignore[arg-type]
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [e for e in results if isinstance(e, Exception)]
    assert not errors, errors
