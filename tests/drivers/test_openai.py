"""The last resort: whoever lists models is called by what the owners of its models say."""

from __future__ import annotations

import json

import pytest
from rig.stub import StubEndpoint

from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.models import Config, ModelInfo


@pytest.mark.parametrize(
    ("owners", "backend"),
    [
        ([None], "llamacpp"),
        (["llamacpp"], "llamacpp"),
        (["me", "me"], "llamacpp"),
        (["gpustack"], "gpustack"),
        (["vllm"], "openai"),
        (["library", "library"], "openai"),
        (["llamacpp", "gpustack"], "openai"),
    ],
    ids=str,
)
async def test_the_owner_tells_the_backend(owners: list[str | None], backend: str) -> None:
    rows = [{"id": f"m{i}", "owned_by": owner} for i, owner in enumerate(owners)]
    routes = {"/v1/models": {"body": json.dumps({"object": "list", "data": rows})}}
    async with StubEndpoint({"routes": routes}) as stub:
        detector = Detector(Config(stub.url))
        found = await detector.probe()
        stub.requests.clear()
        assert await detector.probe() == found
    assert (found.info.backend, found.identified) == (backend, True)
    assert found.info.models == tuple(ModelInfo(f"m{i}") for i in range(len(owners)))
    assert [request.path for request in stub.requests] == ["/v1/models"]


async def test_an_empty_list_proves_nothing() -> None:
    async with StubEndpoint({"routes": {"/v1/models": {"body": '{"data":[]}'}}}) as stub:
        assert not (await Detector(Config(stub.url)).probe()).identified
