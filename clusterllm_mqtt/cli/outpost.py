"""`outpost`: the other long-running process; it may run on another host than the bridge."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from clusterllm_mqtt.cli.signals import until_signal
from clusterllm_mqtt.config.outpost import outpost_options
from clusterllm_mqtt.config.settings import load_settings
from clusterllm_mqtt.outpost.runner import Outpost

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM."""
    settings = load_settings(args.file)
    if not args.debug:
        logging.getLogger().setLevel(settings.log.level.upper())
    options = outpost_options(settings)
    asyncio.run(until_signal(Outpost(options).run()))
    return 0
