"""Bounded GETs.

GET only, 2 s each with redirects and body, at most 1 MiB after decompression. A redirect to another
origin is not followed, it is the answer: so a key never leaves its origin.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.errors import HttpError
from clusterllm_mqtt.http_client import exchange, new_request

if TYPE_CHECKING:
    import httpx

REQUEST_S: Final = 2.0
MAX_REQUESTS: Final = 10
"""For one GET, its redirects included."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a GET brought; the status proves life, whatever became of the body.

    `url` is where it came from in the end, `server` the Server header in lower case; `fault` says
    why `body` is missing.
    """

    url: str
    status: int
    server: str
    body: bytes = b""
    fault: HttpError | None = None


async def get(
    client: httpx.AsyncClient, url: str, *, bearer: str = "", deadline_s: float = float("inf")
) -> Answer:
    """One GET, redirects within the origin followed; a redirect that cannot be is the answer.

    `deadline_s` is a time of the event loop; the GET ends then, at the latest 2 s from now.

    Raises:
        HttpError: no status line in time; `reason` says why.
    """
    ends_s = min(asyncio.get_running_loop().time() + REQUEST_S, deadline_s)
    answer, target = await _exchange(client, url, bearer, ends_s)
    for _ in range(MAX_REQUESTS - 1):
        if target is None:
            break
        try:
            answer, target = await _exchange(client, target, bearer, ends_s)
        except HttpError as error:  # the redirect itself was an answer already
            return replace(answer, fault=error)
    return answer


async def _exchange(
    client: httpx.AsyncClient, url: str, bearer: str, ends_s: float
) -> tuple[Answer, str | None]:
    """One request: its answer, and where a redirect leads within the origin."""
    reply = await exchange(client, new_request("GET", url, bearer=bearer), ends_s)
    server = reply.headers.get("server", "").lower()
    return Answer(url, reply.status, server, reply.body, reply.fault), reply.redirect
