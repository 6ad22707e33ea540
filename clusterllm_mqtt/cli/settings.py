"""`config check` and `schema`: the configuration, checked and described."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from clusterllm_mqtt.config.bridge import bridge_options
from clusterllm_mqtt.config.broker import broker_options
from clusterllm_mqtt.config.outpost import outpost_options
from clusterllm_mqtt.config.reference import INFO_SCHEMA, markdown
from clusterllm_mqtt.config.settings import Settings, load_settings
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.mqtt.broker_options import tls_context

if TYPE_CHECKING:
    import argparse

    from clusterllm_mqtt.mqtt.broker_options import BrokerOptions


def check(args: argparse.Namespace) -> int:
    """Check everything that can be checked without a network; show what is in force."""
    settings = load_settings(args.file)
    options = bridge_options(settings, broker_options(settings.mqtt))
    asyncio.run(_try_certificates(options.broker, options.ca_file))
    if settings.outpost.cloudbox_url:
        outpost = outpost_options(settings)
        asyncio.run(_try_certificates(outpost.broker, outpost.ca_file))
    print(json.dumps(settings.model_dump(mode="json"), indent=2, ensure_ascii=False))
    for endpoint in options.endpoints:
        print(f"# {endpoint.name}: topics under {options.topics.root}/endpoint/{endpoint.key}")
    return 0


async def _try_certificates(broker: BrokerOptions, ca_file: str) -> None:
    """Raises `ConfigError` when a certificate, key or CA file is of no use."""
    tls_context(broker)
    async with new_client(ca_file):
        pass


def schema(args: argparse.Namespace) -> int:
    """JSON Schema of the configuration file or of the Info record, or a page for people."""
    if args.markdown:
        print(markdown(), end="")
    else:
        document = INFO_SCHEMA if args.what == "info" else Settings.model_json_schema()
        print(json.dumps(document, indent=2, ensure_ascii=False))
    return 0
