"""One push, and what each answer means; the recorded outcomes of the registry's other clients."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr
from rig.outpost_vectors import load, payload_of
from rig.stub import StubEndpoint

from clusterllm_mqtt.errors import (
    RegistryError,
    RegistryRejectedError,
    RegistryRevokedError,
    RegistryUnavailableError,
)
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.models import Reason
from clusterllm_mqtt.outpost.registry import PATH, Registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOKEN = "tok-31337"  # noqa: S105
REDIRECTS = {"push-302", "push-307", "push-308-otherport"}
"""The other clients follow these: the payload or the token is lost on the way."""


@asynccontextmanager
async def registry(stub: StubEndpoint, *, deadline_s: float = 15.0) -> AsyncIterator[Registry]:
    async with new_client() as client:
        yield Registry(client, stub.url, SecretStr(TOKEN), deadline_s=deadline_s)


async def outcome(reply: dict[str, Any], *, deadline_s: float = 15.0) -> RegistryError | None:
    """What a push becomes when the registry answers so; one request, whatever it is."""
    async with (
        StubEndpoint({"routes": {PATH: reply}}) as stub,
        registry(stub, deadline_s=deadline_s) as target,
    ):
        outcome = None
        try:
            await target.push(b"{}")
        except RegistryError as error:
            outcome = error
        assert [(r.method, r.path) for r in stub.requests] == [("POST", PATH)]
    assert TOKEN not in str(outcome)
    return outcome


@pytest.mark.parametrize("vector", load("push"), ids=lambda v: v["id"])
async def test_every_vector_has_its_outcome(vector: dict[str, Any]) -> None:
    config = vector["config"]
    deadline_s = 1.0 if vector["id"] == "push-hang" else 15.0
    async with StubEndpoint(vector["scenario"]) as stub, new_client() as client:
        token = SecretStr(config["token"])
        target = Registry(client, stub.expand(config["url"]), token, deadline_s=deadline_s)
        result = "ok"
        try:
            await target.push(payload_of(config).to_json())
        except RegistryRevokedError:
            result = "auth_revoked"
        except RegistryError:
            result = "error"
        assert result == ("error" if vector["id"] in REDIRECTS else vector["expect"]["result"])
        expected = vector["requests"][:1]
        assert len(stub.requests) == len(expected)
        for request, wanted in zip(stub.requests, expected, strict=True):
            assert (request.method, request.target) == (wanted["method"], wanted["path"])
            assert request.headers["content-type"] == wanted["content_type"]
            assert request.authorization == f"Bearer {config['token']}"
            sent = json.loads(request.body)
            assert sent.pop("heartbeat_at")
            assert sent == wanted["payload"]


def test_the_vectors_are_all_there() -> None:
    assert len(load("push")) == 19
    assert {v["id"] for v in load("push") if v["class"] == "incidental"} == REDIRECTS


@pytest.mark.parametrize("status", [200, 201, 204, 299])
async def test_a_success_is_one_whatever_its_body_says(status: int) -> None:
    assert await outcome({"status": status, "body": "<html>" * 1000}) is None


async def test_a_success_whose_body_never_ends_is_one_at_once() -> None:
    async with asyncio.timeout(5):
        assert await outcome({"status": 200, "body": "x" * 99, "body_delay_s": 30}) is None


async def test_401_revokes() -> None:
    error = await outcome({"status": 401, "body": "nope"})
    assert isinstance(error, RegistryRevokedError)
    assert (error.exit_code, error.reason, error.transient) == (4, Reason.UNAUTHORIZED, False)


@pytest.mark.parametrize("status", [400, 403, 404, 405, 409, 413, 415, 422])
async def test_another_4xx_is_a_rejection_that_says_why(status: int) -> None:
    error = await outcome({"status": status, "body": "  some\n text\x1b[31m  "})
    assert isinstance(error, RegistryRejectedError)
    assert not error.transient
    assert f"HTTP {status}: some text [31m" in str(error)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304, 399])
async def test_a_redirect_is_a_rejection_and_nothing_is_sent_there(status: int) -> None:
    scenario = {
        "routes": {PATH: {"status": status, "headers": {"Location": "http://{other}/x"}}},
        "peers": {"other": {"default": {"status": 200}}},
    }
    async with StubEndpoint(scenario) as stub, registry(stub) as target:
        with pytest.raises(RegistryRejectedError, match=r"cloudbox_url"):
            await target.push(b"{}")
        assert [r.server for r in stub.requests] == ["endpoint"]


@pytest.mark.parametrize("status", [500, 502, 503, 408, 425, 429, 999])
async def test_what_may_pass_is_worth_another_try(status: int) -> None:
    error = await outcome({"status": status})
    assert isinstance(error, RegistryUnavailableError)
    assert error.transient
    assert error.retry_after_s is None


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("7", 7, 7),
        ("0", 0, 0),
        ("9" * 30, 10**8, 10**9),
        ("in an hour", 3000, 3600),
        ("Mon, 01 Jan 2001 00:00:00 GMT", 0, 0),
        ("Mon, 01 Jan 2001 00:00:00", 0, 0),
    ],
)
async def test_retry_after_is_read_in_both_spellings(header: str, low: float, high: float) -> None:
    if header == "in an hour":  # made here: test ids must be the same in every worker
        header = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    error = await outcome({"status": 503, "headers": {"Retry-After": header}})
    assert isinstance(error, RegistryUnavailableError)
    assert error.retry_after_s is not None
    assert low <= error.retry_after_s <= high


@pytest.mark.parametrize("header", ["soon", "-5", "1.5", "", "Mon, 99 Foo 2001", "\u0663"])
async def test_a_retry_after_that_is_none_is_ignored(header: str) -> None:
    error = await outcome({"status": 503, "headers": {"Retry-After": header}})
    assert isinstance(error, RegistryUnavailableError)
    assert error.retry_after_s is None


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"close": "reset"}, Reason.BAD_RESPONSE),
        ({"raw": "SSH-2.0-OpenSSH_9.6\r\n"}, Reason.BAD_RESPONSE),
        ({"hang": True}, Reason.TIMEOUT),
        ({"delay_s": 5}, Reason.TIMEOUT),
    ],
)
async def test_no_answer_has_its_reason_and_its_deadline(
    reply: dict[str, Any], reason: Reason
) -> None:
    error = await outcome(reply, deadline_s=0.5)
    assert isinstance(error, RegistryUnavailableError)
    assert error.reason is reason


async def test_an_error_page_that_drips_is_waited_for_no_longer_than_the_deadline() -> None:
    drip = {"status": 500, "body": "x" * 1000, "drip": {"bytes": 1, "every_s": 0.2}}
    async with asyncio.timeout(5):
        error = await outcome(drip, deadline_s=0.5)
    assert isinstance(error, RegistryUnavailableError)
    assert str(error).endswith("HTTP 500")


async def test_nobody_at_home_is_refused() -> None:
    async with StubEndpoint({"accept": "closed"}) as stub, registry(stub) as target:
        with pytest.raises(RegistryUnavailableError) as caught:
            await target.push(b"{}")
    assert caught.value.reason is Reason.REFUSED


async def test_an_answer_that_echoes_the_token_does_not_show_it() -> None:
    error = await outcome({"status": 400, "body": f"bad header: Bearer {TOKEN}"})
    assert "bad header: Bearer …" in str(error)


async def test_a_long_answer_is_cut() -> None:
    error = await outcome({"status": 400, "body": "x" * 100_000})
    assert len(str(error)) < 300


async def test_the_token_is_in_no_repr() -> None:
    async with StubEndpoint() as stub, registry(stub) as target:
        assert TOKEN not in repr(target)
        assert TOKEN not in repr(vars(target))
