"""One look: what is asked again, and what of it is taken apart again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rig.stub import StubEndpoint

from clusterllm_mqtt.drivers.json_reader import fields
from clusterllm_mqtt.drivers.look import Look
from clusterllm_mqtt.http_client import new_client

if TYPE_CHECKING:
    from rig.replies import Reply

READ: list[object] = []


def read(document: object) -> object:
    READ.append(document)
    return fields(document)


@pytest.mark.parametrize(
    ("answers", "read_times", "last"),
    [
        ([{"body": '{"a": "1"}'}, {"body": '{"a": "1"}'}], 1, {"a": "1"}),
        ([{"body": '{"a": "1"}'}, {"body": '{"a": "2"}'}], 2, {"a": "2"}),
        ([{"body": "{}"}, {"status": 500, "body": "{}"}], 1, None),
        ([{"body": "[]"}, {"body": "[]"}], 2, None),
        ([{"body": "{"}, {"body": "{"}], 0, None),
    ],
    ids=["same bytes", "other bytes", "same bytes of a failure", "malformed", "no JSON"],
)
async def test_the_same_bytes_are_not_taken_apart_again(
    answers: list[Reply], read_times: int, last: object
) -> None:
    READ.clear()
    async with StubEndpoint({"routes": {"/x": answers}}) as stub, new_client() as client:
        look = Look(client, stub.url)
        first = await look.ask(f"{stub.url}/x", read)
        again = await look.ask_again(first, read)
    assert len(READ) == read_times
    assert again.value == last
    assert len(stub.requests) == 2
    assert bool(again.trouble) == (last is None)
