"""How whoever lives on a broker says so, and that it ends; for bridges and outposts."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final, Protocol

from clusterllm_mqtt.errors import BrokerError
from clusterllm_mqtt.mqtt.snapshot import SubscribingClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from clusterllm_mqtt.mqtt.events import SessionEvent
    from clusterllm_mqtt.mqtt.messages import Message

HEARTBEAT_S: Final = 60.0
"""How often `online` is said; it expires after three times as long."""

RETRY_S: Final = 5.0
_GREETING_DELAY_S: Final = (0.5, 3.0)
_GOODBYE_TIMEOUT_S: Final = 3.0
_LOGGER = logging.getLogger(__name__)


class BrokerSession(SubscribingClient, Protocol):
    """What whoever publishes needs of the MQTT session."""

    def events(self) -> AsyncIterator[SessionEvent]:
        """Connections, disconnections and messages, in order."""
        ...

    async def publish(self, *messages: Message) -> None:
        """Send in this order, acknowledged."""
        ...

    def leave_will(self, *, leave: bool = True) -> None:
        """Whether the connection is to end so that the broker publishes the will."""
        ...


def greeting_delay_s() -> float:
    """How long to wait before Home Assistant is told everything again: not all at once."""
    return random.uniform(*_GREETING_DELAY_S)  # noqa: S311  # spreads load


async def say_goodbye(session: BrokerSession, who: str, *last_words: Message) -> None:
    """Acknowledged within 3 s, `offline` last; else the broker is left to publish the will."""
    session.leave_will()
    try:
        async with asyncio.timeout(_GOODBYE_TIMEOUT_S):
            await session.publish(*last_words)
    except (BrokerError, TimeoutError):
        _LOGGER.info("%s: offline not published; the will says it", who)
    else:
        session.leave_will(leave=False)
