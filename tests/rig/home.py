"""What bridges retain, without a bridge: for tests of those who read it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterllm_mqtt.mqtt.events import Connected
from clusterllm_mqtt.mqtt.messages import Message, availability_message, encode
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.topics import BridgeTopics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rig.mosquitto import Mosquitto


def running(*models: str, vram: int = 0, members: int = 1) -> dict[str, object]:
    """An info record."""
    return {
        "state": "running",
        "backend": "gpustack",
        "member_count": members,
        **({"aggregate_vram_bytes": vram} if vram else {}),
        "models": [{"name": name} for name in models],
    }


@dataclass(frozen=True)
class Home:
    """Publishes in the order of truth, as a bridge does."""

    session: Session
    topics: BridgeTopics

    async def tell(self, *, is_online: bool = True, **infos: dict[str, object]) -> None:
        """Everything that is retained now."""
        records = [Message(self.topics.info(k), encode(info)) for k, info in infos.items()]
        await self.session.publish(*records, self.index(*infos))
        await self.session.publish(availability_message(self.topics, online=is_online))

    async def change(self, key: str, info: dict[str, object]) -> None:
        """One record."""
        await self.session.publish(Message(self.topics.info(key), encode(info)))

    def index(self, *keys: str) -> Message:
        """The status, as far as readers look at it."""
        payload = json.dumps({"endpoints": sorted(keys)}).encode()
        return Message(self.topics.status, payload)


@asynccontextmanager
async def a_home(broker: Mosquitto, bridge: str = "home") -> AsyncIterator[Home]:
    """A home with a will, connected to the broker."""
    topics = BridgeTopics(bridge=bridge)
    will = availability_message(topics, online=False)
    client_id = f"clusterllm-bridge-{bridge}"
    async with Session(broker.options, client_id=client_id, will=will) as session:
        async for event in session.events():
            if isinstance(event, Connected):
                break
        yield Home(session, topics)
