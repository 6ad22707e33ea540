"""Opening multicast sockets, or saying why this host has none."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

import ifaddr
from zeroconf import InterfaceChoice
from zeroconf.asyncio import AsyncZeroconf

from clusterllm_mqtt.errors import MdnsError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Whether nobody but this host can be heard."""
    return bool(interfaces) and all(address.startswith("127.") for address in interfaces)


def own_name() -> str:
    """This host's first label, lower case."""
    return socket.gethostname().split(".")[0].lower()


def own_addresses() -> list[str]:
    """This host's IPv4 addresses that others can reach; loopback where there is none."""
    addresses = [
        ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if isinstance(ip.ip, str)
    ]
    return [a for a in addresses if not a.startswith(("127.", "169.254."))] or ["127.0.0.1"]
