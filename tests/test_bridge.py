"""The bridge on real parts: Mosquitto, multicast on loopback, a llama.cpp server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rig.llamacpp import llama_server
from rig.mosquitto import Mosquitto, eventually, free_port
from rig.samples import at, browsed, endpoint_state

from clusterllm_mqtt.bridge import Bridge, BridgeOptions
from clusterllm_mqtt.errors import BrokerRefusedError, TakenOverError
from clusterllm_mqtt.mdns.advertiser import Advertisement, Advertiser
from clusterllm_mqtt.mdns.browser import MdnsOptions
from clusterllm_mqtt.models import Config, Endpoint, Info, MdnsHealth, Source, State
from clusterllm_mqtt.mqtt.messages import BridgeFacts, info_message, probe_message, status_message
from clusterllm_mqtt.mqtt.topics import BridgeTopics, endpoint_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TOPICS = BridgeTopics()
INTERVAL_S = 1.0


class Observer:
    """An independent client that keeps every message, in order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.messages: list[tuple[str, str]] = []
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            topic, _, payload = line.decode().rstrip("\n").partition(" ")
            self.messages.append((topic, payload))

    def last(self, topic: str) -> Any:  # noqa: ANN401  # JSON, or the text itself
        payload = next((p for t, p in reversed(self.messages) if t == topic), "")
        return json.loads(payload) if payload.startswith("{") else payload

    def info(self, key: str) -> Any:  # noqa: ANN401
        return self.last(TOPICS.info(key)) or {}

    @property
    def status(self) -> Any:  # noqa: ANN401
        return self.last(TOPICS.status) or {}

    def events(self, key: str) -> list[str]:
        topic = TOPICS.event(key)
        return [json.loads(p)["event_type"] for t, p in self.messages if t == topic]

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@contextlib.asynccontextmanager
async def observing(broker: Mosquitto) -> AsyncIterator[Observer]:
    process = await asyncio.create_subprocess_exec(
        "mosquitto_sub", "-p", str(broker.port), "-q", "1", "-t", "#", "-F", "%t %p",
        stdout=asyncio.subprocess.PIPE, limit=2**22,
    )  # fmt: skip
    observer = Observer(process)
    try:
        await asyncio.sleep(0.1)
        yield observer
    finally:
        await observer.close()


def options(broker: Mosquitto, *endpoints: Endpoint, **more: Any) -> BridgeOptions:  # noqa: ANN401
    base = BridgeOptions(
        broker=broker.options, endpoints=endpoints, mdns=None, interval_s=INTERVAL_S
    )
    return replace(base, **more)


def configured(url: str, name: str = "box") -> Endpoint:
    identity = f"configured:{name}"
    return Endpoint(endpoint_key(name, identity), name, identity, Source.CONFIGURED, Config(url))


