"""What is asked again in the steady state: while each answer is as it was, two GETs do."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterllm_mqtt.drivers.base import Finding
    from clusterllm_mqtt.drivers.look import Look, Reading

T = TypeVar("T")

MAX_GETS: Final = 2


class Part(Generic[T]):
    """What was read, and how to read it again.

    `shape` is what of a value must stay the same, or the whole endpoint is looked at anew.
    """

    def __init__(
        self,
        reading: Reading[T],
        convert: Callable[[object], T],
        shape: Callable[[T], object] = type,
    ) -> None:
        self.reading = reading
        self._convert = convert
        self._shape = shape

    async def is_as_before(self, look: Look) -> bool:
        """Ask again; whether there was an answer, and of the same kind as before."""
        before = self.reading
        now = await look.ask_again(before, self._convert)
        if not now.status or (now.status, now.server) != (before.status, before.server):
            return False
        if now.value is None or before.value is None:
            return now.value is before.value
        self.reading = now
        return self._shape(now.value) == self._shape(before.value)


def watch(parts: Sequence[Part[Any]], conclude: Callable[[], Finding]) -> Finding:
    """The finding, with its cheap look: the parts take turns, two at a time."""
    turns = cycle(parts)

    async def look_again(look: Look) -> Finding | None:
        for part in islice(turns, min(len(parts), MAX_GETS)):
            if not await part.is_as_before(look):
                return None
        return replace(conclude(), look_again=look_again)

    return replace(conclude(), look_again=look_again)
