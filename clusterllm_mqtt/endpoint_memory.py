"""What we remember of one endpoint: its debounced state, and what changed; pure.

A success counts at once, a failure when it repeats. Transitions are told only between confirmed
states, never for the first one, and never for what merely follows from going down or coming back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterllm_mqtt.models import (
    Detection,
    Endpoint,
    EndpointState,
    EventType,
    Info,
    Reason,
    Source,
    State,
    Transition,
)

if TYPE_CHECKING:
    from datetime import datetime

    from clusterllm_mqtt.models import ProbeResult


@dataclass(slots=True)
class EndpointMemory:
    """One endpoint as the inventory holds it.

    `hosts` are its `host:port`s, `instances` the services that name it now. `gone_since_s` is the
    monotonic second since when it is both unadvertised and unreachable. A `displaced` endpoint has
    lost its address to another one: whatever answers there is not it.
    """

    endpoint: Endpoint
    hosts: frozenset[str]
    info: Info
    instances: set[str] = field(default_factory=set)
    reason: Reason | None = None
    detail: str = ""
    state_since: datetime | None = None
    probed_at: datetime | None = None
    duration_s: float = 0.0
    gone_since_s: float | None = None
    displaced: bool = False
    _backend: str = ""
    _failures: int = 0
    _confirmed: State | None = None
    _known: Info | None = None

    @property
    def is_browsed(self) -> bool:
        """Whether mDNS brought it, in this life or an earlier one."""
        return self.endpoint.source is Source.MDNS

    @property
    def state(self) -> EndpointState | None:
        """What is published; None before the first verdict of this process."""
        if self.probed_at is None or self.state_since is None:
            return None
        return EndpointState(
            endpoint=self.endpoint,
            info=self.info,
            reason=self.reason,
            detail=self.detail,
            state_since=self.state_since,
            probed_at=self.probed_at,
            duration_s=self.duration_s,
            advertised=bool(self.instances),
            backend=self._backend,
        )

    def take(self, result: ProbeResult, *, failure_threshold: int) -> tuple[Transition, ...]:
        """Take in a probe; the transitions that it confirmed.

        The very first verdict of this process is published at once, so that nothing from an
        earlier life stays `running`; only a repeated one is told as a transition.
        """
        detection = self._displaced_detection() if self.displaced else result.detection
        is_first = self.probed_at is None
        self.probed_at, self.duration_s = result.probed_at, result.duration_s
        is_running = detection.info.state is State.RUNNING
        self._failures = 0 if is_running else self._failures + 1
        is_confirmed = is_running or self._failures >= failure_threshold
        if is_first or is_confirmed:
            self._hold(detection, result.probed_at)
        self.note_gone(result.monotonic_s)
        return self._confirm() if is_confirmed else ()

    def note_gone(self, now_s: float) -> None:
        """Start or stop the clock that ends in being forgotten."""
        is_running = self.info.state is State.RUNNING
        if not self.is_browsed or self.instances or is_running:
            self.gone_since_s = None
        elif self.gone_since_s is None:
            self.gone_since_s = now_s

    def _displaced_detection(self) -> Detection:
        info = Info(State.NOT_REACHABLE, endpoint=self.endpoint.config.endpoint)
        return Detection(info, Reason.DNS, "another endpoint now has its address")

    def _hold(self, detection: Detection, probed_at: datetime) -> None:
        """Make the detection what is true; a mere label never replaces an identified backend."""
        info = detection.info
        if detection.identified:
            self._backend = info.backend
        elif info.state is not State.RUNNING and self.info.backend:
            info = replace(info, backend=self.info.backend)
        if self.state_since is None or info.state is not self.info.state:
            self.state_since = probed_at
        if info != self.info:  # else the same object stays, and so do the messages made from it
            self.info = info
        self.reason, self.detail = detection.reason, detection.detail

    def _confirm(self) -> tuple[Transition, ...]:
        before, self._confirmed = self._confirmed, self.info.state
        told: list[Transition] = []
        if before is not None and before is not self.info.state:
            event_type = EventType(self.info.state)
            told.append(Transition(self.endpoint.key, event_type, before, self.info.state))
        if self.info.state is State.RUNNING and self.reason is None:
            known, self._known = self._known, self.info
            if known is not None:
                told += changes(self.endpoint.key, known, self.info)
        return tuple(told)


def changes(key: str, old: Info, new: Info) -> list[Transition]:
    """The figures that differ; a memory of 0 and an empty version are unknown, no change."""
    figures = (
        (EventType.MEMBERS_CHANGED, old.member_count, new.member_count),
        (EventType.VRAM_CHANGED, old.aggregate_vram_bytes, new.aggregate_vram_bytes),
        (EventType.VERSION_CHANGED, old.version, new.version),
    )
    told = [Transition(key, kind, a, b) for kind, a, b in figures if a and b and a != b]
    old_names, new_names = _model_names(old), _model_names(new)
    if old_names != new_names:
        told.append(Transition(key, EventType.MODELS_CHANGED, old_names, new_names))
    return told


def _model_names(info: Info) -> tuple[str, ...]:
    return tuple(sorted({model.name for model in info.models}))
