"""Every recorded vector, replayed against a scripted endpoint over a real socket."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from rig.passive import offences
from rig.stub import StubEndpoint
from rig.vectors import Vector, load_vectors

from clusterllm_mqtt.detector import detect
from clusterllm_mqtt.http_client import new_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

VECTORS = load_vectors()
CONTRACT = [vector for vector in VECTORS if vector.is_contract]
INCIDENTAL = [vector for vector in VECTORS if not vector.is_contract]
BOUND_S = 6.0
"""5 s for a probe, and what a busy machine adds."""


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client() as client:
        yield client


async def replay(vector: Vector, client: httpx.AsyncClient) -> list[str]:
    async with StubEndpoint(vector.scenario) as stub:
        async with asyncio.timeout(BOUND_S):
            info = await detect(vector.config_for(stub), client)
        found = json.loads(stub.normalise(json.dumps(info.to_wire())))
    key = vector.config.get("api_key", "").strip()
    problems = offences(stub.requests, key=key, extra=vector.requests)
    if not vector.requests and stub.requests:
        problems.append("asked where nothing is to be asked")
    if vector.is_contract and found != vector.expect:
        problems.append(f"expected {vector.expect}, found {found}")
    return problems


@pytest.mark.parametrize("vector", CONTRACT, ids=lambda v: v.id)
async def test_a_contract_vector_gives_exactly_its_info(
    vector: Vector, client: httpx.AsyncClient
) -> None:
    assert await replay(vector, client) == []


@pytest.mark.parametrize("vector", INCIDENTAL, ids=lambda v: v.id)
async def test_an_incidental_vector_is_answered_in_time_without_raising(
    vector: Vector, client: httpx.AsyncClient
) -> None:
    assert await replay(vector, client) == []
