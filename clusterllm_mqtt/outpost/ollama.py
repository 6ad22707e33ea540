"""Asks the Ollama beside an outpost which models it has, once; knows httpx.

One GET of the list, and for each digest that is new one POST that reads metadata; nothing is loaded
or woken. Models that Ollama's cloud serves are left out: this home does not have them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from clusterllm_mqtt.errors import HttpError, LocalModelsError, RecordError
from clusterllm_mqtt.http_client import MAX_BODY, exchange, new_request
from clusterllm_mqtt.outpost.ollama_models import read_show, read_tags, registry_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

    from clusterllm_mqtt.outpost.ollama_models import Details, Tag
    from clusterllm_mqtt.outpost.payload import RegistryModel

REQUEST_S: Final = 2.0
CALL_S: Final = 10.0
MAX_SHOWS: Final = 64
"""In one call; the next one goes on with the rest."""

_OK: Final = 200
_REDIRECT: Final = range(300, 400)


class Ollama:
    """One Ollama, by its base URL; requests go to this origin only, without any key.

    `request_s` is for one request with its answer, `call_s` for all of a call.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        *,
        request_s: float = REQUEST_S,
        call_s: float = CALL_S,
    ) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._request_s = request_s
        self._call_s = call_s
        self._details: dict[str, Details] = {}
        self._tries: Counter[str] = Counter()

    async def models(self) -> tuple[RegistryModel, ...]:
        """The models that are here now, by name; what a failed show would have told is unknown.

        Raises:
            LocalModelsError: there is no list; the text is for people.
        """
        ends_s = _now_s() + self._call_s
        tags = [tag for tag in await self._tags(ends_s) if not tag.is_remote]
        self._forget_all_but({tag.digest for tag in tags})
        await self._show_new(tags, ends_s)
        models = (registry_model(tag, self._details.get(tag.digest)) for tag in tags)
        return tuple(sorted(models, key=lambda model: model.name))

    async def _tags(self, ends_s: float) -> tuple[Tag, ...]:
        body = await self._answer("GET", "/api/tags", ends_s)
        try:
            return read_tags(body)
        except RecordError as error:
            raise self._error(f"{error}; is this an Ollama?") from None

    def _forget_all_but(self, digests: set[str]) -> None:
        self._details = {d: self._details[d] for d in digests & self._details.keys()}
        self._tries = Counter({d: self._tries[d] for d in digests & self._tries.keys()})

    async def _show_new(self, tags: Sequence[Tag], ends_s: float) -> None:
        """One after the other, the least tried first: shows that fail must not starve the rest."""
        names: dict[str, str] = {}
        for tag in tags:
            if tag.is_showable and tag.digest not in self._details:
                names.setdefault(tag.digest, tag.name)
        new = sorted(names, key=lambda digest: self._tries[digest])
        for digest in new[:MAX_SHOWS]:
            if _now_s() >= ends_s:
                break
            self._tries[digest] += 1
            question = json.dumps({"model": names[digest]}).encode()
            with suppress(LocalModelsError, RecordError):
                body = await self._answer("POST", "/api/show", ends_s, question)
                self._details[digest] = read_show(body)

    async def _answer(self, method: str, path: str, ends_s: float, payload: bytes = b"") -> bytes:
        """The body of a 200.

        Raises:
            LocalModelsError: anything else, or a body larger than `MAX_BODY`.
        """
        ends_s = min(ends_s, _now_s() + self._request_s)
        try:
            request = new_request(method, self._url + path, json=payload)
            reply = await exchange(self._client, request, ends_s, wants_body=_is_ok)
            if reply.fault is not None:
                raise reply.fault
        except HttpError as error:
            raise self._error(str(error)) from None
        status, body = reply.status, reply.body
        if status in _REDIRECT:
            remedy = "set outpost.ollama_url to where it really is; redirects are not followed"
            raise self._error(f"HTTP {status}; {remedy}")
        if status != _OK:
            raise self._error(f"HTTP {status}; is this an Ollama, and does it let us ask?")
        if len(body) >= MAX_BODY:
            raise self._error(f"its answer is larger than {MAX_BODY} bytes")
        return body

    def _error(self, text: str) -> LocalModelsError:
        host = urlsplit(self._url).netloc.rpartition("@")[2]
        return LocalModelsError(f"local models of {host}: {text}")


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_ok(status: int) -> bool:
    return status == _OK
