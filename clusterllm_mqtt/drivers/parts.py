"""What is asked again in the steady state: as long as each answer is as it was, two GETs do."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from clusterllm_mqtt.drivers.look import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterllm_mqtt.drivers.base import Finding, LookAgain
    from clusterllm_mqtt.drivers.look import Look

T = TypeVar("T")

MAX_GETS: Final = 2


class Part(Generic[T]):
    """One URL, how it is asked, and what it told last.

    `shape` is what of a value must stay the same, or the whole endpoint is looked at anew.
    """

    def __init__(
        self,
        url: str,
        convert: Callable[[object], T],
        reading: Reading[T],
        shape: Callable[[T], object] = type,
    ) -> None:
        self.url = url
        self.reading = reading
        self._convert = convert
        self._shape = shape

    async def is_as_before(self, look: Look) -> bool:
        """Read again; whether there was an answer, of the same kind as before."""
        before = self.reading
        now = await look.ask(self.url, self._convert, keyed=before.keyed)
        if not now.status or (now.status, now.server) != (before.status, before.server):
            return False
        if now.value is None or before.value is None:
            return now.value is before.value
        self.reading = now
        return self._shape(now.value) == self._shape(before.value)


def look_again_at(parts: Sequence[Part[T]], conclude: Callable[[], Finding]) -> LookAgain:
    """The cheap look: the parts take turns, two at a time."""
    turns = cycle(parts)

    async def look_again(look: Look) -> Finding | None:
        for part in islice(turns, min(len(parts), MAX_GETS)):
            if not await part.is_as_before(look):
                return None
        return conclude()

    return look_again
