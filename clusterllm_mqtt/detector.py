"""What runs behind a URL: `Config` -> `Info`.

A first look asks the drivers in order; what one of them found is remembered, so that the next looks
cost one or two GETs. A failure becomes a value here, with its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.drivers import DRIVERS
from clusterllm_mqtt.drivers.base import Finding, Look, Trouble
from clusterllm_mqtt.drivers.http import is_usable_url, new_client
from clusterllm_mqtt.drivers.json_reader import trim
from clusterllm_mqtt.endpoint_url import trim_endpoint
from clusterllm_mqtt.errors import ProbeError
from clusterllm_mqtt.models import BACKEND_GPUSTACK, Config, Detection, Info, Reason, State

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from clusterllm_mqtt.drivers.http import Answer

PROBE_DEADLINE_S: Final = 5.0
FULL_LOOK_EVERY_S: Final = 600.0
_PASSING: Final = frozenset({Reason.TIMEOUT, Reason.BAD_RESPONSE, Reason.RATE_LIMITED})
"""Troubles of a part of an answer that leave what was known before standing."""

_REFUSALS: Final = frozenset({Reason.UNAUTHORIZED, Reason.FORBIDDEN, Reason.RATE_LIMITED})
_UNKNOWN: Final = Trouble(
    Reason.BAD_RESPONSE, "something answers, but it is neither GPUStack nor llama.cpp"
)
_NO_URL: Final = "not a usable http or https URL"


def shard_endpoint(port: int) -> str:
    """The endpoint of a llama.cpp RPC leader on this machine."""
    return f"http://127.0.0.1:{port}"


async def detect(config: Config, client: httpx.AsyncClient | None = None) -> Info:
    """One look at an endpoint; never raises for what the endpoint is or does.

    At most 5 s. Without an endpoint nothing is asked.
    """
    detection = await Detector(config, client=client).probe()
    return detection.info


@dataclass(frozen=True, slots=True)
class _Remembered:
    """What the last full look found, and at which status of the alias path."""

    finding: Finding
    status: int
    at_s: float


class Detector:
    """Looks at one endpoint again and again.

    `info()` answers from a cache for `ttl` seconds; `probe()` always looks. Without a `client` each
    probe opens its own.
    """

    def __init__(
        self,
        config: Config,
        ttl: float = 30.0,
        client: httpx.AsyncClient | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._ttl = ttl
        self._client = client
        self._clock = clock
        self._endpoint = trim_endpoint(config.endpoint)
        self._backend = trim(config.backend)
        self._cached: tuple[float, Info] | None = None
        self._probing: asyncio.Task[Detection] | None = None
        self._remembered: _Remembered | None = None
        self._known: Detection | None = None

    async def info(self) -> Info:
        """What runs there, at most `ttl` seconds old; concurrent callers share one probe.

        A caller that is cancelled cancels nobody else's probe.
        """
        if self._cached is not None and self._clock() - self._cached[0] < self._ttl:
            return self._cached[1]
        if self._probing is None:
            self._probing = asyncio.create_task(self.probe(), name=f"detect {self._endpoint}")
            self._probing.add_done_callback(self._probed)
        detection = await asyncio.shield(self._probing)
        return detection.info

    def _probed(self, task: asyncio.Task[Detection]) -> None:
        self._probing = None
        if not task.cancelled() and task.exception() is None:
            self._cached = (self._clock(), task.result().info)

    async def probe(self) -> Detection:
        """Look now, for at most 5 s; never raises for what the endpoint is or does."""
        if not self._endpoint:
            return Detection(Info(State.UNCONFIGURED))
        if not is_usable_url(self._endpoint):
            return self._unreachable(Reason.BAD_RESPONSE, _NO_URL)
        if self._client is not None:
            return await self._probe(self._client)
        async with new_client() as client:
            return await self._probe(client)

    async def _probe(self, client: httpx.AsyncClient) -> Detection:
        try:
            finding = await self._look_again(client) or await self._look(client)
        except ProbeError as error:
            self._remembered = None
            return self._unreachable(error.reason, str(error))
        self._known = self._detection(finding)
        return self._known

    async def _look_again(self, client: httpx.AsyncClient) -> Finding | None:
        """The cheap look; None when a full one is due, or the answer changed its shape.

        Raises:
            ProbeError: no answer.
        """
        remembered = self._remembered
        if remembered is None or self._clock() - remembered.at_s > FULL_LOOK_EVERY_S:
            return None
        look = self._new_look(client)
        try:
            async with asyncio.timeout(PROBE_DEADLINE_S):
                if remembered.finding.again is not None:
                    return await remembered.finding.again(look)
                first = await look.knock()
        except TimeoutError:
            raise ProbeError(Reason.TIMEOUT, f"no answer within {PROBE_DEADLINE_S:.0f} s") from None
        return remembered.finding if first.status == remembered.status else None

    async def _look(self, client: httpx.AsyncClient) -> Finding:
        """The full look; whatever fails after the first answer leaves the endpoint running.

        Raises:
            ProbeError: no answer to the first question.
        """
        self._remembered = None
        deadline_s = asyncio.get_running_loop().time() + PROBE_DEADLINE_S
        first = await self._new_look(client).knock()
        finding = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                finding = await self._ask_drivers(client, first)
        finding = finding or Finding(self._label, trouble=_UNKNOWN, is_identified=False)
        if finding.trouble is None or finding.trouble.reason is not Reason.LOADING:
            self._remembered = _Remembered(finding, first.status, self._clock())
        return finding

    async def _ask_drivers(self, client: httpx.AsyncClient, first: Answer) -> Finding | None:
        """What the first driver finds that knows its own; else why nobody does."""
        troubles: list[Trouble] = []
        for driver in DRIVERS:
            look = self._new_look(client)
            finding = await driver(look, first)
            if finding is not None:
                return finding
            troubles += look.troubles
        refused = [t for t in troubles if t.reason in _REFUSALS]
        if not refused:
            return None
        return Finding(self._label, trouble=refused[0], is_identified=False)

    def _new_look(self, client: httpx.AsyncClient) -> Look:
        return Look(client, self._endpoint, trim(self._config.secret), self._backend)

    @property
    def _label(self) -> str:
        return self._backend or BACKEND_GPUSTACK

    def _unreachable(self, reason: Reason, detail: str) -> Detection:
        self._known = None
        info = Info(State.NOT_REACHABLE, backend=self._label, endpoint=self._endpoint)
        return Detection(info, reason, detail)

    def _detection(self, finding: Finding) -> Detection:
        info = Info(
            State.RUNNING,
            backend=finding.backend,
            endpoint=self._endpoint,
            version=finding.version,
            member_count=finding.member_count or 1,
            aggregate_vram_bytes=finding.aggregate_vram_bytes,
            models=finding.models,
        )
        trouble = finding.trouble
        if trouble is None:
            return Detection(info, None, finding.note, finding.is_identified)
        if self._known is not None and trouble.reason in _PASSING:
            info = _completed(info, finding, self._known.info)
        return Detection(info, trouble.reason, trouble.detail, finding.is_identified)


def _completed(info: Info, finding: Finding, known: Info) -> Info:
    """What a passing trouble withheld, from the look before."""
    if finding.is_identified and known.backend != info.backend:
        return info
    has_totals = bool(finding.member_count)
    return replace(
        info,
        backend=info.backend if finding.is_identified else known.backend,
        version=info.version or known.version,
        member_count=info.member_count if has_totals else known.member_count,
        aggregate_vram_bytes=(
            info.aggregate_vram_bytes if has_totals else known.aggregate_vram_bytes
        ),
        models=info.models or known.models,
    )
