"""The wire below the HTTP client: HTTP/1.1, a connection for each request, and no more.

httpx's own transport keeps a pool, and traces and locks each step of it: on a connection per
request that is most of a probe's cost (docs/performance.md). h11 reads and writes HTTP here as
there, with the same bounds.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.staggered import staggered_race
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, cast

import h11
import httpx

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

MAX_HEAD: Final = 100 * 1024
"""Bytes of a status line with its headers, and of a chunk's line; as in httpcore 1.0."""

_MAX_UNREAD: Final = 64 * 1024
_HAPPY_EYEBALLS_S: Final = 0.25
"""RFC 8305: a host's next address is tried beside the one that has not answered yet."""


class Transport(httpx.AsyncBaseTransport):
    """Sends each request on a connection of its own.

    `tls` gives the context for https, when the first such request needs it. There is no deadline in
    here: whoever cancels closes the connection. Names are looked up, and a host's addresses tried,
    as asyncio does it; no proxy, no HTTP/2.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._tls = tls

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return when the head of its response is there.

        Raises:
            httpx.ConnectError: nobody took the connection, or no TLS was agreed upon.
            httpx.ReadError: it broke off.
            httpx.RemoteProtocolError: what came is no HTTP/1.1.
        """
        body = await request.aread()
        connection = await self._connect(request.url)
        try:
            connection.send(request, body)
            head = await connection.receive_head()
        except BaseException:
            connection.abort()
            raise
        return httpx.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(connection),
            extensions={"http_version": b"HTTP/" + head.http_version, "reason_phrase": head.reason},
        )

    async def _connect(self, url: httpx.URL) -> _Connection:
        host = url.raw_host.decode("ascii")
        tls = self._tls() if url.scheme == "https" else None
        port = url.port or (443 if tls else 80)
        loop = asyncio.get_running_loop()
        server_hostname = host if tls else None
        try:
            if _is_address(host):
                _, connection = await loop.create_connection(
                    _Connection, host, port, ssl=tls, server_hostname=server_hostname
                )
            else:
                sock = await _connect_by_name(host, port)
                _, connection = await loop.create_connection(
                    _Connection, sock=sock, ssl=tls, server_hostname=server_hostname
                )
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return connection


@lru_cache(1024)
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def _connect_by_name(host: str, port: int) -> socket.socket:
    """A socket to whichever of the host's addresses answers first.

    `create_connection` says of several failures only that there were several, up to Python 3.11.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    attempts = [partial(_connect_socket, family, address) for family, _, _, _, address in found]
    winner: socket.socket | None
    winner, _, failures = await staggered_race(attempts, _HAPPY_EYEBALLS_S)
    if winner is None:
        each = [failure for failure in failures if isinstance(failure, Exception)]
        raise OSError(f"none of its {len(found)} addresses") from ExceptionGroup("all", each)
    return winner


async def _connect_socket(family: int, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


class _Connection(asyncio.Protocol):
    """One request, and its response as h11's events."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._transport: asyncio.Transport
        self._news: asyncio.Future[None] | None = None
        self._unread = 0
        self._is_lost = False
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keep them, and ask the kernel for no more before they are read."""
        self._http.receive_data(data)
        self._unread += len(data)
        if self._unread > _MAX_UNREAD:
            self._transport.pause_reading()
        self._tell()

    def eof_received(self) -> None:
        """The server has said everything."""
        self._http.receive_data(b"")
        self._is_lost = True
        self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whomever."""
        self._is_lost = True
        self._error = exc
        self._tell()

    def send(self, request: httpx.Request, body: bytes) -> None:
        """Write the request; what the kernel does not take at once follows by itself."""
        url = request.url
        try:
            head = h11.Request(
                method=request.method, target=url.raw_path, headers=request.headers.raw
            )
            events = (head, h11.Data(body), h11.EndOfMessage())
            wire = b"".join(self._http.send(event) or b"" for event in events)
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error
        self._transport.write(wire)

    async def receive_head(self) -> h11.Response:
        """The response's status line and headers; a 1xx that announces it is passed over."""
        while not isinstance(event := await self._receive(), h11.Response):
            pass
        return event

    async def receive_body(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        while isinstance(event := await self._receive(), h11.Data):
            yield bytes(event.data)

    async def _receive(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                await self._more()
        except h11.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        return event

    async def _more(self) -> None:
        if self._is_lost:
            raise httpx.ReadError("the connection broke off") from self._error
        self._unread = 0
        self._transport.resume_reading()
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def abort(self) -> None:
        """Close at once; what is unread is lost."""
        self._transport.abort()


class _Body(httpx.AsyncByteStream):
    """A response's body; closed, it closes the connection."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.receive_body()

    async def aclose(self) -> None:
        """Close the connection."""
        self._connection.abort()
