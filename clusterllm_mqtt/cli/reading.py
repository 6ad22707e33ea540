"""Reads what a broker retains, once, for the commands that look at it."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.config.broker import reachable_broker
from clusterllm_mqtt.errors import BrokerUnavailableError
from clusterllm_mqtt.mqtt.events import Connected, Received
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from clusterllm_mqtt.config.settings import Settings

CONNECT_TIMEOUT_S: Final = 5.0


@asynccontextmanager
async def reading(
    settings: Settings,
    filters: Iterable[str],
    expected: Callable[[Mapping[str, bytes]], frozenset[str]],
) -> AsyncIterator[tuple[Session, Snapshot]]:
    """What a broker retains below some filters, read whole, and the session to act on it.

    Raises:
        BrokerError: the broker refuses us, or cannot be reached within 5 s.
    """
    options = reachable_broker(settings.mqtt)
    snapshot = Snapshot(filters, expected)
    async with Session(options, client_id=f"clusterllm-cli-{uuid.uuid4().hex[:12]}") as session:
        events = session.events()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                while not isinstance(await anext(events), Connected):
                    pass
        except TimeoutError:
            raise BrokerUnavailableError(f"{options}: no connection; is the broker up?") from None
        feeding = asyncio.create_task(_feed(events, snapshot), name="feed snapshot")
        try:
            await snapshot.read(session)
            yield session, snapshot
        finally:
            feeding.cancel()


async def _feed(events: AsyncIterator[object], snapshot: Snapshot) -> None:
    async for event in events:
        if isinstance(event, Received):
            snapshot.saw(event.topic, event.payload, is_retained=event.retain)
