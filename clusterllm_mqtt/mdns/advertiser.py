"""Announces a server that cannot do so itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from zeroconf import BadTypeInNameException, Error
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from clusterllm_mqtt.errors import MdnsError
from clusterllm_mqtt.mdns.sockets import DOMAIN, open_zeroconf, own_addresses, own_name
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

_GOODBYES: Final = 3
_BETWEEN_GOODBYES_S: Final = 0.125


@dataclass(frozen=True, slots=True)
class Advertisement:
    """A server that cannot announce itself; `txt` by the documented keys.

    `interfaces` are addresses of this host, which are named alone; none means all that others can
    reach, looked at again every `check_every_s` seconds.
    """

    name: str
    port: int
    service_type: str = "_llamacpp._tcp"
    txt: Mapping[str, str] = field(default_factory=dict)
    interfaces: tuple[str, ...] = ()
    check_every_s: float = 60.0


class Advertiser:
    """Announces a service while it is open; says goodbye when it closes.

    After entering, which takes about a second to ask whether the name is free, `instance` is the
    name in use: a name that is taken gets a number.
    """

    def __init__(self, advertisement: Advertisement) -> None:
        self._advertisement = advertisement
        self._stack = contextlib.AsyncExitStack()
        self.instance = ""

    async def __aenter__(self) -> Self:
        """Raises `MdnsError` where there is no multicast, or for what cannot be announced."""
        what = self._advertisement
        async with contextlib.AsyncExitStack() as stack:
            aiozc = open_zeroconf(what.interfaces)
            stack.push_async_callback(aiozc.async_close)
            try:
                info = _info(what)
                announcing = await aiozc.async_register_service(info, allow_name_change=True)
            except (Error, OSError, ValueError) as error:
                raise MdnsError(
                    f"cannot advertise {clean(what.name, 63)!r}: {_remedy(error)}"
                ) from None
            stack.push_async_callback(_say_goodbye, aiozc, info)
            stack.callback(asyncio.ensure_future(announcing).cancel)
            if not what.interfaces:
                following = asyncio.create_task(_follow(aiozc, info, what.check_every_s))
                stack.callback(following.cancel)
            self._stack = stack.pop_all()
        self.instance = info.name
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


def _info(what: Advertisement) -> AsyncServiceInfo:
    service_type = what.service_type + DOMAIN
    return AsyncServiceInfo(
        service_type,
        f"{what.name}.{service_type}",
        port=what.port,
        properties={"txtvers": "1", **what.txt},
        server=f"{own_name()}{DOMAIN}",
        parsed_addresses=list(what.interfaces) or own_addresses(),
    )


def _remedy(error: Exception) -> str:
    if isinstance(error, BadTypeInNameException):
        return (
            "use a name of at most 63 bytes without control characters, and a service type like "
            "_llamacpp._tcp"
        )
    if isinstance(error, ValueError):
        return "shorten it: each TXT entry, key and value together, has at most 255 bytes"
    return f"{clean(str(error), 200) or type(error).__name__}; is multicast possible here?"


async def _follow(aiozc: AsyncZeroconf, info: AsyncServiceInfo, check_every_s: float) -> None:
    """Name new addresses: a service that starts with the machine may start before its network."""
    named = info.parsed_addresses()
    while True:
        await asyncio.sleep(check_every_s)
        addresses = own_addresses()
        if addresses != named:
            info.addresses = [socket.inet_aton(address) for address in addresses]
            with contextlib.suppress(Error, OSError, RuntimeError):
                await aiozc.async_update_interfaces()
                await aiozc.async_update_service(info)
                named = addresses


async def _say_goodbye(aiozc: AsyncZeroconf, info: AsyncServiceInfo) -> None:
    """Only the service leaves.

    zeroconf's own goodbye takes the addresses along, and the neighbours would forget this host's
    name although it is still there.
    """
    zeroconf = aiozc.zeroconf
    zeroconf.registry.async_remove(info)
    goodbye = zeroconf.generate_service_broadcast(info, 0, broadcast_addresses=False)
    for _ in range(_GOODBYES):
        zeroconf.async_send(goodbye)
        await asyncio.sleep(_BETWEEN_GOODBYES_S)
