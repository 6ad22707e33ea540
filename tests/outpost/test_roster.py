"""What counts as running, from retained topics alone, at any age and in any order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.mqtt.topics import BridgeTopic
from clusterllm_mqtt.outpost.leases import GRACE_S, LEASE_S
from clusterllm_mqtt.outpost.roster import MAX_BRIDGES, Roster

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


def keys(roster: Roster, now_s: float = 0.0) -> list[str] | None:
    running = roster.running(now_s)
    return None if running is None else [one.key for one in running]


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
    [one] = roster.running(0.0) or ()
    assert (one.info.member_count, one.info.models[0].name) == (3, "m")


def test_what_an_index_names_and_is_not_there_is_missing() -> None:
    roster = of_home("a")
    roster.saw(STATUS, index("a", "b"), 0.0)
    assert roster.missing(0.0) == (info("b"),)
    assert keys(roster) is None
    assert roster.saw(info("b"), record("not_reachable"), 0.0)
    assert roster.missing(0.0) == ()


def test_a_bridge_without_an_index_is_a_gap() -> None:
    roster = of_home("a")
    assert roster.saw(STATUS, b"", 0.0)
    assert roster.missing(0.0) == (STATUS,)
    assert keys(roster) is None


@pytest.mark.parametrize("payload", [b"no json", b'{"endpoints":["+"]}', b'{"endpoints":7}'])
def test_without_a_readable_index_nobody_knows_what_a_bridge_has(payload: bytes) -> None:
    roster = of_home("a")
    assert roster.saw(STATUS, payload, 0.0)
    assert roster.missing(0.0) == ()
    assert roster.unreadable(0.0) == (STATUS,)
    assert keys(roster) is None
    roster.saw(AVAILABILITY, b"offline", 0.0)
    assert (keys(roster), roster.unreadable(0.0)) == ([], ())


def test_a_record_that_is_cleared_while_the_index_names_it_is_a_gap() -> None:
    roster = of_home("a")
    assert roster.saw(info("a"), b"", 0.0)
    assert roster.missing(0.0) == (info("a"),)
    assert keys(roster) is None


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


def test_after_a_lost_connection_nothing_is_known_before_its_bridges_were_heard_of() -> None:
    roster = of_home("a")
    roster.lost(10.0)
    roster.start_over(11.0)
    assert roster.awaited(11.0) == ("home",)
    for topic, payload in ((info("a"), record()), (STATUS, index("a"))):
        roster.saw(topic, payload, 11.0, is_retained=True)
    roster.saw(AVAILABILITY, b"online", 11.0, is_retained=True, expires_in_s=100)
    assert keys(roster, 11.0) is None
    assert roster.saw(AVAILABILITY, b"online", 12.0)
    assert keys(roster, 12.0) == ["a"]


def test_a_bridge_that_the_broker_forgot_is_waited_for_in_vain_not_for_ever() -> None:
    roster = of_home("a")
    roster.lost(10.0)
    roster.start_over(11.0)
    assert keys(roster, 10.9 + GRACE_S) is None
    assert keys(roster, 11.0 + GRACE_S) == []


def test_a_flood_of_bridges_is_bounded_and_makes_nothing_known() -> None:
    roster = of_home("a")
    for number in range(MAX_BRIDGES - 1):
        roster.saw(BridgeTopic(f"b{number}", "availability"), b"offline", 0.0)
    assert keys(roster) == ["a"]
    assert roster.saw(BridgeTopic("one-more", "availability"), b"online", 0.0)
    assert not roster.saw(BridgeTopic("and-more", "availability"), b"online", 0.0)
    assert (roster.bridges, roster.is_flooded, keys(roster)) == (MAX_BRIDGES, True, None)
    roster.start_over(1.0)
    assert not roster.is_flooded


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
    for one in roster.running(now_s) or ():
        assert last[BridgeTopic(one.bridge, "availability")] == b"online"
        assert one.key in json.loads(last[BridgeTopic(one.bridge, "status")])["endpoints"]
        assert last[info(one.key, one.bridge)] == record()
    assert roster.running(now_s + LEASE_S) == ()
