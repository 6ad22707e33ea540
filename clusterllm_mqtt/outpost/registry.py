"""One push to a registry, and what its answer means; knows httpx, never waits or repeats."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from clusterllm_mqtt.errors import (
    HttpError,
    RegistryRejectedError,
    RegistryRevokedError,
    RegistryUnavailableError,
)
from clusterllm_mqtt.http_client import Reply, exchange, new_request
from clusterllm_mqtt.models import Reason
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    import httpx
    from pydantic import SecretStr

    from clusterllm_mqtt.errors import RegistryError

PATH: Final = "/api/v1/llm/registry"
DEADLINE_S: Final = 15.0
_MAX_SAID: Final = 1024
_SUCCESS: Final = range(200, 300)
_REDIRECT: Final = range(300, 400)
_CLIENT_ERROR: Final = range(400, 500)
_TRANSIENT: Final = frozenset({408, 425, 429})
_UNAUTHORIZED: Final = 401
_REASONS: Final = {
    401: Reason.UNAUTHORIZED,
    403: Reason.FORBIDDEN,
    408: Reason.TIMEOUT,
    429: Reason.RATE_LIMITED,
}


class Registry:
    """The registry of one cloudbox, by its base URL.

    The token goes to this origin only. No redirect is followed: one that turns the POST into a GET
    would lose the payload and look like a success.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        token: SecretStr,
        *,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._client = client
        self._url = url.rstrip("/") + PATH
        self._token = token
        self._deadline_s = deadline_s

    @property
    def host(self) -> str:
        """Host and port, for people."""
        return urlsplit(self._url).netloc.rpartition("@")[2]

    async def push(self, payload: bytes) -> None:
        """POST it, within 15 s in all; a 2xx is a success, whatever its body.

        Raises:
            RegistryRevokedError: 401.
            RegistryRejectedError: a redirect, or another 4xx that will not pass by itself.
            RegistryUnavailableError: no answer in time, a 5xx, 408, 425 or 429.
        """
        ends_s = asyncio.get_running_loop().time() + self._deadline_s
        bearer = self._token.get_secret_value()
        try:
            request = new_request("POST", self._url, bearer=bearer, json=payload)
            reply = await exchange(self._client, request, ends_s, wants_body=_is_failure)
        except HttpError as error:
            raise RegistryUnavailableError(error.reason, f"{self.host}: {error}") from None
        if _is_failure(reply.status):
            raise self._error(reply)

    def _error(self, reply: Reply) -> RegistryError:
        """What an answer that is no success means."""
        status = reply.status
        reason = _REASONS.get(status, Reason.BAD_RESPONSE)
        said = self._said(reply.body)
        text = f"{self.host}: HTTP {status}{': ' if said else ''}{said}"
        if status == _UNAUTHORIZED:
            remedy = "the registry does not accept the token any more; get a new one"
            return RegistryRevokedError(reason, f"{text}; {remedy}")
        if status in _REDIRECT:
            remedy = "set outpost.cloudbox_url to where it really is; redirects are not followed"
            return RegistryRejectedError(reason, f"{self.host}: HTTP {status}; {remedy}")
        if status in _CLIENT_ERROR and status not in _TRANSIENT:
            return RegistryRejectedError(reason, text)
        retry_after_s = _seconds_from_now(reply.headers.get("retry-after", ""))
        return RegistryUnavailableError(reason, text, retry_after_s=retry_after_s)

    def _said(self, body: bytes) -> str:
        """The beginning of a body, for people; what echoes the token must not show it."""
        text = body[:_MAX_SAID].decode("utf-8", "replace")
        return clean(text.replace(self._token.get_secret_value(), "…"))


def _is_failure(status: int) -> bool:
    return status not in _SUCCESS


def _seconds_from_now(retry_after: str) -> float | None:
    """Retry-After as seconds or as an HTTP date; None when it is neither."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, TypeError, OverflowError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((aware - datetime.now(UTC)).total_seconds(), 0.0)
