"""Bounded GETs, and the client that makes them.

GET only, 2 s each with redirects and body, at most 1 MiB after decompression. A redirect to another
origin is not followed, it is the answer: so a key never leaves its origin.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from dataclasses import dataclass, replace
from functools import cache
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING, Final

import httpx

from clusterllm_mqtt._version import __version__
from clusterllm_mqtt.drivers.failures import as_probe_errors
from clusterllm_mqtt.errors import ConfigError, ProbeError

if TYPE_CHECKING:
    from pathlib import Path

REQUEST_S: Final = 2.0
MAX_BODY: Final = 2**20
MAX_REQUESTS: Final = 10
"""For one GET, its redirects included."""

_CONNECT_SHARE: Final = 0.95
"""Of the time of a GET. httpcore closes a connection whose TLS handshake it times out itself, and
leaks one whose handshake is cancelled."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_GZIP: Final = 16 + zlib.MAX_WBITS
_HEADERS: Final = (
    (b"Accept", b"application/json"),
    (b"Accept-Encoding", b"gzip"),
    (b"Connection", b"close"),
    (b"User-Agent", f"clusterllm-mqtt/{__version__}".encode()),
)
_LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""A connection per request: one keep-alive pool over many origins costs quadratic time, a 15 s
interval outlives most servers' keep-alive, and a cancelled pooled request leaks its slot."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a GET brought; the status proves life, whatever became of the body.

    `url` is where it came from in the end, `server` the Server header in lower case; `fault` says
    why `body` is missing.
    """

    url: str
    status: int
    server: str
    body: bytes = b""
    fault: ProbeError | None = None


async def get(
    client: httpx.AsyncClient, url: str, *, bearer: str = "", deadline_s: float = float("inf")
) -> Answer:
    """One GET, redirects within the origin followed; a redirect that cannot be is the answer.

    `deadline_s` is a time of the event loop; the GET ends then, at the latest 2 s from now.

    Raises:
        ProbeError: no status line in time; `reason` says why.
    """
    ends_s = min(asyncio.get_running_loop().time() + REQUEST_S, deadline_s)
    answer, target = await _exchange(client, url, bearer, ends_s)
    for _ in range(MAX_REQUESTS - 1):
        if target is None:
            break
        try:
            answer, target = await _exchange(client, target, bearer, ends_s)
        except ProbeError as error:  # the redirect itself was an answer already
            return replace(answer, fault=error)
    return answer


async def _exchange(
    client: httpx.AsyncClient, url: str, bearer: str, ends_s: float
) -> tuple[Answer, str | None]:
    """One request: its answer, and where a redirect leads within the origin."""
    with as_probe_errors():
        request = _request(url, bearer, ends_s - asyncio.get_running_loop().time())
        async with asyncio.timeout_at(ends_s):
            response = await client.send(request, stream=True, auth=None, follow_redirects=False)
    body, fault = b"", None
    try:
        with as_probe_errors():
            async with asyncio.timeout_at(ends_s):
                body = await _body(response)
    except ProbeError as error:
        fault = error
    finally:
        await response.aclose()
    server = response.headers.get("server", "").lower()
    return Answer(url, response.status_code, server, body, fault), _redirect_target(response)


def _request(url: str, bearer: str, left_s: float) -> httpx.Request:
    """Without the client's own headers and cookies; a key may have letters beyond ASCII."""
    headers = [*_HEADERS]
    if bearer:
        headers.append((b"Authorization", f"Bearer {bearer}".encode()))
    timeouts = {"connect": max(left_s * _CONNECT_SHARE, 0)}
    return httpx.Request("GET", url, headers=headers, extensions={"timeout": timeouts})


async def _body(response: httpx.Response) -> bytes:
    """At most `MAX_BODY` bytes; what lies beyond is cut off and never held in memory.

    httpx's own decoders inflate a whole network chunk at once, however much it becomes.
    """
    if response.is_stream_consumed:  # that of a mock transport is complete from the start
        return response.content[:MAX_BODY]
    is_gzip = response.headers.get("content-encoding", "").strip().lower() == "gzip"
    inflater = zlib.decompressobj(_GZIP) if is_gzip else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += inflater.decompress(chunk, MAX_BODY - len(body)) if inflater else chunk
        if len(body) >= MAX_BODY:
            return bytes(body[:MAX_BODY])
    if inflater and not inflater.eof:
        raise zlib.error("incomplete gzip stream")
    return bytes(body)


def _redirect_target(response: httpx.Response) -> str | None:
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or not location:
        return None
    asked = response.request.url
    try:
        target = asked.join(location)
    except (httpx.InvalidURL, ValueError):
        return None
    is_same = (target.scheme, target.host, target.port) == (asked.scheme, asked.host, asked.port)
    return str(target) if is_same and not target.userinfo else None


async def _keep_httpx_from_redirects(response: httpx.Response) -> None:
    """Where nobody follows, httpx prepares the next request all the same, and a bad one raises."""
    if _redirect_target(response) is None:
        response.headers.pop("location", None)


def new_client(ca_file: str | Path = "") -> httpx.AsyncClient:
    """A client without environment proxies, redirects, cookies, pool or timeouts of its own.

    `ca_file` is trusted beside the system's certificates.

    Raises:
        ConfigError: the CA file cannot be read, or has no certificate.
    """
    if ca_file:
        _ssl_context(str(ca_file))
    trusts_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(verify=trusts_nobody, trust_env=False, limits=_LIMITS),
        mounts={"https://": _TLSTransport(str(ca_file))},
        cookies=_NoCookies(),
        trust_env=False,
        follow_redirects=False,
        event_hooks={"response": [_keep_httpx_from_redirects]},
        timeout=None,  # noqa: S113  # the deadline is ours: httpx restarts its own with each chunk
    )


@cache
def _ssl_context(ca_file: str) -> ssl.SSLContext:
    """Made once: it costs 50 ms."""
    context = ssl.create_default_context()
    try:
        if ca_file:
            context.load_verify_locations(ca_file)
    except OSError as error:  # ssl.SSLError is one, too
        why = "has no PEM certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"CA file {ca_file!r}: {why}; name a readable PEM file") from None
    return context


class _TLSTransport(httpx.AsyncBaseTransport):
    """https; its certificates are loaded with the first request: most homes never need them."""

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file
        self._transport: httpx.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        if self._transport is None:
            self._transport = httpx.AsyncHTTPTransport(
                verify=_ssl_context(self._ca_file), trust_env=False, limits=_LIMITS
            )
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close what is open."""
        if self._transport is not None:
            await self._transport.aclose()


class _NoCookies(CookieJar):
    """Keeps nothing: an endpoint's cookie must not reach its neighbour on another port."""

    def extract_cookies(self, response: object, request: object) -> None:
        """Forget them."""
