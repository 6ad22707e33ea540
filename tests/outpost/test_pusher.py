"""Pushing: soon after a change, one at a time, the newest state, and never what is not known."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from rig.mosquitto import eventually

from clusterllm_mqtt.errors import (
    RegistryRejectedError,
    RegistryRevokedError,
    RegistryUnavailableError,
)
from clusterllm_mqtt.models import Reason
from clusterllm_mqtt.outpost import RegistryModel
from clusterllm_mqtt.outpost.content import Content
from clusterllm_mqtt.outpost.push_plan import PushPlan
from clusterllm_mqtt.outpost.pusher import Pusher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

AWAY = RegistryUnavailableError(Reason.REFUSED, "away")
COALESCE_S = 0.05


def models(*names: str) -> Content:
    return Content(tuple(map(RegistryModel, names)))


class World:
    """The truth, a registry that records, and the pusher between them."""

    def __init__(self, plan: PushPlan | None = None) -> None:
        self.now: Content | None = models()
        self.lapse_s = 1000.0
        self.pushed: list[dict[str, Any]] = []
        self.answers: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.in_flight = 0
        self.told = 0
        self.pusher = Pusher(self, self, "home", told=self._tell, plan=plan, coalesce_s=COALESCE_S)

    def _tell(self) -> None:
        self.told += 1

    def content(self) -> Content | None:
        return self.now

    def lapses_in_s(self) -> float:
        return self.lapse_s

    async def push(self, payload: bytes) -> None:
        self.in_flight += 1
        assert self.in_flight == 1
        try:
            await self.gate.wait()
            if self.answers:
                raise self.answers.pop(0)
            self.pushed.append(json.loads(payload))
        finally:
            self.in_flight -= 1

    def become(self, content: Content | None) -> None:
        self.now = content
        self.pusher.changed()

    @property
    def names(self) -> list[list[str]]:
        return [[m["name"] for m in payload["models"]] for payload in self.pushed]


@asynccontextmanager
async def pushing(plan: PushPlan | None = None) -> AsyncIterator[World]:
    world = World(plan)
    task = asyncio.create_task(world.pusher.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_the_first_state_that_is_known_is_pushed() -> None:
    async with pushing() as world:
        world.become(None)
        await asyncio.sleep(4 * COALESCE_S)
        assert world.pushed == []
        world.become(models("m"))
        await eventually(lambda: world.names == [["m"]])
    assert world.pushed[0]["agent_name"] == "home"


async def test_changes_in_a_burst_are_one_push_of_the_newest_state() -> None:
    async with pushing() as world:
        await eventually(lambda: world.names == [[]])
        for number in range(100):
            world.become(models(f"m{number}"))
        await eventually(lambda: len(world.pushed) == 2)
        await asyncio.sleep(4 * COALESCE_S)
    assert world.names == [[], ["m99"]]


async def test_a_change_that_is_undone_is_no_push() -> None:
    async with pushing() as world:
        await eventually(lambda: world.names == [[]])
        world.become(models("m"))
        world.become(models())
        await asyncio.sleep(4 * COALESCE_S)
    assert world.names == [[]]


async def test_while_nothing_is_known_nothing_is_pushed_not_even_a_heartbeat() -> None:
    async with pushing(PushPlan(heartbeat_s=0.1)) as world:
        await eventually(lambda: len(world.pushed) == 1)
        world.become(None)
        await asyncio.sleep(COALESCE_S)
        count = len(world.pushed)
        await asyncio.sleep(0.3)
        assert len(world.pushed) == count


async def test_an_unchanged_state_has_its_heartbeat_with_a_new_time() -> None:
    async with pushing(PushPlan(heartbeat_s=0.1)) as world:
        await eventually(lambda: len(world.pushed) >= 3)
    assert len({payload["heartbeat_at"] for payload in world.pushed}) == len(world.pushed)
    assert len({payload["content_hash"] for payload in world.pushed}) == 1


async def test_what_lapses_by_itself_is_pushed_without_a_change_being_told() -> None:
    async with pushing() as world:
        world.now = models("m")
        world.lapse_s = 0.1
        await eventually(lambda: world.names == [["m"]])
        world.now = models()
        await eventually(lambda: world.names == [["m"], []])


async def test_a_change_during_a_push_is_pushed_after_it() -> None:
    async with pushing() as world:
        world.gate.clear()
        world.become(models("old"))
        await eventually(lambda: world.in_flight == 1)
        world.become(models("newer"))
        world.become(models("newest"))
        world.gate.set()
        await eventually(lambda: world.names == [["old"], ["newest"]])


async def test_while_the_registry_is_away_nothing_queues_and_nothing_is_lost() -> None:
    async with pushing(PushPlan(first_backoff_s=0.2)) as world:
        world.answers = [AWAY]
        world.become(models("old"))
        await eventually(lambda: world.pusher.history.error is AWAY)
        for number in range(10):
            world.become(models(f"m{number}"))
            await asyncio.sleep(0)
        await eventually(lambda: world.names == [["m9"]])
        assert world.pusher.history.error is None


async def test_a_change_does_not_shorten_the_back_off() -> None:
    async with pushing(PushPlan(first_backoff_s=30.0)) as world:
        world.answers = [AWAY]
        await eventually(lambda: world.pusher.history.error is AWAY)
        world.become(models("m"))
        await asyncio.sleep(4 * COALESCE_S)
        assert world.pushed == []


async def test_each_trouble_is_logged_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with pushing(PushPlan(first_backoff_s=0.01)) as world:
        world.answers = [AWAY, AWAY, AWAY]
        await eventually(lambda: world.names == [[]])
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
    assert caplog.messages[1] == "pushed: 0 models, no cluster"


async def test_a_rejection_is_remembered_with_its_reason() -> None:
    async with pushing() as world:
        world.answers = [RegistryRejectedError(Reason.FORBIDDEN, "host: HTTP 403")]
        await eventually(lambda: world.pusher.history.error is not None)
        assert world.told == 1
        assert world.pusher.history.pushes == 0


async def test_a_revoked_token_ends_it_and_is_told_before() -> None:
    world = World()
    world.answers = [RegistryRevokedError(Reason.UNAUTHORIZED, "host: HTTP 401")]
    with pytest.raises(RegistryRevokedError):
        await world.pusher.run()
    assert world.told == 1
    assert isinstance(world.pusher.history.error, RegistryRevokedError)


async def test_the_record_tells_what_was_pushed_and_when() -> None:
    async with pushing() as world:
        world.become(models("m"))
        await eventually(lambda: world.pusher.history.pushes == 1)
        record = world.pusher.history
    assert record.content == models("m")
    assert record.last_push_at is not None
    assert record.error is None
