"""What a detector remembers: when two GETs do, when all is looked at anew, and what survives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from rig.stub import StubEndpoint

from clusterllm_mqtt.detector import FULL_LOOK_EVERY_S, Detector
from clusterllm_mqtt.models import Config, ModelInfo, Reason, State

if TYPE_CHECKING:
    from rig.replies import Reply

KEY = "sesame"
GIB = 2**30
PAGE = "?perPage=100&page=1"


def ok(document: object) -> Reply:
    return {"body": json.dumps(document)}


def gpustack(**changed: Reply) -> dict[str, Any]:
    """A GPUStack of one ready worker with two devices; `changed` replaces whole answers."""
    answers = {
        "version": ok({"version": "v2.3.0", "git_commit": "63a03ba"}),
        "devices": ok({"items": [device("gpu-0"), device("gpu-1")]}),
        "workers": ok({"items": [{"id": 1, "name": "box", "state": "ready"}]}),
        "models": ok({"data": [{"id": "qwen"}]}),
    } | changed
    return {
        "routes": {
            "/version": answers["version"],
            "/v2/gpu-devices": answers["devices"],
            "/v2/workers": answers["workers"],
            "/v1-openai/models": answers["models"] | {"require_bearer": KEY},
        }
    }


def device(name: str, worker: int = 1) -> dict[str, Any]:
    return {"id": name, "worker_id": worker, "worker_name": "box", "memory": {"total": 24 * GIB}}


def llamacpp(names: list[str], build: str = "b1") -> dict[str, Any]:
    return {
        "routes": {
            "/props": ok({"build_info": build, "total_slots": 1}),
            "/v1/models": ok({"data": [{"id": name, "size": 7} for name in names]}),
        }
    }


def of_gpustack(stub: StubEndpoint) -> Detector:
    return Detector(Config(stub.url, api_key=KEY))


async def look_twice(before: dict[str, Any], after: dict[str, Any]) -> tuple[Any, Any]:
    """What is found before and after; two cycles see every part of this GPUStack."""
    async with StubEndpoint(before) as stub:
        detector = of_gpustack(stub)
        first = await detector.probe()
        stub.become(after)
        await detector.probe()
        second = await detector.probe()
        for _ in range(3):
            again = await detector.probe()
            assert (again.info, again.reason) == (second.info, second.reason), "it stays so"
    return first, second


@pytest.mark.parametrize("part", ["devices", "workers", "models"])
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"status": 500}, Reason.BAD_RESPONSE),
        ({"status": 429}, Reason.RATE_LIMITED),
        ({"body": "<html>"}, Reason.BAD_RESPONSE),
        ({"body": '{"items":4,"data":4}'}, Reason.BAD_RESPONSE),
        ({"close": "reset"}, Reason.BAD_RESPONSE),
    ],
    ids=["500", "429", "no json", "another shape", "reset"],
)
async def test_a_passing_failure_of_a_part_keeps_what_was_known_and_says_why(
    part: str, reply: Reply, reason: Reason
) -> None:
    first, second = await look_twice(gpustack(), gpustack(**{part: reply}))
    assert first.info.aggregate_vram_bytes == 48 * GIB
    assert first.info.models == (ModelInfo("qwen"),)
    assert second.info == first.info
    assert second.reason is reason
    assert second.identified


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"status": 401}, Reason.UNAUTHORIZED),
        ({"status": 403}, Reason.FORBIDDEN),
    ],
)
async def test_a_definite_refusal_does_not_keep_it(reply: Reply, reason: Reason) -> None:
    first, second = await look_twice(gpustack(), gpustack(devices=reply))
    assert first.info.aggregate_vram_bytes == 48 * GIB
    assert (second.info.member_count, second.info.aggregate_vram_bytes) == (1, 0)
    assert second.info.models == first.info.models
    assert second.reason is reason


async def test_an_empty_cluster_is_hidden_and_does_not_keep_it() -> None:
    nothing = ok({"items": []})
    _, second = await look_twice(gpustack(), gpustack(devices=nothing, workers=nothing))
    assert (second.info.member_count, second.info.aggregate_vram_bytes) == (1, 0)
    assert second.reason is Reason.FORBIDDEN
    assert "administrator" in second.detail


async def test_models_that_are_gone_are_gone_though_the_devices_fail() -> None:
    after = gpustack(devices={"status": 500}, models=ok({"data": []}))
    first, second = await look_twice(gpustack(), after)
    assert second.info.models == ()
    assert second.info.aggregate_vram_bytes == first.info.aggregate_vram_bytes


async def test_an_outage_of_everything_but_the_door_keeps_all() -> None:
    first, second = await look_twice(gpustack(), {"default": {"status": 502}})
    assert second.info == first.info
    assert second.reason is Reason.BAD_RESPONSE
    assert second.identified


async def test_another_server_on_the_port_keeps_nothing() -> None:
    page = {"headers": {"Content-Type": "text/html"}, "body": "<html>welcome</html>"}
    _, second = await look_twice(gpustack(), {"default": page})
    assert (second.info.member_count, second.info.models) == (1, ())
    assert not second.identified


async def test_another_backend_on_the_port_is_found_at_once() -> None:
    _, second = await look_twice(gpustack(), llamacpp(["m"]))
    assert second.info.backend == "llamacpp"
    assert (second.info.version, second.info.aggregate_vram_bytes) == ("b1", 0)


async def test_what_was_not_reachable_is_not_remembered() -> None:
    async with StubEndpoint(gpustack()) as stub:
        detector = of_gpustack(stub)
        await detector.probe()
        stub.become({"default": {"close": "reset"}})
        gone = await detector.probe()
        stub.become(gpustack(devices={"status": 500}))
        back = await detector.probe()
    assert gone.info.state is State.NOT_REACHABLE
    assert back.info.aggregate_vram_bytes == 0
    assert back.reason is Reason.BAD_RESPONSE


async def test_loading_does_not_keep_the_models() -> None:
    loading = {"status": 503, "body": '{"error":{"code":503,"message":"Loading model"}}'}
    _, second = await look_twice(llamacpp(["m"]), {"default": loading})
    assert second.info.backend == "llamacpp"
    assert second.info.models == ()
    assert second.reason is Reason.LOADING


async def test_a_lost_worker_is_seen_within_two_cycles_of_two_gets() -> None:
    lost = ok({"items": [{"id": 1, "name": "box", "state": "not_ready"}]})
    async with StubEndpoint(gpustack()) as stub:
        detector = of_gpustack(stub)
        await detector.probe()
        stub.become(gpustack(workers=lost))
        seen = [(await detector.probe()).info.aggregate_vram_bytes for _ in range(2)]
        assert len(stub.requests) == 4
    assert seen[-1] == 0


async def test_a_large_cluster_is_watched_page_by_page() -> None:
    def page(number: int) -> Reply:
        items = [device(f"gpu-{number}-{i}") for i in range(3)]
        return ok({"items": items, "pagination": {"page": number, "totalPage": 3}})

    scenario = gpustack()
    for number in (1, 2, 3):
        scenario["routes"][f"/v2/gpu-devices?perPage=100&page={number}"] = page(number)
    async with StubEndpoint(scenario) as stub:
        detector = of_gpustack(stub)
        first = await detector.probe()
        stub.requests.clear()
        for _ in range(3):
            assert await detector.probe() == first
        assert len(stub.requests) == 6
        assert len({request.target for request in stub.requests}) == 6, "each part has its turn"
    assert first.info.aggregate_vram_bytes == 9 * 24 * GIB


async def test_a_changed_model_list_brings_the_new_version_too() -> None:
    async with StubEndpoint(llamacpp(["m"], "b1")) as stub:
        detector = Detector(Config(stub.url))
        await detector.probe()
        stub.become(llamacpp(["n"], "b2"))
        found = await detector.probe()
    assert found.info.models == (ModelInfo("n", 7),)
    assert found.info.version == "b2"


async def test_everything_is_looked_at_anew_after_ten_minutes() -> None:
    now_s = 0.0
    async with StubEndpoint(llamacpp(["m"], "b1")) as stub:
        detector = Detector(Config(stub.url), clock=lambda: now_s)
        await detector.probe()
        stub.become(llamacpp(["m"], "b2"))
        now_s = FULL_LOOK_EVERY_S - 1
        early = await detector.probe()
        assert [request.path for request in stub.requests] == ["/v1/models"]
        now_s = FULL_LOOK_EVERY_S
        late = await detector.probe()
    assert (early.info.version, late.info.version) == ("b1", "b2")


async def test_a_hanging_model_list_leaves_the_endpoint_running() -> None:
    scenario = llamacpp(["m"])
    async with StubEndpoint(scenario) as stub:
        detector = Detector(Config(stub.url))
        first = await detector.probe()
        scenario["routes"]["/v1/models"] = {"hang": True}
        found = await detector.probe()
    assert found.info == first.info
    assert found.reason is Reason.TIMEOUT
