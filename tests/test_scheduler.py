"""When probes happen; no test waits in real time."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from rig.samples import browsed, configured

from clusterllm_mqtt.models import Config, Detection, Endpoint, Info, ProbeResult, Reason, State
from clusterllm_mqtt.scheduler import Scheduler, SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@dataclass
class FakeClock:
    """Time that passes only when every loop sleeps."""

    time_s: float = 0.0
    sleepers: list[tuple[float, asyncio.Event, asyncio.Future[None]]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.time_s

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time_s)

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        timer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.time_s + timeout_s, event, timer))
        waiter = asyncio.ensure_future(event.wait())
        either: set[asyncio.Future[Any]] = {timer, waiter}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()

    async def sleep(self, seconds: float) -> None:
        await self.wait(asyncio.Event(), seconds)

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking whoever is due, in order."""
        end_s = self.time_s + seconds
        await settle()
        while due := [s for s in self.sleepers if s[0] <= end_s and not s[2].done()]:
            first = min(due, key=lambda s: s[0])
            self.time_s = max(self.time_s, first[0])
            self.sleepers.remove(first)
            first[2].set_result(None)
            await settle()
        self.time_s = end_s


async def settle() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


@dataclass
class FakeProber:
    """Answers from a list; the last answer repeats."""

    clock: FakeClock
    endpoint: Endpoint
    answers: deque[State | Exception] = field(default_factory=lambda: deque([State.RUNNING]))
    takes_s: float = 0.0
    probed_at_s: list[float] = field(default_factory=list)

    async def probe(self) -> Detection:
        self.probed_at_s.append(self.clock.time_s)
        if self.takes_s:
            await self.clock.sleep(self.takes_s)
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return Detection(Info(answer, endpoint=self.endpoint.config.endpoint))


class Rig:
    """A scheduler, its clock and its probers."""

    def __init__(self, **options: float) -> None:
        self.clock = FakeClock()
        self.probers: dict[str, FakeProber] = {}
        self.prepare: Callable[[FakeProber], None] = lambda _: None
        self.scheduler = Scheduler(self._make, clock=self.clock, **options)  # type: ignore[arg-type]
        self.results: list[ProbeResult] = []

    def _make(self, endpoint: Endpoint) -> FakeProber:
        prober = FakeProber(self.clock, endpoint)
        self.prepare(prober)
        self.probers[endpoint.name] = prober
        return prober

    async def collect(self) -> None:
        async for result in self.scheduler.results():
            self.results.append(result)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    async with rig.scheduler:
        task = asyncio.create_task(rig.collect())
        yield rig
        task.cancel()


async def test_the_first_probe_is_at_once_and_the_rest_at_the_interval(rig: Rig) -> None:
    rig.scheduler.watch(configured())
    await rig.clock.advance(0)
    assert len(rig.results) == 1
    await rig.clock.advance(151)
    times = rig.probers["box"].probed_at_s
    gaps = [b - a for a, b in pairwise(times[1:])]
    assert 8 <= len(gaps) <= 11  # the second probe is anywhere in the first interval
    assert all(13.5 <= gap <= 16.5 for gap in gaps)


async def test_endpoints_that_start_together_do_not_stay_together(rig: Rig) -> None:
    for number in range(30):
        rig.scheduler.watch(configured(f"box{number}", f"http://10.0.0.{number}:1"))
    await rig.clock.advance(20)
    second = sorted(p.probed_at_s[1] for p in rig.probers.values())
    assert second[-1] - second[0] > 5


async def test_a_failure_is_looked_at_again_after_a_second_then_at_the_interval(rig: Rig) -> None:
    rig.prepare = lambda p: setattr(p, "answers", deque([State.NOT_REACHABLE]))
    rig.scheduler.watch(configured())
    await rig.clock.advance(40)
    times = rig.probers["box"].probed_at_s
    assert times[1] - times[0] == pytest.approx(1)
    assert all(b - a >= 13.5 for a, b in pairwise(times[1:]))


async def test_not_reachable_is_known_within_interval_two_timeouts_and_a_second() -> None:
    rig = Rig(interval_s=15)
    async with rig.scheduler:
        task = asyncio.create_task(rig.collect())
        rig.scheduler.watch(configured())
        await rig.clock.advance(60)
        prober = rig.probers["box"]
        prober.answers, prober.takes_s = deque([State.NOT_REACHABLE]), 2.0
        killed_s = rig.clock.time_s
        await rig.clock.advance(40)
        failures = [r for r in rig.results if r.detection.info.state is State.NOT_REACHABLE]
        assert failures[1].monotonic_s - killed_s <= 16.5 + 2 * 2 + 1
        task.cancel()