@contextlib.asynccontextmanager
async def running(chosen: BridgeOptions) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(Bridge(chosen).run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def http_server(port: int = 0) -> AsyncIterator[int]:
    """An endpoint that answers every path with an empty model list."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b'{"data":[]}')
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        yield server.sockets[0].getsockname()[1]


async def test_nothing_is_online_before_everything_was_probed_and_published(
    mosquitto: Mosquitto,
) -> None:
    async with http_server() as port, observing(mosquitto) as observer:
        endpoint = configured(f"http://127.0.0.1:{port}")
        async with running(options(mosquitto, endpoint)):
            await eventually(lambda: observer.last(TOPICS.availability) == "online")
            topics = [topic for topic, _ in observer.messages]
            assert topics[-1] == TOPICS.availability
            assert topics.index(TOPICS.info(endpoint.key)) < topics.index(TOPICS.status)
            assert observer.info(endpoint.key)["state"] == "running"
            assert observer.status["endpoints"] == [endpoint.key]
            assert TOPICS.discovery(endpoint.key) in topics
            assert observer.events(endpoint.key) == []
        await eventually(lambda: observer.last(TOPICS.availability) == "offline")
    assert mosquitto.retained()[TOPICS.info(endpoint.key)].startswith(b"{")


async def test_a_running_from_an_earlier_life_never_stands_beside_online(
    mosquitto: Mosquitto,
) -> None:
    gone = browsed(url=f"http://127.0.0.1:{free_port()}")
    state = endpoint_state(gone, Info(State.RUNNING, endpoint=gone.config.endpoint))
    facts = BridgeFacts("0", at(0), MdnsHealth())
    for message in (
        info_message(TOPICS, state),
        probe_message(TOPICS, state),
        status_message(TOPICS, facts, [state]),
    ):
        mosquitto.publish(message.topic, message.payload.decode(), "-r")
    mosquitto.publish(TOPICS.availability, "online", "-r")  # the broker died with the bridge
    mdns = MdnsOptions(service_types=("_unused._tcp",), interfaces=("127.0.0.1",))
    async with observing(mosquitto) as observer:
        before = len(observer.messages)
        async with running(options(mosquitto, mdns=mdns)):
            await eventually(lambda: (TOPICS.availability, "online") in observer.messages[before:])
            later = observer.messages[before:]
            said_online = later.index((TOPICS.availability, "online"))
            told = [p for t, p in later[:said_online] if t == TOPICS.info(gone.key)]
            assert json.loads(told[-1])["state"] == "not_reachable"
            assert observer.last(TOPICS.probe(gone.key))["identity"] == gone.identity
            assert observer.events(gone.key) == []


async def test_ghosts_of_this_bridge_are_cleared_topics_of_others_stay(
    mosquitto: Mosquitto,
) -> None:
    others = {
        "clusterllm/bridge/other/endpoint/k/info": "{}",
        "clusterllm/outpost/a/status": "{}",
        "homeassistant/device/clusterllm_other_k/config": "{}",
    }
    ghosts = {TOPICS.info("ghost"): "{}", TOPICS.discovery("ghost"): '{"old":1}'}
    mosquitto.publish_many(others | ghosts)
    async with observing(mosquitto) as observer, running(options(mosquitto)):
        await eventually(lambda: observer.last(TOPICS.availability) == "online")
        retained = mosquitto.retained()
    assert not ghosts.keys() & retained.keys()
    assert others.keys() <= retained.keys()


async def test_a_real_server_announced_killed_and_back_on_its_way_through_mqtt(
    mosquitto: Mosquitto, tiny_model: Path
) -> None:
    service_type = f"_t{uuid.uuid4().hex[:10]}._tcp"
    mdns = MdnsOptions(service_types=(service_type,), interfaces=("127.0.0.1",))
    key = endpoint_key("Tiny", f"mdns:tiny.{service_type}.local.")
    async with (
        observing(mosquitto) as observer,
        running(options(mosquitto, mdns=mdns)),
        llama_server(tiny_model) as server,
    ):
        await eventually(lambda: observer.last(TOPICS.availability) == "online")
        started_s = time.monotonic()
        advertisement = Advertisement("Tiny", server.port, service_type, {}, ("127.0.0.1",))
        async with Advertiser(advertisement):
            await eventually(lambda: observer.info(key).get("state") == "running")
            assert time.monotonic() - started_s < 2.5
            assert observer.info(key)["backend"] == "llamacpp"
            assert [m["name"] for m in observer.info(key)["models"]] == [str(tiny_model)]
            server.kill()
            killed_s = time.monotonic()
            await eventually(lambda: observer.info(key)["state"] == "not_reachable")
            assert time.monotonic() - killed_s < INTERVAL_S + 5
            assert observer.info(key)["backend"] == "llamacpp"
            assert observer.last(TOPICS.probe(key))["reason"] == "refused"
            async with llama_server(tiny_model, port=server.port):
                back_s = time.monotonic()
                await eventually(lambda: observer.info(key)["state"] == "running")
                assert time.monotonic() - back_s < INTERVAL_S * 1.2 + 1
                await eventually(lambda: observer.events(key) == ["not_reachable", "running"])
        await asyncio.sleep(0.5)
        assert observer.status["endpoints"] == [key], "a goodbye is no verdict"


async def test_a_broker_restart_without_persistence_loses_nothing(mosquitto: Mosquitto) -> None:
    async with http_server() as port:
        endpoint = configured(f"http://127.0.0.1:{port}")
        async with running(options(mosquitto, endpoint)):
            await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")
            before = mosquitto.retained()
            mosquitto.restart(signal.SIGKILL)
            await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online", 15)
            after = mosquitto.retained()
    assert after.keys() == before.keys()
    assert (
        json.loads(after[TOPICS.status])["last_error"]
        != json.loads(before[TOPICS.status])["last_error"]
    )


async def test_a_broker_restart_with_persistence_leaves_no_ghost(
    make_mosquitto: Callable[..., Mosquitto], tmp_path: Path
) -> None:
    broker = make_mosquitto("persistence true", f"persistence_location {tmp_path}/")
    endpoint = configured("http://127.0.0.1:9")
    async with running(options(broker, endpoint)):
        await eventually(lambda: broker.retained().get(TOPICS.availability) == b"online")
        broker.publish(TOPICS.info("ghost"), "{}", "-r")
        await eventually(lambda: TOPICS.info("ghost") not in broker.retained())
        broker.restart()
        await eventually(lambda: broker.retained().get(TOPICS.availability) == b"online", 15)
        assert {t for t in broker.retained() if t.endswith("/info")} == {TOPICS.info(endpoint.key)}


async def test_what_somebody_else_writes_or_clears_is_mended(mosquitto: Mosquitto) -> None:
    endpoint = configured("http://127.0.0.1:9")
    async with running(options(mosquitto, endpoint)):
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")
        for payload in ("", '{"state":"running"}'):
            mosquitto.publish(TOPICS.info(endpoint.key), payload, "-r")
            await eventually(
                lambda: b"not_reachable" in mosquitto.retained().get(TOPICS.info(endpoint.key), b"")
            )
        mosquitto.publish(TOPICS.availability, "offline", "-r")
        await eventually(lambda: mosquitto.retained()[TOPICS.availability] == b"online")


async def test_home_assistants_birth_message_brings_everything_again(mosquitto: Mosquitto) -> None:
    endpoint = configured("http://127.0.0.1:9")
    async with observing(mosquitto) as observer, running(options(mosquitto, endpoint)):
        await eventually(lambda: observer.last(TOPICS.availability) == "online")
        await asyncio.sleep(0.3)
        before = len(observer.messages)
        mosquitto.publish("homeassistant/status", "offline")
        mosquitto.publish("homeassistant/status", "online")
        expected = {
            TOPICS.discovery(endpoint.key),
            TOPICS.bridge_discovery,
            TOPICS.info(endpoint.key),
            TOPICS.probe(endpoint.key),
            TOPICS.status,
            TOPICS.availability,
        }
        await eventually(lambda: expected <= {t for t, _ in observer.messages[before:]})


async def test_a_command_probes_now_a_retained_one_is_stale(mosquitto: Mosquitto) -> None:
    async with http_server() as port, observing(mosquitto) as observer:
        endpoint = configured(f"http://127.0.0.1:{port}")
        slow = options(mosquitto, endpoint, interval_s=600)
        mosquitto.publish(TOPICS.command_probe, "x", "-r")
        async with running(slow):
            await eventually(lambda: observer.last(TOPICS.availability) == "online")
        assert observer.info(endpoint.key)["state"] == "running"
    async with observing(mosquitto) as observer, running(slow):
        await eventually(lambda: observer.info(endpoint.key).get("state") == "not_reachable")
        async with http_server(port):
            await asyncio.sleep(1.5)  # past the quick second look
            mosquitto.publish(TOPICS.endpoint_command_probe(endpoint.key), "x")
            await eventually(lambda: observer.info(endpoint.key)["state"] == "running", 5)


async def test_online_is_repeated(mosquitto: Mosquitto) -> None:
    async with observing(mosquitto) as observer, running(options(mosquitto, heartbeat_s=0.2)):
        await eventually(lambda: observer.messages.count((TOPICS.availability, "online")) >= 3)


async def test_many_endpoints_beyond_what_a_default_broker_hands_over(
    mosquitto: Mosquitto,
) -> None:
    names = [f"box {n}" for n in range(700)]
    endpoints = [configured(f"http://127.0.0.1:9/{n}", name) for n, name in enumerate(names)]
    chosen = options(mosquitto, *endpoints, interval_s=60)
    async with observing(mosquitto) as observer, running(chosen):
        await eventually(lambda: observer.last(TOPICS.availability) == "online", 30)
    async with observing(mosquitto) as observer, running(replace(chosen, endpoints=())):
        await eventually(lambda: observer.status.get("endpoints") == [], 30)
        await eventually(lambda: not mosquitto.retained("clusterllm/+/+/endpoint/#"), 30)
        assert not mosquitto.retained("homeassistant/device/+/config").keys() - {
            TOPICS.bridge_discovery
        }


async def test_a_killed_bridge_is_offline_by_its_will_and_comes_back_the_same(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    settings = {
        "mqtt": {"host": "127.0.0.1", "port": mosquitto.port},
        "mdns": {"enabled": False},
        "probe": {"interval": 1},
        "endpoints": [{"url": "http://127.0.0.1:9", "name": "box"}],
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "clusterllm_mqtt", "bridge", str(config)]
    trees = []
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.DEVNULL, env=os.environ
        )
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online", 15)
        trees.append(set(mosquitto.retained()))
        process.kill()
        await process.wait()
        await eventually(lambda: mosquitto.retained()[TOPICS.availability] == b"offline")
    assert trees[0] == trees[1]


async def test_the_first_error_of_ours_comes_out_bare(
    make_mosquitto: Callable[..., Mosquitto], mosquitto: Mosquitto, tmp_path: Path
) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("", encoding="utf-8")
    closed = make_mosquitto(f"password_file {passwords}", anonymous=False)
    with pytest.raises(BrokerRefusedError):
        await Bridge(options(closed)).run()
    async with asyncio.timeout(60):
        first, second = (asyncio.create_task(Bridge(options(mosquitto)).run()) for _ in range(2))
        done, pending = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        [loser], [winner] = done, pending
        assert isinstance(loser.exception(), TakenOverError)
        await eventually(lambda: mosquitto.retained()[TOPICS.availability] == b"online", 15)
        winner.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await winner


async def test_no_multicast_is_warned_once_and_the_configured_go_on(
    mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    mdns = MdnsOptions(interfaces=("192.0.2.1",))
    endpoint = configured("http://127.0.0.1:9")
    async with observing(mosquitto) as observer, running(options(mosquitto, endpoint, mdns=mdns)):
        await eventually(lambda: observer.info(endpoint.key).get("state") == "not_reachable")
        await eventually(lambda: observer.status["mdns"]["state"] == "failed")
    assert caplog.text.count("no multicast") == 1
