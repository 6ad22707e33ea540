"""One look at one endpoint: its bounds, and what the answers mean."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from clusterllm_mqtt.drivers import http
from clusterllm_mqtt.drivers.base import Trouble
from clusterllm_mqtt.drivers.json_reader import Malformed, parse
from clusterllm_mqtt.endpoint_url import alternative_bases
from clusterllm_mqtt.errors import ProbeError
from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

T = TypeVar("T")

PROBE_S: Final = 5.0
ALIAS: Final = "/v1-openai/models"
"""Asked first of every endpoint, without a key: any HTTP status proves that something lives."""

_KEY_WANTED: Final = frozenset({Reason.UNAUTHORIZED, Reason.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What one GET told: a value, or a trouble, or neither (there is no such path).

    `status` is 0 without an answer. `keyed` says whether the key was sent.
    """

    value: T | None = None
    status: int = 0
    server: str = ""
    trouble: Trouble | None = None
    keyed: bool = False


class Look:
    """At most 5 s for everything that is asked, from the moment of its making.

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
        self._client = client
        self._deadline_s = asyncio.get_running_loop().time() + PROBE_S

    def urls(self, path: str) -> tuple[str, ...]:
        """A path below the endpoint and, for one that ends in `/v1`, below its parent."""
        return tuple(base + path for base in alternative_bases(self.endpoint))

    async def knock(self) -> http.Answer:
        """Ask the alias path.

        Raises:
            ProbeError: nobody answered.
        """
        return await http.get(
            self._client, self.endpoint + ALIAS, deadline_s=self._deadline_s
        )

    async def ask(
        self, url: str, convert: Callable[[object], T], *, keyed: bool = False
    ) -> Reading[T]:
        """Ask for JSON and convert it; whatever goes wrong is in the reading."""
        bearer = self.key if keyed else ""
        try:
            answer = await http.get(
                self._client, url, bearer=bearer, deadline_s=self._deadline_s
            )
        except ProbeError as error:
            trouble = Trouble(error.reason, f"{self._path(url)}: {error}", is_outage=True)
            self.troubles[url] = trouble
            return Reading(trouble=trouble, keyed=bool(bearer))
        return self.read(url, answer, convert, keyed=bool(bearer))

    async def ask_openly(self, url: str, convert: Callable[[object], T]) -> Reading[T]:
        """Ask without the key, and with it only where that is refused."""
        reading = await self.ask(url, convert)
        if self.key and reading.trouble and reading.trouble.reason in _KEY_WANTED:
            return await self.ask(url, convert, keyed=True)
        return reading

    def read(
        self, url: str, answer: http.Answer, convert: Callable[[object], T], *, keyed: bool = False
    ) -> Reading[T]:
        """What an answer means."""
        value = None
        trouble = _trouble(answer, self._path(url), keyed=keyed)
        if trouble is None and 200 <= answer.status < 300:  # noqa: PLR2004
            try:
                value = convert(parse(answer.body))
            except Malformed as error:
                trouble = Trouble(Reason.BAD_RESPONSE, f"{self._path(url)}: {error}")
        self.troubles.pop(url, None)
        if trouble:
            self.troubles[url] = trouble
        return Reading(value, answer.status, answer.server, trouble, keyed)

    def _path(self, url: str) -> str:
        """What people are shown of a URL: never its query or host."""
        return url.removeprefix(self.endpoint).split("?", 1)[0]


def is_loading(answer: http.Answer) -> bool:
    """llama.cpp answers every path so while it loads a model (b7710 to b11549, and before)."""
    return answer.status == 503 and b"loading model" in answer.body[:1000].lower()  # noqa: PLR2004


def _trouble(answer: http.Answer, path: str, *, keyed: bool) -> Trouble | None:
    """What a status says; None for a success, and for a path that is not there."""
    status = answer.status
    if is_loading(answer):
        return Trouble(Reason.LOADING, "the model is being loaded; wait for it")
    if answer.fault:
        return Trouble(answer.fault.reason, f"{path}: {answer.fault}", is_outage=True)
    if status == 401:  # noqa: PLR2004
        remedy = "the key is not accepted; check api_key" if keyed else "a key is needed; set api_key"
        return Trouble(Reason.UNAUTHORIZED, f"{path}: {remedy}")
    if status == 403:  # noqa: PLR2004
        remedy = "the key may not read this; use one with more rights"
        return Trouble(Reason.FORBIDDEN, f"{path}: {remedy if keyed else 'reading is forbidden'}")
    if status == 429:  # noqa: PLR2004
        return Trouble(Reason.RATE_LIMITED, f"{path}: asked too often; probe less", is_outage=True)
    if 300 <= status < 400:  # noqa: PLR2004
        return Trouble(Reason.BAD_RESPONSE, f"{path}: redirects elsewhere; use that as endpoint")
    if status >= 500 and status != 501:  # noqa: PLR2004  # llama.cpp's word for "switched off"
        return Trouble(Reason.BAD_RESPONSE, f"{path}: the server fails ({status})", is_outage=True)
    return None
