"""Passive means: bare GETs on known paths, the key only to its own origin, two a cycle at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rig.captures import Capture, load_captures
from rig.passive import GPUSTACK, offences
from rig.stub import Request, StubEndpoint
from rig.vectors import Vector, load_vectors

from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.models import Reason, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from clusterllm_mqtt.models import Config

CYCLES = 4
VECTORS = load_vectors()
CAPTURES = load_captures()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client() as client:
        yield client


async def watch(config: Config, client: httpx.AsyncClient, stub: StubEndpoint) -> list[int]:
    """Probe again and again; the GETs of each cycle after the first, if there is something known.

    A cycle in which an answer changed or failed looks at everything anew, and is not counted.
    """
    detector = Detector(config, client=client)
    found = await detector.probe()
    if not found.identified or found.info.state is not State.RUNNING:
        return []
    counts = []
    for _ in range(CYCLES):
        before = len(stub.requests)
        again = await detector.probe()
        if again.info == found.info and again.reason is not Reason.TIMEOUT:
            counts.append(len(stub.requests) - before)
        found = again
    return counts


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.id)
async def test_every_vector_is_watched_passively(vector: Vector, client: httpx.AsyncClient) -> None:
    async with StubEndpoint(vector.scenario) as stub:
        counts = await watch(vector.config_for(stub), client, stub)
    key = vector.config.get("api_key", "").strip()
    assert offences(stub.requests, key=key, extra=vector.requests) == []
    assert not [
        r for r in stub.requests if r.path.endswith("/v1-openai/models") and r.authorization
    ]
    assert max(counts, default=0) <= 2


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda c: c.name)
async def test_every_real_server_is_watched_passively(
    capture: Capture, client: httpx.AsyncClient
) -> None:
    async with StubEndpoint(capture.scenario) as stub:
        counts = await watch(capture.config_for(stub), client, stub)
    assert offences(stub.requests, key=capture.key) == []
    assert max(counts, default=0) <= 2
    if capture.expect["backend"] == "llamacpp" and capture.reason is None:
        assert set(counts) == {1}, "the model list proves life, too"


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda c: c.name)
async def test_the_label_llamacpp_asks_no_management_and_sends_it_no_key(
    capture: Capture, client: httpx.AsyncClient
) -> None:
    async with StubEndpoint(capture.scenario) as stub:
        config = capture.config_for(stub)
        labelled = type(config)(config.endpoint, config.api_key, "llamacpp")
        found = await Detector(labelled, client=client).probe()
    assert found.info.backend == "llamacpp"
    assert not [r.path for r in stub.requests if r.path in GPUSTACK]


def request(target: str, **other: str) -> Request:
    return Request(
        other.get("server", "endpoint"),
        other.get("method", "GET"),
        target,
        {"authorization": other["key"]} if "key" in other else {},
        other.get("body", "").encode(),
    )


@pytest.mark.parametrize(
    "bad",
    [
        request("/v1/models", method="POST"),
        request("/v1/models", body="{}"),
        request("/slots"),
        request("/metrics"),
        request("/"),
        request("/props?model=x"),
        request("/v1/models?reload=1"),
        request("/v1/models?key=sesame"),
        request("/v1/models", server="other"),
        request("/v1/models", server="other", key="Bearer sesame"),
    ],
    ids=lambda r: f"{r.method} {r.server} {r.target}",
)
def test_the_check_itself_sees_an_offence(bad: Request) -> None:
    assert offences([bad], key="sesame")
    assert not offences([request("/v1/models", key="Bearer sesame")], key="sesame")
    assert offences([request("/v1/models", key="Bearer sesame")])
