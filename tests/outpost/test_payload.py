"""Hashes and payloads, byte for byte as the registry's other clients compute them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig.outpost_vectors import load, payload_of

from clusterllm_mqtt.outpost import (
    ClusterCapacity,
    RegistryModel,
    RegistryPushPayload,
    combine_hash,
    content_hash,
    merge_models,
)
from clusterllm_mqtt.text import WHITE_SPACE

if TYPE_CHECKING:
    from random import Random

VECTORS = load("registry")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MODELS = st.lists(
    st.builds(RegistryModel, name=st.text(max_size=4), size=st.integers(0, 2**63 - 1)), max_size=6
)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["id"])
def test_every_vector_is_met_to_the_byte(vector: dict[str, Any]) -> None:
    payload = payload_of(vector["input"])
    expect = vector["expect"]
    if vector["class"] == "incidental":  # 40 equal names: any order that is always the same
        assert payload.content_hash == payload_of(vector["input"]).content_hash
        return
    assert content_hash(payload.models) == expect["content_hash"]
    assert payload.content_hash == expect["combine_hash"]
    assert combine_hash(expect["content_hash"], payload.cluster) == expect["combine_hash"]
    assert payload.to_json().decode() == expect["payload"]


def test_the_vectors_are_all_there() -> None:
    assert len(VECTORS) == 42
    assert [v["id"] for v in VECTORS if v["class"] == "incidental"] == ["reg-equal-40"]


@given(MODELS, st.randoms(use_true_random=False))
def test_equal_models_in_any_order_have_the_equal_hash(
    models: list[RegistryModel], dice: Random
) -> None:
    named = list({model.name: model for model in models}.values())
    shuffled = named[:]
    dice.shuffle(shuffled)
    assert content_hash(named) == content_hash(shuffled)


@given(MODELS, MODELS)
def test_a_merge_is_sorted_keeps_the_base_and_loses_no_name(
    base: list[RegistryModel], extra: list[RegistryModel]
) -> None:
    merged = merge_models(base, extra)
    assert merged is not None
    if not extra:
        assert merged == tuple(base)
        return
    names = [model.name for model in merged]
    assert names == sorted(names)
    named = {m.name for m in (*base, *extra) if m.name.strip(WHITE_SPACE)}
    assert set(names) == named


@given(st.text(), st.text(), st.integers(0, 2**64))
def test_every_payload_is_json_that_says_what_went_in(name: str, backend: str, size: int) -> None:
    cluster = ClusterCapacity(max_model_bytes=size, member_count=1, backend=backend)
    payload = RegistryPushPayload("home", NOW, (RegistryModel(name, size=size),), cluster)
    record = json.loads(payload.to_json())
    assert record["models"] == [{"name": name, **({"size": size} if size else {})}]
    assert record["cluster"].get("backend", "") == backend
    assert record["content_hash"] == payload.content_hash


def test_the_heartbeat_is_in_utc_without_trailing_zeros() -> None:
    moment = datetime(2026, 3, 1, 14, 0, 0, 250000, tzinfo=timezone(timedelta(hours=2)))
    record = json.loads(RegistryPushPayload("home", moment).to_json())
    assert record["heartbeat_at"] == "2026-03-01T12:00:00.25Z"


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-01-02", "2026-01-02T03:04:05", "2026-13-45T99:99:99Z", "٢026"]
)
def test_what_is_no_time_is_left_out(text: str) -> None:
    payload = RegistryPushPayload("home", NOW, (RegistryModel("m", modified_at=text),))
    assert json.loads(payload.to_json())["models"] == [{"name": "m"}]
