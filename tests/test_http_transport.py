"""The wire below the HTTP client, beside httpx's own transport as the yardstick."""

from __future__ import annotations

import asyncio
import socket
import ssl
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rig.stub import HOST, StubEndpoint

from clusterllm_mqtt.errors import HttpError
from clusterllm_mqtt.http_client import exchange, new_client, new_request
from clusterllm_mqtt.http_transport import MAX_HEAD, Transport
from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TEN_KB = '{"data": "' + "x" * 10_000 + '"}'
WELL_MADE: dict[str, dict[str, Any]] = {
    "with a length": {"body": "{}"},
    "chunked": {"body": TEN_KB, "framing": "chunked", "chunk_size": 100},
    "to the end of the connection": {"body": TEN_KB, "framing": "close"},
    "of HTTP/1.0": {"body": TEN_KB, "http": "1.0", "framing": "close"},
    "after announcements": {"body": "{}", "informational": [100, 103, 103]},
    "without a body": {"status": 204},
    "a failure with a body": {"status": 500, "body": TEN_KB},
    "slowly": {"body": "[1, 2, 3]", "drip": {"bytes": 1, "every_s": 0.01}},
    "packed": {"body": TEN_KB, "encoding": "gzip"},
    "larger than what is kept": {"body_gen": {"unit": "x", "bytes": 3_000_000}},
    "a header of Latin-1": {"body": "{}", "headers": {"X-Name": "B\xfcro"}},
}
BADLY_MADE: dict[str, dict[str, Any]] = {
    "reset": {"close": "reset"},
    "nothing at all": {"raw": ""},
    "half a status line": {"raw": "HTTP/1.1 20"},
    "no HTTP": {"raw": "220 ready for mail\r\n"},
    "HTTP/2": {"raw": "HTTP/2 200\r\n\r\n"},
    "half a body": {"body": TEN_KB, "close": "truncate"},
    "half a chunk": {"raw": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhello"},
    "a length that is none": {"raw": "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"},
    "two lengths": {"raw": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"},
    "a chunk that is none": {
        "raw": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello"
    },
    "a head without end": {"raw": "HTTP/1.1 200 OK\r\nX: " + "y" * (MAX_HEAD + 1)},
    "a status of four digits": {"raw": "HTTP/1.1 2000 OK\r\n\r\n"},
    "a switch of protocols": {"raw": "HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n"},
    "broken gzip": {"body": TEN_KB, "encoding": "gzip_bad"},
}


@pytest.fixture
async def ours() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client() as client:
        yield client


@pytest.fixture
async def yardstick() -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_keepalive_connections=0)
    transport = httpx.AsyncHTTPTransport(trust_env=False, limits=limits)
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=None) as client:  # noqa: S113  # exchange ends it
        yield client


async def told(client: httpx.AsyncClient, url: str, *, within_s: float = 2.0) -> tuple[Any, ...]:
    """All that a caller sees of one exchange."""
    ends_s = asyncio.get_running_loop().time() + within_s
    try:
        reply = await exchange(client, new_request("GET", url), ends_s)
    except HttpError as error:
        return error.reason, str(error)
    fault = reply.fault and (reply.fault.reason, str(reply.fault))
    return reply.status, reply.headers.raw, reply.body, fault


@pytest.mark.parametrize("scenario", WELL_MADE.values(), ids=WELL_MADE.keys())
async def test_an_answer_is_what_httpx_makes_of_it(
    ours: httpx.AsyncClient, yardstick: httpx.AsyncClient, scenario: dict[str, Any]
) -> None:
    async with StubEndpoint({"default": scenario}) as stub:
        seen = await told(ours, stub.url)
        assert seen == await told(yardstick, stub.url)
    assert seen[0] == scenario.get("status", 200)
    assert seen[-1] is None


