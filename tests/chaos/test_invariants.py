"""The invariants can fail, each; and the plan keeps its promises."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.invariants import differences, registry_differences, stale_running, unhandled
from chaos.plan import ENDPOINTS, draw_faults

INFO = "clusterllm/bridge/north/endpoint/llama-0-0123456789/info"
ONLINE = {"clusterllm/bridge/north/availability": "online"}
RUNNING = {INFO: '{"backend":"llamacpp","state":"running"}', **ONLINE}


def stale(retained: dict[str, str], *, dead_s: float = 0, undisturbed_s: float = 0) -> list[str]:
    """At 12 s, with 11 s to see it."""
    dead, undisturbed = {"llama-0": dead_s}, {"north": undisturbed_s}
    return stale_running(retained, dead, undisturbed, 12.0, within_s=11.0)


def test_running_of_a_dead_endpoint_is_seen() -> None:
    assert stale(RUNNING) == [INFO]


@pytest.mark.parametrize(
    "retained",
    [
        {},
        {INFO: '{"state":"not_reachable"}', **ONLINE},
        {**RUNNING, "clusterllm/bridge/north/availability": "offline"},
        {INFO: RUNNING[INFO]},
    ],
    ids=["nothing", "not reachable", "offline", "nobody who says so"],
)
def test_what_claims_nothing_is_not_stale(retained: dict[str, str]) -> None:
    assert stale(retained) == []


def test_a_bridge_has_its_time_from_death_and_from_its_own_trouble() -> None:
    assert stale(RUNNING, dead_s=2.0) == []
    assert stale(RUNNING, undisturbed_s=2.0) == []
    assert stale_running(RUNNING, {"llama-0": 0.0}, {}, 99.0, within_s=11.0) == []


def test_ghosts_losses_and_other_records_are_seen() -> None:
    after = {INFO: '{"state":"not_reachable"}', "clusterllm/ghost": "x"}
    told = differences(RUNNING, after)
    assert [line.split(":")[0] for line in told] == ["ghost", "lost", "other"]
    assert differences(RUNNING, dict(RUNNING)) == []


def test_the_registry_is_compared_by_content() -> None:
    before = {"east": {"models": ["a"], "at": 1}, "west": {"models": []}}
    assert registry_differences(before, dict(before)) == []
    told = registry_differences(before, {"east": {"models": ["b"], "at": 1}})
    assert [line.split(":")[0] for line in told] == [
        "lost at the registry",
        "other at the registry",
    ]


def test_a_traceback_is_seen() -> None:
    logs = {"north": ["INFO fine"], "south": ["Traceback (most recent call last):"]}
    assert unhandled(logs) == ["south"]


@settings(max_examples=50)
@given(st.integers(0, 10_000))
def test_a_plan_is_the_same_again_and_its_parts_fail_one_at_a_time(seed: int) -> None:
    faults = draw_faults(seed, 120.0)
    assert faults == draw_faults(seed, 120.0)
    assert len(faults) > 20
    assert all(fault.ends_s < 120 for fault in faults)
    for part in {fault.part for fault in faults}:
        mine = [fault for fault in faults if fault.part == part]
        assert all(a.ends_s < b.at_s for a, b in pairwise(mine))
    assert {fault.part for fault in faults} & {*ENDPOINTS}
