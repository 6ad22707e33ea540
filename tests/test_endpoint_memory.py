"""Debounce and transitions of one endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from rig.samples import at, browsed, configured, down, up

from clusterllm_mqtt.endpoint_memory import EndpointMemory
from clusterllm_mqtt.models import (
    Endpoint,
    EventType,
    Info,
    ModelInfo,
    ProbeResult,
    Reason,
    State,
    Transition,
)


def memory(endpoint: Endpoint | None = None) -> EndpointMemory:
    endpoint = endpoint or configured()
    info = Info(State.NOT_REACHABLE, endpoint=endpoint.config.endpoint)
    return EndpointMemory(endpoint, frozenset(), info)


def feed(entry: EndpointMemory, *results: ProbeResult) -> list[Transition]:
    return [t for r in results for t in entry.take(r, failure_threshold=2)]


def test_nothing_is_published_before_the_first_probe() -> None:
    assert memory().state is None


def test_the_first_verdict_is_published_at_once_and_tells_no_transition() -> None:
    for result in (up, down):
        entry = memory()
        assert feed(entry, result(entry.endpoint)) == []
        assert entry.state is not None
        assert entry.state.info.state is result(entry.endpoint).detection.info.state


def test_one_failure_changes_nothing_the_second_is_told() -> None:
    entry = memory()
    feed(entry, up(entry.endpoint, 0))
    assert feed(entry, down(entry.endpoint, 15)) == []
    assert entry.info.state is State.RUNNING
    assert entry.reason is None
    [told] = feed(entry, down(entry.endpoint, 16, Reason.TIMEOUT))
    assert (told.event_type, told.old, told.new) == ("not_reachable", "running", "not_reachable")
    assert entry.state is not None
    assert (entry.state.info.state, entry.state.reason) == (State.NOT_REACHABLE, Reason.TIMEOUT)


def test_the_first_success_is_told_at_once() -> None:
    entry = memory()
    feed(entry, down(entry.endpoint, 0), down(entry.endpoint, 1))
    [told] = feed(entry, up(entry.endpoint, 2))
    assert told.event_type is EventType.RUNNING


def test_a_first_failure_that_was_a_hiccup_is_no_transition() -> None:
    entry = memory()
    assert feed(entry, down(entry.endpoint, 0), up(entry.endpoint, 1)) == []


def test_the_state_keeps_the_time_when_it_began() -> None:
    entry = memory()
    feed(entry, up(entry.endpoint, 0), up(entry.endpoint, 15), down(entry.endpoint, 30))
    assert entry.state_since == at(0)
    feed(entry, down(entry.endpoint, 31))
    assert entry.state_since == at(31)


def test_a_recalled_time_survives_when_the_state_is_the_same() -> None:
    entry = memory()
    entry.state_since = at(-1000)
    feed(entry, down(entry.endpoint, 0))
    assert entry.state_since == at(-1000)


def test_an_endpoint_that_goes_down_keeps_its_backend_and_loses_its_figures() -> None:
    entry = memory()
    feed(
        entry, up(entry.endpoint, 0, version="b1"), down(entry.endpoint, 1), down(entry.endpoint, 2)
    )
    assert entry.info == Info(
        State.NOT_REACHABLE, backend="llamacpp", endpoint=entry.endpoint.config.endpoint
    )


@pytest.mark.parametrize(
    ("before", "after", "event_type"),
    [
        ({"member_count": 3}, {"member_count": 2}, EventType.MEMBERS_CHANGED),
        ({"aggregate_vram_bytes": 8}, {"aggregate_vram_bytes": 4}, EventType.VRAM_CHANGED),
        ({"version": "b1"}, {"version": "b2"}, EventType.VERSION_CHANGED),
        ({"models": ()}, {"models": (ModelInfo("m"),)}, EventType.MODELS_CHANGED),
    ],
)
def test_a_changed_figure_is_told(
    before: dict[str, Any], after: dict[str, Any], event_type: EventType
) -> None:
    entry = memory()
    feed(entry, up(entry.endpoint, 0, **before))
    [told] = feed(entry, up(entry.endpoint, 15, **after))
    assert told.event_type is event_type


def test_the_order_of_models_and_their_sizes_are_no_change() -> None:
    entry = memory()
    feed(entry, up(entry.endpoint, 0, models=(ModelInfo("a"), ModelInfo("b", 7))))
    assert feed(entry, up(entry.endpoint, 1, models=(ModelInfo("b"), ModelInfo("a")))) == []


def test_memory_that_becomes_unknown_is_no_change() -> None:
    entry = memory()
    feed(entry, up(entry.endpoint, 0, aggregate_vram_bytes=8))
    assert feed(entry, up(entry.endpoint, 15)) == []


def test_coming_back_tells_no_figures_unless_they_differ_from_before() -> None:
    entry = memory()
    models = (ModelInfo("m"),)
    feed(entry, up(entry.endpoint, 0, member_count=3, models=models))
    feed(entry, down(entry.endpoint, 1), down(entry.endpoint, 2))
    loading = up(entry.endpoint, 3, reason=Reason.LOADING)
    assert [t.event_type for t in feed(entry, loading)] == ["running"]
    told = feed(entry, up(entry.endpoint, 4, member_count=2, models=models))
    assert [(t.event_type, t.old, t.new) for t in told] == [("members_changed", 3, 2)]


def test_whatever_answers_at_an_address_that_was_lost_is_not_the_endpoint() -> None:
    entry = memory(browsed())
    feed(entry, up(entry.endpoint, 0))
    entry.displaced = True
    [told] = feed(entry, up(entry.endpoint, 1), up(entry.endpoint, 2))
    assert told.event_type is EventType.NOT_REACHABLE
    assert entry.reason is Reason.DNS


def test_only_a_browsed_unadvertised_unreachable_endpoint_counts_as_gone() -> None:
    entry = memory(browsed())
    feed(entry, down(entry.endpoint, 5))
    assert entry.gone_since_s == 5
    feed(entry, down(entry.endpoint, 9))
    assert entry.gone_since_s == 5
    feed(entry, up(entry.endpoint, 10))
    assert entry.gone_since_s is None
    entry.instances.add("x")
    feed(entry, down(entry.endpoint, 11), down(entry.endpoint, 12))
    assert entry.gone_since_s is None
    kept = memory(configured())
    feed(kept, down(kept.endpoint, 1), down(kept.endpoint, 2))
    assert kept.gone_since_s is None
