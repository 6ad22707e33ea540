"""What a driver is: one function that looks at an endpoint and says what it found, or None.

Drivers never sleep, retry or time themselves; `Look` bounds what they ask, the detector decides
when. What they may ask is in `docs/detection.md`: GETs on the passive paths only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from clusterllm_mqtt.drivers.http import Answer
    from clusterllm_mqtt.drivers.look import Look
    from clusterllm_mqtt.drivers.trouble import Trouble
    from clusterllm_mqtt.models import ModelInfo

    LookAgain = Callable[[Look], Awaitable["Finding | None"]]


class Facet(Enum):
    """What can be missing from a finding without spoiling the rest."""

    VERSION = auto()
    MACHINES = auto()
    MODELS = auto()


@dataclass(frozen=True, slots=True)
class Finding:
    """What runs at an endpoint; 0 and "" are unknown.

    `missing` names what a passing trouble withheld, `note` is for people where there is no trouble.
    `is_identified` is False when `backend` is only the configured label. `look_again` is the cheap
    look of the steady state: at most two GETs; None when something is not as it was.
    """

    backend: str
    version: str = ""
    member_count: int = 1
    aggregate_vram_bytes: int = 0
    models: tuple[ModelInfo, ...] = ()
    trouble: Trouble | None = None
    note: str = ""
    missing: frozenset[Facet] = frozenset()
    is_identified: bool = True
    look_again: LookAgain | None = None

    def completed_by(self, known: Finding) -> Finding:
        """What is missing here as it was known before, if the same backend still runs."""
        if not known.is_identified or not self.missing:
            return self
        if not self.is_identified:
            return replace(known, trouble=self.trouble, note="", look_again=None)
        if self.backend != known.backend:
            return self
        machines = known if Facet.MACHINES in self.missing else self
        return replace(
            self,
            version=known.version if Facet.VERSION in self.missing else self.version,
            member_count=machines.member_count,
            aggregate_vram_bytes=machines.aggregate_vram_bytes,
            models=known.models if Facet.MODELS in self.missing else self.models,
        )


def missing(**facets: Trouble | None) -> frozenset[Facet]:
    """The facets (by lower-case name) whose trouble is a passing one."""
    return frozenset(
        Facet[name.upper()] for name, trouble in facets.items() if trouble and trouble.is_passing
    )


class Driver(Protocol):
    """One kind of backend."""

    async def __call__(self, look: Look, first: Answer) -> Finding | None:
        """Look; `first` is the answer of the alias path. None: it is not mine."""
        ...
