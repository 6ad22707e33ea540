"""Each failure has a name and a sentence."""

from __future__ import annotations

import errno
import socket
import ssl

import httpx
import pytest

from clusterllm_mqtt.http_failures import http_error
from clusterllm_mqtt.models import Reason


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
    named = http_error(error)
    assert named.reason is reason
    assert str(named)
