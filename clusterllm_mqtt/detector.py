"""What runs behind a URL: `Config` -> `Info`.

A full look asks the drivers in order. What one of them found is remembered, so that the next looks
cost one or two GETs. A failure becomes a value here, with its reason.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.drivers import DRIVERS
from clusterllm_mqtt.drivers.base import Facet, Finding
from clusterllm_mqtt.drivers.look import ALIAS, Look
from clusterllm_mqtt.drivers.trouble import Trouble, worst
from clusterllm_mqtt.endpoint_url import check_endpoint_url, trim_endpoint, without_credentials
from clusterllm_mqtt.errors import ConfigError, HttpError
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.models import (
    BACKEND_GPUSTACK,
    BACKEND_LLAMACPP,
    Config,
    Detection,
    Info,
    Reason,
    State,
)
from clusterllm_mqtt.text import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

FULL_LOOK_EVERY_S: Final = 600.0

_NOBODY: Final = Trouble(
    Reason.BAD_RESPONSE,
    "something answers, but not as GPUStack, llama.cpp or OpenAI; check the URL",
)
_BAD_KEY: Final = Trouble(
    Reason.UNAUTHORIZED, "the key has a control character and is not sent; check api_key"
)


def shard_endpoint(port: int) -> str:
    """The endpoint of a llama.cpp RPC leader on this machine."""
    return f"http://127.0.0.1:{port}"


async def detect(config: Config, client: httpx.AsyncClient | None = None) -> Info:
    """One look at an endpoint, for at most 5 s; never raises for what the endpoint is or does.

    Without an endpoint nothing is asked.
    """
    return (await Detector(config, client=client).probe()).info


class Detector:
    """Looks at one endpoint again and again.

    `info()` answers from a cache for `ttl` seconds; `probe()` always looks. Without a `client` each
    probe opens one of its own. `clock` gives monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        ttl: float = 30.0,
        client: httpx.AsyncClient | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configured = config.endpoint
        self._endpoint = trim_endpoint(config.endpoint)
        self._label = config.backend.strip(WHITE_SPACE)
        self._key = config.secret.strip(" ") if config.secret.strip(WHITE_SPACE) else ""
        self._ttl = ttl
        self._client = client
        self._clock = clock
        self._probing: asyncio.Task[Detection] | None = None
        self._waiting = 0
        self._cached: tuple[float, Info] | None = None
        self._known: Finding | None = None
        self._full_look_due_s = 0.0

    @cached_property
    def _checked_endpoint(self) -> str:
        return check_endpoint_url(self._configured)

    async def info(self) -> Info:
        """What runs there, at most `ttl` seconds old."""
        if self._cached is not None and self._clock() - self._cached[0] < self._ttl:
            return self._cached[1]
        return (await self.probe()).info

    async def probe(self) -> Detection:
        """Look now, for at most 5 s; never raises for what the endpoint is or does.

        Concurrent callers share one look; one that is cancelled cancels it for nobody else.
        """
        if not self._endpoint:
            return Detection(Info(State.UNCONFIGURED))
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(), name="look at an endpoint")
        probing = self._probing
        self._waiting += 1
        try:
            return await asyncio.shield(probing)
        finally:
            self._waiting -= 1
            if not self._waiting and not probing.done():
                probing.cancel()
                self._probing = None

    async def _probe(self) -> Detection:
        try:
            endpoint = self._checked_endpoint
        except ConfigError as error:
            return self._unreachable(None, str(error))
        async with nullcontext(self._client) if self._client else new_client() as client:
            key = self._key if self._key.isprintable() else ""
            look = Look(client, endpoint, key=key, label=self._label)
            detection = await self._look(look)
        self._cached = self._clock(), detection.info
        return detection

    async def _look(self, look: Look) -> Detection:
        """The cheap look if it will do, else the full one."""
        known = self._known
        finding = None
        if known and known.look_again and self._clock() < self._full_look_due_s:
            finding = await known.look_again(look)
        if finding is None:
            try:
                finding = await self._full_look(look)
            except HttpError as error:
                self._known = None
                return self._unreachable(error.reason, f"{ALIAS}: {error}")
            self._full_look_due_s = self._clock() + FULL_LOOK_EVERY_S
        self._known = finding.completed_by(known) if known else finding
        return self._running(self._known)

    async def _full_look(self, look: Look) -> Finding:
        """What the first driver finds that knows its own.

        Raises:
            HttpError: nobody answered.
        """
        first = await look.knock()
        for driver in DRIVERS:
            finding = await driver(look, first)
            if finding is not None:
                return self._labelled(finding)
        return self._unidentified(look)

    def _labelled(self, finding: Finding) -> Finding:
        """`llamacpp` as a label stays, whatever is found; any other gives way."""
        if self._label != BACKEND_LLAMACPP or finding.backend == BACKEND_LLAMACPP:
            return finding
        return replace(finding, backend=BACKEND_LLAMACPP, is_identified=False, look_again=None)

    def _unidentified(self, look: Look) -> Finding:
        is_outage = any(trouble.is_outage for trouble in look.troubles.values())
        is_unknown = self._label in {"", BACKEND_GPUSTACK, BACKEND_LLAMACPP}
        return Finding(
            self._label or BACKEND_GPUSTACK,
            trouble=worst(look.troubles.values()) or (_NOBODY if is_unknown else None),
            missing=frozenset(Facet) if is_outage else frozenset(),
            is_identified=False,
        )

    def _unreachable(self, reason: Reason | None, detail: str) -> Detection:
        info = Info(
            State.NOT_REACHABLE,
            backend=self._label or BACKEND_GPUSTACK,
            endpoint=without_credentials(self._endpoint),
        )
        return Detection(info, reason, detail)

    def _running(self, finding: Finding) -> Detection:
        trouble = finding.trouble
        if trouble and trouble.reason is Reason.UNAUTHORIZED and not self._key.isprintable():
            trouble = _BAD_KEY
        info = Info(
            State.RUNNING,
            backend=finding.backend,
            endpoint=self._endpoint,
            version=finding.version,
            member_count=finding.member_count,
            aggregate_vram_bytes=finding.aggregate_vram_bytes,
            models=finding.models,
        )
        if trouble is None:
            return Detection(info, None, finding.note, finding.is_identified)
        return Detection(info, trouble.reason, trouble.detail, finding.is_identified)
