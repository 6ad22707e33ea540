"""`probe` and `browse`: one look at an endpoint, or at the network, explained."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterllm_mqtt.cli.render import model_names, size
from clusterllm_mqtt.config import load_settings
from clusterllm_mqtt.config_values import mdns_options, secret
from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.drivers.http import new_client
from clusterllm_mqtt.endpoint_url import check_endpoint_url
from clusterllm_mqtt.errors import MdnsError
from clusterllm_mqtt.mdns.browser import Browser, MdnsOptions
from clusterllm_mqtt.models import Config, Detection, EndpointFound, MdnsHealth, MdnsState, State
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    import argparse


def probe(args: argparse.Namespace) -> int:
    """Look once; 0 when something runs there."""
    key = secret(None, args.key_file, "--key")
    config = Config(check_endpoint_url(args.url), key or "", args.backend)
    detection = asyncio.run(_probe(config, args.ca_file))
    if args.json:
        print(json.dumps(detection.info.to_wire(), ensure_ascii=False))
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


def browse(args: argparse.Namespace) -> int:
    """Print what is found and lost for some seconds; what is ignored goes to the log."""
    options = mdns_options(load_settings(args.file).mdns)
    if args.interface:
        options = replace(options, interfaces=tuple(args.interface))
    print(f"browsing {', '.join(options.service_types)} for {args.seconds:g} s", file=sys.stderr)
    found = asyncio.run(_browse(options, args.seconds))
    if not found:
        print("nothing found; see docs/mdns.md, or name your endpoints by URL", file=sys.stderr)
    return 0 if found else 1


async def _browse(options: MdnsOptions, seconds: float) -> int:
    found = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), Browser(options) as browser:
            async for event in browser.events():
                if isinstance(event, EndpointFound):
                    found += 1
                    service = event.service
                    hints = " ".join(f"{k}={clean(v, 60)}" for k, v in service.txt)
                    print(f"found {clean(service.instance, 80)} {service.url} {hints}".rstrip())
                elif isinstance(event, MdnsHealth):
                    if event.state is MdnsState.FAILED:
                        raise MdnsError(event.detail)
                else:
                    print(f"lost  {clean(event.instance, 80)}")
    return found
