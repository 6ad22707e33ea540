"""OpenAI-style lists: names, sizes, owners, and what a llama.cpp router adds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.drivers.json_reader import Malformed, parse
from clusterllm_mqtt.drivers.model_list import MAX_MODELS, Served, served_models
from clusterllm_mqtt.models import ModelInfo


def read(*rows: object) -> tuple[Served, ...]:
    return served_models(parse(json.dumps({"data": rows}).encode()))


def size_of(**fields: Any) -> int:  # noqa: ANN401  # JSON
    (served,) = read({"id": "m", **fields})
    return served.model.size


def test_the_first_usable_of_id_name_and_model_is_the_name() -> None:
    rows = [
        {"id": "a", "name": "b"},
        {"id": 1, "name": " b "},
        {"id": "  ", "model": "c"},
        {"object": "model"},
        None,
    ]
    assert [served.model.name for served in read(*rows)] == ["a", "b", "c"]


def test_order_and_duplicates_are_kept() -> None:
    assert [s.model.name for s in read({"id": "b"}, {"id": "a"}, {"id": "b"})] == ["b", "a", "b"]


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({}, 0),
        ({"size": 7, "bytes": 8}, 7),
        ({"size": 0, "size_bytes": -1, "file_size": 8}, 8),
        ({"size": "", "disk_size": " 42 "}, 42),
        ({"size": "4e2", "bytes": "1_000", "meta": {"size": 9}}, 9),
        ({"size": 1.9}, 1),
        ({"size": 2**53 + 1}, 2**53),
        ({"size": str(2**63 - 1)}, 2**63 - 1),
        ({"size": 2**63}, 0),
        ({"size": True, "bytes": [], "meta": None}, 0),
        ({"metadata": {"bytes": 5}}, 5),
        ({"meta": {"metadata": {"meta": {"size": 6}}}}, 6),
    ],
)
def test_a_size_comes_from_wherever_it_is(fields: dict[str, Any], size: int) -> None:
    assert size_of(**fields) == size


def test_metas_are_followed_only_so_far() -> None:
    nested: dict[str, Any] = {"size": 7}
    for _ in range(500):
        nested = {"meta": nested}
    assert size_of(**nested) == 0


def test_a_router_tells_states_and_workers() -> None:
    args = ["llama-server", "--port", "0", "--rpc", "10.0.0.2:50052,10.0.0.3:50052,", "--alias"]
    (served,) = read(
        {"id": "a", "owned_by": "llamacpp", "status": {"value": "unloaded", "args": args}}
    )
    assert served == Served(
        ModelInfo("a"), "llamacpp", "unloaded", ("10.0.0.2:50052", "10.0.0.3:50052")
    )


@pytest.mark.parametrize(
    "status", [None, "loaded", [], {"value": 1, "args": "--rpc x"}, {"args": ["--rpc"]}]
)
def test_an_odd_status_tells_nothing(status: object) -> None:
    (served,) = read({"id": "a", "status": status})
    assert (served.state, served.workers) == ("", ())


@pytest.mark.parametrize(
    "body",
    ['{"data":{}}', '{"data":["x"]}', "[]", '{"data":[{"id":"a","x":1e400}]}', '{"data":[[1]]}'],
)
def test_what_is_no_model_list_is_malformed(body: str) -> None:
    with pytest.raises(Malformed):
        served_models(parse(body.encode()))


@pytest.mark.parametrize("body", ["null", "{}", '{"data":null}', '{"models":[{"id":"x"}]}'])
def test_a_list_may_be_empty(body: str) -> None:
    assert served_models(parse(body.encode())) == ()


def test_a_strangers_list_is_cut() -> None:
    assert len(read(*({"id": str(i)} for i in range(MAX_MODELS + 5)))) == MAX_MODELS


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["id", "name", "size", "bytes", "meta", "status", "owned_by", "args", "value"]
)


@given(st.lists(st.dictionaries(KEYS, JSON) | JSON, max_size=3))
def test_nothing_else_is_raised_and_sizes_are_bounded(rows: list[Any]) -> None:
    try:
        found = read(*rows)
    except Malformed:
        return
    assert all(0 <= served.model.size < 2**63 and served.model.name for served in found)
