"""The bridge's live table, with the log lines above it."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.logging import RichHandler

from clusterllm_mqtt.cli.render import Row, endpoint_table
from clusterllm_mqtt.cli.streams import LineFormatter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from clusterllm_mqtt.bridge import Bridge
    from clusterllm_mqtt.models import EndpointState


async def live_table(bridge: Bridge, *, every_s: float) -> None:
    """Draw what the bridge holds true, until cancelled."""
    console = Console(stderr=True)
    handler = RichHandler(console=console, show_path=False, markup=False)
    handler.setFormatter(LineFormatter("%(message)s"))
    logging.getLogger().handlers[:] = [handler]
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            table = bridge_table(bridge.states, now=datetime.now(UTC))
            live.update(table, refresh=True)
            await asyncio.sleep(every_s)


def bridge_table(states: Iterable[EndpointState], *, now: datetime) -> Table:
    """What a bridge holds true."""
    rows = [
        Row(s.endpoint.name, s.backend, s.info, s.reason, (now - s.probed_at).total_seconds())
        for s in states
    ]
    return endpoint_table(rows, age="Last probe")
