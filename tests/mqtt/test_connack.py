"""What the answer to CONNECT means."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from clusterllm_mqtt.errors import BrokerRefusedError, BrokerUnavailableError
from clusterllm_mqtt.mqtt.connack import (
    ServerLimits,
    UnsupportedProtocolError,
    connect_error,
    server_limits,
)
from clusterllm_mqtt.mqtt.messages import Message


@pytest.mark.parametrize("code", [134, 135])
def test_who_is_not_let_in_is_told_what_to_check(code: int) -> None:
    error = connect_error("box:1883", "5", code, "Not authorized")
    assert isinstance(error, BrokerRefusedError)
    assert str(error) == (
        "box:1883 refused the connection: Not authorized; check mqtt.username and password"
    )


@pytest.mark.parametrize("code", [136, 137, 151, 159])
def test_a_broker_that_is_only_busy_is_tried_again(code: int) -> None:
    assert type(connect_error("box:1883", "5", code, "busy")) is BrokerUnavailableError


@pytest.mark.parametrize("code", [133, 138, 144, 153, 154, 155])
def test_another_refusal_speaks_of_no_password(code: int) -> None:
    error = connect_error("box:1883", "5", code, "Banned")
    assert isinstance(error, BrokerRefusedError)
    assert str(error) == "box:1883 refused the connection: Banned"


def test_another_version_may_help() -> None:
    error = connect_error("box:1883", "5", 132, "Unsupported protocol version")
    assert isinstance(error, UnsupportedProtocolError)
    assert error.transient


def test_without_a_word_the_protocols_own_limits_hold() -> None:
    assert server_limits("box:1883", None) == ServerLimits()
    assert ServerLimits().takes(Message("t", b"x" * 10_000_000))


def test_the_brokers_limits_are_taken() -> None:
    properties = SimpleNamespace(MaximumPacketSize=2000, ReceiveMaximum=10)
    assert server_limits("box:1883", properties) == ServerLimits(2000, 10)


def test_a_packet_is_measured_in_bytes() -> None:
    limits = ServerLimits(max_packet=200)
    assert limits.takes(Message("t" * 100, b""))
    assert not limits.takes(Message("ü" * 100, b""))
    assert not limits.takes(Message("t", b"x" * 200))


def test_a_small_receive_maximum_is_never_exceeded() -> None:
    assert ServerLimits(receive_maximum=3).batch == 3
    assert ServerLimits(receive_maximum=20).batch > 20


def test_a_broker_that_cannot_hold_the_truth_is_refused() -> None:
    with pytest.raises(BrokerRefusedError, match="retained"):
        server_limits("box:1883", SimpleNamespace(RetainAvailable=0))
    with pytest.raises(BrokerRefusedError, match="QoS 1"):
        server_limits("box:1883", SimpleNamespace(MaximumQoS=0))
