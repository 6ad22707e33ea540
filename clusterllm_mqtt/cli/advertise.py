"""`advertise`: announces a server that cannot do so itself."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from clusterllm_mqtt.cli.bridge import until_signal
from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.mdns.advertiser import Advertisement, Advertiser

if TYPE_CHECKING:
    import argparse

_LOGGER = logging.getLogger(__name__)


def run(args: argparse.Namespace) -> int:
    """Announce until SIGINT or SIGTERM, then say goodbye."""
    if not 0 < args.port < 2**16:
        raise ConfigError(f"--port {args.port}: use 1 to 65535")
    hints = {"backend": args.backend, "path": args.path, "proto": args.proto, "model": args.model}
    advertisement = Advertisement(
        name=args.name or f"{args.backend} on {socket.gethostname().split('.')[0]}",
        port=args.port,
        service_type=args.type or f"_{args.backend}._tcp",
        txt={key: value for key, value in hints.items() if value},
        interfaces=tuple(args.interface),
    )
    asyncio.run(until_signal(_advertise(advertisement)))
    return 0


async def _advertise(advertisement: Advertisement) -> None:
    async with Advertiser(advertisement) as advertiser:
        _LOGGER.info("%s: advertised with port %d", advertiser.instance, advertisement.port)
        await asyncio.Event().wait()
