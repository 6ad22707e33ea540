"""What a driver is: one function that looks at an endpoint and says what it found, or None.

Drivers are stateless and never sleep, retry or time themselves; the detector does. What a driver
must not do is in `docs/detection.md`: GET only, on the passive paths only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from clusterllm_mqtt.drivers import http, json_reader
from clusterllm_mqtt.errors import ProbeError
from clusterllm_mqtt.models import ModelInfo, Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx

T = TypeVar("T")

ALIAS: Final = "/v1-openai/models"
"""Asked first of every endpoint, without a key: any HTTP status proves that something lives."""

_NOT_THERE: Final = frozenset({404, 405, 410, 422, 501})
_SEVERITY: Final = (
    Reason.LOADING,
    Reason.UNAUTHORIZED,
    Reason.FORBIDDEN,
    Reason.RATE_LIMITED,
    Reason.TIMEOUT,
    Reason.REFUSED,
    Reason.DNS,
    Reason.TLS,
    Reason.BAD_RESPONSE,
)
_KEY_MAY_HELP: Final = frozenset({Reason.UNAUTHORIZED, Reason.FORBIDDEN})
_REFUSALS: Final = {
    401: (Reason.UNAUTHORIZED, "401 on {path}: {key}"),
    403: (Reason.FORBIDDEN, "403 on {path}: the key may not read this; use one with more rights"),
    429: (Reason.RATE_LIMITED, "429 on {path}: asked too often"),
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a part of an endpoint's answer is not known."""

    reason: Reason
    detail: str


@dataclass(slots=True)
class Look:
    """One look at one endpoint: what may be asked, and what went wrong on the way.

    `base` is the endpoint without trailing slashes, `key` "" when none may be sent, `backend` the
    configured label or "".
    """

    client: httpx.AsyncClient
    base: str
    key: str
    backend: str
    troubles: list[Trouble] = field(default_factory=list)

    async def knock(self) -> http.Answer:
        """Ask the alias path: who answers, lives.

        Raises:
            ProbeError: there was no answer.
        """
        return await http.get(self.client, self.base + ALIAS, wants_body=False)

    async def ask(
        self, url: str, convert: Callable[[object], T | None], *, keyed: bool = False
    ) -> T | None:
        """Ask a URL and convert its JSON; None, with the trouble noted, for a useless answer.

        Raises:
            ProbeError: there was no answer.
        """
        bearer = self.key if keyed else ""
        answer = await http.get(self.client, url, bearer=bearer)
        path = urlsplit(url).path
        if not answer.is_success:
            self._note_status(answer, path, has_key=bool(bearer))
            return None
        try:
            return convert(json_reader.parse(answer.body))
        except json_reader.Malformed as error:
            self.troubles.append(Trouble(Reason.BAD_RESPONSE, f"{path}: {error}"))
            return None

    async def read(
        self, url: str, convert: Callable[[object], T | None], *, keyed: bool = False
    ) -> T | None:
        """Like `ask`, for a part that may be missing: no answer is a trouble, too."""
        try:
            return await self.ask(url, convert, keyed=keyed)
        except ProbeError as error:
            self.troubles.append(Trouble(error.reason, f"{urlsplit(url).path}: {error}"))
            return None

    async def read_openly(
        self, url: str, convert: Callable[[object], T | None]
    ) -> tuple[T | None, bool]:
        """Read without the key, and with it where that is refused; whether the key was used."""
        before = len(self.troubles)
        found = await self.read(url, convert)
        refused = any(t.reason in _KEY_MAY_HELP for t in self.troubles[before:])
        if found is not None or not (self.key and refused):
            return found, False
        del self.troubles[before:]
        return await self.read(url, convert, keyed=True), True

    @property
    def worst_trouble(self) -> Trouble | None:
        """The one that a person should hear of first."""
        return min(self.troubles, key=lambda trouble: _SEVERITY.index(trouble.reason), default=None)

    def _note_status(self, answer: http.Answer, path: str, *, has_key: bool) -> None:
        if answer.status in _NOT_THERE:
            return
        if is_loading(answer):
            self.troubles.append(Trouble(Reason.LOADING, "the model is being loaded"))
            return
        key = "the key is not accepted" if has_key else "a key is needed; set api_key"
        default = (Reason.BAD_RESPONSE, "{status} on {path}")
        reason, sentence = _REFUSALS.get(answer.status, default)
        text = sentence.format(status=answer.status, path=path, key=key)
        self.troubles.append(Trouble(reason, text))


@dataclass(frozen=True, slots=True)
class Finding:
    """What a driver found; 0 and "" are unknown, a `member_count` of 0 the memory, too.

    `note` is for people. `is_identified` is False when only the configured label says what it is.
    `again` is the cheap look for the steady state: at most two GETs that prove life and read what
    changes. It gives None when the answer changed its shape, and raises `ProbeError` when there is
    none; both lead to a full look.
    """

    backend: str
    version: str = ""
    member_count: int = 0
    aggregate_vram_bytes: int = 0
    models: tuple[ModelInfo, ...] = ()
    trouble: Trouble | None = None
    note: str = ""
    is_identified: bool = True
    again: Callable[[Look], Awaitable[Finding | None]] | None = None


class Driver(Protocol):
    """One kind of backend."""

    async def __call__(self, look: Look, first: http.Answer) -> Finding | None:
        """Look; `first` is the answer of `ALIAS`. None: it is not mine."""
        ...


def is_loading(answer: http.Answer) -> bool:
    """llama.cpp answers every path so while it loads (seen in b7710 to b11549)."""
    if answer.status != 503:  # noqa: PLR2004
        return False
    try:
        error = json_reader.fields(json_reader.fields(json_reader.parse(answer.body)).get("error"))
        return json_reader.text(error, "message").startswith("Loading model")
    except json_reader.Malformed:
        return False
