"""Settings -> what an outpost does; imports nothing of the probing side."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from clusterllm_mqtt.config.broker import reachable_broker, secret
from clusterllm_mqtt.defaults import PRIVATE_NETWORKS
from clusterllm_mqtt.endpoint_url import check_endpoint_url
from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.mqtt.topics import OutpostTopics
from clusterllm_mqtt.outpost.runner import OutpostOptions

if TYPE_CHECKING:
    from pydantic import SecretStr

    from clusterllm_mqtt.config.settings import OutpostSettings, Settings


def outpost_options(settings: Settings) -> OutpostOptions:
    """What an outpost does.

    Raises:
        ConfigError: there is no cloudbox or no token, or a setting is of no use.
    """
    outpost = settings.outpost
    return OutpostOptions(
        cloudbox_url=_cloudbox_url(outpost.cloudbox_url),
        token=_token(outpost),
        topics=outpost_topics(settings),
        broker=reachable_broker(settings.mqtt),
        ollama_url=_checked_url("ollama_url", outpost.ollama_url) if outpost.ollama_url else "",
        ca_file=outpost.ca_file,
        home_assistant=settings.home_assistant.enabled,
    )


def outpost_topics(settings: Settings) -> OutpostTopics:
    """Raises `ConfigError` when a name cannot be part of a topic."""
    return OutpostTopics(
        settings.mqtt.base_topic,
        settings.outpost.agent,
        settings.home_assistant.discovery_prefix,
        settings.outpost.bridges,
    )


def _token(outpost: OutpostSettings) -> SecretStr:
    token = secret(outpost.token, outpost.token_file, "outpost.token")
    text = token.get_secret_value() if token else ""
    if token is None or not text:
        raise ConfigError("outpost.token is missing; set it, or better outpost.token_file")
    if not text.isprintable() or " " in text:
        raise ConfigError("outpost.token has white space or control characters; copy it anew")
    return token


def _cloudbox_url(text: str) -> str:
    if not text:
        raise ConfigError("outpost.cloudbox_url is missing; write it as https://host")
    url = _checked_url("cloudbox_url", text)
    if urlsplit(url).scheme != "https" and not _is_private(urlsplit(url).hostname or ""):
        raise ConfigError(
            f"outpost.cloudbox_url {url!r}: use https, so that nobody reads the token on its way; "
            "http is for private addresses, written as numbers"
        )
    return url


def _checked_url(name: str, text: str) -> str:
    try:
        return check_endpoint_url(text)
    except ConfigError as error:
        text = str(error).replace("endpoint", f"outpost.{name}", 1)
        raise ConfigError(text.replace("; a key belongs into api_key", "")) from None


def _is_private(host: str) -> bool:
    """A name may lead anywhere, except that of this machine."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in PRIVATE_NETWORKS)
