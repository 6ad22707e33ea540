"""A real llama.cpp server: what it is taken for in each of its states, and left alone in all."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from rig.llamacpp import LlamaServer, llama_server
from rig.passive import LLAMACPP, offences
from rig.recorder import recording_client

from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.models import Config, Detection, ModelInfo, Reason, State

if TYPE_CHECKING:
    from pathlib import Path

KEY = "sk-test"


async def look(server: LlamaServer, **config: str) -> Detection:
    return await Detector(Config(server.url, **config)).probe()


async def is_asleep(server: LlamaServer) -> bool:
    async with httpx.AsyncClient(trust_env=False) as client:
        props = (await client.get(f"{server.url}/props")).json()
    return bool(props["is_sleeping"])


async def test_a_plain_server_tells_its_model_and_costs_one_get_from_then_on(
    tiny_model: Path,
) -> None:
    async with llama_server(tiny_model) as server, recording_client() as recorder:
        detector = Detector(Config(server.url), client=recorder.client)
        found = await detector.probe()
        first = recorder.paths.copy()
        again = await detector.probe()
    assert found.info.backend == "llamacpp"
    assert found.info.member_count == 1
    assert found.info.version
    assert found.info.models == (ModelInfo(str(tiny_model), 78464),)
    assert (found.reason, found.identified) == (None, True)
    assert first == ["/v1-openai/models", "/props", "/v1/models"]
    assert again == found
    assert recorder.paths[len(first) :] == ["/v1/models"]


async def test_a_server_with_a_key_says_so_and_opens_to_it(tiny_model: Path) -> None:
    async with llama_server(tiny_model, api_keys=[KEY]) as server:
        without = await look(server)
        wrong = await look(server, api_key="nope")
        right = await look(server, api_key=KEY)
    for refused in (without, wrong):
        assert refused.info.state is State.RUNNING
        assert refused.info.backend == "llamacpp"
        assert refused.reason is Reason.UNAUTHORIZED
        assert refused.info.models == ()
    assert "set api_key" in without.detail
    assert "check api_key" in wrong.detail
    assert right.reason is None
    assert right.info.version
    assert right.info.models == (ModelInfo(str(tiny_model), 78464),)


async def test_a_server_below_a_prefix_is_found_there_and_its_place_is_told_above(
    tiny_model: Path,
) -> None:
    async with llama_server(tiny_model, api_prefix="/llm") as server:
        below = await look(server)
        above = await Detector(Config(server.url.removesuffix("/llm"))).probe()
    assert below.info.models == (ModelInfo(str(tiny_model), 78464),)
    assert above.info.backend == "llamacpp"
    assert above.reason is Reason.BAD_RESPONSE
    assert "--api-prefix" in above.detail


async def test_a_server_is_loading_and_then_running(slow_model: Path) -> None:
    async with llama_server(slow_model, wait_until="open") as server:
        detector = Detector(Config(server.url))
        first = found = await detector.probe()
        deadline = time.monotonic() + 20
        while found.reason is Reason.LOADING and time.monotonic() < deadline:
            found = await detector.probe()
    assert (first.info.state, first.info.backend) == (State.RUNNING, "llamacpp")
    assert first.reason is Reason.LOADING
    assert first.info.models == ()
    assert found.reason is None
    assert found.info.models[0].name == str(slow_model)


async def test_a_killed_server_is_refused_and_back_one_probe_after_it_returned(
    tiny_model: Path,
) -> None:
    async with llama_server(tiny_model) as server:
        detector = Detector(Config(server.url))
        before = await detector.probe()
        server.kill()
        gone = await detector.probe()
        async with llama_server(tiny_model, port=server.port):
            back = await detector.probe()
    assert (gone.info.state, gone.reason) == (State.NOT_REACHABLE, Reason.REFUSED)
    assert back == before


async def test_a_server_that_hangs_is_a_timeout_within_the_deadline(tiny_model: Path) -> None:
    async with llama_server(tiny_model) as server:
        detector = Detector(Config(server.url))
        await detector.probe()
        server.pause()
        started = time.monotonic()
        hung = await detector.probe()
        took_s = time.monotonic() - started
    assert (hung.info.state, hung.reason) == (State.NOT_REACHABLE, Reason.TIMEOUT)
    assert took_s < 5.5


@pytest.mark.parametrize("key", ["", KEY], ids=["open", "keyed"])
async def test_a_model_falls_asleep_while_it_is_probed_and_stays_asleep(
    tiny_model: Path, key: str
) -> None:
    """`sleep_idle_seconds` counts from the last request that keeps a model awake; ours must not."""
    async with (
        llama_server(tiny_model, sleep_idle_seconds=1) as server,
        recording_client() as recorder,
    ):
        config = Config(server.url, api_key=key)
        detector = Detector(config, client=recorder.client)
        deadline = time.monotonic() + 10
        while not await is_asleep(server) and time.monotonic() < deadline:
            await detector.probe()
            await asyncio.sleep(0.1)
        assert await is_asleep(server), "probing kept the model awake"
        for _ in range(10):
            await detector.probe()
            await Detector(config, client=recorder.client).probe()
        assert await is_asleep(server), "probing woke the model"
        found = await detector.probe()
    assert found.info.models == (ModelInfo(str(tiny_model), 78464),)
    assert offences(recorder.requests, key=key) == []
    asked = {path for path in recorder.paths if path not in LLAMACPP}
    assert asked == {"/v1-openai/models"}
