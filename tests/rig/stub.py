"""A scripted HTTP endpoint on loopback that misbehaves on demand and records what it was asked.

    async with StubEndpoint(scenario) as stub:
        await something(stub.url)
        stub.requests

A scenario is `{"routes": {PATH: REPLY or [REPLY, ...]}, "default": REPLY, "accept": ..., "peers":
{NAME: scenario}, "files": {NAME: {"size": n} or {"dir": true}}}`; `rig/replies.py` has the replies.
A route is looked up with its query first, then without; a list plays once per request, its last
reply again and again. "accept" "closed" listens to nobody, "silent" answers nobody. In bodies,
header values and raw bytes `{endpoint}`, `{PEER}`, `{port:PEER}` and `{file:NAME}` are replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from rig.replies import PIECE, Reply, body_length, body_pieces, head_bytes

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator

HOST: Final = "127.0.0.1"
_NOT_FOUND: Final[Reply] = {"status": 404}
_UNAUTHORIZED: Final[Reply] = {"status": 401, "body": '{"code":401,"reason":"Unauthorized"}'}


@dataclass(frozen=True)
class Request:
    """One request as it came in; `server` is "endpoint" or the name of a peer."""

    server: str
    method: str
    target: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = b""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.split("?", 1)[0]

    @property
    def authorization(self) -> str | None:
        """The header of that name."""
        return self.headers.get("authorization")


class StubEndpoint:
    """Serve one scenario; `requests` are all that were made, to peers as well.

    `port` 0 takes a free one.
    """

    def __init__(
        self,
        scenario: dict[str, Any] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        scenario = scenario or {}
        self.tls = tls
        self.requests: list[Request] = []
        self._main = _Listener(self, "endpoint", scenario, port)
        peers = scenario.get("peers", {})
        self._listeners = [self._main, *(_Listener(self, n, s) for n, s in peers.items())]
        self._files: dict[str, dict[str, Any]] = scenario.get("files", {})
        self._folder: Path | None = None
        self._placeholders: dict[str, str] = {}

    @property
    def host_port(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self._main.port}"

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"{'https' if self.tls else 'http'}://{self.host_port}"

    def become(self, scenario: dict[str, Any]) -> None:
        """Behave differently from now on, on the same port; forget the requests so far."""
        self._main.scenario = scenario
        self.requests.clear()

    def expand(self, text: str) -> str:
        """Put the values into the places of the placeholders."""
        for placeholder, value in self._placeholders.items() if "{" in text else ():
            text = text.replace(placeholder, value)
        return text

    def normalise(self, text: str) -> str:
        """The reverse, for addresses in an output."""
        for listener in self._listeners:
            text = text.replace(f"{HOST}:{listener.port}", "{" + listener.name + "}")
        return text

    async def __aenter__(self) -> Self:
        self._make_files()
        for listener in self._listeners:
            await listener.start()
            address = f"{HOST}:{listener.port}"
            self._placeholders["{" + listener.name + "}"] = address
            self._placeholders["{port:" + listener.name + "}"] = str(listener.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        for listener in self._listeners:
            await listener.stop()
        if self._folder:
            shutil.rmtree(self._folder)

    def _make_files(self) -> None:
        if not self._files:
            return
        self._folder = Path(tempfile.mkdtemp(prefix="stub-endpoint-"))
        for name, spec in self._files.items():
            path = self._folder / name
            if spec.get("dir"):
                path.mkdir()
            else:
                with path.open("wb") as file:
                    file.truncate(int(spec["size"]))  # sparse
            self._placeholders["{file:" + name + "}"] = json.dumps(str(path))[1:-1]


class _Listener:
    """One port of the stub."""

    def __init__(
        self, stub: StubEndpoint, name: str, scenario: dict[str, Any], port: int = 0
    ) -> None:
        self.name = name
        self.port = port
        self._stub = stub
        self.scenario = scenario
        self._played: dict[str, int] = {}
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Take a free port; a closed one stays bound, so that nobody else gets it."""
        self._socket = socket.create_server((HOST, self.port)) if self._listens else socket.socket()
        if not self._listens:
            self._socket.bind((HOST, 0))
        self.port = self._socket.getsockname()[1]
        if self._listens:
            self._server = await asyncio.start_server(
                self._connected, sock=self._socket, ssl=self._stub.tls
            )

    @property
    def _listens(self) -> bool:
        return self.scenario.get("accept") != "closed"

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server:
            self._server.close()
        elif self._socket:
            self._socket.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
                if self.scenario.get("accept") == "silent":
                    await reader.read(-1)
                while await self._serve(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass  # the end of the test
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection may serve another."""
        request = await self._read_request(reader)
        if request is None:
            return False
        self._stub.requests.append(request)
        reply = self._choose(request)
        await asyncio.sleep(reply.get("delay_s", 0))
        if reply.get("hang"):
            await reader.read(-1)
        if reply.get("close") == "reset":
            _reset(writer)
        if reply.get("hang") or reply.get("close") == "reset":
            return False
        if "raw" in reply:
            writer.write(self._stub.expand(reply["raw"]).encode("utf-8", "surrogatepass"))
            await writer.drain()
            return False
        return await self._answer(reply, writer)

    async def _read_request(self, reader: asyncio.StreamReader) -> Request | None:
        first = await reader.readexactly(1)
        if not first.isalpha():
            return None  # a TLS hello
        rest = await reader.readuntil(b"\r\n\r\n")
        head = (first + rest).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Request(self.name, method, target, headers, body)

    def _choose(self, request: Request) -> Reply:
        routes: dict[str, Any] = self.scenario.get("routes", {})
        key = request.target if request.target in routes else request.path
        reply = routes.get(key, self.scenario.get("default", _NOT_FOUND))
        if isinstance(reply, list):
            turn = self._played.get(key, 0)
            self._played[key] = turn + 1
            reply = reply[min(turn, len(reply) - 1)]
        bearer = reply.get("require_bearer")
        if bearer is not None and request.authorization != f"Bearer {bearer}":
            return dict(reply.get("otherwise", _UNAUTHORIZED))
        return dict(reply)

    async def _answer(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        expand = self._stub.expand
        is_streamed = "body_gen" in reply and not reply.get("encoding")
        pieces = None
        if not is_streamed:
            pieces = await asyncio.to_thread(lambda: list(body_pieces(reply, expand)))
        length = body_length(reply, pieces)
        writer.write(head_bytes(reply, length, expand))
        await writer.drain()
        await asyncio.sleep(reply.get("body_delay_s", 0))
        if reply.get("status") in {204, 304}:
            return True
        stream = body_pieces(reply, expand) if pieces is None else iter(pieces)
        await _send(reply, stream, length, writer)
        is_whole = reply.get("close") is None and "content_length" not in reply
        return is_whole and length is not None and reply.get("http") != "1.0"


async def _send(
    reply: Reply, pieces: Iterator[bytes], length: int | None, writer: asyncio.StreamWriter
) -> None:
    """The body in its framing, as slowly and as incompletely as the reply wants it."""
    drip = reply.get("drip", {"bytes": reply.get("chunk_size", PIECE), "every_s": 0})
    left = (length or 0) // 2 if reply.get("close") == "truncate" else None
    is_chunked = reply.get("framing") == "chunked"
    for piece in _cut(pieces, int(drip["bytes"])):
        sent = piece if left is None else piece[:left]
        writer.write(b"%x\r\n%b\r\n" % (len(sent), sent) if is_chunked else sent)
        await writer.drain()
        await asyncio.sleep(drip["every_s"])
        left = None if left is None else left - len(sent)
    if is_chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


def _cut(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), size):
            yield piece[start : start + size]


def _reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with a TCP reset."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
