"""The library's face: caching, sharing a probe, bad endpoints, and what is never told."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from rig.stub import StubEndpoint

from clusterllm_mqtt import BACKEND_LLAMACPP, Config, Detector, Info, State, detect, shard_endpoint
from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

LLAMACPP = {
    "routes": {
        "/props": {"body": '{"total_slots":4,"build_info":"b4567"}'},
        "/v1/models": {"body": '{"data":[{"id":"m","size":7}]}'},
    }
}


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # a stub's record has no event
            await asyncio.sleep(0.005)


def a_client_that_must_not_be_used() -> httpx.AsyncClient:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"asked {request.url}")

    return httpx.AsyncClient(transport=httpx.MockTransport(refuse))


def test_a_shard_is_on_this_machine() -> None:
    assert shard_endpoint(9931) == "http://127.0.0.1:9931"


async def test_one_shot_detection_tells_the_info() -> None:
    async with StubEndpoint(LLAMACPP) as stub:
        info = await detect(Config(stub.url + "/"))
    assert info.to_wire() == {
        "backend": "llamacpp",
        "state": "running",
        "endpoint": stub.url,
        "version": "b4567",
        "member_count": 1,
        "models": [{"name": "m", "size": 7}],
    }


@pytest.mark.parametrize("endpoint", ["", "  ", "///"])
async def test_without_an_endpoint_nothing_is_asked(endpoint: str) -> None:
    client = a_client_that_must_not_be_used()
    detector = Detector(Config(endpoint, api_key="sesame"), client=client)
    assert await detector.info() == Info(State.UNCONFIGURED)
    assert await detect(Config(endpoint), client) == Info(State.UNCONFIGURED)


@pytest.mark.parametrize(
    "endpoint",
    ["box:8080", "http://", "http://box/%zz", "http://box:99999", "http://box/?a=1", "ftp://box"],
)
async def test_a_bad_url_is_not_reachable_with_the_remedy_and_nothing_is_asked(
    endpoint: str,
) -> None:
    found = await Detector(Config(endpoint), client=a_client_that_must_not_be_used()).probe()
    assert found.info.state is State.NOT_REACHABLE
    assert found.info.backend == "gpustack"
    assert found.detail
    assert not found.identified


async def test_credentials_in_a_url_are_neither_sent_nor_told() -> None:
    detector = Detector(
        Config("http://me:hunter2@box:8080"), client=a_client_that_must_not_be_used()
    )
    found = await detector.probe()
    assert found.info.endpoint == "http://box:8080"
    assert "api_key" in found.detail
    assert "hunter2" not in repr(found)


async def test_the_key_is_in_no_representation() -> None:
    async with StubEndpoint({"default": {"status": 401}}) as stub:
        config = Config(stub.url, api_key="hunter2")
        found = await Detector(config).probe()
    assert "hunter2" not in repr((config, found))


@pytest.mark.parametrize("key", ["a\x00b", "a\r\nX-Y: z", "sesame\n"])
async def test_a_key_with_a_control_character_is_not_sent_and_that_is_told(key: str) -> None:
    async with StubEndpoint({"default": {"status": 401}}) as stub:
        found = await Detector(Config(stub.url, api_key=key)).probe()
    assert found.reason is Reason.UNAUTHORIZED
    assert "control character" in found.detail
    assert all(request.authorization is None for request in stub.requests)


async def test_a_key_may_have_any_letters_and_loses_the_spaces_around_it() -> None:
    on_the_wire = "schlüssel".encode().decode("latin-1")
    routes = {"/v2/gpu-devices": {"body": '{"items":[]}', "require_bearer": on_the_wire}}
    async with StubEndpoint({"routes": routes}) as stub:
        found = await Detector(Config(stub.url, api_key=" schlüssel ")).probe()
    assert found.identified


async def test_info_is_cached_for_its_ttl_from_the_end_of_the_probe() -> None:
    clock = Clock()
    async with StubEndpoint(LLAMACPP) as stub:
        detector = Detector(Config(stub.url), ttl=30, clock=clock)
        first = await detector.info()
        stub.requests.clear()
        clock.now_s += 29.9
        assert await detector.info() is first
        assert stub.requests == []
        clock.now_s += 0.1
        assert await detector.info() == first
        assert stub.requests != []


async def test_a_probe_always_looks_and_refreshes_the_cache() -> None:
    async with StubEndpoint(LLAMACPP) as stub:
        detector = Detector(Config(stub.url))
        await detector.info()
        stub.become({"default": {"close": "reset"}})
        assert (await detector.probe()).info.state is State.NOT_REACHABLE
        assert (await detector.info()).state is State.NOT_REACHABLE


async def test_concurrent_callers_share_one_probe() -> None:
    slow = {"routes": {"/v1-openai/models": {"status": 404, "delay_s": 0.1}}}
    async with StubEndpoint(slow) as stub:
        detector = Detector(Config(stub.url))
        infos = await asyncio.gather(*(detector.info() for _ in range(20)), detector.probe())
        assert len({info for info in infos if isinstance(info, Info)}) == 1
        knocks = [r for r in stub.requests if r.path == "/v1-openai/models"]
    assert len(knocks) == 1


async def test_a_cancelled_caller_cancels_nobody_elses_probe() -> None:
    slow = {"routes": {"/v1-openai/models": {"status": 404, "delay_s": 0.2}}}
    async with StubEndpoint(slow) as stub:
        detector = Detector(Config(stub.url))
        hasty = asyncio.create_task(detector.info())
        patient = asyncio.create_task(detector.info())
        await eventually(lambda: stub.requests)
        hasty.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hasty
        assert (await patient).state is State.RUNNING


async def test_when_the_last_caller_is_cancelled_the_probe_ends_and_is_not_remembered() -> None:
    async with StubEndpoint({"default": {"hang": True}}) as stub:
        detector = Detector(Config(stub.url))
        caller = asyncio.create_task(detector.info())
        await eventually(lambda: stub.requests)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        stub.become(LLAMACPP)
        assert (await detector.info()).backend == BACKEND_LLAMACPP


async def test_a_slow_probe_blocks_nobody_who_can_be_served_from_the_cache() -> None:
    async with StubEndpoint(LLAMACPP) as stub:
        detector = Detector(Config(stub.url))
        cached = await detector.info()
        stub.become({"default": {"hang": True}})
        probing = asyncio.create_task(detector.probe())
        await eventually(lambda: stub.requests)
        started = time.monotonic()
        assert await detector.info() is cached
        assert time.monotonic() - started < 0.1
        probing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probing


async def test_the_label_is_told_of_what_is_not_reachable_or_not_known() -> None:
    closed = {"accept": "closed"}
    async with StubEndpoint(closed) as stub:
        assert (await detect(Config(stub.url, backend=" mine "))).backend == "mine"
        assert (await detect(Config(stub.url))).backend == "gpustack"
    async with StubEndpoint() as stub:
        labelled = await Detector(Config(stub.url, backend="mine")).probe()
        unlabelled = await Detector(Config(stub.url)).probe()
    assert (labelled.info.backend, labelled.reason, labelled.identified) == ("mine", None, False)
    assert unlabelled.reason is Reason.BAD_RESPONSE
    assert "check the URL" in unlabelled.detail


async def test_the_label_llamacpp_stays_on_another_servers_models() -> None:
    routes = {"/v1/models": {"body": '{"data":[{"id":"m","owned_by":"vllm"}]}'}}
    async with StubEndpoint({"routes": routes}) as stub:
        found = await Detector(Config(stub.url, backend="llamacpp")).probe()
    assert (found.info.backend, found.identified) == ("llamacpp", False)
    assert [model.name for model in found.info.models] == ["m"]


async def test_a_key_that_nobody_accepts_is_told_as_such() -> None:
    async with StubEndpoint({"default": {"status": 401}}) as stub:
        detection = await Detector(Config(stub.url, "wrong")).probe()
    assert detection.reason is Reason.UNAUTHORIZED
    assert "the key is not accepted; check api_key" in detection.detail
