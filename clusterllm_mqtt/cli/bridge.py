"""`bridge`: the long-running process; a live table on a terminal, log lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.bridge import Bridge, BridgeOptions
from clusterllm_mqtt.cli.signals import until_signal
from clusterllm_mqtt.config.bridge import bridge_options, state_folder
from clusterllm_mqtt.config.broker import broker_options
from clusterllm_mqtt.config.settings import Settings, load_settings
from clusterllm_mqtt.mqtt.broker import PORT, PrivateBroker

if TYPE_CHECKING:
    import argparse

_TABLE_EVERY_S: Final = 1.0
_LOGGER = logging.getLogger(__name__)


def run(args: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM."""
    settings = load_settings(args.file)
    if not args.debug:
        logging.getLogger().setLevel(settings.log.level.upper())
    asyncio.run(until_signal(_run(settings)))
    return 0


async def _run(settings: Settings) -> None:
    broker = broker_options(settings.mqtt)
    options = bridge_options(settings, broker)
    async with contextlib.AsyncExitStack() as stack:
        if not broker.host:
            private = PrivateBroker(state_folder() / "broker", port=broker.port)
            await stack.enter_async_context(private)
            options = replace(options, broker=private.options)
            _say_what_next(private, options)
        bridge = Bridge(options)
        if sys.stderr.isatty():
            from clusterllm_mqtt.cli.live import live_table  # noqa: PLC0415  # rich is 6 MB

            table = asyncio.create_task(live_table(bridge, every_s=_TABLE_EVERY_S), name="table")
            stack.callback(table.cancel)
        await bridge.run()


def _say_what_next(broker: PrivateBroker, options: BridgeOptions) -> None:
    """A fresh machine's next steps; whoever configured a broker knows them."""
    where = f"-h {broker.host} -p {broker.port}"
    port = "" if broker.port == PORT else f"CLUSTERLLM_MQTT__PORT={broker.port} "
    lines = [
        f"no broker is configured (mqtt.host): a private one, {broker.kind}, serves this machine",
        f"look at it: mosquitto_sub {where} -v -t '{options.topics.base}/#'",
        f"or: {port}clusterllm-mqtt status",
        "announce a server of this machine: clusterllm-mqtt advertise --port 8080",
    ]
    if options.home_assistant:
        lines.append(
            f"Home Assistant on this machine: add its MQTT integration with broker {broker.host}, "
            f"port {broker.port}; anywhere else: configure mqtt.host"
        )
    for line in lines:
        _LOGGER.info("private broker: %s", line)
