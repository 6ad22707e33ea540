"""What goes over the wire, and what is read back."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig.samples import at, browsed, configured, endpoint_state

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.models import (
    MAX_BYTES,
    EventType,
    Info,
    MdnsHealth,
    MdnsState,
    ModelInfo,
    Reason,
    Source,
    State,
    Transition,
)
from clusterllm_mqtt.mqtt.messages import (
    BridgeFacts,
    Message,
    OutpostFacts,
    availability_message,
    encode,
    event_message,
    info_message,
    outpost_status_message,
    probe_message,
    status_message,
    timestamp,
)
from clusterllm_mqtt.mqtt.records import (
    MAX_PAYLOAD,
    info_from_wire,
    read_index,
    read_recalled,
    read_record,
)
from clusterllm_mqtt.mqtt.topics import BridgeTopics, OutpostTopics

TOPICS = BridgeTopics()
DOCS = Path(__file__).parents[2] / "docs" / "topics.md"
FACTS = BridgeFacts("1.2.3", at(0), MdnsHealth(MdnsState.OK, 2))

infos = st.builds(
    Info,
    st.sampled_from(State),
    backend=st.text(max_size=20),
    endpoint=st.text(max_size=40),
    version=st.text(max_size=20),
    member_count=st.integers(0, 1000),
    aggregate_vram_bytes=st.integers(0, MAX_BYTES),
    models=st.lists(
        st.builds(ModelInfo, st.text(min_size=1, max_size=20), st.integers(0, MAX_BYTES))
    ).map(tuple),
)


def test_birth_and_will_have_the_same_topic_retain_and_qos() -> None:
    birth, will = (availability_message(TOPICS, online=online) for online in (True, False))
    assert (birth.topic, birth.retain, birth.qos) == (will.topic, will.retain, will.qos)
    assert (birth.payload, birth.expiry_s) == (b"online", 180)
    assert (will.payload, will.expiry_s) == (b"offline", None)


def test_an_info_record_leaves_empty_fields_out() -> None:
    state = endpoint_state(configured(), Info(State.NOT_REACHABLE))
    message = info_message(TOPICS, state)
    assert message == Message(TOPICS.info(state.endpoint.key), b'{"state":"not_reachable"}')


@given(infos)
def test_an_info_record_is_read_back_as_it_was(info: Info) -> None:
    assert info_from_wire(json.loads(json.dumps(info.to_wire()))) == info


@pytest.mark.parametrize(
    "record",
    [
        [],
        {},
        {"state": "flying"},
        {"state": ["running"]},
        {"state": "running", "member_count": "2"},
        {"state": "running", "member_count": True},
        {"state": "running", "aggregate_vram_bytes": -1},
        {"state": "running", "backend": 5},
        {"state": "running", "models": {}},
        {"state": "running", "models": ["m"]},
        {"state": "running", "models": [{"name": 5}]},
    ],
)
def test_a_record_of_the_wrong_shape_is_refused(record: object) -> None:
    with pytest.raises(RecordError):
        info_from_wire(record)


def test_counts_from_a_stranger_saturate() -> None:
    record = {"state": "running", "member_count": 10**999, "models": [{"name": "m", "size": 2**64}]}
    models = (ModelInfo("m", MAX_BYTES),)
    assert info_from_wire(record) == Info(State.RUNNING, member_count=MAX_BYTES, models=models)


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert info_from_wire({"state": "running", "new": 1}) == Info(State.RUNNING)


def test_probe_facts() -> None:
    state = endpoint_state(browsed(), Info(State.RUNNING), reason=Reason.LOADING)
    message = probe_message(TOPICS, state)
    assert (message.qos, message.retain) == (0, True)
    assert json.loads(message.payload) == {
        "probed_at": "2026-01-01T00:00:10.000Z",
        "duration_ms": 12,
        "reason": "loading",
        "source": "mdns",
        "name": "box",
        "identity": "mdns:box._llamacpp._tcp.local.",
        "state_since": "2026-01-01T00:00:05.000Z",
    }


def test_what_is_published_is_enough_to_know_the_endpoint_again() -> None:
    info = Info(State.RUNNING, endpoint="http://192.168.1.5:8080")
    state = endpoint_state(browsed(), info)
    payloads = (message(TOPICS, state).payload for message in (info_message, probe_message))
    recalled = read_recalled(*payloads)
    assert (recalled.name, recalled.identity) == ("box", state.endpoint.identity)
    assert (recalled.source, recalled.state_since) == (Source.MDNS, state.state_since)
    assert recalled.info == info


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1},
        {"identity": None},
        {"source": "heaven"},
        {"source": []},
        {"state_since": "yesterday"},
        {"state_since": 5},
        {"state_since": "2026-01-01T00:00:00"},
        {"state_since": "0001-01-01T00:00:00+23:59"},
    ],
)
def test_probe_facts_of_the_wrong_shape_are_refused(change: dict[str, Any]) -> None:
    state = endpoint_state(browsed(), Info(State.RUNNING))
    probe = json.loads(probe_message(TOPICS, state).payload) | change
    with pytest.raises(RecordError):
        read_recalled(info_message(TOPICS, state).payload, encode(probe))


def test_a_recalled_time_is_utc_whatever_zone_it_was_written_in() -> None:
    state = endpoint_state(browsed(), Info(State.RUNNING))
    written = {"state_since": "2026-01-01T02:00:05+02:00"}
    probe = encode(json.loads(probe_message(TOPICS, state).payload) | written)
    recalled = read_recalled(info_message(TOPICS, state).payload, probe)
    assert timestamp(recalled.state_since) == "2026-01-01T00:00:05.000Z"


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())
            for name in ("name", "identity", "source", "state_since", "state", "models", "version")
        },
    )
)
def test_any_record_is_recalled_or_refused_never_worse(record: dict[str, Any]) -> None:
    payload = encode({"source": "mdns", "state_since": timestamp(at(5)), "state": "running"})
    for one, other in ((encode(record), payload), (payload, encode(record))):
        with contextlib.suppress(RecordError):
            read_recalled(one, other)


def test_an_event_is_not_retained() -> None:
    transition = Transition("k", EventType.MODELS_CHANGED, ("a",), ("a", "b"))
    message = event_message(TOPICS, transition)
    assert message.retain is False
    assert json.loads(message.payload) == {
        "event_type": "models_changed",
        "old": ["a"],
        "new": ["a", "b"],
    }


def test_a_status_counts_and_names_everything() -> None:
    models = (ModelInfo("a"), ModelInfo("b"))
    states = [
        endpoint_state(
            configured("one"),
            Info(State.RUNNING, member_count=2, aggregate_vram_bytes=10, models=models),
        ),
        endpoint_state(configured("two"), Info(State.RUNNING, member_count=1, models=models[:1])),
        endpoint_state(configured("three"), Info(State.NOT_REACHABLE)),
    ]
    record = json.loads(status_message(TOPICS, FACTS, states).payload)
    assert record == {
        "version": "1.2.3",
        "started_at": "2026-01-01T00:00:00.000Z",
        "state": "running",
        "endpoints": sorted(s.endpoint.key for s in states),
        "counts": {"endpoints": 3, "running": 2, "not_reachable": 1, "members": 3, "models": 2},
        "aggregate_vram_bytes": 10,
        "mdns": {"state": "ok", "services": 2, "detail": ""},
        "last_error": None,
    }


@pytest.mark.parametrize(
    ("states", "state"), [([], "unconfigured"), ([State.NOT_REACHABLE], "not_reachable")]
)
def test_the_state_of_a_bridge(states: list[State], state: str) -> None:
    endpoints = [endpoint_state(configured(), Info(s)) for s in states]
    assert json.loads(status_message(TOPICS, FACTS, endpoints).payload)["state"] == state


def test_a_status_does_not_change_with_every_probe() -> None:
    state = endpoint_state(configured(), Info(State.RUNNING))
    later = replace(state, probed_at=at(99), duration_s=5.0)
    assert status_message(TOPICS, FACTS, [state]) == status_message(TOPICS, FACTS, [later])


def test_total_memory_saturates() -> None:
    info = Info(State.RUNNING, aggregate_vram_bytes=MAX_BYTES)
    states = [endpoint_state(configured(name), info) for name in "ab"]
    record = json.loads(status_message(TOPICS, FACTS, states).payload)
    assert record["aggregate_vram_bytes"] == MAX_BYTES


def test_equal_states_are_equal_bytes_in_whatever_order_they_come() -> None:
    states = [endpoint_state(configured(name), Info(State.RUNNING)) for name in "abc"]
    assert status_message(TOPICS, FACTS, states) == status_message(TOPICS, FACTS, states[::-1])


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_no_strict_reader_accepts_is_never_written(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"n": number})


def test_text_that_cannot_be_encoded_does_not_raise() -> None:
    assert encode({"name": "\ud800"}) == b'{"name":"?"}'


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        "{}".encode("utf-16"),
        b"[" * 100_000,
        b"{" + b" " * MAX_PAYLOAD + b"}",
        b"NaN",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e400}',
    ],
    ids=range(11),
)
def test_a_payload_that_is_no_record_is_refused(payload: bytes) -> None:
    with pytest.raises(RecordError):
        read_record(payload)


@given(st.binary(max_size=200))
def test_garbage_from_the_broker_is_refused_never_worse(payload: bytes) -> None:
    for read in (read_index, read_record):
        with contextlib.suppress(RecordError):
            read(payload)


def test_an_index_is_a_list_of_keys() -> None:
    assert read_index(b'{"endpoints":["a","b"]}') == {"a", "b"}
    for payload in (b"{}", b'{"endpoints":{}}', b'{"endpoints":[1]}'):
        with pytest.raises(RecordError):
            read_index(payload)


@pytest.mark.parametrize("key", ["", "#", "+", "a/../b", "A", "x" * 65, "k\n"])
def test_an_index_cannot_name_a_wildcard_or_a_topic_elsewhere(key: str) -> None:
    with pytest.raises(RecordError, match="keys"):
        read_index(encode({"endpoints": ["good", key]}))


def test_the_documented_payloads_are_what_is_published() -> None:
    info = Info(
        State.RUNNING,
        backend="gpustack",
        endpoint="http://192.168.1.5:8080",
        version="v2.3.0",
        member_count=2,
        aggregate_vram_bytes=60 * 2**30,
        models=(ModelInfo("qwen3-4b"), ModelInfo("/models/llama.gguf", 4_800_000_000)),
    )
    state = endpoint_state(configured("Big box"), info)
    outpost = OutpostFacts("1.2.3", at(0), "cloudbox.example.org", 3, at(600), 2, 2, 60 * 2**30)
    published = (
        info_message(TOPICS, state),
        probe_message(TOPICS, state),
        event_message(TOPICS, Transition(state.endpoint.key, EventType.MEMBERS_CHANGED, 3, 2)),
        status_message(TOPICS, FACTS, [state]),
        outpost_status_message(OutpostTopics(), outpost),
    )
    blocks = re.findall(r"\n`(\S+)`\n\n```json\n([^`]*)```", DOCS.read_text("utf-8"))
    assert {topic: encode(json.loads(text)) for topic, text in blocks} == {
        m.topic: m.payload for m in published
    }
