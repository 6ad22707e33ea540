"""Browses for services.

A callback means "look again": it starts a bounded request for the service's records and is told as
`EndpointFound` only when they changed. Nothing that a neighbour sends raises into the event loop,
and no log line can be had for a packet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from zeroconf import (
    BadTypeInNameException,
    Error,
    IPVersion,
    ServiceStateChange,
)
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo

from clusterllm_mqtt.errors import MdnsError, RecordError
from clusterllm_mqtt.mdns.sockets import DOMAIN, is_loopback_only, open_zeroconf, own_name
from clusterllm_mqtt.models import EndpointFound, EndpointLost, MdnsHealth, MdnsState
from clusterllm_mqtt.service_record import (
    ALLOWED_NETWORKS,
    Network,
    ServiceRecord,
    service_from_record,
)
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
_REQUEST_MS: Final = 3000
_MAX_REQUESTS: Final = 8
_ATTEMPTS: Final = 3
_AGAIN_S: Final = 60.0
_MAX_REJECTIONS_LOGGED: Final = 256
_LOGGER = logging.getLogger(__name__)


BrowserEvent = EndpointFound | EndpointLost | MdnsHealth


@dataclass(frozen=True, slots=True)
class MdnsOptions:
    """What to browse for; `interfaces` are addresses of this host, none means all."""

    service_types: tuple[str, ...] = SERVICE_TYPES
    interfaces: tuple[str, ...] = ()
    allowed_networks: tuple[Network, ...] = ALLOWED_NETWORKS
    max_services: int = MAX_SERVICES


class Browser:
    """Browses while it is open; `events` tells what is found and lost, and how it goes.

    Where multicast does not work, that is told once as `MdnsHealth`, and tried again every minute:
    a machine that boots may have no network yet.
    """

    def __init__(self, options: MdnsOptions | None = None) -> None:
        self._options = options or MdnsOptions()
        self._events: asyncio.Queue[BrowserEvent] = asyncio.Queue()
        self._services: dict[str, Service] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._requests = asyncio.Semaphore(_MAX_REQUESTS)
        self._rejected: set[str] = set()
        self._is_full = False
        self._zeroconf: AsyncZeroconf | None = None
        self._browsing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._browsing = asyncio.create_task(self._browse(), name="mdns browse")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._looking.values(), *filter(None, [self._browsing])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def events(self) -> AsyncIterator[BrowserEvent]:
        """What changes, in order; for one reader."""
        while True:
            yield await self._events.get()

    async def _browse(self) -> None:
        while True:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    await self._open(stack)
                    self._tell_health()
                    await self._follow_interfaces()
            except MdnsError as error:
                self._events.put_nowait(MdnsHealth(MdnsState.FAILED, detail=str(error)))
            await asyncio.sleep(_AGAIN_S)

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        """Raises `MdnsError` where there is no multicast."""
        self._zeroconf = open_zeroconf(self._options.interfaces)
        stack.push_async_callback(self._zeroconf.async_close)
        types = [service_type + DOMAIN for service_type in self._options.service_types]
        try:
            browser = AsyncServiceBrowser(
                self._zeroconf.zeroconf, types, handlers=[self._on_change]
            )
        except (BadTypeInNameException, OSError) as error:
            raise MdnsError(f"cannot browse {', '.join(types)}: {error}") from None
        stack.push_async_callback(browser.async_cancel)

    def _tell_health(self) -> None:
        self._events.put_nowait(MdnsHealth(MdnsState.OK, len(self._services)))

    def refresh(self, instance: str) -> None:
        """Look at a known service again: a new address does not always announce itself."""
        if instance in self._services:
            self._look_at(instance)

    def _on_change(
        self,
        zeroconf: Zeroconf,  # noqa: ARG002  # zeroconf calls by these names
        service_type: str,  # noqa: ARG002
        name: str,
        state_change: ServiceStateChange,
    ) -> None:
        if state_change is not ServiceStateChange.Removed:
            self._look_at(name)
            return
        if task := self._looking.pop(name, None):
            task.cancel()
        if self._services.pop(name, None):
            self._events.put_nowait(EndpointLost(name))
            self._tell_health()

    def _look_at(self, name: str) -> None:
        if name in self._looking:
            return
        is_new = name not in self._services
        if is_new and len(self._services.keys() | self._looking) >= self._options.max_services:
            if not self._is_full:
                text = "mdns: %d services are known already; more are ignored (mdns.max_endpoints)"
                _LOGGER.warning(text, self._options.max_services)
            self._is_full = True
            return
        task = asyncio.create_task(self._look(name), name="mdns look")
        self._looking[name] = task
        task.add_done_callback(lambda _: self._looking.pop(name, None))

    async def _look(self, name: str) -> None:
        record = await self._resolve(name)
        if record is None:
            return
        before = self._services.get(name)
        in_use = next((host for host in before.hosts if host in before.url), "") if before else ""
        try:
            service = service_from_record(
                record, allowed=self._options.allowed_networks, in_use=in_use
            )
        except RecordError as error:
            self._reject(name, str(error))
            return
        if service != before:
            self._services[name] = service
            self._events.put_nowait(EndpointFound(service))
            self._tell_health()

    async def _resolve(self, name: str) -> ServiceRecord | None:
        """The records of a service; None when they cannot be had or read."""
        service_type = ".".join(name.rsplit(".", 4)[-4:])
        try:
            info = AsyncServiceInfo(service_type, name)
            async with self._requests:
                for _ in range(_ATTEMPTS):
                    if await self._request(info):
                        break
                else:
                    return None
            addresses = info.parsed_scoped_addresses(IPVersion.All)
        except (Error, OSError, ValueError, UnicodeError) as error:
            self._reject(name, type(error).__name__)
            return None
        host = info.server or ""
        names_us = host.split(".")[0].lower() == own_name()
        return ServiceRecord(
            instance=name,
            type=service_type.removesuffix(DOMAIN),
            host=host,
            port=info.port or 0,
            addresses=addresses,
            txt=info.text or b"",
            is_own=names_us or is_loopback_only(self._options.interfaces),
        )

    async def _request(self, info: AsyncServiceInfo) -> bool:
        assert self._zeroconf is not None  # noqa: S101  # looks start in an open browser only
        return bool(await info.async_request(self._zeroconf.zeroconf, _REQUEST_MS))

    def _reject(self, name: str, why: str) -> None:
        """One line for a service and reason, and a bounded number of them at all."""
        line = f"{clean(name, 80)}: ignored: {why}"
        if line not in self._rejected and len(self._rejected) < _MAX_REJECTIONS_LOGGED:
            self._rejected.add(line)
            _LOGGER.info("mdns: %s", line)

    async def _follow_interfaces(self) -> None:
        """Multicast memberships do not follow Wi-Fi and VPN changes by themselves."""
        assert self._zeroconf is not None  # noqa: S101
        while True:
            await asyncio.sleep(_AGAIN_S)
            if self._options.interfaces:
                continue
            with contextlib.suppress(OSError, RuntimeError):
                await self._zeroconf.async_update_interfaces()
