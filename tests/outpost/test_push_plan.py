"""When a push is due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.errors import RegistryRejectedError, RegistryUnavailableError
from clusterllm_mqtt.models import Reason
from clusterllm_mqtt.outpost.push_plan import PushPlan

AWAY = RegistryUnavailableError(Reason.REFUSED, "away")
REJECTED = RegistryRejectedError(Reason.BAD_RESPONSE, "no")


def asks_for(seconds: float | None) -> RegistryUnavailableError:
    return RegistryUnavailableError(Reason.RATE_LIMITED, "busy", retry_after_s=seconds)


def test_the_first_state_is_due_at_once() -> None:
    assert PushPlan().is_due("a", 0.0)


def test_an_unchanged_state_is_due_every_five_minutes_a_changed_one_at_once() -> None:
    plan = PushPlan()
    plan.succeeded("a", 10.0)
    assert not plan.is_due("a", 309.0)
    assert plan.is_due("a", 310.0)
    assert plan.is_due("b", 11.0)


def test_the_back_off_doubles_from_five_seconds_to_five_minutes() -> None:
    plan = PushPlan()
    waits = [plan.failed(AWAY, 0.0, chance=0.0) for _ in range(9)]
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_success_resets_the_back_off() -> None:
    plan = PushPlan()
    plan.failed(AWAY, 0.0, chance=0.0)
    plan.failed(AWAY, 0.0, chance=0.0)
    plan.succeeded("a", 0.0)
    assert plan.failed(AWAY, 0.0, chance=0.0) == 5


def test_jitter_shortens_by_a_quarter_at_most() -> None:
    assert PushPlan().failed(AWAY, 0.0, chance=1.0) == 3.75


def test_nothing_is_due_before_the_back_off_has_passed() -> None:
    plan = PushPlan()
    plan.failed(AWAY, 100.0, chance=0.0)
    assert not plan.is_due("a", 104.9)
    assert plan.is_due("a", 105.0)


def test_after_a_failure_even_what_was_pushed_before_is_due() -> None:
    """The registry may have taken in what it did not acknowledge."""
    plan = PushPlan()
    plan.succeeded("a", 0.0)
    plan.failed(AWAY, 1.0, chance=0.0)
    assert plan.is_due("a", 6.0)


def test_what_is_rejected_is_tried_slowly_from_the_first_time() -> None:
    assert PushPlan().failed(REJECTED, 0.0, chance=0.0) == 300


@pytest.mark.parametrize(
    ("asked", "waits"), [(None, 5), (0.0, 5), (7.0, 7), (100.0, 100), (1e9, 3600), (1e300, 3600)]
)
def test_the_registry_may_ask_for_a_longer_wait(asked: float | None, waits: float) -> None:
    assert PushPlan().failed(asks_for(asked), 0.0, chance=0.0) == waits


def test_a_fleet_that_was_asked_to_wait_does_not_come_back_as_one() -> None:
    assert PushPlan().failed(asks_for(100.0), 0.0, chance=1.0) == 125


@given(st.integers(1, 2000), st.floats(0, 1))
def test_however_often_it_fails_the_wait_has_its_bounds(times: int, chance: float) -> None:
    plan = PushPlan()
    waits = [plan.failed(AWAY, 0.0, chance=chance) for _ in range(times)]
    assert all(3.75 <= wait <= 300 for wait in waits)
