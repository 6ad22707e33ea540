"""Follows the retained topics of bridges, and knows when what it holds is all of it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.errors import BrokerError
from clusterllm_mqtt.mqtt.events import Connected, Disconnected
from clusterllm_mqtt.mqtt.snapshot import QUIET_S, Snapshot
from clusterllm_mqtt.outpost.roster import LEASE_S, Roster

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterllm_mqtt.mqtt.events import Received, SessionEvent
    from clusterllm_mqtt.mqtt.snapshot import SubscribingClient
    from clusterllm_mqtt.mqtt.topics import BridgeTopic, OutpostTopics
    from clusterllm_mqtt.outpost.roster import Running

AGAIN_S: Final = 20.0
"""How long to wait before asking again for what is missing."""

REFRESH_S: Final = 600.0
"""Everything is read anew after this: a broker may drop a live message as silently."""

_SHOWN: Final = 3
_LOGGER = logging.getLogger(__name__)


class Subscriber:
    """What runs, for as long as it is known; `changed` is called when it may have changed."""

    def __init__(
        self,
        session: SubscribingClient,
        topics: OutpostTopics,
        changed: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        quiet_s: float = QUIET_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self._session = session
        self._topics = topics
        self._changed = changed
        self._clock = clock
        self._quiet_s = quiet_s
        self._again_s = again_s
        self._roster = Roster()
        self._snapshot = Snapshot(topics.bridge_filters(), lambda _: self._expected())
        self._blind_since_s: float | None = clock()
        self._is_whole = False
        self._refused = ""
        self._told = ""
        self._reading: asyncio.Task[None] | None = None

    def running(self) -> tuple[Running, ...] | None:
        """The endpoints that run; None while that is not known.

        Without a broker it is not known for 180 s; then no bridge is online any more.
        """
        now_s = self._clock()
        if self._blind_since_s is not None:
            return () if now_s - self._blind_since_s >= LEASE_S else None
        if not self._is_whole or self._roster.missing(now_s):
            return None
        return self._roster.running(now_s)

    def lapses_in_s(self) -> float:
        """In how many seconds that may change by itself."""
        now_s = self._clock()
        if self._blind_since_s is None:
            return self._roster.lapses_s(now_s) - now_s
        left_s = self._blind_since_s + LEASE_S - now_s
        return left_s if left_s > 0 else LEASE_S

    @property
    def trouble(self) -> str:
        """Why it is not known what runs, or not of every endpoint; "" when all is well."""
        now_s = self._clock()
        if self._refused:
            return self._refused
        missing = self._roster.missing(now_s)
        if missing:
            return f"{len(missing)} retained topics have not arrived: {self._names(missing)}"
        unreadable = self._roster.unreadable(now_s)
        if unreadable:
            return f"{len(unreadable)} records cannot be read: {self._names(unreadable)}"
        return ""

    def take(self, event: SessionEvent, tasks: asyncio.TaskGroup) -> None:
        """Follow the session."""
        if isinstance(event, Connected):
            self._stop_reading()
            self._roster.start_over(self._clock())
            self._blind_since_s, self._is_whole = None, False
            self._reading = tasks.create_task(self._keep_reading(), name="read retained topics")
        elif isinstance(event, Disconnected):
            self._stop_reading()
            self._blind_since_s = self._clock()
            self._roster.lost(self._blind_since_s)
            self._changed()
        else:
            self._saw(event)

    def _saw(self, message: Received) -> None:
        topic = self._topics.parse_bridge(message.topic)
        if topic is None:
            return
        self._snapshot.saw(message.topic, message.payload[:1])
        if self._roster.saw(
            topic,
            message.payload,
            self._clock(),
            is_retained=message.retain,
            expires_in_s=message.expires_in_s,
        ):
            self._changed()

    async def _keep_reading(self) -> None:
        """Read everything, and again while something is missing."""
        while True:
            try:
                await self._snapshot.read(self._session, quiet_s=self._quiet_s)
            except BrokerError as error:
                self._refused = str(error)
            else:
                self._refused, self._is_whole = "", True
            self._changed()
            read_s = self._clock()
            while self._clock() - read_s < REFRESH_S:
                self._tell()
                await asyncio.sleep(self._again_s)
                if self.running() is None:
                    break

    def _tell(self) -> None:
        """Log each trouble once, and its end."""
        trouble = self.trouble
        if trouble and trouble != self._told:
            effect = "; nothing is pushed meanwhile" if self.running() is None else ""
            _LOGGER.warning("%s%s", trouble, effect)
        elif self._told and not trouble:
            _LOGGER.info("all retained topics are there, and can be read")
        self._told = trouble

    def _expected(self) -> frozenset[str]:
        return frozenset(map(self._topics.of_bridge, self._roster.expected()))

    def _names(self, topics: tuple[BridgeTopic, ...]) -> str:
        shown = ", ".join(map(self._topics.of_bridge, topics[:_SHOWN]))
        return shown if len(topics) <= _SHOWN else f"{shown}, …"

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
