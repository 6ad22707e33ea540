"""Which version of MQTT to speak to a broker: 5, or 3.1.1 where it has no 5; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from clusterllm_mqtt.mqtt.events import ProtocolVersion

_PATIENCE: Final = 2


class ProtocolChoice:
    """`version` is what to try next; `wanted` "auto" lets it change.

    Some brokers say that they do not speak a version, others just close. So does a proxy whose
    broker is away: hence a version is left after two closings in a row, and one that has worked
    only when it is refused in words.
    """

    def __init__(self, wanted: Literal["auto", "5", "3.1.1"]) -> None:
        self.version: ProtocolVersion = "3.1.1" if wanted == "3.1.1" else "5"
        self._is_auto = wanted == "auto"
        self._has_worked = False
        self._closings = 0

    def worked(self) -> None:
        """The broker accepted a connection."""
        self._has_worked = True
        self._closings = 0

    def refused(self) -> None:
        """The broker said that it does not speak this version."""
        self._has_worked = False
        self._closings = 0
        if self._is_auto:
            self.version = "3.1.1" if self.version == "5" else "5"

    def closed(self) -> None:
        """The broker closed the connection instead of answering."""
        self._closings += 1
        if self._closings >= _PATIENCE and not self._has_worked:
            self.refused()
