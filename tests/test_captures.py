"""What real servers of every known version answered, served back: the right `Info` and reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from rig.captures import FOLDER, TABLE, Capture, load_captures
from rig.stub import StubEndpoint

from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.models import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

CAPTURES = load_captures()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client() as client:
        yield client


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda c: c.name)
async def test_a_real_server_is_taken_for_what_it_is(
    capture: Capture, client: httpx.AsyncClient
) -> None:
    async with StubEndpoint(capture.scenario) as stub:
        config = capture.config_for(stub)
        found = await Detector(config, client=client).probe()
    assert found.info.to_wire() == capture.expect | {"endpoint": config.endpoint}
    assert found.reason == capture.reason
    assert found.identified is capture.is_identified
    assert bool(found.detail) or found.reason is None


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda c: c.name)
async def test_looking_again_gives_the_same_with_two_gets_at_most(
    capture: Capture, client: httpx.AsyncClient
) -> None:
    async with StubEndpoint(capture.scenario) as stub:
        detector = Detector(capture.config_for(stub), client=client)
        first = await detector.probe()
        for _ in range(5):
            stub.requests.clear()
            again = await detector.probe()
            assert (again.info, again.reason) == (first.info, first.reason)
            is_known = first.identified and first.info.state is State.RUNNING
            assert len(stub.requests) <= 2 or not is_known


def test_every_capture_is_in_the_table_and_every_entry_has_its_capture() -> None:
    table = json.loads(TABLE.read_text(encoding="utf-8"))["served"]
    files = {path.stem for path in FOLDER.glob("*.json")} - {TABLE.stem}
    assert files == {name for name, entry in table.items() if "accept" not in entry}
