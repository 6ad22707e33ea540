"""The HTTP client that every request of this package goes out with, and its bounds.

No environment proxies, cookies or redirects of its own; a connection for each request; at most
1 MiB of a body after decompression. Deadlines are the caller's: httpx restarts its own with each
chunk.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, cast

import httpx

from clusterllm_mqtt._version import __version__
from clusterllm_mqtt.errors import ConfigError, HttpError
from clusterllm_mqtt.http_failures import as_http_errors
from clusterllm_mqtt.http_transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_BODY: Final = 2**20
_MAX_URLS: Final = 8192
"""Whose parsing is remembered: it costs a tenth of a request, and the same are asked for ever."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_GZIP: Final = 16 + zlib.MAX_WBITS
_HEADERS: Final = httpx.Headers(
    [
        (b"Accept", b"application/json"),
        (b"Accept-Encoding", b"gzip"),
        (b"Connection", b"close"),
        (b"User-Agent", f"clusterllm-mqtt/{__version__}".encode()),
    ]
)


def new_request(method: str, url: str, *, bearer: str = "", json: bytes = b"") -> httpx.Request:
    """Without the client's own headers and cookies; a key may have letters beyond ASCII.

    Raises:
        HttpError: the URL is none.
    """
    more: list[tuple[bytes, bytes]] = []
    if bearer:
        more.append((b"Authorization", f"Bearer {bearer}".encode()))
    if json:
        more.append((b"Content-Type", b"application/json"))
    headers = httpx.Headers([*_HEADERS.raw, *more]) if more else _HEADERS
    with as_http_errors():
        return httpx.Request(method, _url(url), headers=headers, content=json)


@lru_cache(_MAX_URLS)
def _url(url: str) -> httpx.URL:
    return httpx.URL(url)


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request brought.

    `fault` says why `body` is missing, `redirect` where it leads within the origin that was asked.
    """

    status: int
    headers: httpx.Headers
    body: bytes = b""
    fault: HttpError | None = None
    redirect: str | None = None


async def exchange(
    client: httpx.AsyncClient,
    request: httpx.Request,
    ends_s: float,
    *,
    wants_body: Callable[[int], bool] = lambda _: True,
) -> Reply:
    """Send one request, and read the body of a status that wants it.

    `ends_s` is a time of the event loop: the exchange ends then, with its body.

    Raises:
        HttpError: no status line in time; `reason` says why.
    """
    response, body, fault = None, b"", None
    try:
        with as_http_errors():
            if asyncio.get_running_loop().time() >= ends_s:
                raise TimeoutError  # else it would connect, only to break off
            async with asyncio.timeout_at(ends_s):
                response = await client.send(
                    request, stream=True, auth=None, follow_redirects=False
                )
                if wants_body(response.status_code):
                    body = await _read_body(response)
    except HttpError as error:
        if response is None:
            raise
        fault = error
    finally:
        if response is not None:
            await response.aclose()
    return Reply(response.status_code, response.headers, body, fault, _redirect_target(response))


async def _read_body(response: httpx.Response) -> bytes:
    """At most `MAX_BODY` bytes; what lies beyond is cut off and never held in memory.

    httpx's own decoders inflate a whole network chunk at once, however much it becomes.
    """
    if response.is_stream_consumed:  # that of a mock transport is complete from the start
        return response.content[:MAX_BODY]
    is_gzip = response.headers.get("content-encoding", "").strip().lower() == "gzip"
    inflater = zlib.decompressobj(_GZIP) if is_gzip else None
    body = bytearray()
    async for chunk in cast("httpx.AsyncByteStream", response.stream):
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
    return _Client(
        transport=Transport(lambda: _ssl_context(str(ca_file))),
        trust_env=False,
        follow_redirects=False,
        event_hooks={"response": [_keep_httpx_from_redirects]},
        timeout=None,  # the deadline is ours: httpx restarts its own with each chunk
    )


@cache
def _ssl_context(ca_file: str) -> ssl.SSLContext:
    """Made once, with the first https request: it costs 50 ms, and most homes never need it."""
    context = ssl.create_default_context()
    try:
        if ca_file:
            context.load_verify_locations(ca_file)
    except OSError as error:  # ssl.SSLError is one, too
        why = "has no PEM certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"CA file {ca_file!r}: {why}; name a readable PEM file") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


class _NoCookies(httpx.Cookies):
    """Keeps nothing: an endpoint's cookie must not reach its neighbour on another port."""

    def extract_cookies(self, response: httpx.Response) -> None:
        """Forget them."""


class _Client(httpx.AsyncClient):
    """httpx copies the cookies that it is given into a jar, and asks that after each response."""

    @property
    def cookies(self) -> httpx.Cookies:
        """None, ever."""
        return _NO_COOKIES

    @cookies.setter
    def cookies(self, cookies: object) -> None:
        """Nothing to set."""


_NO_COOKIES: Final = _NoCookies()
