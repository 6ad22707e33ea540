# ruff: noqa: INP001  # a program in an image, no package
"""Tells Docker whether a bridge or an outpost says on the broker that it is online.

An endpoint that is down is no illness of the bridge that says so: `status` has an exit code for
that, this has not.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from clusterllm_mqtt.cli.reading import reading
from clusterllm_mqtt.config.bridge import bridge_topics
from clusterllm_mqtt.config.outpost import outpost_topics
from clusterllm_mqtt.config.settings import load_settings
from clusterllm_mqtt.errors import ClusterLLMError
from clusterllm_mqtt.mqtt.messages import ONLINE

if TYPE_CHECKING:
    from clusterllm_mqtt.config.settings import Settings


def main(what: str, file: str) -> int:
    """0 when it is online, else 1; Docker knows no other codes."""
    if Path(tempfile.gettempdir(), "clusterllm-mqtt-ended").exists():
        print("ended for good; see the log")  # noqa: T201  # Docker keeps it
        return 1
    try:
        settings = load_settings(Path(file))
        topics = outpost_topics(settings) if what == "outpost" else bridge_topics(settings)
        payload = asyncio.run(_retained(settings, topics.availability))
    except ClusterLLMError as error:
        print(error)  # noqa: T201
        return 1
    print((payload or b"nothing retained").decode(errors="replace"))  # noqa: T201
    return 0 if payload == ONLINE else 1


async def _retained(settings: Settings, topic: str) -> bytes | None:
    async with reading(settings, [topic], lambda _: frozenset()) as (_, snapshot):
        return snapshot.held.get(topic)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
