"""Everything a bridge holds true, and the retained messages that follow from it; pure."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt._version import __version__
from clusterllm_mqtt.models import MdnsHealth
from clusterllm_mqtt.mqtt.messages import BridgeFacts, Message, event_message
from clusterllm_mqtt.mqtt.retained import RetainedMessages
from clusterllm_mqtt.recall import recalled_endpoints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from clusterllm_mqtt.defaults import Network
    from clusterllm_mqtt.inventory import Inventory
    from clusterllm_mqtt.models import EndpointState, ProbeResult
    from clusterllm_mqtt.mqtt.topics import BridgeTopics

PROBE_RECORD_EVERY_S: Final = 240.0
"""Probe facts are due for telling after this; with the next heartbeat, so within 5 minutes."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a probe result changed of one endpoint.

    `is_news` when others see a difference, `is_due` when merely the probe facts have grown old.
    """

    before: EndpointState | None
    after: EndpointState
    is_news: bool
    is_due: bool
    events: tuple[Message, ...]


@dataclass(slots=True)
class BridgeState:
    """The inventory, and what a bridge tells of itself."""

    topics: BridgeTopics
    inventory: Inventory
    started_at: datetime
    home_assistant: InitVar[bool] = True
    mdns: MdnsHealth = field(default_factory=MdnsHealth)
    last_error: str = ""
    _probed: dict[str, EndpointState] = field(default_factory=dict)
    _retained: RetainedMessages = field(init=False)

    def __post_init__(self, home_assistant: bool) -> None:  # dataclasses call it so
        """Nothing is retained yet."""
        self._retained = RetainedMessages(self.topics, home_assistant=home_assistant)

    def desired(self) -> dict[str, Message]:
        """Everything that should be retained now, except the availability."""
        facts = BridgeFacts(__version__, self.started_at, self.mdns, self.last_error)
        return self._retained.all(facts, self.inventory.states, self._probed)

    def recall(
        self,
        held: Mapping[str, bytes],
        *,
        allowed: Iterable[Network],
        now: datetime,
        now_s: float,
    ) -> list[str]:
        """Learn back the browsed endpoints of an earlier life; their keys."""
        return [
            endpoint.key
            for endpoint, recalled in recalled_endpoints(self.topics, held, allowed=allowed)
            if self.inventory.recall(
                endpoint, recalled.info, recalled.state_since, now=now, now_s=now_s
            )
        ]

    def record(self, result: ProbeResult) -> Change | None:
        """Take in a probe; None when nobody watches the endpoint any more."""
        before = self.inventory.state(result.key)
        transitions = self.inventory.record(result)
        after = self.inventory.state(result.key)
        if after is None:
            return None
        events = tuple(event_message(self.topics, transition) for transition in transitions)
        is_due = self._is_probe_record_due(after)
        is_news = before is None or _published(before) != _published(after)
        self._retained.keep(after, self._probed[result.key])  # one at a time, as they come
        return Change(before, after, is_news, is_due and not is_news, events)

    def drop(self, key: str) -> None:
        """Forget what was told of an endpoint that is no longer watched."""
        self._probed.pop(key, None)
        self._retained.forget(key)

    def _is_probe_record_due(self, state: EndpointState) -> bool:
        """Probe facts are told when their reason or state changes, and every few minutes."""
        told = self._probed.get(state.endpoint.key)
        if told is not None and _facts(told) == _facts(state):
            age_s = abs((state.probed_at - told.probed_at).total_seconds())
            if age_s < PROBE_RECORD_EVERY_S:
                return False
        self._probed[state.endpoint.key] = state
        return True


def _facts(state: EndpointState) -> tuple[object, ...]:
    return state.endpoint, state.reason, state.state_since


def _published(state: EndpointState) -> tuple[object, ...]:
    """What others see of a state: everything but when it was last looked at."""
    return *_facts(state), state.info
