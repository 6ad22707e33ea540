"""When to probe: one loop per endpoint, measured on the monotonic clock -> `ProbeResult`.

The scheduler, and only it, knows time: interval, jitter, the quick second look after a failure,
and how many probes may be in flight. What a probe does is the prober's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol, Self

from clusterllm_mqtt.defaults import FAILURE_THRESHOLD, INTERVAL_S
from clusterllm_mqtt.models import Detection, Info, ProbeResult, Reason, Source, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from clusterllm_mqtt.models import Endpoint

REPROBE_S: Final = 1.0
MAX_IN_FLIGHT: Final = 16
JITTER: Final = 0.1
"""Each interval is this share longer or shorter, so that bridges do not march in step."""

_QUICK_S: Final = 1.0
_LOGGER = logging.getLogger(__name__)


class Prober(Protocol):
    """One look at one endpoint; never raises for what the endpoint does, bounds its own time."""

    async def probe(self) -> Detection:
        """Look now."""
        ...


class Clock(Protocol):
    """The scheduler's time, so that tests need not wait."""

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...

    def now(self) -> datetime:
        """UTC, for people."""
        ...

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        """Return when the event is set, at the latest after the time."""
        ...


class SystemClock:
    """The real time."""

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    def now(self) -> datetime:
        """UTC, for people."""
        return datetime.now(UTC)

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        """Return when the event is set, at the latest after the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()


class _Loop:
    """The loop of one endpoint; replaced as a whole when its address changes."""

    def __init__(self, endpoint: Endpoint, prober: Prober) -> None:
        self.endpoint = endpoint
        self.prober = prober
        self.wake = asyncio.Event()
        self.failures = 0
        self.is_trusted = endpoint.source is Source.CONFIGURED
        """Whether it may use every slot: it is ours, or it has answered quickly."""
        self.task: asyncio.Task[None] | None = None


class Scheduler:
    """Probes every watched endpoint; leave the context to end all loops.

    `interval_s` seconds between probes of one endpoint. Slow and unknown neighbours share half of
    the `max_in_flight` slots, so that they cannot delay the others.
    """

    def __init__(
        self,
        make_prober: Callable[[Endpoint], Prober],
        *,
        interval_s: float = INTERVAL_S,
        failure_threshold: int = FAILURE_THRESHOLD,
        max_in_flight: int = MAX_IN_FLIGHT,
        clock: Clock | None = None,
    ) -> None:
        self._make_prober = make_prober
        self._interval_s = interval_s
        self._failure_threshold = failure_threshold
        self._clock = clock or SystemClock()
        self._slots = asyncio.Semaphore(max_in_flight)
        self._slow_slots = asyncio.Semaphore(max(max_in_flight // 2, 1))
        self._results: asyncio.Queue[tuple[_Loop, ProbeResult]] = asyncio.Queue()
        self._loops: dict[str, _Loop] = {}
        self._random = random.Random()  # noqa: S311  # spreads load, guards nothing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [loop.task for loop in self._loops.values() if loop.task is not None]
        self._loops.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def watch(self, endpoint: Endpoint) -> None:
        """Probe an endpoint from now on; one that is watched already goes on undisturbed."""
        before = self._loops.get(endpoint.key)
        if before is not None and before.endpoint.config == endpoint.config:
            return
        self.unwatch(endpoint.key)
        loop = self._loops[endpoint.key] = _Loop(endpoint, self._make_prober(endpoint))
        loop.task = asyncio.create_task(self._run(loop), name=f"probe {endpoint.key}")

    def unwatch(self, key: str) -> None:
        """Stop probing an endpoint; a result that is under way is lost."""
        loop = self._loops.pop(key, None)
        if loop is not None and loop.task is not None:
            loop.task.cancel()

    @property
    def watched(self) -> frozenset[str]:
        """The keys of all loops."""
        return frozenset(self._loops)

    def probe_now(self, key: str | None = None) -> None:
        """Probe one endpoint, or all, without waiting for their turn."""
        for loop in self._loops.values() if key is None else filter(None, [self._loops.get(key)]):
            loop.wake.set()

    async def results(self) -> AsyncIterator[ProbeResult]:
        """Every probe of every watched endpoint, in the order in which they end."""
        while True:
            loop, result = await self._results.get()
            if self._loops.get(result.key) is loop:  # not replaced meanwhile: of this address
                yield result

    async def _run(self, loop: _Loop) -> None:
        due_s = self._clock.monotonic()
        pause_s = self._interval_s * self._random.random()  # spreads what started together
        while True:
            result = await self._probe(loop)
            self._results.put_nowait((loop, result))
            if result.detection.info.state is State.RUNNING:
                loop.failures = 0
            else:
                loop.failures += 1
            now_s = self._clock.monotonic()
            if 0 < loop.failures < self._failure_threshold:
                due_s, pause_s = now_s, REPROBE_S
            due_s += pause_s
            if due_s <= now_s:  # after a suspend one probe, not the backlog
                due_s = now_s + pause_s
            pause_s = self._interval_s * self._random.uniform(1 - JITTER, 1 + JITTER)
            await self._clock.wait(loop.wake, due_s - now_s)
            if loop.wake.is_set():
                loop.wake.clear()
                due_s = self._clock.monotonic()

    async def _probe(self, loop: _Loop) -> ProbeResult:
        async with self._slot(loop):
            started_s = self._clock.monotonic()
            try:
                detection = await loop.prober.probe()
            except Exception as error:  # one endpoint's bug must not end the others' loops
                _LOGGER.exception("%s: probe failed unexpectedly", loop.endpoint.key)
                info = Info(State.NOT_REACHABLE, endpoint=loop.endpoint.config.endpoint)
                detail = f"internal error: {type(error).__name__}"
                detection = Detection(info, Reason.BAD_RESPONSE, detail)
            ended_s = self._clock.monotonic()
        loop.is_trusted = ended_s - started_s < _QUICK_S
        return ProbeResult(
            key=loop.endpoint.key,
            detection=detection,
            probed_at=self._clock.now(),
            monotonic_s=ended_s,
            duration_s=ended_s - started_s,
        )

    @asynccontextmanager
    async def _slot(self, loop: _Loop) -> AsyncIterator[None]:
        if loop.is_trusted:
            async with self._slots:
                yield
        else:
            async with self._slow_slots, self._slots:
                yield
