"""When to push next; pure.

A change is pushed soon, an unchanged state every 5 minutes, and after a failure only when the
back-off has passed. Nothing queues: what is pushed is what is true by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from clusterllm_mqtt.errors import RegistryError

HEARTBEAT_S: Final = 300.0
FIRST_BACKOFF_S: Final = 5.0
MAX_BACKOFF_S: Final = 300.0
MAX_RETRY_AFTER_S: Final = 3600.0
"""A registry that asks for more is asked again after this."""

JITTER: Final = 0.25


@dataclass(slots=True)
class PushPlan:
    """The memory of past pushes; times in monotonic seconds."""

    heartbeat_s: float = HEARTBEAT_S
    first_backoff_s: float = FIRST_BACKOFF_S
    not_before_s: float = float("-inf")
    _pushed_hash: str = ""
    _pushed_s: float = float("-inf")
    _failures: int = 0

    @property
    def heartbeat_due_s(self) -> float:
        """When even an unchanged state is pushed again."""
        return max(self._pushed_s + self.heartbeat_s, self.not_before_s)

    def is_due(self, combined_hash: str, now_s: float) -> bool:
        """Whether this state is to be pushed now."""
        if now_s < self.not_before_s:
            return False
        return combined_hash != self._pushed_hash or now_s >= self.heartbeat_due_s

    def succeeded(self, combined_hash: str, now_s: float) -> None:
        """The registry has it."""
        self._pushed_hash, self._pushed_s = combined_hash, now_s
        self._failures = 0

    def failed(self, error: RegistryError, now_s: float, *, chance: float) -> float:
        """Back off; for how many seconds.

        `chance` from 0 to 1 makes the wait up to a quarter shorter, or longer where the registry
        asked for it, so that a fleet does not come back as one. What the registry rejected for good
        is only tried slowly. Whether it has taken in what we sent is not known, so the next push is
        due whatever it says.
        """
        self._failures += 1
        self._pushed_hash = ""
        backoff_s = min(self.first_backoff_s * 2.0 ** min(self._failures - 1, 30), MAX_BACKOFF_S)
        if not error.transient:
            backoff_s = MAX_BACKOFF_S
        backoff_s *= 1 - JITTER * chance
        asked_s = min(error.retry_after_s or 0.0, MAX_RETRY_AFTER_S) * (1 + JITTER * chance)
        backoff_s = max(backoff_s, asked_s)
        self.not_before_s = now_s + backoff_s
        return backoff_s
