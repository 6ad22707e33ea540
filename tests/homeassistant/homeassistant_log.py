"""What Home Assistant's log complains of, and whether it is about us; pure.

A record is judged as a whole: what it says about us often stands in its later lines, a payload or a
traceback. What is allowed is named exactly, so that nothing of ours hides behind a common word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_START: Final = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+(?:\+00:00)? "
    r"(?P<level>[A-Z]+) \([^)]*\) \[(?P<logger>[^]]+)\]"
)
_BAD: Final = frozenset({"WARNING", "ERROR", "CRITICAL"})
_OUR_WORDS: Final = re.compile(r"clusterllm|big.?box|gpu.?lab|\bllm[ _]", re.IGNORECASE)
# Loggers that speak of what we publish or ship, even if they name nobody.
_OUR_LOGGERS: Final = re.compile(
    r"homeassistant\.(components\.(mqtt|template|automation|blueprint|script|lovelace|event)\b"
    r"|helpers\.(template|script|condition|trigger))"
)


@dataclass(frozen=True)
class Allowed:
    """A record that is Home Assistant's own: its logger, and how its message begins."""

    logger: str
    message: str

    def covers(self, record: str) -> bool:
        """Whether the record is this one."""
        return f"[{self.logger}] {self.message}" in record.splitlines()[0]


BROKER_RESTARTED: Final = (
    Allowed("homeassistant.components.mqtt.client", "Error returned from MQTT server: "),
    Allowed("homeassistant.components.mqtt.client", "Failed to connect to MQTT server"),
)
"""What it says of its own connection when the broker stops under it."""

DEVICE_GONE: Final = Allowed(
    "homeassistant.components.mqtt.discovery",
    "No device components to cleanup for clusterllm_",
)
"""2026.2 and older, when a device goes: once if it has a disabled entity, and once for each of its
triggers if the MQTT integration was loaded anew before. Documented; without effect."""

INTEGRATION_RELOADED: Final = Allowed(
    "homeassistant.components.mqtt.util",
    "Error talking to MQTT: The client is not currently connected.",
)
"""2026.2 and older, when the MQTT integration is loaded anew: it speaks to a broker that
it has just left."""


def records(text: str) -> list[str]:
    """The records of a log, each with its continuation lines."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if _START.match(line):
            found.append([line])
        elif found:
            found[-1].append(line)
    return ["\n".join(lines) for lines in found]


def complaints(text: str, allowed: Iterable[Allowed] = ()) -> list[str]:
    """Warnings and worse that are about us, without those that are allowed."""
    allowed = tuple(allowed)
    return [
        record
        for record in records(text)
        if _is_bad_for_us(record) and not any(one.covers(record) for one in allowed)
    ]


def _is_bad_for_us(record: str) -> bool:
    start = _START.match(record)
    if start is None or start["level"] not in _BAD:
        return False
    return bool(_OUR_LOGGERS.match(start["logger"]) or _OUR_WORDS.search(record))
