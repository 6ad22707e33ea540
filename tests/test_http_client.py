"""The HTTP client: TLS, cookies, proxies."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
import trustme
from rig.stub import HOST, StubEndpoint

from clusterllm_mqtt import http_client
from clusterllm_mqtt.drivers.http import get
from clusterllm_mqtt.errors import ConfigError, HttpError
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client() as client:
        yield client


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
        with pytest.raises(HttpError, match="not trusted") as refused:
            await get(client, stub.url, bearer="sesame")
    assert refused.value.reason is Reason.TLS
    assert stub.requests == []


async def test_https_to_a_plain_port_is_a_tls_failure(client: httpx.AsyncClient) -> None:
    async with StubEndpoint() as stub:
        with pytest.raises(HttpError) as failed:
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


def test_the_certificates_are_loaded_with_the_first_https_request_only() -> None:
    http_client._ssl_context.cache_clear()
    new_client()
    assert http_client._ssl_context.cache_info().currsize == 0
