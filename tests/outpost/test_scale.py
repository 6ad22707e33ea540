"""Many homes behind one broker, with its default limits, read by the program as people run it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.home import running
from rig.mosquitto import Mosquitto, eventually
from rig.program import Program
from rig.session import following
from rig.stub import StubEndpoint

from clusterllm_mqtt.mqtt.messages import Message, availability_message, encode
from clusterllm_mqtt.mqtt.topics import BridgeTopics
from clusterllm_mqtt.outpost.registry import PATH

if TYPE_CHECKING:
    from clusterllm_mqtt.mqtt.session import Session

BRIDGES = [BridgeTopics(bridge=f"home-{number}") for number in range(20)]
KEYS = [f"k{number:04}" for number in range(500)]


def last(registry: StubEndpoint) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(registry.requests[-1].body)
    return record


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])


async def retain_everything(session: Session) -> None:
    """10,000 endpoints; each serves a model of its own and one that all have."""
    index = encode({"endpoints": KEYS})
    for topics in BRIDGES:
        records = [
            Message(topics.info(key), encode(running("common", f"{topics.bridge}-{key}", vram=7)))
            for key in KEYS
        ]
        await session.publish(*records, Message(topics.status, index))
        await session.publish(availability_message(topics, online=True))


async def test_ten_thousand_endpoints_are_pushed_whole_within_15_seconds_and_150_mb(
    mosquitto: Mosquitto,
) -> None:
    environ = {
        "CLUSTERLLM_MQTT__PORT": str(mosquitto.port),
        "CLUSTERLLM_OUTPOST__TOKEN": "sesame",
    }
    async with (
        following(mosquitto.options) as writer,
        StubEndpoint({"routes": {PATH: {"status": 200}}}) as registry,
    ):
        await writer.connected()
        await retain_everything(writer.session)
        started_s = time.monotonic()
        environ["CLUSTERLLM_OUTPOST__CLOUDBOX_URL"] = registry.url
        async with Program("outpost", environ=environ) as program:
            await eventually(lambda: bool(registry.requests), 30)
            took_s = time.monotonic() - started_s
            await program.says("pushed: 10001 models")
            one = BRIDGES[7]
            gone = Message(one.info(KEYS[3]), encode({"state": "not_reachable"}))
            await writer.session.publish(gone)
            await eventually(lambda: len(last(registry)["models"]) == 10_000, 5)
            peak_kb = resident_kb(program.process.pid)
    assert len(json.loads(registry.requests[0].body)["models"]) == 10_001
    assert took_s < 15
    assert peak_kb < 150_000
