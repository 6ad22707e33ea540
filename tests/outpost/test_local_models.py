"""Local models: looking again and again at an Ollama that comes and goes."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress

import pytest
from rig.mosquitto import eventually
from rig.stub import StubEndpoint

from clusterllm_mqtt.errors import LocalModelsError
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.outpost.local_models import LocalModels
from clusterllm_mqtt.outpost.ollama import Ollama
from clusterllm_mqtt.outpost.payload import RegistryModel

A, B = RegistryModel("a"), RegistryModel("b")
AWAY = LocalModelsError("local models of box:11434: away")
Look = tuple[RegistryModel, ...] | LocalModelsError


class Script:
    """An Ollama that gives these answers, then none; `told` is what was known at each change."""

    def __init__(self, *looks: Look) -> None:
        self._looks = list(looks)
        self.is_over = False
        self.told: list[tuple[tuple[RegistryModel, ...] | None, str]] = []
        self.local = LocalModels(self, self._changed, every_s=0.02, again_s=0.01)

    def _changed(self) -> None:
        self.told.append((self.local.models, self.local.trouble))

    async def models(self) -> tuple[RegistryModel, ...]:
        if not self._looks:
            self.is_over = True
            await asyncio.Event().wait()
        look = self._looks.pop(0)
        if isinstance(look, LocalModelsError):
            raise look
        return look

    async def play(self) -> LocalModels:
        task = asyncio.create_task(self.local.run())
        try:
            await eventually(lambda: self.is_over or task.done())
        finally:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return self.local


async def test_nothing_is_known_before_the_first_look() -> None:
    script = Script()
    local = await script.play()
    assert (local.models, local.trouble, script.told) == (None, "", [])


async def test_only_a_change_is_told() -> None:
    script = Script((A,), (A,), (A, B), (A, B), ())
    await script.play()
    assert script.told == [((A,), ""), ((A, B), ""), ((), "")]


async def test_no_models_are_news_at_first() -> None:
    script = Script((), ())
    await script.play()
    assert script.told == [((), "")]


async def test_one_failure_changes_nothing() -> None:
    script = Script((A,), AWAY, (A,), AWAY, (A,))
    await script.play()
    assert script.told == [((A,), "")]


async def test_the_second_failure_in_a_row_empties_the_list() -> None:
    script = Script((A,), AWAY, AWAY, AWAY, (A,))
    await script.play()
    assert script.told == [((A,), ""), ((), str(AWAY)), ((A,), "")]


async def test_who_was_never_there_is_known_to_be_away_after_two_looks() -> None:
    script = Script(AWAY)
    assert (await script.play()).models is None
    script = Script(AWAY, AWAY)
    await script.play()
    assert script.told == [((), str(AWAY))]


async def test_the_loss_of_an_empty_list_and_another_trouble_are_told() -> None:
    script = Script((), AWAY, AWAY, LocalModelsError("other"), ())
    await script.play()
    assert script.told == [((), ""), ((), str(AWAY)), ((), "other"), ((), "")]


async def test_loss_and_return_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="clusterllm_mqtt.outpost.local_models")
    other = LocalModelsError("other")
    await Script((A,), AWAY, (A,), AWAY, AWAY, other, AWAY, (A,), (A,), AWAY, other).play()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "local models of box:11434: away; pushing without them"),
        ("INFO", "local models: listed again"),
        ("WARNING", "other; pushing without them"),
    ]


async def test_the_pauses_after_failures_double_up_to_the_usual_one() -> None:
    script = Script(*[AWAY] * 50, (A,), AWAY)
    local = LocalModels(script, lambda: None)
    pauses = [await local._look() for _ in range(52)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert pauses[-3:] == [30, 30, 1]


async def test_a_server_that_goes_away_and_comes_back() -> None:
    tags = {"body": json.dumps({"models": [{"name": "a", "digest": "d"}]})}
    there = {"routes": {"/api/tags": tags, "/api/show": {"body": '{"capabilities":["tools"]}'}}}
    shown = RegistryModel("a", "d", capabilities=("tools",))
    async with StubEndpoint(there) as stub, new_client() as client:
        local = LocalModels(Ollama(client, stub.url), lambda: None, every_s=0.05, again_s=0.02)
        task = asyncio.create_task(local.run())
        await eventually(lambda: local.models == (shown,))
        stub.become({"default": {"status": 502}})
        await eventually(lambda: local.models == ())
        assert "HTTP 502" in local.trouble
        stub.become(there)
        await eventually(lambda: local.models == (shown,))
        assert local.trouble == ""
        assert {r.target for r in stub.requests} == {"/api/tags"}, "what was shown is remembered"
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
