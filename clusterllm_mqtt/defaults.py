"""What holds when nothing is configured; here, so that a setting and its part agree."""

from __future__ import annotations

import ipaddress
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

INTERVAL_S: Final = 15.0
FAILURE_THRESHOLD: Final = 2
FORGET_AFTER_S: Final = 7 * 24 * 3600.0
MAX_BROWSED: Final = 64
PRIVATE_NETWORKS: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "127.0.0.0/8",
        "fc00::/7",
        "fe80::/10",
        "::1/128",
    )
)
"""Where browsed endpoints may be, loopback only for records of this very host; and where a registry
may be asked over plain http."""
