"""GPUStack: what proves it, where its parts are, and what a key may not see."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from rig.stub import StubEndpoint

from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.models import Config, Detection, ModelInfo, Reason

if TYPE_CHECKING:
    from rig.replies import Reply

KEY = "sesame"
NEW = {"version": "v2.3.0", "git_commit": "63a03ba"}
QWEN = {"data": [{"id": "qwen", "owned_by": "gpustack"}]}


def ok(document: object) -> Reply:
    return {"body": json.dumps(document)}


def keyed(document: object) -> Reply:
    return {**ok(document), "require_bearer": KEY}


def device(number: int) -> dict[str, Any]:
    return {"id": f"gpu-{number}", "worker_id": 1, "worker_name": "box", "memory": {"total": 8}}


async def look(
    routes: dict[str, Any], path: str = "", **config: str
) -> tuple[Detection, list[str]]:
    """What is found, and what was asked with the key."""
    async with StubEndpoint({"routes": routes}) as stub:
        found = await Detector(Config(stub.url + path, **config)).probe()
    return found, [r.target for r in stub.requests if r.authorization]


async def test_the_version_proves_it_without_a_key() -> None:
    routes = {"/version": ok(NEW), "/v1-openai/models": {"status": 401}}
    found, with_key = await look(routes)
    assert (found.info.backend, found.info.version) == ("gpustack", "v2.3.0")
    assert found.identified
    assert found.reason is Reason.UNAUTHORIZED
    assert "set api_key" in found.detail
    assert with_key == []


async def test_an_open_one_tells_its_models_without_a_key() -> None:
    found, _ = await look({"/version": ok(NEW), "/v1-openai/models": ok(QWEN)})
    assert found.info.models == (ModelInfo("qwen"),)


@pytest.mark.parametrize(
    "version",
    [
        {"version": "1.2.3"},
        {"git_commit": "63a03ba"},
        {"version": "", "git_commit": "x"},
        [1],
        "ok",
    ],
)
async def test_less_than_version_and_commit_proves_nothing(version: object) -> None:
    found, _ = await look({"/version": ok(version)})
    assert not found.identified


async def test_a_gpustack_is_never_taken_for_llamacpp() -> None:
    health = {"/health": ok({"status": "ok"})}
    proven, _ = await look({"/version": ok(NEW), **health})
    unproven, _ = await look({"/v1-openai/models": ok({"object": "list", "data": []}), **health})
    assert (proven.info.backend, proven.identified) == ("gpustack", True)
    assert (unproven.info.backend, unproven.identified) == ("gpustack", False)


@pytest.mark.parametrize(
    ("version", "first"),
    [("0.2.1", "/v1"), ("v0.7.1", "/v1"), ("v2.3.0", "/v2"), ("main", "/v2")],
)
async def test_the_version_tells_where_the_management_is(version: str, first: str) -> None:
    routes = {
        "/version": ok({"version": version, "git_commit": "x"}),
        f"{first}/gpu-devices": keyed({"items": [device(1)]}),
    }
    found, with_key = await look(routes, api_key=KEY)
    assert found.info.aggregate_vram_bytes == 8
    assert with_key[0] == f"{first}/gpu-devices?perPage=100&page=1"
    assert not [t for t in with_key if "gpu-devices" in t and not t.startswith(first)]


async def test_a_development_version_is_looked_for_in_both_places() -> None:
    routes = {
        "/version": ok({"version": "v0.0.0", "git_commit": "x"}),
        "/v2/gpu-devices": keyed({"items": [device(1)]}),
    }
    found, _ = await look(routes, api_key=KEY)
    assert found.info.aggregate_vram_bytes == 8


async def test_the_models_move_when_the_alias_path_goes() -> None:
    routes = {
        "/version": ok(NEW),
        "/v2/gpu-devices": keyed({"items": [device(1)]}),
        "/v1/models": keyed(QWEN),
    }
    found, _ = await look(routes, api_key=KEY)
    assert found.info.models == (ModelInfo("qwen"),)


async def test_the_management_list_of_an_old_one_is_no_model_list() -> None:
    routes = {
        "/version": ok({"version": "0.7.1", "git_commit": "x"}),
        "/v1/gpu-devices": keyed({"items": [device(1)]}),
        "/v1/models": keyed({"items": [{"name": "not-ready"}]}),
    }
    found, with_key = await look(routes, api_key=KEY)
    assert found.info.models == ()
    assert "/v1/models" not in with_key


async def test_an_openai_base_url_leads_to_the_management_beside_it() -> None:
    routes = {
        "/version": ok(NEW),
        "/v2/gpu-devices": keyed({"items": [device(1)]}),
        "/v1-openai/models": keyed(QWEN),
    }
    found, _ = await look(routes, "/v1", api_key=KEY)
    assert found.info.aggregate_vram_bytes == 8
    assert found.info.models == (ModelInfo("qwen"),)
    unkeyed, _ = await look(routes | {"/v1-openai/models": ok(QWEN)}, "/v1")
    assert unkeyed.info.models == (ModelInfo("qwen"),)


async def test_a_server_that_ignores_paging_is_not_counted_twice() -> None:
    listing = {
        "items": [{"worker_name": "a", "memory": {"total": 8}}],
        "pagination": {"page": 1, "perPage": 1000, "totalPage": 2},
    }
    found, _ = await look({"/v2/gpu-devices": keyed(listing)}, api_key=KEY)
    assert found.info.aggregate_vram_bytes == 8


async def test_a_listing_with_an_unreadable_page_is_unknown_and_says_why() -> None:
    page = {"items": [device(1)], "pagination": {"page": 1, "totalPage": 3}}
    routes = {
        "/version": ok(NEW),
        "/v2/gpu-devices?perPage=100&page=1": keyed(page),
        "/v2/gpu-devices?perPage=100&page=2": {"status": 500},
    }
    found, with_key = await look(routes, api_key=KEY)
    assert (found.info.member_count, found.info.aggregate_vram_bytes) == (1, 0)
    assert found.reason is Reason.BAD_RESPONSE
    assert "/v2/gpu-devices" in found.detail
    assert not [target for target in with_key if target.endswith("page=3")]


async def test_lost_workers_are_told_where_nothing_is_wrong() -> None:
    lost = {"id": 2, "name": "old", "state": "not_ready"}
    routes = {
        "/version": ok(NEW),
        "/v2/gpu-devices": keyed({"items": [device(1)]}),
        "/v2/workers": keyed({"items": [{"id": 1, "name": "box", "state": "ready"}, lost]}),
        "/v1-openai/models": keyed(QWEN),
    }
    found, _ = await look(routes, api_key=KEY)
    assert (found.reason, found.detail) == (None, "1 of 2 workers are ready")


async def test_a_listing_without_a_proof_is_one_and_workers_may_be_refused() -> None:
    routes = {
        "/v1/gpu-devices": keyed({"items": [device(1)]}),
        "/v1/workers": {"status": 403},
        "/version": keyed({"git_version": "abc"}),
        "/v1-openai/models": ok(QWEN),
    }
    found, with_key = await look(routes, api_key=KEY)
    assert found.identified
    assert (found.info.version, found.info.aggregate_vram_bytes) == ("abc", 8)
    assert found.info.models == (ModelInfo("qwen"),)
    assert found.reason is Reason.FORBIDDEN
    assert "/v1-openai/models" not in with_key


async def test_the_label_llamacpp_and_llamacpps_name_keep_the_key_from_the_management() -> None:
    listing = {"/v2/gpu-devices": keyed({"items": [device(1)]})}
    labelled, with_key = await look(listing, api_key=KEY, backend="llamacpp")
    assert (labelled.info.backend, with_key) == ("llamacpp", [])
    named = {"/v1-openai/models": {"status": 404, "headers": {"Server": "llama.cpp"}}}
    found, with_key = await look(listing | named, api_key=KEY)
    assert (found.info.backend, with_key) == ("llamacpp", [])
