"""A fleet: home brokers that forward to a central one, homes straight on it, and registries."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from clusterllm_mqtt.bridge import Bridge, BridgeOptions
from clusterllm_mqtt.errors import BrokerError
from clusterllm_mqtt.mqtt.events import Connected
from clusterllm_mqtt.mqtt.messages import Message, availability_message, encode
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.topics import BridgeTopics, OutpostTopics
from clusterllm_mqtt.outpost.registry import PATH
from clusterllm_mqtt.outpost.runner import Outpost, OutpostOptions
from rig.home import running
from rig.mosquitto import eventually
from rig.samples import configured
from rig.stub import StubEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
    from rig.mosquitto import Mosquitto

DIRECT: Final = tuple(f"direct-{number:02}" for number in range(48))
HEARTBEAT_S: Final = 1.0
"""Of the bridges here: after a restart of the central broker an outpost waits for the next one."""


def forwarding(home: str, central_port: int) -> tuple[str, ...]:
    """What a home's Mosquitto is configured with; docs/scaling.md shows the same."""
    return (
        f"connection {home}",
        f"address 127.0.0.1:{central_port}",
        f"remote_clientid {home}",
        "topic clusterllm/# out 1",
        "bridge_protocol_version mqttv50",
        "cleansession true",
        "notifications false",
        "restart_timeout 1 30",
    )


def serves(*models: str) -> dict[str, Any]:
    """The scenario of a llama.cpp server with these models."""
    listed = [{"id": model, "object": "model", "owned_by": "llamacpp"} for model in models]
    body = json.dumps({"object": "list", "data": listed})
    return {
        "routes": {
            "/health": {"body": '{"status":"ok"}'},
            "/v1/models": {"headers": {"Server": "llama.cpp"}, "body": body},
        }
    }


class Registry(StubEndpoint):
    """A registry that takes everything; what it was told are sets of model names, in order."""

    def __init__(self) -> None:
        super().__init__({"routes": {PATH: {"status": 200}}})

    @property
    def told(self) -> list[set[str]]:
        """The models of each push."""
        bodies = (json.loads(request.body) for request in self.requests)
        return [{model["name"] for model in body["models"]} for body in bodies]

    @property
    def models(self) -> set[str] | None:
        """Those of the last one; None before the first."""
        return self.told[-1] if self.requests else None


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Let something run beside a test; what it fails with fails the test."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def bridge(home: str, broker: Mosquitto, endpoint: StubEndpoint) -> Bridge:
    """A home's bridge, which looks at its one endpoint every second."""
    return Bridge(
        BridgeOptions(
            topics=BridgeTopics(bridge=home),
            broker=broker.options,
            endpoints=(configured(url=endpoint.url),),
            mdns=None,
            interval_s=1.0,
            heartbeat_s=HEARTBEAT_S,
        )
    )


def outpost(agent: str, broker: BrokerOptions, registry: Registry, *bridges: str) -> Outpost:
    """An outpost on the central broker, for some homes or for all."""
    return Outpost(
        OutpostOptions(
            cloudbox_url=registry.url,
            token=SecretStr("sesame"),
            topics=OutpostTopics(agent=agent, bridges=bridges),
            broker=broker,
            home_assistant=False,
            coalesce_s=0.2,
        )
    )


def everything(home: str) -> list[Message]:
    """What the bridge of a home with one model, named like the home, retains."""
    topics = BridgeTopics(bridge=home)
    return [
        Message(topics.info("box"), encode(running(home, vram=1))),
        Message(topics.status, encode({"endpoints": ["box"]})),
        availability_message(topics, online=True),
    ]


async def direct_homes(broker: Mosquitto) -> None:
    """Homes without a broker of their own: each connection says everything again."""
    messages = [message for home in DIRECT for message in everything(home)]
    async with Session(broker.options, client_id="direct") as session:
        async for event in session.events():
            if isinstance(event, Connected):
                with contextlib.suppress(BrokerError):  # killed meanwhile
                    await session.publish(*messages)


class Fleet:
    """Fifty homes, an outpost for each of the two with a broker of their own, and one for all."""

    def __init__(self, make: Callable[..., Mosquitto]) -> None:
        self.central = make()
        port = self.central.port
        self.brokers = {home: make(*forwarding(home, port)) for home in ("home-1", "home-2")}
        self.endpoints = {home: StubEndpoint(serves(f"{home}-model")) for home in self.brokers}
        self.one, self.two, self.all = Registry(), Registry(), Registry()

    @property
    def truth(self) -> set[str]:
        """The models of all homes."""
        return {*DIRECT, "home-1-model", "home-2-model"}

    @property
    def is_told(self) -> bool:
        """Whether each registry has its home's models, and no other's."""
        one, two = {"home-1-model"}, {"home-2-model"}
        return (self.one.models, self.two.models, self.all.models) == (one, two, self.truth)

    def is_online(self, home: str) -> bool:
        """Whether the central broker has heard of a home."""
        topic = BridgeTopics(bridge=home).availability
        return self.central.retained(topic).get(topic) == b"online"

    @contextlib.asynccontextmanager
    async def homes(self, *bridged: str) -> AsyncIterator[None]:
        """The homes, with bridges here for those that are named."""
        async with contextlib.AsyncExitStack() as stack:
            for server in (*self.endpoints.values(), self.one, self.two, self.all):
                await stack.enter_async_context(server)
            await stack.enter_async_context(beside(direct_homes(self.central)))
            for home in bridged:
                work = bridge(home, self.brokers[home], self.endpoints[home])
                await stack.enter_async_context(beside(work.run()))
            for home in (*bridged, DIRECT[-1]):
                await eventually(lambda home=home: self.is_online(home))  # type: ignore[misc]
            yield

    @contextlib.asynccontextmanager
    async def outposts(self) -> AsyncIterator[None]:
        """All three of them."""
        broker = self.central.options
        one = outpost("home-1", broker, self.one, "home-1")
        two = outpost("home-2", broker, self.two, "home-2")
        of_all = outpost("all", broker, self.all)
        async with beside(one.run()), beside(two.run()), beside(of_all.run()):
            yield

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything, once each registry was told."""
        async with self.homes("home-1", "home-2"), self.outposts():
            await eventually(lambda: self.is_told)
            yield
