"""What a broker's answer to CONNECT means: no, not now, or yes within limits; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.errors import BrokerError, BrokerRefusedError, BrokerUnavailableError

if TYPE_CHECKING:
    from clusterllm_mqtt.mqtt.events import ProtocolVersion
    from clusterllm_mqtt.mqtt.messages import Message

# Reason codes: MQTT 5, table 2-6; paho tells those of 3.1.1 by the same numbers
_UNSUPPORTED_PROTOCOL: Final = 132
_NOT_LET_IN: Final = frozenset({134, 135})  # bad user name or password, not authorized
_NOT_NOW: Final = frozenset({136, 137, 151, 159})  # unavailable, busy, quota, connection rate
_BATCH: Final = 500  # sending more at once would hold up the event loop
_IN_FLIGHT: Final = 20  # what paho leaves unacknowledged at a time by itself
_PACKET_OVERHEAD: Final = 64  # fixed header, properties: an upper bound for what we send


class UnsupportedProtocolError(BrokerUnavailableError):
    """The broker says that it does not speak this version of MQTT."""


class NoAnswerError(BrokerUnavailableError):
    """The broker closes the connection instead of answering: not yet up, or of another version."""


def connect_error(broker: str, version: ProtocolVersion, code: int, reason: str) -> BrokerError:
    """The error for a refusing CONNACK, with the remedy where there is one."""
    if code == _UNSUPPORTED_PROTOCOL:
        return UnsupportedProtocolError(f"{broker} does not speak MQTT {version}")
    text = f"{broker} refused the connection: {reason}"
    if code in _NOT_NOW:
        return BrokerUnavailableError(text)
    remedy = "; check mqtt.username and password" if code in _NOT_LET_IN else ""
    return BrokerRefusedError(text + remedy)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one connection takes; the defaults are the protocol's, and all that 3.1.1 knows.

    `max_packet` is in bytes, `receive_maximum` in QoS 1 messages not yet acknowledged.
    """

    max_packet: int = 2**28
    receive_maximum: int = 65_535

    @property
    def batch(self) -> int:
        """How many messages to send before waiting for their acknowledgements."""
        return self.receive_maximum if self.receive_maximum < _IN_FLIGHT else _BATCH

    def takes(self, message: Message) -> bool:
        """Whether a message is small enough."""
        size = len(message.topic.encode()) + len(message.payload) + _PACKET_OVERHEAD
        return size <= self.max_packet


def server_limits(broker: str, properties: object) -> ServerLimits:
    """The limits in the properties of an accepting CONNACK; None are those of MQTT 3.1.1.

    Raises:
        BrokerRefusedError: the broker keeps nothing retained or takes no QoS 1.
    """
    if not getattr(properties, "RetainAvailable", True):
        raise BrokerRefusedError(f"{broker} keeps no retained messages; switch them on there")
    if getattr(properties, "MaximumQoS", 1) < 1:
        raise BrokerRefusedError(f"{broker} takes no QoS 1; allow it there")
    default = ServerLimits()
    return ServerLimits(
        getattr(properties, "MaximumPacketSize", default.max_packet),
        getattr(properties, "ReceiveMaximum", default.receive_maximum),
    )
