"""One look at one endpoint: its bounds, and what the answers mean."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from clusterllm_mqtt.drivers import http
from clusterllm_mqtt.drivers.json_reader import Malformed, parse
from clusterllm_mqtt.drivers.trouble import Trouble
from clusterllm_mqtt.endpoint_url import alternative_bases
from clusterllm_mqtt.errors import HttpError
from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

T = TypeVar("T")

PROBE_S: Final = 5.0
ALIAS: Final = "/v1-openai/models"
"""Asked first of every endpoint, without a key: any HTTP status proves that something lives."""

_KEY_MAY_HELP: Final = frozenset({Reason.UNAUTHORIZED, Reason.FORBIDDEN})
_SAID: Final[dict[int, tuple[Reason, str, str]]] = {
    401: (
        Reason.UNAUTHORIZED,
        "a key is needed; set api_key",
        "the key is not accepted; check api_key",
    ),
    403: (
        Reason.FORBIDDEN,
        "reading is forbidden; set api_key",
        "the key may not read this; use one with more rights",
    ),
    429: (Reason.RATE_LIMITED, "asked too often; probe less", "asked too often; probe less"),
}
"""What a status means, without and with a key."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What one GET told: a value, or a trouble, or neither where there is no such path.

    `url` is where the answer came from, after redirects. `status` is 0 without an answer; `keyed`
    says whether the key was sent.
    """

    url: str
    value: T | None = None
    status: int = 0
    server: str = ""
    trouble: Trouble | None = None
    keyed: bool = False
    digest: bytes = b""
    """Of the bytes that `value` was read from."""


class Look:
    """At most 5 s, from its making on, for everything that is asked.

    `endpoint` is a checked base URL, `key` "" when there is none to send, `label` the configured
    backend or "". `troubles` are those of all readings, by URL.
    """

    def __init__(
        self, client: httpx.AsyncClient, endpoint: str, *, key: str = "", label: str = ""
    ) -> None:
        self.endpoint = endpoint
        self.key = key
        self.label = label
        self.troubles: dict[str, Trouble] = {}
        self._bases = alternative_bases(endpoint)
        self._client = client
        self._deadline_s = asyncio.get_running_loop().time() + PROBE_S

    def urls(self, path: str) -> tuple[str, ...]:
        """A path below the endpoint and, when that ends in `/v1`, beside it."""
        return tuple(base + path for base in self._bases)

    async def knock(self) -> http.Answer:
        """Ask the alias path.

        Raises:
            HttpError: nobody answered.
        """
        return await http.get(self._client, self.endpoint + ALIAS, deadline_s=self._deadline_s)

    async def ask(
        self, url: str, convert: Callable[[object], T], *, keyed: bool = False
    ) -> Reading[T]:
        """Ask for JSON and convert it; whatever goes wrong is in the reading."""
        return await self._ask(Reading(url, keyed=keyed), convert)

    async def ask_again(self, before: Reading[T], convert: Callable[[object], T]) -> Reading[T]:
        """Ask for what the same `convert` read before; the same bytes have the same value."""
        return await self._ask(before, convert)

    async def _ask(self, before: Reading[T], convert: Callable[[object], T]) -> Reading[T]:
        url, bearer = before.url, self.key if before.keyed else ""
        try:
            answer = await http.get(self._client, url, bearer=bearer, deadline_s=self._deadline_s)
        except HttpError as error:
            trouble = Trouble(error.reason, f"{self._path(url)}: {error}", is_outage=True)
            self.troubles[url] = trouble
            return Reading(url, trouble=trouble, keyed=bool(bearer))
        return self.read(url, answer, convert, keyed=bool(bearer), before=before)

    async def ask_openly(self, url: str, convert: Callable[[object], T]) -> Reading[T]:
        """Ask without the key, and with it only where that is refused."""
        reading = await self.ask(url, convert)
        if self.key and reading.trouble and reading.trouble.reason in _KEY_MAY_HELP:
            return await self.ask(url, convert, keyed=True)
        return reading

    def read(
        self,
        url: str,
        answer: http.Answer,
        convert: Callable[[object], T],
        *,
        keyed: bool = False,
        before: Reading[T] | None = None,
    ) -> Reading[T]:
        """What an answer means; with the bytes of the reading `before` it, what that one meant."""
        value, digest = None, b""
        trouble = trouble_of(answer, self._path(url), keyed=keyed)
        if trouble is None and is_success(answer):
            digest = sha256(answer.body).digest()
            is_same = before is not None and before.value is not None and before.digest == digest
            try:
                value = before.value if before and is_same else convert(parse(answer.body))
            except Malformed as error:
                trouble = Trouble(Reason.BAD_RESPONSE, f"{self._path(url)}: {error}")
        self.troubles.pop(url, None)
        if trouble:
            self.troubles[url] = trouble
        return Reading(answer.url, value, answer.status, answer.server, trouble, keyed, digest)

    def _path(self, url: str) -> str:
        """What people are shown of a URL: not the host, not the query."""
        return url.removeprefix(self._bases[-1]).split("?", 1)[0]


def is_success(answer: http.Answer) -> bool:
    """Whether the status is 2xx."""
    return 200 <= answer.status < 300  # noqa: PLR2004


def is_loading(answer: http.Answer) -> bool:
    """llama.cpp answers so on every path while it loads a model, also where there is none."""
    return answer.status == 503 and b"loading model" in answer.body[:1000].lower()  # noqa: PLR2004


def trouble_of(answer: http.Answer, path: str, *, keyed: bool = False) -> Trouble | None:
    """What is wrong with an answer; None for a success, and for a path that is not there."""
    status = answer.status
    if is_loading(answer):
        return Trouble(Reason.LOADING, "the model is being loaded; wait for it")
    if status in _SAID:
        reason, without_key, with_key = _SAID[status]
        text = with_key if keyed else without_key
        is_outage = reason is Reason.RATE_LIMITED
        return Trouble(reason, f"{path}: {text}", is_outage=is_outage, keyed=keyed)
    if answer.fault:
        return Trouble(answer.fault.reason, f"{path}: {answer.fault}", is_outage=True)
    if status >= 500 and status != 501:  # noqa: PLR2004  # 501: llama.cpp's "switched off"
        return Trouble(Reason.BAD_RESPONSE, f"{path}: the server fails ({status})", is_outage=True)
    if 300 <= status < 400:  # noqa: PLR2004
        return Trouble(Reason.BAD_RESPONSE, f"{path}: redirects elsewhere; use that as endpoint")
    return None
