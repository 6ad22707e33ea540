"""The bridge behind a link that is slow, stalls or ends, and beside others of its id."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from rig.link import Link
from rig.mosquitto import Mosquitto, eventually, free_port
from rig.samples import at, browsed, endpoint_state
from rig.stub import StubEndpoint

from clusterllm_mqtt.bridge import Bridge, BridgeOptions
from clusterllm_mqtt.mdns.browser import MdnsOptions
from clusterllm_mqtt.models import Config, Endpoint, Info, MdnsHealth, Source, State
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
from clusterllm_mqtt.mqtt.messages import BridgeFacts, info_message, probe_message, status_message
from clusterllm_mqtt.mqtt.topics import BridgeTopics, endpoint_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from clusterllm_mqtt.mqtt.events import ProtocolVersion

T = BridgeTopics()
NOBODY = "http://127.0.0.1:9"
LOOPBACK = MdnsOptions(service_types=("_unused._tcp",), interfaces=("127.0.0.1",))


def configured(name: str, url: str = NOBODY) -> Endpoint:
    identity = f"configured:{name}"
    return Endpoint(endpoint_key(name, identity), name, identity, Source.CONFIGURED, Config(url))


def options(port: int, *endpoints: Endpoint, **more: Any) -> BridgeOptions:  # noqa: ANN401
    settings = {"mdns": None, "interval_s": 60.0, **more}
    return BridgeOptions(broker=BrokerOptions(port=port), endpoints=endpoints, **settings)


@asynccontextmanager
async def running(given: BridgeOptions) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(Bridge(given).run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def is_online(broker: Mosquitto) -> bool:
    return broker.retained(T.availability).get(T.availability) == b"online"


@pytest.mark.parametrize("late_s", [0.0, 1.2])
async def test_a_late_burst_of_retained_records_is_not_taken_for_rubbish(
    mosquitto: Mosquitto, late_s: float
) -> None:
    """A remembered endpoint and its device stay, however slowly its records come."""
    gone = browsed(url=f"http://127.0.0.1:{free_port()}")
    now = datetime.now(UTC)
    info = Info(State.NOT_REACHABLE, endpoint=gone.config.endpoint)
    state = replace(endpoint_state(gone, info), state_since=now, probed_at=now)
    status = status_message(T, BridgeFacts("0", at(0), MdnsHealth()), [state])
    for message in (info_message(T, state), probe_message(T, state), status):
        mosquitto.publish(message.topic, message.payload.decode(), "-r")
    mosquitto.publish_many({T.bridge_discovery: "{}", T.discovery(gone.key): '{"old":1}'})
    async with Link(mosquitto.port) as link:
        link.mark, link.mark_late_s = b"clusterllm/bridge/home/", late_s
        async with running(options(link.port, mdns=LOOPBACK)):
            await eventually(lambda: is_online(mosquitto), 20)
            await asyncio.sleep(late_s)
            assert {T.info(gone.key), T.discovery(gone.key)} <= mosquitto.retained().keys()


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_who_cannot_say_goodbye_leaves_the_will(
    mosquitto: Mosquitto, protocol: ProtocolVersion
) -> None:
    endpoints = [configured(f"box {number}") for number in range(40)]
    async with Link(mosquitto.port) as link:
        given = options(link.port, *endpoints)
        given = replace(given, broker=replace(given.broker, protocol=protocol))
        async with running(given):
            await eventually(lambda: is_online(mosquitto), 20)
            mosquitto.publish(T.home_assistant_status, "online")
            await asyncio.sleep(0.4)
            link.flows.clear()  # Home Assistant is greeted now: more than fits in flight
            await asyncio.sleep(3.2)
    await eventually(lambda: mosquitto.retained().get(T.availability) == b"offline")


async def test_what_a_stranger_writes_during_a_batch_is_mended(mosquitto: Mosquitto) -> None:
    endpoints = [configured(f"box {number}") for number in range(60)]
    topic = T.info(min(endpoint.key for endpoint in endpoints))
    async with Link(mosquitto.port) as link:
        link.late_s = 0.03
        async with running(options(link.port, *endpoints)):
            await eventually(lambda: topic in mosquitto.retained(topic), 20)
            mosquitto.publish(topic, '{"state":"running"}', "-r", "-q", "1")
            await eventually(lambda: is_online(mosquitto), 20)
            await eventually(lambda: b"not_reachable" in mosquitto.retained(topic)[topic])


@pytest.mark.parametrize("payload", ["", "maybe", "offline"])
async def test_another_availability_than_online_does_not_stand(
    mosquitto: Mosquitto, payload: str
) -> None:
    async with running(options(mosquitto.port, configured("box"))):
        await eventually(lambda: is_online(mosquitto))
        mosquitto.publish(T.availability, payload, "-r")
        await eventually(lambda: is_online(mosquitto), 5)


async def test_two_bridges_of_one_id_on_bridged_brokers_become_slow(
    make_mosquitto: Callable[..., Mosquitto], caplog: pytest.LogCaptureFixture
) -> None:
    one = make_mosquitto()
    other = make_mosquitto("connection x", f"address 127.0.0.1:{one.port}", "topic # both 1")
    async with (
        running(options(one.port, configured("a"))),
        running(options(other.port, configured("b"))),
    ):
        await eventually(lambda: "is there another bridge 'home'?" in caplog.text, 30)


async def test_a_broker_that_dislikes_a_message_is_no_takeover(
    make_mosquitto: Callable[..., Mosquitto],
) -> None:
    """MQTT 3.1.1 has no word for it but to close the connection."""
    broker = make_mosquitto("max_packet_size 30000")
    models = json.dumps({"data": [{"id": f"model-{n}-{'x' * 50}"} for n in range(800)]})
    async with StubEndpoint({"default": {"status": 200, "body": models}}) as stub:
        given = options(broker.port, configured("box", stub.url))
        given = replace(given, broker=replace(given.broker, protocol="3.1.1"))
        async with running(given) as bridge:
            done, _ = await asyncio.wait([bridge], timeout=8)
            assert not done


async def test_a_button_of_one_endpoint_does_not_spend_anothers(mosquitto: Mosquitto) -> None:
    async with StubEndpoint({"default": {"status": 404}}) as one, StubEndpoint() as other:
        endpoints = [configured("one", one.url), configured("other", other.url)]
        async with running(options(mosquitto.port, *endpoints, interval_s=600.0)):
            await eventually(lambda: is_online(mosquitto))
            one.requests.clear()
            other.requests.clear()
            mosquitto.publish(T.endpoint_command_probe("nobody-1234567890"), "x")
            for endpoint in endpoints:
                mosquitto.publish(T.endpoint_command_probe(endpoint.key), "x")
            await eventually(lambda: bool(one.requests) and bool(other.requests), 5)
