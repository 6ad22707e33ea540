"""What counts as running, from retained topics alone, at any age and in any order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.mqtt.topics import BridgeTopic
from clusterllm_mqtt.outpost.roster import GRACE_S, LEASE_S, Roster

AVAILABILITY = BridgeTopic("home", "availability")
STATUS = BridgeTopic("home", "status")


def info(key: str, bridge: str = "home") -> BridgeTopic:
    return BridgeTopic(bridge, "info", key)


def record(state: str = "running", **fields: object) -> bytes:
    return json.dumps({"state": state, **fields}).encode()


def index(*keys: str) -> bytes:
    return json.dumps({"endpoints": keys}).encode()


def of_home(*keys: str, now_s: float = 0.0) -> Roster:
    """A home that is online, and whose endpoints run."""
    roster = Roster()
    for key in keys:
        roster.saw(info(key), record(), now_s)
    roster.saw(STATUS, index(*keys), now_s)
    roster.saw(AVAILABILITY, b"online", now_s)
    return roster


def keys(roster: Roster, now_s: float = 0.0) -> list[str]:
    return [one.key for one in roster.running(now_s)]


def test_an_endpoint_counts_when_it_runs_its_bridge_names_it_and_is_online() -> None:
    roster = of_home("a", "b")
    assert keys(roster) == ["a", "b"]
    assert roster.missing(0.0) == ()


def test_who_does_not_run_does_not_count() -> None:
    roster = of_home("a", "b")
    assert roster.saw(info("a"), record("not_reachable"), 0.0)
    assert keys(roster) == ["b"]


def test_nobody_counts_under_a_bridge_that_went_offline() -> None:
    roster = of_home("a")
    assert roster.saw(AVAILABILITY, b"offline", 1.0)
    assert keys(roster, 1.0) == []
    assert roster.missing(1.0) == ()


@pytest.mark.parametrize("payload", [b"", b"Online", b"online ", b"{}", b"\xff"])
def test_a_bridge_that_does_not_say_online_is_not(payload: bytes) -> None:
    roster = of_home("a")
    roster.saw(AVAILABILITY, payload, 1.0)
    assert keys(roster, 1.0) == []


def test_a_bridge_that_fell_silent_is_offline_after_three_minutes() -> None:
    roster = of_home("a")
    assert keys(roster, LEASE_S - 0.1) == ["a"]
    assert roster.lapses_s(0.0) == LEASE_S
    assert keys(roster, LEASE_S) == []


def test_an_online_that_is_repeated_keeps_it_and_is_no_news() -> None:
    roster = of_home("a")
    assert not roster.saw(AVAILABILITY, b"online", 60.0)
    assert keys(roster, 60.0 + LEASE_S - 0.1) == ["a"]


def test_a_record_that_is_withdrawn_no_longer_counts() -> None:
    roster = of_home("a", "b")
    assert roster.saw(STATUS, index("b"), 0.0)
    assert keys(roster) == ["b"]
    assert roster.saw(info("a"), b"", 0.0)
    assert not roster.saw(info("a"), b"", 0.0)
    assert roster.missing(0.0) == ()


def test_a_record_that_the_index_does_not_name_does_not_count() -> None:
    roster = of_home("a")
    roster.saw(info("ghost"), record(), 0.0)
    assert keys(roster) == ["a"]


@pytest.mark.parametrize(
    "garbage",
    [b"{", b"[]", b"\xff\xfe", b'{"state":"dancing"}', b"{}", b'{"state":"running","models":3}',
     b'{"state":"running","member_count":NaN}', b"[" * 100_000],
)  # fmt: skip
def test_garbage_does_not_count_spoils_nothing_else_and_is_told(garbage: bytes) -> None:
    roster = of_home("a", "b")
    roster.saw(info("a"), garbage, 0.0)
    assert keys(roster) == ["b"]
    assert roster.unreadable(0.0) == (info("a"),)
    assert roster.missing(0.0) == ()
    assert roster.saw(info("a"), record(), 0.0)
    assert keys(roster) == ["a", "b"]
    assert roster.unreadable(0.0) == ()


def test_a_record_of_a_newer_version_with_unknown_fields_counts() -> None:
    roster = of_home("a")
    roster.saw(
        info("a"), record(colour="blue", member_count=3, models=[{"name": "m", "x": 1}]), 0.0
    )
    assert roster.running(0.0)[0].info.member_count == 3
    assert roster.running(0.0)[0].info.models[0].name == "m"


def test_what_an_index_names_and_is_not_there_is_missing() -> None:
    roster = of_home("a")
    roster.saw(STATUS, index("a", "b"), 0.0)
    assert roster.missing(0.0) == (info("b"),)
    assert roster.saw(info("b"), record("not_reachable"), 0.0)
    assert roster.missing(0.0) == ()


@pytest.mark.parametrize("payload", [b"", b"no json", b'{"endpoints":["+"]}', b'{"endpoints":7}'])
def test_a_bridge_without_a_readable_index_is_a_gap(payload: bytes) -> None:
    roster = of_home("a")
    roster.saw(STATUS, payload, 0.0)
    assert roster.missing(0.0) == (STATUS,)
    assert keys(roster) == []


def test_gaps_of_a_bridge_that_is_offline_do_not_matter() -> None:
    roster = of_home("a")
    roster.saw(BridgeTopic("other", "status"), index("x", "y"), 0.0)
    roster.saw(BridgeTopic("other", "availability"), b"offline", 0.0)
    assert roster.missing(0.0) == ()
    assert info("x", "other") in roster.expected()


def test_everything_is_expected_of_a_bridge_that_was_heard_of() -> None:
    roster = Roster()
    roster.saw(info("a"), record(), 0.0)
    assert roster.expected() == {AVAILABILITY, STATUS}
    roster.saw(STATUS, index("a", "b"), 0.0)
    assert roster.expected() == {AVAILABILITY, STATUS, info("a"), info("b")}


# how old a retained `online` is


def test_a_retained_online_is_as_old_as_its_expiry_says() -> None:
    roster = of_home("a", now_s=0.0)
    roster.saw(AVAILABILITY, b"online", 100.0, is_retained=True, expires_in_s=30)
    assert keys(roster, 129.0) == ["a"]
    assert keys(roster, 130.0) == []


def test_an_expiry_longer_than_ours_makes_nothing_younger_than_now() -> None:
    roster = of_home("a")
    roster.saw(AVAILABILITY, b"online", 10.0, is_retained=True, expires_in_s=100_000)
    assert keys(roster, 10.0 + LEASE_S) == []


def test_without_an_expiry_the_first_retained_online_counts_from_now() -> None:
    roster = Roster()
    roster.saw(STATUS, index(), 5.0, is_retained=True)
    roster.saw(AVAILABILITY, b"online", 5.0, is_retained=True)
    assert roster.online(5.0 + LEASE_S - 0.1) == {"home"}


def test_without_an_expiry_reading_it_again_makes_it_no_younger() -> None:
    roster = of_home("a", now_s=0.0)
    for now_s in (100.0, 170.0, 185.0):
        roster.saw(AVAILABILITY, b"online", now_s, is_retained=True)
    assert keys(roster, 185.0) == []
    roster.lost(200.0)
    roster.start_over(201.0)
    roster.saw(AVAILABILITY, b"online", 201.0, is_retained=True)
    assert roster.online(201.0) == frozenset()


# after a lost connection


def lost_and_back(now_s: float = 10.0) -> Roster:
    roster = of_home("a")
    roster.lost(now_s)
    roster.start_over(now_s + 1)
    return roster


def test_a_bridge_that_was_online_is_waited_for_when_the_broker_forgot_it() -> None:
    roster = lost_and_back()
    assert roster.missing(11.0) == (AVAILABILITY,)
    assert roster.lapses_s(11.0) == 11.0 + GRACE_S
    assert roster.missing(11.0 + GRACE_S) == ()
    assert keys(roster, 11.0 + GRACE_S) == []


def test_what_an_old_broker_retains_is_not_taken_for_new() -> None:
    roster = lost_and_back()
    roster.saw(info("a"), record(), 11.0, is_retained=True)
    roster.saw(STATUS, index("a"), 11.0, is_retained=True)
    roster.saw(AVAILABILITY, b"online", 11.0, is_retained=True, expires_in_s=100)
    assert roster.missing(11.0) == (AVAILABILITY,)
    assert roster.saw(AVAILABILITY, b"online", 12.0)
    assert roster.missing(12.0) == ()
    assert keys(roster, 12.0) == ["a"]


def test_a_retained_online_that_was_said_since_is_news() -> None:
    roster = lost_and_back()
    roster.saw(STATUS, index(), 11.0, is_retained=True)
    assert roster.saw(AVAILABILITY, b"online", 11.0, is_retained=True, expires_in_s=180)
    assert roster.missing(11.0) == ()


def test_a_retained_offline_is_believed_at_once() -> None:
    roster = lost_and_back()
    roster.saw(AVAILABILITY, b"offline", 11.0, is_retained=True)
    assert roster.missing(11.0) == ()


def test_a_bridge_that_was_offline_before_is_not_waited_for() -> None:
    roster = of_home("a")
    roster.saw(AVAILABILITY, b"offline", 5.0)
    roster.lost(10.0)
    roster.start_over(11.0)
    assert roster.missing(11.0) == ()


def test_a_will_that_a_stopping_broker_told_last_is_not_the_bridges_end() -> None:
    roster = of_home("a")
    roster.saw(AVAILABILITY, b"offline", 9.9)
    roster.lost(10.0)
    roster.start_over(11.0)
    assert roster.missing(11.0) == (AVAILABILITY,)


def test_who_is_waited_for_is_waited_for_after_a_second_loss_too() -> None:
    roster = lost_and_back()
    roster.lost(12.0)
    roster.start_over(13.0)
    assert roster.missing(13.0) == (AVAILABILITY,)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([AVAILABILITY, STATUS, info("a"), info("b"), info("c", "x")]),
            st.sampled_from([b"online", b"offline", b"", index("a", "b"), index(), record(), b"{"]),
            st.booleans(),
            st.sampled_from([None, 0, 30, 180, 10**12]),
        ),
        max_size=30,
    )
)
def test_whatever_arrives_nobody_runs_who_is_not_named_by_a_live_bridge(
    messages: list[tuple[BridgeTopic, bytes, bool, int | None]],
) -> None:
    roster = Roster()
    last: dict[BridgeTopic, bytes] = {}
    for now_s, (topic, payload, is_retained, expires_in_s) in enumerate(messages):
        roster.saw(topic, payload, now_s, is_retained=is_retained, expires_in_s=expires_in_s)
        last[topic] = payload
    now_s = len(messages)
    for one in roster.running(now_s):
        assert last[BridgeTopic(one.bridge, "availability")] == b"online"
        assert one.key in json.loads(last[BridgeTopic(one.bridge, "status")])["endpoints"]
        assert last[info(one.key, one.bridge)] == record()
    assert roster.running(now_s + LEASE_S) == ()
