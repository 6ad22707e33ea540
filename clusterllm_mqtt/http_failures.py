"""The only place where the errors of httpx and what is below it become `HttpError`s."""

from __future__ import annotations

import errno
import socket
import ssl
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import httpx

from clusterllm_mqtt.errors import HttpError
from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNREACHABLE: Final = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ETIMEDOUT}
)
"""A host that is off is a timeout, whether the kernel gives up first or we do."""

_KNOWN: Final[tuple[tuple[tuple[type[BaseException], ...], Reason, str], ...]] = (
    (
        (TimeoutError, httpx.TimeoutException),
        Reason.TIMEOUT,
        "no answer in time; is the server overloaded or the host off?",
    ),
    (
        (socket.gaierror, httpx.InvalidURL, UnicodeError),
        Reason.DNS,
        "the host name is not known; check the URL",
    ),
    (
        (ssl.SSLCertVerificationError,),
        Reason.TLS,
        "the certificate is not trusted; check its name and date, or name its CA file",
    ),
    ((ssl.SSLError,), Reason.TLS, "no TLS connection; does the port speak plain http?"),
    ((ConnectionRefusedError,), Reason.REFUSED, "the connection is refused; is the server up?"),
)


@contextmanager
def as_http_errors() -> Iterator[None]:
    """Whatever an exchange raises inside becomes a `HttpError`."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, zlib.error) as error:
        raise http_error(error) from None


def http_error(error: Exception) -> HttpError:
    """The first cause with a known name decides; what is no HTTP at all is `bad_response`."""
    for cause in _causes(error):
        for kinds, reason, text in _KNOWN:
            if isinstance(cause, kinds):
                return HttpError(reason, text)
        if isinstance(cause, OSError) and cause.errno in _UNREACHABLE:
            return HttpError(Reason.TIMEOUT, "the host cannot be reached; is it on?")
    return HttpError(Reason.BAD_RESPONSE, "the connection broke off or did not speak HTTP")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what is behind it; anyio groups a failure for each address of a host."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    behind = error.__cause__ or error.__context__
    if behind is not None:
        yield from _causes(behind)
