"""Announces a server that cannot do so itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from zeroconf import Error
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from clusterllm_mqtt.errors import MdnsError
from clusterllm_mqtt.mdns.sockets import DOMAIN, open_zeroconf, own_addresses, own_name
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Advertisement:
    """A server that cannot announce itself; `txt` by the documented keys."""

    name: str
    port: int
    service_type: str = "_llamacpp._tcp"
    txt: Mapping[str, str] = field(default_factory=dict)
    interfaces: tuple[str, ...] = ()


class Advertiser:
    """Announces a service while it is open; says goodbye when it closes.

    After entering, `instance` is the name in use: a name that is taken gets a number.
    """

    def __init__(self, advertisement: Advertisement) -> None:
        self._advertisement = advertisement
        self._zeroconf: AsyncZeroconf | None = None
        self.instance = ""

    async def __aenter__(self) -> Self:
        what = self._advertisement
        service_type = what.service_type + DOMAIN
        self._zeroconf = open_zeroconf(what.interfaces)
        try:
            info = AsyncServiceInfo(
                service_type,
                f"{what.name}.{service_type}",
                port=what.port,
                properties={"txtvers": "1", **what.txt},
                server=f"{own_name()}{DOMAIN}",
                parsed_addresses=list(what.interfaces) or own_addresses(),
            )
            await self._zeroconf.async_register_service(info, allow_name_change=True)
        except (Error, OSError, ValueError) as error:
            await self._zeroconf.async_close()
            raise MdnsError(
                f"cannot advertise {clean(what.name, 63)!r}: {type(error).__name__} {error}"
            ) from None
        self.instance = info.name
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._zeroconf is not None:
            await self._zeroconf.async_unregister_all_services()
            await self._zeroconf.async_close()
