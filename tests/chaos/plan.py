"""Which part of a home fails when, how, and for how long: drawn from a seed; pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

ENDPOINTS: Final = ("llama-0", "llama-1", "llama-2", "gpustack")
BRIDGES: Final = ("north", "south")
OUTPOSTS: Final = ("east", "west")
KINDS: Final = ("kill", "restart", "pause")

_LASTS_S: Final[dict[str, tuple[float, float]]] = {
    **dict.fromkeys(ENDPOINTS, (1.0, 25.0)),
    **dict.fromkeys(BRIDGES, (0.5, 8.0)),
    **dict.fromkeys(OUTPOSTS, (0.5, 8.0)),
    "broker": (0.2, 5.0),
    "registry": (0.5, 6.0),
}
_GAP_S: Final = (0.2, 4.0)
_PEACE_S: Final = 3.0
"""A part is left alone for so long after it came back."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`part` is killed (-9), stopped in order, or frozen; `lasts_s` seconds later it is back."""

    at_s: float
    part: str
    kind: str
    lasts_s: float

    @property
    def ends_s(self) -> float:
        """When the part is back."""
        return self.at_s + self.lasts_s


def draw_faults(seed: int, seconds: float) -> list[Fault]:
    """Faults that all end within the time, in their order; a part has one at a time."""
    chance = random.Random(seed)  # noqa: S311  # repeatable, guards nothing
    free_s = dict.fromkeys(_LASTS_S, 0.0)
    faults: list[Fault] = []
    at_s = chance.uniform(*_GAP_S)
    while at_s < seconds:
        part = chance.choice([part for part, s in free_s.items() if s <= at_s] or ["broker"])
        fault = Fault(at_s, part, chance.choice(KINDS), chance.uniform(*_LASTS_S[part]))
        if fault.ends_s < seconds and free_s[part] <= at_s:
            faults.append(fault)
            free_s[part] = fault.ends_s + _PEACE_S
        at_s += chance.uniform(*_GAP_S)
    return faults
