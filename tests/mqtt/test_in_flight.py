"""Who had the last word on a topic while our own was under way."""

from __future__ import annotations

from clusterllm_mqtt.mqtt.in_flight import InFlight
from clusterllm_mqtt.mqtt.messages import Message

BATCH = [Message("a", b"1"), Message("b", b""), Message("event", b"x", retain=False)]


def test_what_nobody_contradicts_has_landed() -> None:
    assert InFlight(BATCH).landed == {"a": b"1", "b": b""}


def test_our_own_echo_is_known_as_such() -> None:
    batch = InFlight(BATCH)
    assert batch.heard("a", b"1")
    assert not batch.heard("elsewhere", b"1")
    assert not batch.heard("event", b"x")


def test_who_speaks_after_us_has_the_last_word() -> None:
    batch = InFlight(BATCH)
    assert batch.heard("a", b"1")
    assert not batch.heard("a", b"lie")
    assert batch.landed == {"b": b""}


def test_who_spoke_before_us_has_not() -> None:
    batch = InFlight(BATCH)
    assert not batch.heard("a", b"lie")
    assert batch.heard("a", b"1")
    assert batch.landed == {"a": b"1", "b": b""}
