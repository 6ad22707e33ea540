"""Bounded GETs: redirects, bodies, TLS, and how each failure is named."""

from __future__ import annotations

import errno
import gzip
import json
import socket
import ssl
from typing import TYPE_CHECKING

import httpx
import pytest
import trustme
from rig.stub import HOST, StubEndpoint

from clusterllm_mqtt.drivers import http
from clusterllm_mqtt.drivers.failures import probe_error
from clusterllm_mqtt.drivers.http import MAX_BODY, get, new_client
from clusterllm_mqtt.errors import ConfigError, ProbeError
from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


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
        with pytest.raises(ProbeError) as late:
            await get(client, stub.url, deadline_s=0)
    assert late.value.reason is Reason.TIMEOUT
    assert stub.requests == []


async def test_cookies_are_neither_kept_nor_sent(client: httpx.AsyncClient) -> None:
    greedy = {"default": {"headers": {"Set-Cookie": "id=1; Path=/"}}}
    async with StubEndpoint(greedy) as stub, StubEndpoint() as neighbour:
        await get(client, stub.url)
        await get(client, stub.url)
        await get(client, neighbour.url)
    assert len(client.cookies) == 0
    assert not any("cookie" in r.headers for r in stub.requests + neighbour.requests)


async def test_environment_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with StubEndpoint() as stub, new_client() as client:
        assert (await get(client, stub.url)).status == 404


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    return context


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


async def test_a_private_authority_is_trusted_when_it_is_named(
    server_tls: ssl.SSLContext, ca_file: Path
) -> None:
    async with StubEndpoint(tls=server_tls) as stub, new_client(ca_file) as client:
        assert (await get(client, stub.url)).status == 404


async def test_an_unknown_authority_is_not_trusted(
    client: httpx.AsyncClient, server_tls: ssl.SSLContext
) -> None:
    async with StubEndpoint(tls=server_tls) as stub:
        with pytest.raises(ProbeError, match="not trusted") as refused:
            await get(client, stub.url, bearer="sesame")
    assert refused.value.reason is Reason.TLS
    assert stub.requests == []


async def test_https_to_a_plain_port_is_a_tls_failure(client: httpx.AsyncClient) -> None:
    async with StubEndpoint() as stub:
        with pytest.raises(ProbeError) as failed:
            await get(client, stub.url.replace("http:", "https:"))
    assert failed.value.reason in {Reason.TLS, Reason.BAD_RESPONSE}


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), ("hello", "no PEM")])
def test_an_unusable_ca_file_is_a_configuration_error(
    tmp_path: Path, content: str | None, why: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=why):
        new_client(path)


def raised(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def connect_error(*causes: OSError) -> Exception:
    """As httpx, httpcore and anyio stack it up for a host with one or several addresses."""
    inner: BaseException = causes[0] if len(causes) == 1 else ExceptionGroup("all", [*causes])
    attempts = raised(OSError("All connection attempts failed"), inner)
    return raised(httpx.ConnectError("All connection attempts failed"), attempts)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (connect_error(ConnectionRefusedError(errno.ECONNREFUSED, "")), Reason.REFUSED),
        (connect_error(ConnectionRefusedError(), ConnectionRefusedError()), Reason.REFUSED),
        (connect_error(socket.gaierror(-2, "Name or service not known")), Reason.DNS),
        (connect_error(OSError(errno.EHOSTUNREACH, "No route to host")), Reason.TIMEOUT),
        (connect_error(OSError(errno.ENETUNREACH, "")), Reason.TIMEOUT),
        (connect_error(OSError(errno.EADDRNOTAVAIL, "")), Reason.BAD_RESPONSE),
        (httpx.ConnectTimeout(""), Reason.TIMEOUT),
        (httpx.ReadTimeout(""), Reason.TIMEOUT),
        (TimeoutError(), Reason.TIMEOUT),
        (raised(httpx.ConnectError(""), ssl.SSLError("WRONG_VERSION_NUMBER")), Reason.TLS),
        (httpx.ReadError("reset"), Reason.BAD_RESPONSE),
        (httpx.RemoteProtocolError("garbage"), Reason.BAD_RESPONSE),
        (httpx.InvalidURL("no such host can be"), Reason.DNS),
    ],
    ids=repr,
)
def test_each_failure_has_its_reason_and_a_sentence(error: Exception, reason: Reason) -> None:
    named = probe_error(error)
    assert named.reason is reason
    assert str(named)


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


def test_the_certificates_are_loaded_with_the_first_https_request_only() -> None:
    http._ssl_context.cache_clear()
    new_client()
    assert http._ssl_context.cache_info().currsize == 0