async def test_after_a_suspend_one_probe_not_the_backlog(rig: Rig) -> None:
    rig.scheduler.watch(configured())
    await rig.clock.advance(20)
    before = len(rig.results)
    rig.clock.time_s += 3600
    await rig.clock.advance(1)
    assert len(rig.results) == before + 1


async def test_probe_now_does_not_wait_for_the_turn(rig: Rig) -> None:
    rig.scheduler.watch(configured("a", "http://10.0.0.1:1"))
    rig.scheduler.watch(configured("b", "http://10.0.0.2:1"))
    await rig.clock.advance(0)
    rig.scheduler.probe_now(configured("a").key)
    rig.scheduler.probe_now("unknown")
    await settle()
    assert [len(rig.probers[n].probed_at_s) for n in "ab"] == [2, 1]
    rig.scheduler.probe_now()
    await settle()
    assert [len(rig.probers[n].probed_at_s) for n in "ab"] == [3, 2]


async def test_a_new_address_is_probed_at_once_an_unchanged_one_goes_on(rig: Rig) -> None:
    rig.scheduler.watch(browsed())
    await rig.clock.advance(0)
    rig.scheduler.watch(browsed())
    await settle()
    assert len(rig.results) == 1
    rig.scheduler.watch(browsed(url="http://10.0.0.1:1"))
    await settle()
    assert rig.results[-1].detection.info.endpoint == "http://10.0.0.1:1"
    assert rig.scheduler.watched == {browsed().key}


async def test_what_is_no_longer_watched_brings_no_result(rig: Rig) -> None:
    rig.prepare = lambda p: setattr(p, "takes_s", 2.0)
    rig.scheduler.watch(configured())
    await rig.clock.advance(1)
    rig.scheduler.unwatch(configured().key)
    rig.scheduler.unwatch(configured().key)
    await rig.clock.advance(60)
    assert rig.results == []


async def test_a_bug_in_one_prober_is_a_failure_of_that_endpoint_only(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.prepare = lambda p: setattr(p, "answers", deque([ZeroDivisionError("x")]))
    rig.scheduler.watch(configured())
    await rig.clock.advance(0)
    [result] = rig.results
    assert result.detection.reason is Reason.BAD_RESPONSE
    assert "ZeroDivisionError" in result.detection.detail
    assert "probe failed unexpectedly" in caplog.text


async def test_slow_neighbours_leave_half_of_the_slots_to_the_others() -> None:
    rig = Rig(max_in_flight=4)
    rig.prepare = lambda p: setattr(p, "takes_s", 5.0 if "slow" in p.endpoint.name else 0.0)
    async with rig.scheduler:
        task = asyncio.create_task(rig.collect())
        rig.scheduler.watch(configured("good", "http://10.0.1.1:1"))
        for number in range(40):
            rig.scheduler.watch(browsed(f"slow{number}", f"http://10.0.0.{number}:1"))
        await rig.clock.advance(300)
        times = rig.probers["good"].probed_at_s
        assert all(b - a <= 16.6 for a, b in pairwise(times))
        task.cancel()


async def test_never_more_in_flight_than_allowed() -> None:
    rig = Rig(max_in_flight=3)
    rig.prepare = lambda p: setattr(p, "takes_s", 1.0)
    async with rig.scheduler:
        for number in range(9):
            rig.scheduler.watch(configured(f"box{number}", f"http://10.0.0.{number}:1"))
        await rig.clock.advance(0.5)
        assert sum(bool(p.probed_at_s) for p in rig.probers.values()) == 3


async def test_the_system_clock_waits_for_an_event_or_the_time() -> None:
    clock = SystemClock()
    event = asyncio.Event()
    started_s = clock.monotonic()
    await clock.wait(event, 0.01)
    assert clock.monotonic() - started_s >= 0.009
    event.set()
    await clock.wait(event, 60)
    assert clock.monotonic() - started_s < 5
    assert clock.now().tzinfo is UTC


def test_a_config_is_what_decides_whether_a_loop_starts_anew() -> None:
    assert Config("http://a", "key") == Config("http://a", "key")
