"""What goes over the wire, as values; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One MQTT message; an empty retained payload clears the topic.

    `expiry_s` is MQTT 5's message expiry in seconds; a 3.1.1 connection leaves it out.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True
    expiry_s: int | None = None
