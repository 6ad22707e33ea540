"""`advertise`: announces a server that cannot do so itself."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from clusterllm_mqtt.cli.signals import until_signal
from clusterllm_mqtt.errors import ConfigError, RecordError
from clusterllm_mqtt.mdns.advertiser import Advertisement, Advertiser
from clusterllm_mqtt.service_record import path_prefix

if TYPE_CHECKING:
    import argparse

_LOGGER = logging.getLogger(__name__)


def run(args: argparse.Namespace) -> int:
    """Announce until SIGINT or SIGTERM, then say goodbye."""
    path = _checked_path(args.path)
    hints = {"backend": args.backend, "path": path, "proto": args.proto, "model": args.model}
    advertisement = Advertisement(
        name=args.name or f"{args.backend} on {socket.gethostname().split('.')[0]}",
        port=args.port,
        service_type=args.type or f"_{args.backend}._tcp",
        txt={key: value for key, value in hints.items() if value},
        interfaces=tuple(args.interface),
    )
    asyncio.run(until_signal(_advertise(advertisement)))
    return 0


def _checked_path(text: str) -> str:
    """Raises `ConfigError` for a path that every browser of ours would ignore."""
    try:
        return path_prefix(text)
    except RecordError as error:
        raise ConfigError(f"--path: {error}: write one absolute path, like /llm") from None


async def _advertise(advertisement: Advertisement) -> None:
    async with Advertiser(advertisement) as advertiser:
        _LOGGER.info("%s: advertised with port %d", advertiser.instance, advertisement.port)
        await asyncio.Event().wait()
