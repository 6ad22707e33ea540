"""Bounded GETs below one endpoint: the only place where httpx's errors become `ProbeError`s.

GET only, 2 s for each including its body, at most 1 MiB after decompression. The key goes to the
configured origin only; a redirect to another origin is not followed, it is the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx

from clusterllm_mqtt.errors import ConfigError, ProbeError
from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

REQUEST_TIMEOUT_S: Final = 2.0
MAX_BODY: Final = 2**20
_MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "gzip"}
_GZIP: Final = 16 + zlib.MAX_WBITS


@cache
def _ssl_context(ca_file: str) -> ssl.SSLContext:
    """Made once: it costs 50 ms."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ConfigError(f"CA file {ca_file!r}: {error.strerror}; check the path") from None


def new_client(ca_file: str = "") -> httpx.AsyncClient:
    """A client for probes: no environment proxies, no redirects, a connection for each request.

    A keep-alive pool over many origins costs quadratic time, and a 15 s interval outlives most
    servers' keep-alive anyway.

    Raises:
        ConfigError: the CA file cannot be read.
    """
    return httpx.AsyncClient(
        verify=_ssl_context(ca_file),
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # noqa: S113  # the deadline is ours: httpx restarts its own with each chunk
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a GET brought; `server` is the Server header in lower case."""

    status: int
    server: str
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004


async def get(
    client: httpx.AsyncClient, url: str, *, bearer: str = "", wants_body: bool = True
) -> Answer:
    """One GET, redirects within the origin followed.

    Raises:
        ProbeError: no complete answer within 2 s; `reason` says why.
    """
    headers = dict(_HEADERS)
    if bearer:
        headers["authorization"] = f"Bearer {bearer}"
    with _httpx_errors():
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            for _ in range(_MAX_REDIRECTS):
                request = client.build_request("GET", url, headers=headers)
                response = await client.send(request, stream=True, follow_redirects=False)
                try:
                    target = _redirect_target(response)
                    if target is None:
                        return await _answer(response, wants_body=wants_body)
                finally:
                    await response.aclose()
                url = target
    raise ProbeError(Reason.BAD_RESPONSE, f"more than {_MAX_REDIRECTS} redirects")


async def _answer(response: httpx.Response, *, wants_body: bool) -> Answer:
    body = await _body(response) if wants_body else b""
    return Answer(response.status_code, response.headers.get("server", "").lower(), body)


def _redirect_target(response: httpx.Response) -> str | None:
    """Where a redirect leads, if that is within the origin of the request."""
    location = response.headers.get("location", "")
    if response.status_code not in _REDIRECTS or not location:
        return None
    try:
        target = response.request.url.join(location)
    except (httpx.InvalidURL, ValueError):
        return None
    return str(target) if _origin(target) == _origin(response.request.url) else None


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme)


async def _body(response: httpx.Response) -> bytes:
    """At most `MAX_BODY` bytes; what lies beyond is cut off and never held in memory."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    pieces = _gunzip(response) if coding == "gzip" else response.aiter_raw()
    body = bytearray()
    async with contextlib.aclosing(pieces) as stream:  # type: ignore[type-var]
        async for piece in stream:
            body += piece
            if len(body) >= MAX_BODY:
                break
    return bytes(body[:MAX_BODY])


async def _gunzip(response: httpx.Response) -> AsyncIterator[bytes]:
    """Decompress in bounded pieces: httpx would inflate a whole network chunk at once."""
    inflater = zlib.decompressobj(_GZIP)
    async for chunk in response.aiter_raw():
        piece = inflater.decompress(chunk, MAX_BODY)
        while piece:
            yield piece
            piece = inflater.decompress(inflater.unconsumed_tail, MAX_BODY)
    if not inflater.eof:
        raise zlib.error("incomplete gzip stream")


@contextlib.contextmanager
def _httpx_errors() -> Iterator[None]:
    try:
        yield
    except (TimeoutError, httpx.TimeoutException):
        raise ProbeError(Reason.TIMEOUT, f"no answer within {REQUEST_TIMEOUT_S:.0f} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, zlib.error) as error:
        raise _probe_error(error) from None
    except ExceptionGroup as group:  # anyio's word for some refused addresses
        raise _probe_error(group) from None


_CAUSES: Final[tuple[tuple[type[BaseException], Reason, str], ...]] = (
    (socket.gaierror, Reason.DNS, "the host name is not known"),
    (ssl.SSLError, Reason.TLS, "no TLS connection"),
    (ConnectionRefusedError, Reason.REFUSED, "the connection is refused"),
    (ConnectionResetError, Reason.BAD_RESPONSE, "the connection was reset"),
    (BrokenPipeError, Reason.BAD_RESPONSE, "the connection was reset"),
    (httpx.ConnectError, Reason.TIMEOUT, "the host cannot be reached"),
)
"""The first match along an error's causes decides. A host that is off is `timeout` whether the
kernel gives up first ("no route to host") or we do."""


def _probe_error(error: BaseException) -> ProbeError:
    causes = list(_causes(error))
    for kind, reason, message in _CAUSES:
        if found := next((cause for cause in causes if isinstance(cause, kind)), None):
            is_distrust = isinstance(found, ssl.SSLCertVerificationError)
            return ProbeError(reason, f"{message}: {found}" if is_distrust else message)
    return ProbeError(Reason.BAD_RESPONSE, f"not an HTTP answer ({type(error).__name__})")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, what caused it, and what it groups; bounded by the chain's own length."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    cause = error.__cause__ or error.__context__
    if cause is not None:
        yield from _causes(cause)


def is_usable_url(url: str) -> bool:
    """Whether a base URL can be asked at all: http(s), a host, a port, whole percent escapes."""
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        return False
    escapes = url.split("%")[1:]
    return (
        parts.scheme.lower() in _DEFAULT_PORTS
        and bool(parts.hostname)
        and port_is_fine
        and all(len(e) > 1 and set(e[:2]) <= set("0123456789abcdefABCDEF") for e in escapes)
        and not any(ord(c) < 32 or ord(c) == 127 for c in url)  # noqa: PLR2004
    )
