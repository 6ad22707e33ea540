"""What a stub endpoint sends back: one reply of a scenario -> bytes, well or badly made.

Every field is optional:

    status 200, reason, headers {}         a null header removes a default one
    body "" | body_b64                     text or bytes
    body_gen {prefix, unit, bytes, suffix, endless}    streamed, never held in memory
    body_items {prefix, item, count, sep, suffix}      `{i}` in item counts
    body_nest {prefix, open, middle, close, depth, suffix}
    framing length | chunked | close, chunk_size, content_length
    encoding gzip | gzip_bad | gzip_truncated | gzip_unlabelled
    http "1.1", informational [103, ...]
    require_bearer KEY, otherwise {}       a 401, or that reply, without the key
    delay_s, body_delay_s, drip {bytes, every_s}
    hang true                              never answers
    close reset | truncate                 instead of the answer | after half of the body
    raw                                    exactly this, then the end of the connection
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

Reply = dict[str, Any]
Expand = Callable[[str], str]

PIECE: Final = 64 * 1024
_LABELLED: Final = frozenset({"gzip", "gzip_bad", "gzip_truncated"})
_PACKED: Final = frozenset({"gzip", "gzip_truncated", "gzip_unlabelled"})


def head_bytes(reply: Reply, length: int | None, expand: Expand) -> bytes:
    """Status line and headers; `length` None is a body that ends with the connection."""
    status = int(reply.get("status", 200))
    headers: dict[str, str | None] = {"Content-Type": "application/json"}
    if reply.get("framing") == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif length is None:
        headers["Connection"] = "close"
    elif status not in {204, 304}:
        headers["Content-Length"] = str(reply.get("content_length", length))
    if reply.get("encoding") in _LABELLED:
        headers["Content-Encoding"] = "gzip"
    headers |= reply.get("headers", {})
    version, reason = reply.get("http", "1.1"), reply.get("reason", _phrase(status))
    lines = [f"HTTP/1.1 {code} {_phrase(code)}\r\n" for code in reply.get("informational", ())]
    lines.append(f"HTTP/{version} {status} {reason}")
    lines += [f"{name}: {expand(value)}" for name, value in headers.items() if value is not None]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def body_length(reply: Reply, pieces: list[bytes] | None) -> int | None:
    """What Content-Length says; None when the body has no end, or its end is the connection's."""
    generated = reply.get("body_gen", {})
    if reply.get("framing") == "close" or generated.get("endless"):
        return None
    if pieces is not None:
        return sum(map(len, pieces))
    ends = generated.get("prefix", "") + generated.get("suffix", "")
    return len(ends.encode()) + int(generated.get("bytes", 0))


def body_pieces(reply: Reply, expand: Expand) -> Iterator[bytes]:
    """The body as it goes over the wire, before framing."""
    plain = _plain_pieces(reply, expand)
    encoding = reply.get("encoding")
    if encoding not in _PACKED:
        yield from plain
        return
    deflater = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    packed = b"".join(map(deflater.compress, plain)) + deflater.flush()
    yield packed[: len(packed) // 2] if encoding == "gzip_truncated" else packed


def _plain_pieces(reply: Reply, expand: Expand) -> Iterator[bytes]:
    if "body_b64" in reply:
        yield base64.b64decode(reply["body_b64"])
    elif "body_gen" in reply:
        yield from _generated(reply["body_gen"])
    elif "body_items" in reply:
        yield _items(reply["body_items"]).encode()
    elif "body_nest" in reply:
        yield _nest(reply["body_nest"]).encode()
    else:
        yield expand(reply.get("body", "")).encode("utf-8", "surrogatepass")


def _generated(spec: dict[str, Any]) -> Iterator[bytes]:
    unit = spec.get("unit", " ").encode()
    block = unit * (PIECE // len(unit))
    yield spec.get("prefix", "").encode()
    left = int(spec.get("bytes", 0))
    while spec.get("endless") or left > 0:
        yield block if spec.get("endless") else block[:left]
        left -= len(block)
    yield spec.get("suffix", "").encode()


def _items(spec: dict[str, Any]) -> str:
    items = (spec["item"].replace("{i}", str(i)) for i in range(int(spec["count"])))
    return str(spec.get("prefix", "") + spec.get("sep", ",").join(items) + spec.get("suffix", ""))


def _nest(spec: dict[str, Any]) -> str:
    depth = int(spec["depth"])
    opened, closed = spec.get("open", "[") * depth, spec.get("close", "]") * depth
    inner = opened + spec.get("middle", "") + closed
    return str(spec.get("prefix", "") + inner + spec.get("suffix", ""))
