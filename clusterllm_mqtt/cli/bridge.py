"""`bridge`: the long-running process; a live table on a terminal, log lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.bridge import Bridge
from clusterllm_mqtt.config import Settings, load_settings
from clusterllm_mqtt.config_values import bridge_options, broker_options, state_folder
from clusterllm_mqtt.mqtt.broker import PrivateBroker
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

_TABLE_EVERY_S: Final = 1.0
_LOGGER = logging.getLogger(__name__)


def run(args: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM."""
    settings = load_settings(args.file)
    if not args.debug:
        logging.getLogger().setLevel(settings.log.level.upper())
    asyncio.run(until_signal(_run(settings)))
    return 0


async def until_signal(work: Coroutine[object, object, None]) -> None:
    """Let the work end in order when somebody stops the process."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _run(settings: Settings) -> None:
    async with contextlib.AsyncExitStack() as stack:
        broker = broker_options(settings.mqtt)
        if not broker.host:
            private = await stack.enter_async_context(PrivateBroker(state_folder() / "broker"))
            broker = BrokerOptions(private.host, private.port)
            _LOGGER.info("private broker: %s on %s", private.kind, broker)
        bridge = Bridge(bridge_options(settings, broker))
        _say_what_next(broker, settings)
        if sys.stderr.isatty():
            from clusterllm_mqtt.cli.live import live_table  # noqa: PLC0415  # rich is 6 MB

            table = asyncio.create_task(live_table(bridge, every_s=_TABLE_EVERY_S), name="table")
            stack.callback(table.cancel)
        await bridge.run()


def _say_what_next(broker: BrokerOptions, settings: Settings) -> None:
    topic = f"{settings.mqtt.base_topic}/#"
    _LOGGER.info(
        "look at it: mosquitto_sub -h %s -p %d -v -t '%s'", broker.host, broker.port, topic
    )
    _LOGGER.info("announce a server of this machine: clusterllm-mqtt advertise --port 8080")
    if settings.home_assistant.enabled:
        _LOGGER.info("Home Assistant: add the MQTT integration with this broker; devices follow")
