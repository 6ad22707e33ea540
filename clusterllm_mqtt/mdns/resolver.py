"""Asks one service for its records, whatever its answers are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zeroconf import Error, IPVersion
from zeroconf.asyncio import AsyncServiceInfo

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.mdns.sockets import DOMAIN, is_loopback_only, own_name
from clusterllm_mqtt.service_record import ServiceRecord

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from zeroconf import Zeroconf

_REQUEST_MS: Final = 3000


class Resolver:
    """Reads services on the given interfaces; `turns` bounds how many are asked at a time."""

    def __init__(self, interfaces: Sequence[str], turns: asyncio.Semaphore) -> None:
        self._hears_us_only = is_loopback_only(interfaces)
        self._turns = turns

    async def resolve(self, zeroconf: Zeroconf, instance: str) -> ServiceRecord:
        """A service's records: those that are known, or within 3 s those that it answers.

        `is_own` follows from what this host can know: the record names this host, or is heard where
        nobody else should be. A liar gains GET requests to a port of this host, and no key.

        Raises:
            RecordError: there are none, or they cannot be read.
        """
        try:
            info = _info(instance)
            if not info.load_from_cache(zeroconf):
                async with self._turns:
                    await info.async_request(zeroconf, _REQUEST_MS)
            addresses = info.parsed_scoped_addresses(IPVersion.All)
        except (Error, OSError, ValueError) as error:
            raise RecordError(f"unreadable records ({type(error).__name__})") from None
        if info.server is None:
            raise RecordError("it does not answer")
        return ServiceRecord(
            instance=instance,
            type=info.type.removesuffix(DOMAIN),
            host=info.server,
            port=info.port or 0,
            addresses=addresses,
            txt=info.text,
            is_own=self._hears_us_only or info.server.split(".")[0].lower() == own_name(),
        )


def forget_records(zeroconf: Zeroconf, instance: str) -> None:
    """Make the next `resolve` ask: an address that went without a word is known for two minutes."""
    info = _info(instance)
    info.load_from_cache(zeroconf)
    for name in {instance, info.server or instance}:
        records = zeroconf.cache.async_entries_with_name(name)
        zeroconf.cache.async_remove_records(records)


def _info(instance: str) -> AsyncServiceInfo:
    return AsyncServiceInfo(".".join(instance.split(".")[-4:]), instance)
