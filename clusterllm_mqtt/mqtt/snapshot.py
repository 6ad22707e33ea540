"""What a broker retains, read whole, from brokers that drop silently.

A default Mosquitto hands 1,020 of 10,000 retained messages at QoS 1 to a new subscriber, and says
nothing. So: subscribe by narrow filters, let the burst settle, compare with what an index says
should be there, and subscribe again, exactly, to what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, Protocol

from clusterllm_mqtt.errors import BrokerRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

QUIET_S: Final = 0.5
LIMIT_S: Final = 30.0
_FRUITLESS: Final = 2  # what is not there after asking so often is taken for lost
_BATCH: Final = 500  # half of the queue of 1,000 that a default Mosquitto keeps for a client


class SubscribingClient(Protocol):
    """What a snapshot needs of the MQTT session."""

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        """Subscribe, acknowledged."""
        ...

    async def unsubscribe(self, *filters: str) -> None:
        """Unsubscribe, acknowledged."""
        ...


class Snapshot:
    """The retained topics below some filters.

    Whoever reads the session's events calls `saw` for each message. `expected` tells from what is
    held which topics an index names. The filters of indexes have to come first: a broker that drops
    when there is too much drops the last.
    """

    def __init__(
        self,
        filters: Iterable[str],
        expected: Callable[[Mapping[str, bytes]], frozenset[str]],
    ) -> None:
        self._filters = tuple(filters)
        self._expected = expected
        self._arrived = asyncio.Event()
        self._burst = 0
        self.held: dict[str, bytes] = {}

    def saw(self, topic: str, payload: bytes, *, is_retained: bool = True) -> None:
        """Take in a message; an empty payload is a withdrawal.

        A live one is no part of a burst, nor is one that is repeated: where many bridges say
        `online`, it is never quiet.
        """
        if not payload:
            self.held.pop(topic, None)
            return
        if is_retained and topic not in self.held:
            self._burst += 1
            self._arrived.set()
        self.held[topic] = payload

    @property
    def missing(self) -> frozenset[str]:
        """Topics that the index names and that have not arrived."""
        return self._expected(self.held) - self.held.keys()

    async def read(
        self, client: SubscribingClient, *, quiet_s: float = QUIET_S, limit_s: float = LIMIT_S
    ) -> frozenset[str]:
        """Read everything; what is still missing after asking for it twice, or after `limit_s`.

        The filters stay subscribed.

        Raises:
            BrokerError: a subscription is refused or not acknowledged.
        """
        self.held.clear()
        deadline_s = time.monotonic() + limit_s
        await client.subscribe(*self._filters)
        await self._settled(client, quiet_s, deadline_s)
        fruitless = 0
        while (missing := sorted(self.missing)) and time.monotonic() < deadline_s:
            for start in range(0, len(missing), _BATCH):
                batch = missing[start : start + _BATCH]
                await client.subscribe(*batch)
                await self._settled(client, quiet_s, deadline_s, until=frozenset(batch))
                await client.unsubscribe(*batch)
            fruitless = fruitless + 1 if self.missing.issuperset(missing) else 0
            if fruitless == _FRUITLESS:
                break
        return self.missing

    async def _settled(
        self,
        client: SubscribingClient,
        quiet_s: float,
        deadline_s: float,
        *,
        until: frozenset[str] = frozenset(),
    ) -> None:
        """Quiet, and quiet still after a round trip: what stalls hands over late, but in order."""
        while True:
            await self._quiet(quiet_s, deadline_s, until=until)
            if (until and until <= self.held.keys()) or time.monotonic() >= deadline_s:
                return
            before = self._burst
            await self._round_trip(client)
            if self._burst == before:
                return

    async def _round_trip(self, client: SubscribingClient) -> None:
        """What was under way is here afterwards; nothing, or one topic, is retained there."""
        nowhere = self._filters[0].replace("+", "-")
        with contextlib.suppress(BrokerRefusedError):  # which is an answer, too
            await client.subscribe(nowhere)
        await asyncio.sleep(0)  # what came before the answer is read by now

    async def _quiet(
        self, quiet_s: float, deadline_s: float, *, until: frozenset[str] = frozenset()
    ) -> None:
        """Wait until nothing arrives for `quiet_s`, or all of `until` is there."""
        while not (until and until <= self.held.keys()):
            self._arrived.clear()
            patience_s = min(quiet_s, deadline_s - time.monotonic())
            try:
                async with asyncio.timeout(patience_s):
                    await self._arrived.wait()
            except TimeoutError:
                return
