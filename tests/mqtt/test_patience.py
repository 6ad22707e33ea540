"""Mending what others write: at once, then ever more slowly, and at once again after a calm."""

from __future__ import annotations

from clusterllm_mqtt.mqtt.patience import LONGEST_S, Patience


def test_the_pause_doubles_to_a_minute_for_each_topic_of_its_own() -> None:
    patience = Patience()
    pauses = [patience.pause_s("a", float(n)) for n in range(12)]
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses[-1] == LONGEST_S
    assert patience.pause_s("b", 12.0) == 0.1


def test_after_a_calm_it_starts_again() -> None:
    patience = Patience()
    patience.pause_s("a", 0.0)
    patience.pause_s("a", 1.0)
    assert patience.pause_s("a", 1.0 + 2 * LONGEST_S) == 0.4
    assert patience.pause_s("a", 2.0 + 4 * LONGEST_S) == 0.1
