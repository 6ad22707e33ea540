"""Which version of MQTT to speak."""

from __future__ import annotations

from typing import Literal

import pytest

from clusterllm_mqtt.mqtt.protocol_choice import ProtocolChoice


def test_mqtt_5_comes_first() -> None:
    assert ProtocolChoice("auto").version == "5"


def test_a_version_refused_in_words_is_left_at_once() -> None:
    choice = ProtocolChoice("auto")
    choice.refused()
    versions = [choice.version]
    choice.refused()
    versions.append(choice.version)
    assert versions == ["3.1.1", "5"]


def test_a_version_is_left_after_two_closings_in_a_row() -> None:
    choice = ProtocolChoice("auto")
    versions = []
    for _ in range(5):
        versions.append(choice.version)
        choice.closed()
    assert versions == ["5", "5", "3.1.1", "3.1.1", "5"]


def test_a_version_that_worked_outlives_a_proxy_whose_broker_is_away() -> None:
    choice = ProtocolChoice("auto")
    choice.worked()
    for _ in range(9):
        choice.closed()
    assert choice.version == "5"


def test_a_broker_that_was_replaced_by_an_older_one_is_followed() -> None:
    choice = ProtocolChoice("auto")
    choice.worked()
    choice.refused()
    assert choice.version == "3.1.1"


@pytest.mark.parametrize("wanted", ["5", "3.1.1"])
def test_a_configured_version_is_never_left(wanted: Literal["5", "3.1.1"]) -> None:
    choice = ProtocolChoice(wanted)
    choice.refused()
    choice.closed()
    choice.closed()
    assert choice.version == wanted
