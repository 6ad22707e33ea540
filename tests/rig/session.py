"""Reads a session's events beside a test, and keeps them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from clusterllm_mqtt.mqtt.events import Connected, Received, SessionEvent
from clusterllm_mqtt.mqtt.session import Session
from rig.mosquitto import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
    from clusterllm_mqtt.mqtt.messages import Message


class Follower:
    """What a session told so far; `error` is what it ended with."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.seen: list[SessionEvent] = []
        self.error: Exception | None = None
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        try:
            async for event in self.session.events():
                self.seen.append(event)
        except Exception as error:  # noqa: BLE001  # kept for the test to look at
            self.error = error

    def count(self, kind: type[SessionEvent]) -> int:
        """How many events of a kind there were."""
        return sum(isinstance(event, kind) for event in self.seen)

    async def connected(self, times: int = 1) -> None:
        """Wait for so many connections; raises what the session ended with instead."""
        await eventually(lambda: self.count(Connected) >= times or self.error is not None)
        if self.error is not None:
            raise self.error

    async def ended(self, seconds: float = 10.0) -> Exception:
        """Wait until the session ended for good."""
        await eventually(lambda: self.error is not None, seconds)
        assert self.error is not None
        return self.error

    def messages(self) -> list[tuple[str, bytes]]:
        """What was received, in order."""
        return [(e.topic, e.payload) for e in self.seen if isinstance(e, Received)]

    def close(self) -> None:
        """Read no further."""
        self._task.cancel()


@contextlib.asynccontextmanager
async def following(
    options: BrokerOptions, *, client_id: str = "test", will: Message | None = None
) -> AsyncIterator[Follower]:
    """A session and its follower."""
    async with Session(options, client_id=client_id, will=will) as session:
        follower = Follower(session)
        try:
            yield follower
        finally:
            follower.close()
