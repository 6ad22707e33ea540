"""Where the broker is, and how to be let in."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from clusterllm_mqtt.errors import (
    BrokerError,
    BrokerRefusedError,
    BrokerUnavailableError,
    ConfigError,
)

if TYPE_CHECKING:
    from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Where the broker is and how to be let in; `protocol` "auto" is 5, else 3.1.1.

    `keepalive_s` is what lets the will of a host that vanished fire within 1.5 times as long;
    `ack_timeout_s` bounds how long a message may stay unacknowledged.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    username: str = ""
    password: SecretStr | None = None
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    keepalive_s: int = 20
    ack_timeout_s: float = 10.0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def tls_context(options: BrokerOptions) -> ssl.SSLContext | None:
    """The TLS settings as a context; None for a plain connection.

    Raises:
        ConfigError: a file cannot be read or is no certificate or key.
    """
    if not options.tls:
        return None
    files = ", ".join(filter(None, (options.ca_file, options.cert_file, options.key_file)))
    try:
        context = ssl.create_default_context(cafile=options.ca_file or None)
        if options.cert_file:
            context.load_cert_chain(
                options.cert_file, options.key_file or None, password=_no_passphrase
            )
    except (OSError, ValueError) as error:
        raise ConfigError(f"mqtt TLS files ({files}): {error}; check paths and format") from None
    return context


def _no_passphrase() -> str:
    """Without it, OpenSSL would ask on the terminal."""
    raise ValueError("the key has a passphrase; store it without one")


def socket_error(options: BrokerOptions, error: OSError | UnicodeError) -> BrokerError:
    """What kept a connection from being made, and the remedy; only some of it passes by itself."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return BrokerRefusedError(
            f"{options}: its certificate is not accepted: {error.verify_message}; "
            "set mqtt.ca_file to the CA that signed it, and mqtt.host to a name in it"
        )
    hint = "; is this the broker's TLS port?" if options.tls else ""
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return BrokerRefusedError(f"{options}: no TLS connection: {error.reason or error}{hint}")
    return BrokerUnavailableError(f"{options}: {error}{hint}")
