"""`browse`: what mDNS names, and why something is ignored."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterllm_mqtt.cli.streams import say
from clusterllm_mqtt.config.bridge import mdns_options
from clusterllm_mqtt.config.settings import load_settings
from clusterllm_mqtt.errors import MdnsError
from clusterllm_mqtt.mdns.browser import Browser, MdnsOptions
from clusterllm_mqtt.models import EndpointFound, EndpointLost, MdnsHealth, MdnsState
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Print what is found and lost for some seconds; what is ignored goes to the log."""
    options = mdns_options(load_settings(args.file).mdns)
    if args.interface:
        options = replace(options, interfaces=tuple(args.interface))
    say(f"browsing {', '.join(options.service_types)} for {args.seconds:g} s")
    found = asyncio.run(_browse(options, args.seconds))
    if not found:
        say("nothing found; see docs/mdns.md, or name your endpoints by URL")
    return 0 if found else 1


async def _browse(options: MdnsOptions, seconds: float) -> int:
    """How often something was found.

    Raises:
        MdnsError: there is no multicast.
    """
    found = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), Browser(options) as browser:
            async for event in browser.events():
                found += isinstance(event, EndpointFound)
                if isinstance(event, MdnsHealth):
                    if event.state is MdnsState.FAILED:
                        raise MdnsError(event.detail)
                else:
                    print(line(event), flush=True)
    return found


def line(event: EndpointFound | EndpointLost) -> str:
    """An event for people; whatever a neighbour sent is cleaned."""
    if isinstance(event, EndpointLost):
        return f"lost  {clean(event.instance, 80)}"
    service = event.service
    hints = " ".join(f"{key}={clean(value, 60)}" for key, value in service.txt)
    return f"found {clean(service.instance, 80)} {service.url} {hints}".rstrip()
