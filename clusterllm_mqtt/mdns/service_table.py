"""What is named now, what its records said last, and when to look at it again.

Whatever is heard of a name means "look again". Names are bounded in number, looks in their rate:
neither an event nor a log line can be had for each packet.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.models import EndpointFound, EndpointLost
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from collections.abc import Set as AbstractSet

    from clusterllm_mqtt.models import Service

    Resolve = Callable[[str, Service | None], Awaitable[Service]]
    """Instance and what is known of it -> what it is now, or `RecordError`."""

PAUSE_S: Final = 1.5
_LONGEST_PAUSE_S: Final = 60.0
_MAX_REFUSED: Final = 256
_LOGGER = logging.getLogger(__name__)


class ServiceTable:
    """Calls `tell` for each service that is found, changed or lost.

    A name that is lost keeps its place until the next `catch_up`, so that endless new names get
    no further than a few that stay. Between two looks at one service are at least `pause_s`
    seconds, up to a minute while it keeps changing.
    """

    def __init__(
        self,
        resolve: Resolve,
        tell: Callable[[EndpointFound | EndpointLost], None],
        *,
        max_services: int,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._resolve = resolve
        self._tell = tell
        self._max_services = max_services
        self._pause_s = pause_s
        self._is_named: dict[str, bool] = {}
        self._services: dict[str, Service] = {}
        self._stale: set[str] = set()
        self._doubted: set[str] = set()
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._refused: set[tuple[str, str]] = set()
        self._is_full = False

    def __len__(self) -> int:
        """How many services are known."""
        return len(self._services)

    def __contains__(self, instance: str) -> bool:
        """Whether a name is named now."""
        return self._is_named.get(instance, False)

    async def close(self) -> None:
        """End all looks."""
        looks = list(self._looks.values())
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    def note(self, instance: str, *, is_named: bool) -> None:
        """A name was heard, with whatever news, or said goodbye."""
        if instance in self._is_named or (is_named and self._has_room()):
            self._is_named[instance] = is_named
            self._look_again(instance)

    def catch_up(self, named: AbstractSet[str]) -> None:
        """Heed what there was no room for, and doubt what is no longer among the `named`.

        A flood drives good names out of zeroconf's cache: who answers stays.
        """
        for instance in self._is_named.keys() - named - self._looks.keys():
            if self._is_named[instance]:
                self._doubted.add(instance)
                self._look_again(instance)
            else:
                del self._is_named[instance]
        for instance in named - self._is_named.keys() - {i for i, _ in self._refused}:
            self.note(instance, is_named=True)

    def _has_room(self) -> bool:
        has_room = len(self._is_named) < self._max_services
        if not has_room and not self._is_full:
            text = "mdns: %d services are known already; more are ignored (mdns.max_endpoints)"
            _LOGGER.warning(text, self._max_services)
            self._is_full = True
        return has_room

    def _look_again(self, instance: str) -> None:
        self._stale.add(instance)
        if instance not in self._looks:
            look = asyncio.create_task(self._look_while_stale(instance), name="mdns look")
            self._looks[instance] = look

    async def _look_while_stale(self, instance: str) -> None:
        """Look ever more slowly while news come: who flaps costs little.

        After the last news comes one more look: what a record replaced stays valid for a second
        (RFC 6762, section 10.2).
        """
        pause_s = self._pause_s
        try:
            while instance in self._stale:
                self._stale.discard(instance)
                await self._look(instance)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                if instance not in self._stale:
                    await self._look(instance)
        finally:
            del self._looks[instance]
            if self._is_named[instance] and instance not in self._services:
                del self._is_named[instance]

    async def _look(self, instance: str) -> None:
        if self._is_named[instance]:
            await self._ask(instance)
        if not self._is_named[instance] and instance in self._services:
            del self._services[instance]
            self._tell(EndpointLost(instance))

    async def _ask(self, instance: str) -> None:
        before = self._services.get(instance)
        is_doubted = instance in self._doubted
        self._doubted.discard(instance)
        try:
            service = await self._resolve(instance, before)
        except RecordError as error:
            if is_doubted and instance not in self._stale:
                self._is_named[instance] = False
            elif before is None:
                self._refuse(instance, str(error))
            return
        if self._is_named[instance] and service != before:
            self._services[instance] = service
            self._tell(EndpointFound(service))

    def _refuse(self, instance: str, why: str) -> None:
        """One line for a service and reason, and a bounded number of them at all."""
        if (instance, why) not in self._refused and len(self._refused) < _MAX_REFUSED:
            self._refused.add((instance, why))
            _LOGGER.info("mdns: %s: ignored: %s", clean(instance, 80), why)
