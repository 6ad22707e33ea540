"""llama.cpp by positive signs only: properties, health, its name in a header."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from rig.stub import StubEndpoint

from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.drivers.json_reader import Malformed, parse
from clusterllm_mqtt.drivers.llamacpp import Props, props_from_document
from clusterllm_mqtt.models import Config, Detection, ModelInfo, Reason

if TYPE_CHECKING:
    from pathlib import Path

KEY = "sesame"
SERVER = {"headers": {"Server": "llama.cpp"}}
LOADING = {"status": 503, "body": '{"error":{"code":503,"message":"Loading model"}}'}


def models(*rows: dict[str, Any]) -> dict[str, str]:
    return {"body": json.dumps({"data": rows})}


async def look(
    scenario: dict[str, Any], path: str = "", **config: str
) -> tuple[Detection, StubEndpoint]:
    async with StubEndpoint(scenario) as stub:
        found = await Detector(Config(stub.url + path, **config)).probe()
    return found, stub


@pytest.mark.parametrize(
    ("document", "props"),
    [
        ('{"total_slots":0}', Props("", "")),
        ('{"total_slots":-1,"version":" v7 "}', Props("v7", "")),
        ('{"build_info":" b1 ","version":"v7"}', Props("b1", "")),
        ('{"MODEL_PATH":" /m.gguf"}', Props("", " /m.gguf")),
    ],
)
def test_slots_build_or_path_identify(document: str, props: Props) -> None:
    assert props_from_document(parse(document.encode())) == props


@pytest.mark.parametrize(
    "document",
    [
        "null",
        "{}",
        "[]",
        '{"version":"1"}',
        '{"build_info":" "}',
        '{"total_slots":null}',
        '{"total_slots":"4"}',
        '{"total_slots":4.0}',
        '{"total_slots":9223372036854775808}',
        '{"total_slots":4,"build_info":{}}',
        '{"total_slots":4,"version":5}',
    ],
)
def test_less_or_another_type_does_not(document: str) -> None:
    with pytest.raises(Malformed):
        props_from_document(parse(document.encode()))


@pytest.mark.parametrize(
    ("status", "is_llamacpp"), [("ok", True), ("no slot available", True), ("UP", False)]
)
async def test_health_identifies_unless_it_is_spring_boots(
    status: str, *, is_llamacpp: bool
) -> None:
    found, _ = await look({"routes": {"/health": {"body": json.dumps({"status": status})}}})
    assert found.identified is is_llamacpp


async def test_the_servers_name_identifies_where_everything_is_refused() -> None:
    found, _ = await look({"default": {"status": 401, **SERVER}})
    assert (found.info.backend, found.identified) == ("llamacpp", True)
    assert found.reason is Reason.UNAUTHORIZED


async def test_loading_is_told_after_one_get_and_by_any_path() -> None:
    found, stub = await look({"default": LOADING})
    assert (found.info.backend, found.reason) == ("llamacpp", Reason.LOADING)
    assert len(stub.requests) == 1
    late = {"default": {"status": 404, **SERVER}, "routes": {"/v1/models": LOADING}}
    found, _ = await look(late)
    assert found.reason is Reason.LOADING


async def test_the_key_goes_only_where_a_request_without_it_was_refused() -> None:
    listed = models({"id": "m", "size": 7})
    routes = {
        "/props": {"body": '{"build_info":"b1"}', "require_bearer": KEY},
        "/v1/models": listed,
    }
    found, stub = await look({"routes": routes, "default": {"status": 404, **SERVER}}, api_key=KEY)
    assert (found.info.version, found.reason) == ("b1", None)
    assert [r.path for r in stub.requests if r.authorization] == ["/props"]


async def test_a_router_tells_its_models_states_and_its_workers() -> None:
    args = ["llama-server", "--rpc", "10.0.0.2:1,10.0.0.3:1"]
    rows = (
        {"id": "a", "status": {"value": "loaded", "args": args}, "meta": {"size": 7}},
        {"id": "b", "status": {"value": "unloaded", "args": args, "failed": True}},
    )
    routes = {
        "/props": {"body": '{"role":"router","build_info":"b1"}'},
        "/v1/models": models(*rows),
    }
    found, _ = await look({"routes": routes})
    assert found.info.models == (ModelInfo("a", 7), ModelInfo("b"))
    assert found.info.member_count == 3
    assert found.detail == "router: a loaded, b unloaded"


async def test_a_broken_list_leaves_the_rest_and_says_why() -> None:
    routes = {"/props": {"body": '{"build_info":"b1"}'}, "/v1/models": {"body": "<html>"}}
    found, _ = await look({"routes": routes})
    assert (found.info.version, found.info.models) == ("b1", ())
    assert found.reason is Reason.BAD_RESPONSE
    assert found.detail.startswith("/v1/models: ")


async def test_the_size_of_a_file_is_looked_up_on_this_machine_only(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"0123456789")
    routes = {
        "/props": {"body": json.dumps({"model_path": str(file)})},
        "/v1/models": models({"id": "m"}),
    }
    found, stub = await look({"routes": routes})
    assert found.info.models == (ModelInfo("m", 10),)
    relative = {**routes, "/props": {"body": json.dumps({"model_path": "m.gguf"})}}
    found, _ = await look({"routes": relative})
    assert found.info.models == (ModelInfo("m"),)
    assert stub.url.startswith("http://127.")


async def test_a_neighbours_file_is_none_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"0123456789")
    answers = {"/props": {"model_path": str(file)}, "/v1/models": {"data": [{"id": "m"}]}}

    def answer(request: httpx.Request) -> httpx.Response:
        document = answers.get(request.url.path)
        return httpx.Response(200, json=document) if document else httpx.Response(404)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        found = await Detector(Config("http://192.168.1.9:8080"), client=client).probe()
    assert found.info.models == (ModelInfo("m"),)
