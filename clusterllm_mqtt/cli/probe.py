"""`probe`: one look at an endpoint, explained."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from clusterllm_mqtt.cli.figures import model_names, size
from clusterllm_mqtt.config.source import read_secret
from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.endpoint_url import check_endpoint_url
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.models import Config, Detection, State
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Look once; 0 when something runs there."""
    key = read_secret(args.key_file, "--key-file") if args.key_file else ""
    config = Config(check_endpoint_url(args.url), key, args.backend)
    detection = asyncio.run(_probe(config, args.ca_file))
    if args.json:
        print(json.dumps(detection.info.to_wire()))
    else:
        print("\n".join(explained(detection)))
    return 0 if detection.info.state is State.RUNNING else 1


async def _probe(config: Config, ca_file: str) -> Detection:
    async with new_client(ca_file) as client:
        return await Detector(config, client=client).probe()


def explained(detection: Detection) -> list[str]:
    """A detection in a few lines for people."""
    info = detection.info
    backend = info.backend if detection.identified else "unknown"
    facts = {
        "state": str(info.state),
        "backend": clean(backend, 40),
        "version": clean(info.version, 80),
        "members": str(info.member_count or ""),
        "memory": size(info.aggregate_vram_bytes),
        "models": model_names(info, most=20),
        "reason": str(detection.reason or ""),
        "detail": clean(detection.detail, 200),
    }
    return [f"{name:8} {value}" for name, value in facts.items() if value]
