"""Reconcile, do not emit: the whole desired set against what is held."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from rig.samples import at, browsed, configured, endpoint_state

from clusterllm_mqtt.models import (
    EndpointState,
    Info,
    MdnsHealth,
    MdnsState,
    ModelInfo,
    Reason,
    State,
)
from clusterllm_mqtt.mqtt.messages import BridgeFacts, Message
from clusterllm_mqtt.mqtt.retained import RetainedMessages, diff, indexed_topics
from clusterllm_mqtt.mqtt.topics import BridgeTopics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from syrupy.assertion import SnapshotAssertion

TOPICS = BridgeTopics()
FACTS = BridgeFacts("1.2.3", at(0), MdnsHealth(MdnsState.OK, 1))


def desired(
    states: Sequence[EndpointState], probed: Mapping[str, EndpointState] | None = None
) -> dict[str, Message]:
    return RetainedMessages(TOPICS).all(FACTS, states, probed or {})


def apply(messages: list[Message], held: Mapping[str, bytes]) -> dict[str, bytes]:
    """What a broker holds afterwards."""
    after = dict(held)
    for message in messages:
        if message.payload:
            after[message.topic] = message.payload
        else:
            after.pop(message.topic, None)
    return after


running = Info(State.RUNNING, backend="llamacpp", member_count=1, models=(ModelInfo("m"),))
states = st.lists(st.sampled_from("abcdef"), unique=True).flatmap(
    lambda names: st.tuples(
        *(
            st.builds(
                endpoint_state,
                st.just(configured(name)),
                st.sampled_from([running, Info(State.NOT_REACHABLE)]),
                reason=st.sampled_from([None, Reason.REFUSED]),
            )
            for name in names
        )
    )
)


def test_a_whole_retained_tree(snapshot_json: SnapshotAssertion) -> None:
    tree = desired(
        [
            endpoint_state(browsed("Tiny box"), running, backend="llamacpp"),
            endpoint_state(configured("Big"), Info(State.NOT_REACHABLE), reason=Reason.TIMEOUT),
        ]
    )
    shown = {t: json.loads(m.payload) for t, m in tree.items() if not t.endswith("/config")}
    assert [*tree, shown] == snapshot_json


@given(states, states)
def test_what_is_sent_turns_the_held_set_into_the_desired_one(
    old: tuple[EndpointState, ...], new: tuple[EndpointState, ...]
) -> None:
    held = {topic: m.payload for topic, m in desired(old).items()}
    wanted = desired(new)
    messages = diff(TOPICS, wanted, held)
    assert apply(messages, held) == {topic: m.payload for topic, m in wanted.items()}
    assert diff(TOPICS, wanted, apply(messages, held)) == []


@given(states, states)
def test_status_comes_after_every_info_and_before_every_clear(
    old: tuple[EndpointState, ...], new: tuple[EndpointState, ...]
) -> None:
    held = {topic: m.payload for topic, m in desired(old).items()}
    kinds = [
        "clear" if not m.payload else "status" if m.topic == TOPICS.status else "record"
        for m in diff(TOPICS, desired(new), held)
    ]
    assert kinds == sorted(kinds, key=["record", "status", "clear"].index)


@given(
    states,
    st.dictionaries(
        st.tuples(st.sampled_from("abz"), st.sampled_from(["info", "probe", "event"])),
        st.binary(min_size=1, max_size=5),
    ),
    st.sets(st.sampled_from("abz")),
)
def test_whatever_strangers_left_below_our_root_the_desired_set_comes_out(
    new: tuple[EndpointState, ...],
    records: dict[tuple[str, str], bytes],
    devices: set[str],
) -> None:
    held = {
        f"{TOPICS.root}/endpoint/{configured(name).key}/{leaf}": payload
        for (name, leaf), payload in records.items()
    } | {TOPICS.discovery(configured(name).key): b"old" for name in devices}
    wanted = desired(new)
    after = apply(diff(TOPICS, wanted, held), held)
    assert after == {topic: m.payload for topic, m in wanted.items()}


def test_the_device_of_a_living_endpoint_is_never_cleared() -> None:
    wanted = desired([endpoint_state(configured(), running)])
    held = {t: m.payload for t, m in wanted.items()} | {TOPICS.event(configured().key): b"ghost"}
    assert [m.topic for m in diff(TOPICS, wanted, held)] == [TOPICS.event(configured().key)]


def test_devices_go_before_what_their_entities_read_and_the_bridge_last() -> None:
    held = {t: m.payload for t, m in desired([endpoint_state(configured(), running)]).items()}
    key = configured().key
    assert [m.topic for m in diff(TOPICS, {}, held)] == [
        TOPICS.discovery(key),
        TOPICS.info(key),
        TOPICS.probe(key),
        TOPICS.bridge_discovery,
    ]


def test_an_endpoint_that_falls_out_takes_its_discovery_along_even_unseen() -> None:
    key = configured().key
    messages = diff(TOPICS, desired([]), {TOPICS.info(key): b"x", TOPICS.probe(key): b"y"})
    cleared = {m.topic for m in messages if not m.payload}
    assert cleared == {TOPICS.info(key), TOPICS.probe(key), TOPICS.discovery(key)}


@given(st.dictionaries(st.text(max_size=60), st.binary(min_size=1, max_size=5)))
def test_topics_of_others_are_never_touched(foreign: dict[str, bytes]) -> None:
    foreign |= {
        "clusterllm/bridge/other/endpoint/k/info": b"x",
        "clusterllm/outpost/a/status": b"x",
        "homeassistant/device/clusterllm_home-2_k/config": b"x",
    }
    cleared = {m.topic for m in diff(TOPICS, {}, foreign)}
    assert not cleared & {t for t in foreign if TOPICS.parse_endpoint(t) is None}


def test_without_home_assistant_its_topics_are_not_desired_and_are_cleared() -> None:
    state = endpoint_state(configured(), running)
    with_devices = desired([state])
    without = RetainedMessages(TOPICS, home_assistant=False).all(FACTS, [state], {})
    assert not any(topic.startswith("homeassistant/") for topic in without)
    held = {topic: m.payload for topic, m in with_devices.items()}
    assert apply(diff(TOPICS, without, held), held) == {t: m.payload for t, m in without.items()}


def test_devices_of_an_earlier_life_are_cleared_when_home_assistant_is_switched_off() -> None:
    state = endpoint_state(configured(), running)
    without = RetainedMessages(TOPICS, home_assistant=False).all(FACTS, [state], {})
    read_back = {t: m.payload for t, m in without.items()} | {TOPICS.bridge_discovery: b"old"}
    assert [m.topic for m in diff(TOPICS, without, read_back)] == [
        TOPICS.discovery(state.endpoint.key),
        TOPICS.bridge_discovery,
    ]


def test_no_device_is_cleared_that_never_was() -> None:
    """Home Assistant writes a warning for each."""
    without = RetainedMessages(TOPICS, home_assistant=False).all(FACTS, [], {})
    held = {TOPICS.info("k"): b"x", TOPICS.probe("k"): b"y"}
    cleared = {m.topic for m in diff(TOPICS, without, held) if not m.payload}
    assert cleared == {TOPICS.info("k"), TOPICS.probe("k")}


def test_probe_facts_may_lag_behind() -> None:
    state = endpoint_state(configured(), running)
    later = replace(state, probed_at=at(60), duration_s=9.0)
    assert desired([later], {state.endpoint.key: state}) == desired([state])


def test_the_index_says_what_should_be_there() -> None:
    held = {TOPICS.status: desired([endpoint_state(configured(), running)])[TOPICS.status].payload}
    key = configured().key
    assert indexed_topics(TOPICS, held) == {TOPICS.info(key), TOPICS.probe(key)}
    assert indexed_topics(TOPICS, {}) == frozenset()
    assert indexed_topics(TOPICS, {TOPICS.status: b"garbage"}) == frozenset()
