"""Why a part of what an endpoint could tell is not known; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.models import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEVERITY: Final = (
    Reason.LOADING,
    Reason.UNAUTHORIZED,
    Reason.FORBIDDEN,
    Reason.RATE_LIMITED,
    Reason.TIMEOUT,
)
"""What people should hear of first; the rest is alike."""

_DEFINITE: Final = frozenset({Reason.LOADING, Reason.UNAUTHORIZED, Reason.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something is not known; `detail` is one sentence for people.

    `is_outage` when nothing was said about it at all: no answer, a 5xx, or "not now". `keyed` when
    it is the answer to the key.
    """

    reason: Reason
    detail: str
    is_outage: bool = False
    keyed: bool = False

    @property
    def is_passing(self) -> bool:
        """Whether what was known before may still be true."""
        return self.reason not in _DEFINITE


def worst(troubles: Iterable[Trouble | None]) -> Trouble | None:
    """The trouble that people should hear of; what the key met says more than what none met."""
    return min(
        (trouble for trouble in troubles if trouble is not None),
        key=lambda t: (_severity(t.reason), not t.keyed),
        default=None,
    )


def _severity(reason: Reason) -> int:
    return _SEVERITY.index(reason) if reason in _SEVERITY else len(_SEVERITY)
