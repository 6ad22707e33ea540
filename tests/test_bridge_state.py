"""What a probe result changes for others, whatever the wall clock does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from rig.samples import at, browsed, configured, down, up

from clusterllm_mqtt.bridge_state import PROBE_RECORD_EVERY_S, BridgeState
from clusterllm_mqtt.defaults import PRIVATE_NETWORKS
from clusterllm_mqtt.inventory import Inventory
from clusterllm_mqtt.models import ProbeResult, State
from clusterllm_mqtt.mqtt.topics import BridgeTopics

BOX = configured()
TOPICS = BridgeTopics()


def new_state() -> BridgeState:
    return BridgeState(TOPICS, Inventory([BOX]), at(0))


def is_news(state: BridgeState, result: ProbeResult) -> bool:
    change = state.record(result)
    assert change is not None
    return change.is_news


def is_due(state: BridgeState, result: ProbeResult) -> bool:
    change = state.record(result)
    assert change is not None
    return change.is_due


def test_the_first_verdict_is_news_and_the_same_again_is_none() -> None:
    state = new_state()
    assert is_news(state, up(BOX, 0))
    assert not is_news(state, up(BOX, 15))
    assert is_news(state, up(BOX, 30, version="b2"))


def test_a_missed_probe_is_no_news_a_confirmed_failure_is_told_with_its_event() -> None:
    state = new_state()
    state.record(up(BOX, 0))
    assert not is_news(state, down(BOX, 15))
    change = state.record(down(BOX, 16))
    assert change is not None
    assert change.is_news
    assert [message.topic for message in change.events] == [TOPICS.event(BOX.key)]
    assert not change.events[0].retain


def test_probe_facts_are_told_again_every_few_minutes() -> None:
    state = new_state()
    state.record(up(BOX, 0))
    assert not is_due(state, up(BOX, PROBE_RECORD_EVERY_S - 1))
    assert is_due(state, up(BOX, PROBE_RECORD_EVERY_S))
    assert b"00:04:00.000Z" in state.desired()[TOPICS.probe(BOX.key)].payload


@pytest.mark.parametrize("days", [-400, 400])
def test_a_wall_clock_that_leaps_stalls_and_forgets_nothing(days: int) -> None:
    state = new_state()
    state.record(up(BOX, 0))
    leap = timedelta(days=days)
    leapt = replace(up(BOX, 15), probed_at=at(15) + leap)
    assert is_due(state, leapt), "the facts carry the new time"
    failed = [replace(down(BOX, s), probed_at=at(s) + leap) for s in (30, 31)]
    changes = [state.record(result) for result in failed]
    assert changes[-1] is not None
    assert changes[-1].after.info.state is State.NOT_REACHABLE
    assert state.inventory.forget(now_s=1000) == ()


def test_what_nobody_watches_changes_nothing() -> None:
    assert new_state().record(up(browsed())) is None


def test_recalled_endpoints_are_watched_and_dropped_ones_leave_no_facts() -> None:
    old = BridgeState(TOPICS, Inventory([], failure_threshold=1), at(0))
    endpoint = browsed(url="http://192.168.1.6:8080")
    old.inventory.recall(endpoint, up(endpoint).detection.info, at(0), now=at(0), now_s=0)
    old.record(up(endpoint, 0))
    held = {topic: message.payload for topic, message in old.desired().items()}
    new = new_state()
    assert new.recall(held, allowed=PRIVATE_NETWORKS, now=at(9), now_s=9) == [endpoint.key]
    new.record(up(endpoint, 10))
    new.drop(endpoint.key)
    assert is_due(new, up(endpoint, 11))
