"""Browses for services.

A callback means "look again"; the table of services decides when. Nothing that a neighbour sends
raises into the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from zeroconf import Error, ServiceStateChange, current_time_millis
from zeroconf.asyncio import AsyncServiceBrowser

from clusterllm_mqtt.defaults import PRIVATE_NETWORKS, Network
from clusterllm_mqtt.errors import MdnsError
from clusterllm_mqtt.mdns.resolver import Resolver, forget_records
from clusterllm_mqtt.mdns.service_table import ServiceTable
from clusterllm_mqtt.mdns.sockets import DOMAIN, open_zeroconf, own_interfaces
from clusterllm_mqtt.models import EndpointFound, EndpointLost, MdnsHealth, MdnsState
from clusterllm_mqtt.service_record import service_from_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from zeroconf import Zeroconf
    from zeroconf.asyncio import AsyncZeroconf

    from clusterllm_mqtt.models import Service

SERVICE_TYPES: Final = (
    "_llamacpp._tcp",
    "_llama-cpp._tcp",
    "_llama._tcp",
    "_gpustack._tcp",
    "_openai._tcp",
    "_llm._tcp",
)
MAX_SERVICES: Final = 64
_PTR: Final = 12
_IN: Final = 1
_MAX_REQUESTS: Final = 8
_FLOOD: Final = 20_000


BrowserEvent = EndpointFound | EndpointLost | MdnsHealth


@dataclass(frozen=True, slots=True)
class MdnsOptions:
    """What to browse for; `interfaces` are addresses of this host, none means all.

    Every `check_every_s` seconds the interfaces and what was missed are looked at, and where
    multicast does not work, it is tried again.
    """

    service_types: tuple[str, ...] = SERVICE_TYPES
    interfaces: tuple[str, ...] = ()
    allowed_networks: tuple[Network, ...] = PRIVATE_NETWORKS
    max_services: int = MAX_SERVICES
    check_every_s: float = 60.0


class Browser:
    """Browses while it is open; `events` tells what is found and lost, and how it goes.

    Where multicast does not work, that is told as `MdnsHealth`, and tried again: a machine that
    boots may have no network yet. At most `max_services` names are heeded in each minute.
    """

    def __init__(self, options: MdnsOptions | None = None) -> None:
        self._options = options or MdnsOptions()
        self._types = [service_type + DOMAIN for service_type in self._options.service_types]
        turns = asyncio.Semaphore(_MAX_REQUESTS)
        self._resolver = Resolver(self._options.interfaces, turns)
        self._events: asyncio.Queue[BrowserEvent] = asyncio.Queue()
        max_services = self._options.max_services
        self._table = ServiceTable(self._resolve, self._tell, max_services=max_services)
        self._names_heard = 0
        self._is_flooded = asyncio.Event()
        self._zeroconf: AsyncZeroconf | None = None
        self._browsing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._browsing = asyncio.create_task(self._browse(), name="mdns browse")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._browsing is not None:
            self._browsing.cancel()
            await asyncio.gather(self._browsing, return_exceptions=True)
        await self._table.close()

    async def events(self) -> AsyncIterator[BrowserEvent]:
        """What changes, in order; for one reader."""
        while True:
            yield await self._events.get()

    def refresh(self, instance: str) -> None:
        """Ask a known service again: a new address does not always announce itself."""
        if self._zeroconf is not None and instance in self._table:
            forget_records(self._zeroconf.zeroconf, instance)
            self._table.note(instance, is_named=True)

    async def _browse(self) -> None:
        while True:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    self._zeroconf = open_zeroconf(self._options.interfaces)
                    stack.push_async_callback(self._zeroconf.async_close)
                    await self._stay(self._zeroconf.zeroconf)
            except (MdnsError, Error, OSError, RuntimeError) as error:
                detail = str(error) if isinstance(error, MdnsError) else f"cannot browse: {error}"
                self._events.put_nowait(MdnsHealth(MdnsState.FAILED, detail=detail))
                await asyncio.sleep(self._options.check_every_s)

    async def _stay(self, zeroconf: Zeroconf) -> None:
        """Return when it is time for new sockets.

        Memberships and questions do not follow Wi-Fi and VPN changes by themselves, and zeroconf
        remembers for an hour to ask for each name that a flood brought.
        """
        self._names_heard = 0
        self._is_flooded.clear()
        async with AsyncServiceBrowser(zeroconf, self._types, [self._on_change]):
            self._tell_health()
            interfaces = own_interfaces()
            while interfaces == own_interfaces():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._options.check_every_s):
                        await self._is_flooded.wait()
                        return
                self._table.catch_up(_named(zeroconf, self._types))

    def _on_change(
        self,
        zeroconf: Zeroconf,  # noqa: ARG002  # zeroconf calls by these names
        service_type: str,  # noqa: ARG002
        name: str,
        state_change: ServiceStateChange,
    ) -> None:
        self._names_heard += state_change is ServiceStateChange.Added
        if self._names_heard > _FLOOD:
            self._is_flooded.set()
        self._table.note(name, is_named=state_change is not ServiceStateChange.Removed)

    async def _resolve(self, instance: str, before: Service | None) -> Service:
        """Raises `RecordError` for what may not be probed."""
        assert self._zeroconf is not None  # noqa: S101  # looks start in an open browser only
        return service_from_record(
            await self._resolver.resolve(self._zeroconf.zeroconf, instance),
            allowed=self._options.allowed_networks,
            local=own_interfaces(),
            before=before,
        )

    def _tell(self, event: EndpointFound | EndpointLost) -> None:
        self._events.put_nowait(event)
        self._tell_health()

    def _tell_health(self) -> None:
        self._events.put_nowait(MdnsHealth(MdnsState.OK, len(self._table)))


def _named(zeroconf: Zeroconf, service_types: Iterable[str]) -> set[str]:
    """The instances that are announced and have not expired."""
    now_ms = current_time_millis()
    return {
        record.alias  # type: ignore[attr-defined]  # a PTR record has one
        for service_type in service_types
        for record in zeroconf.cache.async_all_by_details(service_type, _PTR, _IN)
        if not record.is_expired(now_ms)
    }
