"""How long to wait before what somebody else wrote on our topics is mended; pure.

Two bridges of one id whose brokers are bridged mend each other's topics. Neither learns of the
other by its connection, so they have to become slow, and say so.
"""

from __future__ import annotations

from typing import Final

FIRST_S: Final = 0.1
LONGEST_S: Final = 60.0


class Patience:
    """A pause for each topic, longer each time; times in monotonic seconds."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def pause_s(self, topic: str, now_s: float) -> float:
        """From 0.1 s doubling to a minute; after two calm minutes from the start again."""
        last_s, pause_s = self._last.get(topic, (float("-inf"), 0.0))
        is_calm = now_s - last_s > 2 * LONGEST_S
        pause_s = FIRST_S if is_calm else min(2 * pause_s, LONGEST_S)
        self._last[topic] = now_s, pause_s
        return pause_s
