"""Bounded GETs: redirects, bodies, TLS, and how each failure is named."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import httpx
import pytest
from rig.stub import StubEndpoint

from clusterllm_mqtt.drivers.http import get
from clusterllm_mqtt.errors import HttpError
from clusterllm_mqtt.http_client import MAX_BODY, new_client
from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client() as client:
        yield client


async def test_a_get_says_who_asks_and_takes_gzip_only(client: httpx.AsyncClient) -> None:
    async with StubEndpoint({"default": {"headers": {"Server": "LLama.CPP"}}}) as stub:
        answer = await get(client, f"{stub.url}/x?y=1", bearer="sesame")
    assert (answer.status, answer.server, answer.body) == (200, "llama.cpp", b"")
    (asked,) = stub.requests
    assert (asked.method, asked.target) == ("GET", "/x?y=1")
    assert asked.headers["authorization"] == "Bearer sesame"
    assert asked.headers["accept-encoding"] == "gzip"
    assert asked.headers["user-agent"].startswith("clusterllm-mqtt/")
    assert "cookie" not in asked.headers


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_within_the_origin_is_followed_with_the_key(
    client: httpx.AsyncClient, status: int
) -> None:
    routes = {
        "/a": {"status": status, "headers": {"Location": "/b"}},
        "/b": {"body": "there", "require_bearer": "sesame"},
    }
    async with StubEndpoint({"routes": routes}) as stub:
        answer = await get(client, f"{stub.url}/a", bearer="sesame")
        assert answer.url == f"{stub.url}/b"
    assert (answer.status, answer.body) == (200, b"there")


@pytest.mark.parametrize(
    "location",
    [
        "http://{other}/b",
        "http://localhost:{port:endpoint}/b",
        "https://{endpoint}/b",
        "http://me:pw@{endpoint}/b",
        "ftp://{endpoint}/",
        "",
    ],
)
async def test_a_redirect_to_another_origin_is_the_answer_and_nothing_is_sent_there(
    client: httpx.AsyncClient, location: str
) -> None:
    scenario = {
        "routes": {"/a": {"status": 302, "headers": {"Location": location}}},
        "peers": {"other": {"default": {"body": "stolen"}}},
    }
    async with StubEndpoint(scenario) as stub:
        answer = await get(client, f"{stub.url}/a", bearer="sesame")
    assert answer.status == 302
    assert [request.path for request in stub.requests] == ["/a"]


async def test_a_circle_ends_after_ten_requests(client: httpx.AsyncClient) -> None:
    async with StubEndpoint({"default": {"status": 302, "headers": {"Location": "/a"}}}) as stub:
        answer = await get(client, f"{stub.url}/a")
    assert answer.status == 302
    assert len(stub.requests) == 10


async def test_a_redirect_into_the_void_is_an_answer_with_a_fault(
    client: httpx.AsyncClient,
) -> None:
    routes = {
        "/a": {"status": 302, "headers": {"Location": "/b"}},
        "/b": {"close": "reset"},
    }
    async with StubEndpoint({"routes": routes}) as stub:
        answer = await get(client, f"{stub.url}/a")
    assert answer.status == 302
    assert answer.fault is not None
    assert answer.fault.reason is Reason.BAD_RESPONSE


async def test_a_body_is_cut_at_its_bound_also_after_decompression(
    client: httpx.AsyncClient,
) -> None:
    long = {"body_gen": {"unit": "ab", "bytes": 3 * MAX_BODY}}
    routes = {"/plain": long, "/packed": {**long, "encoding": "gzip"}}
    async with StubEndpoint({"routes": routes}) as stub:
        for path in routes:
            answer = await get(client, stub.url + path)
            assert len(answer.body) == MAX_BODY
            assert answer.body.startswith(b"abab")
            assert answer.fault is None


async def test_a_broken_body_leaves_the_status_and_a_fault(client: httpx.AsyncClient) -> None:
    routes = {
        "/half": {"body": "0123456789", "close": "truncate"},
        "/short": {"body": "0123456789", "encoding": "gzip_truncated"},
        "/label": {"body": "0123456789", "encoding": "gzip_bad"},
    }
    async with StubEndpoint({"routes": routes}) as stub:
        for path in routes:
            answer = await get(client, stub.url + path)
            assert (answer.status, answer.body) == (200, b"")
            assert answer.fault is not None
            assert answer.fault.reason is Reason.BAD_RESPONSE


async def test_a_slow_body_is_a_timeout_of_the_body(client: httpx.AsyncClient) -> None:
    async with StubEndpoint({"default": {"body": "{}", "body_delay_s": 5}}) as stub:
        answer = await get(client, stub.url)
    assert answer.status == 200
    assert answer.fault is not None
    assert answer.fault.reason is Reason.TIMEOUT


async def test_no_get_lives_beyond_the_deadline(client: httpx.AsyncClient) -> None:
    async with StubEndpoint() as stub:
        with pytest.raises(HttpError) as late:
            await get(client, stub.url, deadline_s=0)
    assert late.value.reason is Reason.TIMEOUT
    assert stub.requests == []


async def test_a_clients_own_settings_do_not_reach_a_probe() -> None:
    """A library user's client may follow redirects, log in and keep cookies; a probe must not."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(302, headers={"Location": "http://elsewhere/"})

    async with httpx.AsyncClient(
        transport=httpx.MockTransport(answer),
        follow_redirects=True,
        auth=("me", "pw"),
        cookies={"id": "1"},
        headers={"X-Secret": "1"},
    ) as client:
        assert (await get(client, "http://box/")).status == 302
    (request,) = seen
    assert not {"authorization", "cookie", "x-secret"} & set(request.headers)


async def test_gzip_in_many_small_pieces_is_whole() -> None:
    packed = gzip.compress(json.dumps(list(range(1000))).encode())

    async def pieces() -> AsyncIterator[bytes]:
        for i in range(0, len(packed), 3):
            yield packed[i : i + 3]

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Encoding": "GZip "}, content=pieces())

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        assert json.loads((await get(client, "http://box/")).body) == list(range(1000))
