"""Opening multicast sockets, or saying why this host has none; and what this host is called."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final

import ifaddr
from zeroconf import InterfaceChoice
from zeroconf.asyncio import AsyncZeroconf

from clusterllm_mqtt.errors import MdnsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterllm_mqtt.service_record import Interface

DOMAIN: Final = ".local."


def open_zeroconf(interfaces: Sequence[str]) -> AsyncZeroconf:
    """Sockets on these addresses of this host, or on all.

    Raises:
        MdnsError: there is no multicast.
    """
    try:
        return AsyncZeroconf(interfaces=list(interfaces) or InterfaceChoice.All)
    except (OSError, RuntimeError) as error:
        raise MdnsError(
            f"no multicast on {', '.join(interfaces) or 'any interface'}: {error}; configure "
            "endpoints by URL, or give the process the host's network"
        ) from None


def is_loopback_only(interfaces: Sequence[str]) -> bool:
    """Whether nobody but this host should be heard."""
    return bool(interfaces) and all(ipaddress.ip_address(i).is_loopback for i in interfaces)


def own_name() -> str:
    """This host's first label, lower case."""
    return socket.gethostname().split(".")[0].lower()


def own_interfaces() -> tuple[Interface, ...]:
    """This host's addresses with their networks; without link-local IPv6, which comes and goes."""
    found: list[Interface] = []
    for adapter in ifaddr.get_adapters():
        for ip in adapter.ips:
            address = ip.ip if isinstance(ip.ip, str) else ip.ip[0]
            interface = ipaddress.ip_interface(f"{address}/{ip.network_prefix}")
            if interface.version == 4 or not interface.is_link_local:  # noqa: PLR2004
                found.append(interface)
    return tuple(found)


def own_addresses() -> list[str]:
    """This host's IPv4 addresses that others can reach; loopback where there is none."""
    addresses = [i.ip for i in own_interfaces() if i.version == 4]  # noqa: PLR2004
    reachable = [str(a) for a in addresses if not (a.is_loopback or a.is_link_local)]
    return reachable or ["127.0.0.1"]
