"""Who is online, and who is waited for after a lost connection."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clusterllm_mqtt.outpost.leases import GRACE_S, LEASE_S, Leases


def online(now_s: float = 0.0) -> Leases:
    leases = Leases()
    leases.heard("home", b"online", now_s)
    return leases


def lost_and_back(now_s: float = 10.0) -> Leases:
    leases = online()
    leases.lost(now_s)
    leases.start_over(now_s + 1)
    return leases


def test_who_says_online_is_online_for_three_minutes() -> None:
    leases = online()
    assert leases.online(LEASE_S - 0.1) == ("home",)
    assert leases.lapses_s(0.0) == LEASE_S
    assert leases.online(LEASE_S) == ()


def test_saying_it_again_is_no_news_and_makes_it_last() -> None:
    leases = online()
    assert not leases.heard("home", b"online", 60.0)
    assert leases.is_online("home", 60.0 + LEASE_S - 0.1)


@pytest.mark.parametrize("payload", [b"offline", b"", b"Online", b"online ", b"{}", b"\xff"])
def test_who_says_anything_else_is_not(payload: bytes) -> None:
    leases = online()
    assert leases.heard("home", payload, 1.0)
    assert leases.online(1.0) == ()


# how old a retained `online` is


def test_a_retained_online_is_as_old_as_its_expiry_says() -> None:
    leases = online()
    leases.heard("home", b"online", 100.0, is_retained=True, expires_in_s=30)
    assert leases.online(129.0) == ("home",)
    assert leases.online(130.0) == ()


def test_an_expiry_longer_than_ours_makes_nothing_younger_than_now() -> None:
    leases = online()
    leases.heard("home", b"online", 10.0, is_retained=True, expires_in_s=100_000)
    assert leases.online(10.0 + LEASE_S) == ()


def test_without_an_expiry_the_first_retained_online_counts_from_now() -> None:
    leases = Leases()
    leases.heard("home", b"online", 5.0, is_retained=True)
    assert leases.online(5.0 + LEASE_S - 0.1) == ("home",)


def test_without_an_expiry_reading_it_again_makes_it_no_younger() -> None:
    leases = online()
    for now_s in (100.0, 170.0, 185.0):
        leases.heard("home", b"online", now_s, is_retained=True)
    assert leases.online(185.0) == ()
    leases.lost(200.0)
    leases.start_over(201.0)
    leases.heard("home", b"online", 201.0, is_retained=True)
    assert leases.online(201.0) == ()


# after a lost connection


def test_who_was_online_is_waited_for() -> None:
    leases = lost_and_back()
    assert leases.awaited(11.0) == ("home",)
    assert leases.lapses_s(11.0) == 11.0 + GRACE_S
    assert leases.awaited(11.0 + GRACE_S) == ()


@pytest.mark.parametrize("payload", [b"online", b"offline"])
def test_what_is_said_now_ends_the_wait(payload: bytes) -> None:
    leases = lost_and_back()
    assert leases.heard("home", payload, 12.0)
    assert leases.awaited(12.0) == ()


@pytest.mark.parametrize("payload", [b"online", b"offline"])
def test_what_an_old_broker_retains_does_not(payload: bytes) -> None:
    """It may have saved an old state, or the wills that it told while it stopped."""
    leases = lost_and_back()
    left_s = 100 if payload == b"online" else None
    leases.heard("home", payload, 11.0, is_retained=True, expires_in_s=left_s)
    assert leases.awaited(11.0) == ("home",)


def test_a_retained_online_that_was_said_since_does() -> None:
    leases = lost_and_back()
    assert leases.heard("home", b"online", 11.0, is_retained=True, expires_in_s=180)
    assert leases.awaited(11.0) == ()


def test_who_was_offline_before_is_not_waited_for() -> None:
    leases = online()
    leases.heard("home", b"offline", 5.0)
    leases.lost(10.0)
    leases.start_over(11.0)
    assert leases.awaited(11.0) == ()


def test_a_will_that_a_stopping_broker_told_last_is_not_the_end() -> None:
    leases = online()
    leases.heard("home", b"offline", 9.9)
    leases.lost(10.0)
    leases.start_over(11.0)
    assert leases.awaited(11.0) == ("home",)


def test_a_will_of_one_whose_lease_had_lapsed_says_nothing_new() -> None:
    leases = online()
    leases.heard("home", b"offline", LEASE_S + 9.9)
    leases.lost(LEASE_S + 10.0)
    leases.start_over(LEASE_S + 11.0)
    assert leases.awaited(LEASE_S + 11.0) == ()


def test_who_is_waited_for_is_waited_for_after_a_second_loss_too() -> None:
    leases = lost_and_back()
    leases.lost(12.0)
    leases.start_over(13.0)
    assert leases.awaited(13.0) == ("home",)


def test_who_was_waited_for_in_vain_is_not_waited_for_again() -> None:
    leases = lost_and_back()
    leases.lost(11.0 + GRACE_S)
    leases.start_over(12.0 + GRACE_S)
    assert leases.awaited(12.0 + GRACE_S) == ()


def test_a_lease_has_one_end_however_its_seconds_round() -> None:
    said_s = 1.9 + GRACE_S
    leases = online(said_s)
    end_s = leases.lapses_s(said_s)
    assert end_s - said_s < LEASE_S  # as a difference it would hold for ever at its end
    assert not leases.is_online("home", end_s)
    assert leases.lapses_s(end_s) > end_s


class Broker(RuleBasedStateMachine):
    """A broker and three bridges that do what they like."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.now_s = 0.0
        self.is_connected = True
        self.said_s: dict[str, float] = {}
        self.may_be_awaited: set[str] = set()

    @rule(seconds=st.sampled_from([0.5, 1.9, 30.0, GRACE_S, LEASE_S]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def lose(self) -> None:
        if self.is_connected:
            recent_s = self.now_s - LEASE_S - 2
            self.may_be_awaited |= {n for n, s in self.said_s.items() if s > recent_s}
            self.leases.lost(self.now_s)
            self.is_connected = False

    @rule()
    def connect(self) -> None:
        if not self.is_connected:
            self.leases.start_over(self.now_s)
            assert self.leases.online(self.now_s) == ()
            self.is_connected = True

    @rule(
        name=st.sampled_from("abc"),
        payload=st.sampled_from([b"online", b"offline", b""]),
        left_s=st.sampled_from([None, 0, 90, 180]),
        is_retained=st.booleans(),
    )
    def say(self, name: str, payload: bytes, left_s: int | None, *, is_retained: bool) -> None:
        if not self.is_connected:
            return
        self.leases.heard(name, payload, self.now_s, is_retained=is_retained, expires_in_s=left_s)
        if payload == b"online":
            self.said_s[name] = self.now_s
        if not is_retained:
            assert name not in self.leases.awaited(self.now_s)
            assert payload == b"online" or not self.leases.is_online(name, self.now_s)

    @invariant()
    def nobody_is_online_for_longer_than_the_lease(self) -> None:
        for name in self.leases.online(self.now_s):
            assert self.said_s[name] + LEASE_S > self.now_s

    @invariant()
    def nobody_is_waited_for_who_was_not_online(self) -> None:
        assert set(self.leases.awaited(self.now_s)) <= self.may_be_awaited

    @invariant()
    def something_lapses_later_than_now(self) -> None:
        assert self.leases.lapses_s(self.now_s) > self.now_s


TestBroker = Broker.TestCase
TestBroker.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