@pytest.mark.parametrize("scenario", BADLY_MADE.values(), ids=BADLY_MADE.keys())
async def test_a_failure_is_what_httpx_makes_of_it(
    ours: httpx.AsyncClient, yardstick: httpx.AsyncClient, scenario: dict[str, Any]
) -> None:
    async with StubEndpoint({"default": scenario}) as stub:
        seen = await told(ours, stub.url)
        assert seen == await told(yardstick, stub.url)
    assert "bad_response" in str(seen)


async def serve(wire: list[bytes]) -> tuple[asyncio.Server, str]:
    """A server that sends the pieces one by one, whatever it is asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in wire:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    return server, f"http://{HOST}:{server.sockets[0].getsockname()[1]}"


WHOLE = (
    b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nServer: llama.cpp\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n7\r\n, world\r\n0\r\nX-End: 1\r\n\r\n"
)


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(1, len(WHOLE) - 1), max_size=12))
def test_it_does_not_matter_how_the_network_cuts_an_answer(cuts: set[int]) -> None:
    bounds = [0, *sorted(cuts), len(WHOLE)]

    async def ask() -> tuple[Any, ...]:
        pieces = [WHOLE[a:b] for a, b in pairwise(bounds)]
        server, url = await serve(pieces)
        async with server, new_client() as client:
            return await told(client, url)

    status, _, body, fault = asyncio.run(ask())
    assert (status, body, fault) == (200, b"hello, world", None)


async def test_a_request_is_written_as_httpx_writes_it(
    ours: httpx.AsyncClient, yardstick: httpx.AsyncClient
) -> None:
    async with StubEndpoint() as stub:
        url = f"{stub.url}/a%20b?c=d"
        for client in (ours, yardstick):
            request = new_request("POST", url, bearer="k\xe9y", json=b'{"a": 1}')
            await exchange(client, request, asyncio.get_running_loop().time() + 2)
        first, second = stub.requests
    assert first == second
    assert first.body == b'{"a": 1}'


async def test_what_cannot_be_written_is_not_sent() -> None:
    async with StubEndpoint() as stub:
        request = httpx.Request("GET", stub.url, headers={"X": "a\r\nY: b"})
        with pytest.raises(httpx.LocalProtocolError):
            await Transport(ssl.create_default_context).handle_async_request(request)
        assert stub.requests == []


async def test_the_server_is_held_back_while_nobody_reads(ours: httpx.AsyncClient) -> None:
    """Else an endless body would fill the memory while its reader waits."""
    async with StubEndpoint(
        {"default": {"body_gen": {"unit": "x" * 999, "endless": True}}}
    ) as stub:
        response = await ours.send(ours.build_request("GET", stub.url), stream=True)
        await asyncio.sleep(0.3)
        first = await anext(aiter(response.aiter_raw()))
        await response.aclose()
    assert len(first) < 1_000_000


async def test_all_addresses_of_a_name_are_tried(ours: httpx.AsyncClient) -> None:
    async with StubEndpoint() as stub:
        port = stub.host_port.rpartition(":")[2]
        assert (await told(ours, f"http://localhost:{port}"))[0] == 404


async def test_a_name_whose_addresses_all_refuse_refuses(ours: httpx.AsyncClient) -> None:
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        port = bound.getsockname()[1]
        assert (await told(ours, f"http://localhost:{port}"))[0] is Reason.REFUSED


async def test_nothing_is_left_open_of_a_request_whose_time_is_over(
    ours: httpx.AsyncClient,
) -> None:
    """Neither a connection that waits for an answer, nor one that agrees upon TLS."""
    async with StubEndpoint({"accept": "silent"}) as stub:
        for url in (stub.url, stub.url.replace("http:", "https:")):
            seen = await told(ours, url, within_s=0.2)
            assert seen[0] is Reason.TIMEOUT
        await asyncio.sleep(0.05)
        tasks = [task for task in asyncio.all_tasks() if "_connected" in repr(task)]
    assert tasks == []
