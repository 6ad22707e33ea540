"""Wires browser, inventory, scheduler and MQTT into the long-running bridge; formats nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.bridge_state import BridgeState, Change
from clusterllm_mqtt.defaults import FAILURE_THRESHOLD, FORGET_AFTER_S, INTERVAL_S, MAX_BROWSED
from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.errors import first_of_ours
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.inventory import Inventory
from clusterllm_mqtt.mdns.browser import Browser, MdnsOptions
from clusterllm_mqtt.models import EndpointFound, MdnsHealth, MdnsState, State
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
from clusterllm_mqtt.mqtt.messages import availability_message
from clusterllm_mqtt.mqtt.presence import HEARTBEAT_S
from clusterllm_mqtt.mqtt.publisher import Publisher
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.topics import BridgeTopics
from clusterllm_mqtt.scheduler import Clock, Scheduler, SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterllm_mqtt.models import Endpoint, EndpointState, ProbeResult, Service
    from clusterllm_mqtt.mqtt.messages import Message

FORGET_EVERY_S: Final = 60.0
RECALL_PATIENCE_S: Final = 45.0
"""How long browsing waits for a broker that may remember endpoints."""

COMMAND_PAUSE_S: Final = 2.0
"""A command to probe within this time after the last one is ignored."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """What a bridge does; times in seconds. Without `mdns` it only probes `endpoints`."""

    topics: BridgeTopics = field(default_factory=BridgeTopics)
    broker: BrokerOptions = field(default_factory=BrokerOptions)
    endpoints: tuple[Endpoint, ...] = ()
    mdns: MdnsOptions | None = field(default_factory=MdnsOptions)
    interval_s: float = INTERVAL_S
    failure_threshold: int = FAILURE_THRESHOLD
    forget_after_s: float = FORGET_AFTER_S
    max_browsed: int = MAX_BROWSED
    home_assistant: bool = True
    ca_file: str = ""
    heartbeat_s: float = HEARTBEAT_S


class Bridge:
    """One bridge: `run` until cancelled; `states` is what it holds true meanwhile."""

    def __init__(self, options: BridgeOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        inventory = Inventory(
            options.endpoints,
            failure_threshold=options.failure_threshold,
            forget_after_s=options.forget_after_s,
            max_browsed=options.max_browsed,
        )
        self._state = BridgeState(
            options.topics, inventory, self._clock.now(), home_assistant=options.home_assistant
        )
        self._browser: Browser | None = None
        self._commanded_s: dict[str | None, float] = {}
        self._recalled = asyncio.Event()
        self._result_came = asyncio.Event()

    @property
    def states(self) -> tuple[EndpointState, ...]:
        """What is held true now, by key."""
        return self._state.inventory.states

    async def run(self) -> None:
        """Browse, probe and publish until cancelled, then say `offline`.

        Raises:
            BrokerRefusedError: the first connection was refused for good.
            TakenOverError: another client uses this bridge's id.
            ConfigError: a CA or certificate file cannot be read.
        """
        options = self._options
        topics = options.topics
        session = Session(
            options.broker,
            client_id=f"clusterllm-bridge-{topics.bridge}",
            will=availability_message(topics, online=False),
        )
        async with new_client(options.ca_file) as client:
            self._scheduler = Scheduler(
                lambda endpoint: Detector(endpoint.config, client=client),
                interval_s=options.interval_s,
                failure_threshold=options.failure_threshold,
                clock=self._clock,
            )
            async with self._scheduler, session:
                self._publisher = Publisher(session, topics, self, heartbeat_s=options.heartbeat_s)
                self._watch()
                try:
                    await self._run_together()
                finally:
                    await self._publisher.goodbye()

    async def _run_together(self) -> None:
        """Raises the first error of ours bare: nobody outside should have to unpack groups."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._publisher.run(), name="publisher")
                tasks.create_task(self._follow_probes(), name="probes")
                tasks.create_task(self._forget(), name="forget")
                if self._options.mdns is not None:
                    tasks.create_task(self._browse(self._options.mdns), name="browse")
        except BaseExceptionGroup as group:
            raise first_of_ours(group) from None

    # what the publisher asks

    def desired(self) -> dict[str, Message]:
        """Everything that should be retained now, except the availability."""
        return self._state.desired()

    def recall(self, held: Mapping[str, bytes]) -> None:
        """Learn back the browsed endpoints of an earlier life."""
        if self._options.mdns is None:
            return
        allowed = self._options.mdns.allowed_networks
        now, now_s = self._clock.now(), self._clock.monotonic()
        for key in self._state.recall(held, allowed=allowed, now=now, now_s=now_s):
            _LOGGER.info("%s: known from an earlier life", key)
        self._watch()
        self._recalled.set()

    async def all_probed(self) -> None:
        """Return when every endpoint that is known by now has been probed in this life."""
        pending = self._state.inventory.unprobed
        while pending & self._state.inventory.unprobed:
            self._result_came.clear()
            await self._result_came.wait()

    def command(self, topic: str) -> None:
        """Somebody asks to probe one endpoint, or all."""
        now_s = self._clock.monotonic()
        parsed = self._options.topics.parse_endpoint(topic)
        key = parsed.key if parsed else None
        if key is not None and key not in self._scheduler.watched:
            return
        if now_s - self._commanded_s.get(key, float("-inf")) < COMMAND_PAUSE_S:
            return
        self._commanded_s[key] = now_s
        self._scheduler.probe_now(key)

    def note_error(self, text: str) -> None:
        """What went wrong last, for the status."""
        self._state.last_error = text

    # what goes on meanwhile

    async def _follow_probes(self) -> None:
        async for result in self._scheduler.results():
            self._record(result)
            self._result_came.set()

    def _record(self, result: ProbeResult) -> None:
        change = self._state.record(result)
        if change is None:
            return
        if change.after.info.state is not State.RUNNING and self._browser is not None:
            for instance in self._state.inventory.instances(result.key):
                self._browser.refresh(instance)
        if change.is_news or change.events:
            _log(change)
            self._publisher.changed(change.events)

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(FORGET_EVERY_S)
            for key in self._state.inventory.forget(now_s=self._clock.monotonic()):
                _LOGGER.info("%s: forgotten: unadvertised and unreachable for long", key)
                self._watch()
                self._publisher.changed()

    async def _browse(self, options: MdnsOptions) -> None:
        async with Browser(options) as self._browser:
            with contextlib.suppress(TimeoutError):  # who is remembered comes before who is found
                async with asyncio.timeout(RECALL_PATIENCE_S):
                    await self._recalled.wait()
            async for event in self._browser.events():
                if isinstance(event, MdnsHealth):
                    self._set_mdns(event)
                elif isinstance(event, EndpointFound):
                    self._found(event.service)
                else:
                    key = self._state.inventory.lost(event.instance, now_s=self._clock.monotonic())
                    if key is not None:
                        _LOGGER.info("%s: no longer advertised", key)
                        self._scheduler.probe_now(key)

    def _found(self, service: Service) -> None:
        endpoint = self._state.inventory.found(service)
        if endpoint is None:
            return
        _LOGGER.info("%s: advertised as %s at %s", endpoint.key, service.instance, service.url)
        self._watch()
        self._publisher.changed()

    def _set_mdns(self, health: MdnsHealth) -> None:
        before, self._state.mdns = self._state.mdns, health
        if health.state is MdnsState.FAILED and before.state is not MdnsState.FAILED:
            _LOGGER.warning("mdns: %s", health.detail)
        if health != before:
            self._publisher.changed()

    def _watch(self) -> None:
        """Let the scheduler follow the inventory."""
        for old, new in self._state.inventory.take_replaced().items():
            text = "%s: is configured now, as %s; key: %s keeps its topics and entities"
            _LOGGER.warning(text, old, new, old)
        watched = self._state.inventory.watched
        for endpoint in watched:
            self._scheduler.watch(endpoint)
        gone = self._scheduler.watched - {endpoint.key for endpoint in watched}
        for key in gone:
            self._scheduler.unwatch(key)
            self._state.drop(key)
        self._result_came.set()  # what is no longer watched is waited for no longer


def _log(change: Change) -> None:
    """One line for a change of state or reason."""
    before, after = change.before, change.after
    if before is None or (before.info.state, before.reason) != (after.info.state, after.reason):
        reason = f" ({after.reason}: {after.detail})" if after.reason else ""
        _LOGGER.info("%s: %s%s", after.endpoint.key, after.info.state, reason)
