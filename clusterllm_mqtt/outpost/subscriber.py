"""Follows the retained topics of bridges, and knows when what it holds is all of it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.errors import BrokerError
from clusterllm_mqtt.mqtt.events import Connected, Disconnected
from clusterllm_mqtt.mqtt.snapshot import QUIET_S, Snapshot
from clusterllm_mqtt.outpost.leases import GRACE_S, LEASE_S
from clusterllm_mqtt.outpost.roster import MAX_BRIDGES, Roster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterllm_mqtt.mqtt.events import Received, SessionEvent
    from clusterllm_mqtt.mqtt.snapshot import SubscribingClient
    from clusterllm_mqtt.mqtt.topics import BridgeTopic, OutpostTopics
    from clusterllm_mqtt.outpost.roster import Running

AGAIN_S: Final = 20.0
"""How long to wait before asking again for what is missing."""

REFRESH_S: Final = 600.0
"""Everything is read anew after this: a broker may drop a live message as silently."""

CROWD: Final = 1000
"""So many bridges may be all that a broker's queue of 1,000 let through."""

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
        self._is_connected = False
        self._is_read = False
        self._unknown_since_s = clock()
        self._unread = ""
        self._told = ""
        self._reading: asyncio.Task[None] | None = None

    def running(self) -> tuple[Running, ...] | None:
        """The endpoints that run; None while that is not known.

        Without a broker it is not known for 180 s; then no bridge is online any more.
        """
        now_s = self._clock()
        if not self._is_connected:
            return () if now_s - self._unknown_since_s >= LEASE_S else None
        return self._roster.running(now_s) if self._is_read else None

    def lapses_in_s(self) -> float:
        """In how many seconds that may change by itself."""
        now_s = self._clock()
        if self._is_connected:
            return self._roster.lapses_s(now_s) - now_s
        left_s = self._unknown_since_s + LEASE_S - now_s
        return left_s if left_s > 0 else LEASE_S

    @property
    def trouble(self) -> str:
        """Why it is not known what runs, or not of every endpoint; "" when all is well."""
        now_s = self._clock()
        if self._unread:
            return self._unread
        if self._roster.is_flooded:
            return f"more than {MAX_BRIDGES} bridges are retained; name those of this home"
        if awaited := self._roster.awaited(now_s):
            return f"waiting to hear from bridges again: {_some(awaited)}"
        if missing := self._roster.missing(now_s):
            return f"retained topics have not arrived: {self._some_topics(missing)}"
        if unreadable := self._roster.unreadable(now_s):
            return f"retained topics cannot be read: {self._some_topics(unreadable)}"
        return ""

    def take(self, event: SessionEvent, tasks: asyncio.TaskGroup) -> None:
        """Follow the session."""
        if isinstance(event, Connected):
            self._stop_reading()
            self._roster.start_over(self._clock())
            self._is_connected, self._is_read = True, False
            self._reading = tasks.create_task(self._keep_reading(), name="read retained topics")
        elif isinstance(event, Disconnected):
            self._stop_reading()
            if self.running() is not None:  # a broker that comes and goes tells nothing new
                self._unknown_since_s = self._clock()
            self._is_connected = False
            self._roster.lost(self._clock())
            self._changed()
        else:
            self._saw(event)

    def _saw(self, message: Received) -> None:
        topic = self._topics.parse_bridge(message.topic)
        if topic is None:
            return
        has_changed = self._roster.saw(
            topic,
            message.payload,
            self._clock(),
            is_retained=message.retain,
            expires_in_s=message.expires_in_s,
        )
        if not self._roster.is_flooded:
            self._snapshot.saw(message.topic, message.payload[:1], is_retained=message.retain)
        if has_changed:
            self._changed()

    async def _keep_reading(self) -> None:
        """Read everything, and again while something is missing."""
        while True:
            try:
                await self._read()
            except BrokerError as error:
                self._unread = str(error)
            else:
                self._unread, self._is_read = "", True
            self._changed()
            read_s = self._clock()
            while self._clock() - read_s < REFRESH_S:
                self._tell()
                await asyncio.sleep(self._again_s)
                if self._unread or self._roster.missing(self._clock()):
                    break

    async def _read(self) -> None:
        """No index names the bridges; those that a full queue left out say `online` every minute.

        Raises:
            BrokerError: a subscription is refused or not acknowledged.
        """
        started_s = self._clock()
        await self._snapshot.read(self._session, quiet_s=self._quiet_s)
        if not self._is_read and self._roster.bridges >= CROWD:
            self._unread = "waiting for bridges that the broker may have left out of so many"
            self._changed()
            while self._clock() - started_s < GRACE_S:
                self._tell()
                await asyncio.sleep(self._again_s)
            await self._snapshot.read(self._session, quiet_s=self._quiet_s)

    def _tell(self) -> None:
        """Log each trouble once, and its end."""
        trouble = self.trouble
        if trouble == self._told:
            return
        if trouble:
            effect = "; nothing is pushed meanwhile" if self.running() is None else ""
            _LOGGER.warning("%s%s", trouble, effect)
        else:
            _LOGGER.info("all retained topics are there, and can be read")
        self._told = trouble
        self._changed()

    def _expected(self) -> frozenset[str]:
        return frozenset(map(self._topics.of_bridge, self._roster.expected()))

    def _some_topics(self, topics: Sequence[BridgeTopic]) -> str:
        return _some([self._topics.of_bridge(topic) for topic in topics])

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


def _some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
