"""What a broker connection and a session tell; values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProtocolVersion = Literal["5", "3.1.1"]


@dataclass(frozen=True, slots=True)
class Connected:
    """A new connection; nothing is subscribed, and the broker may have lost everything."""

    version: ProtocolVersion


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection ended; another one is under way."""

    detail: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message from the broker; `retain` is set on what was stored before we subscribed.

    `expires_in_s` is what is left of its MQTT 5 message expiry, in seconds; None where it has none.
    """

    topic: str
    payload: bytes
    retain: bool
    expires_in_s: int | None = None


SessionEvent = Connected | Disconnected | Received


@dataclass(frozen=True, slots=True)
class Closed:
    """Why one connection ended.

    `is_taken_over`: the broker says that another client has our id. `is_silent`: the other side
    ended it and gave no reason, as a broker that stops does, and one of 3.1.1 on a takeover, or
    when it dislikes a message: `is_publishing` while one is not acknowledged.
    """

    detail: str
    is_taken_over: bool = False
    is_silent: bool = False
    is_publishing: bool = False
