"""Settings of the broker and of secrets -> values; for everything that speaks to a broker."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterllm_mqtt.config.source import read_secret
from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr

    from clusterllm_mqtt.config.settings import MqttSettings


def broker_options(mqtt: MqttSettings) -> BrokerOptions:
    """Raises `ConfigError` when the password file is of no use, or settings lack their partner."""
    password = secret(mqtt.password, mqtt.password_file, "mqtt.password")
    for name, value, partner, also in (
        ("cert_file", mqtt.cert_file, "key_file", mqtt.key_file),
        ("key_file", mqtt.key_file, "cert_file", mqtt.cert_file),
        ("cert_file", mqtt.cert_file, "tls", mqtt.tls),
        ("ca_file", mqtt.ca_file, "tls", mqtt.tls),
        ("tls", mqtt.tls, "host", mqtt.host),
        ("password", password, "username", mqtt.username),
        ("username", mqtt.username, "host", mqtt.host),
    ):
        if value and not also:
            raise ConfigError(f"mqtt.{name} is set without mqtt.{partner}; set both or none")
    if any(c in mqtt.host for c in "/@ ") or (":" in mqtt.host and not _is_ipv6(mqtt.host)):
        raise ConfigError(f"mqtt.host {mqtt.host[:80]!r}: write the name alone, port apart")
    return BrokerOptions(
        host=mqtt.host,
        port=mqtt.port,
        username=mqtt.username,
        password=password,
        tls=mqtt.tls,
        ca_file=mqtt.ca_file,
        cert_file=mqtt.cert_file,
        key_file=mqtt.key_file,
        protocol=mqtt.protocol,
    )


def reachable_broker(mqtt: MqttSettings) -> BrokerOptions:
    """The configured broker, else the private one that a bridge on this machine starts."""
    options = broker_options(mqtt)
    return options if options.host else replace(options, host=BrokerOptions().host)


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6  # noqa: PLR2004
    except ValueError:
        return False


def secret(value: SecretStr | None, path: Path | None, what: str) -> SecretStr | None:
    """A secret from its setting or from its file.

    Raises:
        ConfigError: both are set, or the file is of no use.
    """
    if path is None:
        return value
    if value is not None:
        raise ConfigError(f"{what} and {what}_file are both set; keep one")
    return read_secret(path, f"{what}_file")
