"""What may stand as an endpoint: one base URL, checked and taken apart; pure."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from typing import Final
from urllib.parse import SplitResult, urlsplit

from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.text import WHITE_SPACE, clean

_MAX_LENGTH: Final = 2048
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_USERINFO: Final = re.compile(r"(?<=//)[^/?#]*@")


def trim_endpoint(text: str) -> str:
    """The endpoint as it is reported: outer white space gone, then trailing slashes."""
    return text.strip(WHITE_SPACE).rstrip("/")


def without_credentials(url: str) -> str:
    """The URL as it may be shown; a user name and a password never are."""
    return _USERINFO.sub("", url)


def check_endpoint_url(text: str) -> str:
    """The trimmed base URL, when probe paths can be put behind it.

    Raises:
        ConfigError: with the remedy; credentials of the URL are not in the message.
    """
    url = trim_endpoint(text)
    remedy = _remedy(url)
    if remedy:
        shown = clean(re.split("[?#]", without_credentials(url))[0], 80)
        raise ConfigError(f"endpoint {shown!r}: {remedy}")
    return url


def _remedy(url: str) -> str:
    """What to do about the URL; empty when nothing."""
    if any(c in WHITE_SPACE or unicodedata.category(c) in {"Cc", "Cs"} for c in url):
        return "remove white space and control characters"
    if len(url) > _MAX_LENGTH:
        return f"shorten it to {_MAX_LENGTH} characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "write it as http://host:port, with a port from 1 to 65535"
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        return "write it as http://host:port or https://host:port"
    return _surplus(parts)


def _surplus(parts: SplitResult) -> str:
    """The remedy for what a base URL must not carry."""
    if "@" in parts.netloc:
        return "take user and password out of the URL; a key belongs into api_key"
    if parts.query or parts.fragment:
        return "leave out the query and the fragment; paths are appended to it"
    if _BAD_ESCAPE.search(parts.netloc + parts.path) or "\\" in parts.path:
        return "write a percent sign as %25 and a backslash as %5C"
    return ""


def is_loopback(url: str) -> bool:
    """Whether the URL names this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def alternative_bases(url: str) -> tuple[str, ...]:
    """The endpoint, and its parent when it is an OpenAI base URL that ends in `/v1`."""
    if not urlsplit(url).path.endswith("/v1"):
        return (url,)
    return url, url.removesuffix("/v1").rstrip("/")
