"""One push to a registry, and what its answer means; knows httpx, never waits or repeats."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from clusterllm_mqtt.errors import (
    ProbeError,
    RegistryRejectedError,
    RegistryRevokedError,
    RegistryUnavailableError,
)
from clusterllm_mqtt.http_client import new_request, read_body
from clusterllm_mqtt.http_failures import as_probe_errors
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


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    retry_after: str = ""
    said: str = ""


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
        return urlsplit(self._url).netloc

    async def push(self, payload: bytes) -> None:
        """POST it, within 15 s in all; a 2xx is a success, whatever its body.

        Raises:
            RegistryRevokedError: 401.
            RegistryRejectedError: a redirect, or another 4xx that will not pass by itself.
            RegistryUnavailableError: no answer in time, a 5xx, 408, 425 or 429.
        """
        try:
            answer = await self._post(payload)
        except ProbeError as error:
            raise RegistryUnavailableError(error.reason, f"{self.host}: {error}") from None
        if answer.status not in _SUCCESS:
            raise self._error(answer)

    async def _post(self, payload: bytes) -> _Answer:
        ends_s = asyncio.get_running_loop().time() + self._deadline_s
        bearer = self._token.get_secret_value()
        with as_probe_errors():
            request = new_request(
                "POST", self._url, left_s=self._deadline_s, bearer=bearer, json=payload
            )
            async with asyncio.timeout_at(ends_s):
                response = await self._client.send(
                    request, stream=True, auth=None, follow_redirects=False
                )
        try:
            said = "" if response.status_code in _SUCCESS else await self._said(response, ends_s)
        finally:
            await response.aclose()
        return _Answer(response.status_code, response.headers.get("retry-after", ""), said)

    async def _said(self, response: httpx.Response, ends_s: float) -> str:
        """The beginning of a body, for people; what echoes the token must not show it."""
        body = b""
        with suppress(ProbeError), as_probe_errors():
            async with asyncio.timeout_at(ends_s):
                body = await read_body(response)
        text = body[:_MAX_SAID].decode("utf-8", "replace")
        return clean(text.replace(self._token.get_secret_value(), "…"))

    def _error(self, answer: _Answer) -> RegistryError:
        """What an answer that is no success means."""
        status = answer.status
        reason = _REASONS.get(status, Reason.BAD_RESPONSE)
        text = f"{self.host}: HTTP {status}{': ' if answer.said else ''}{answer.said}"
        if status == _UNAUTHORIZED:
            remedy = "the registry does not accept the token any more; get a new one"
            return RegistryRevokedError(reason, f"{text}; {remedy}")
        if status in _REDIRECT:
            remedy = "set outpost.cloudbox_url to where it really is; redirects are not followed"
            return RegistryRejectedError(reason, f"{self.host}: HTTP {status}; {remedy}")
        if status in _CLIENT_ERROR and status not in _TRANSIENT:
            return RegistryRejectedError(reason, text)
        return RegistryUnavailableError(
            reason, text, retry_after_s=_seconds_from_now(answer.retry_after)
        )


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
