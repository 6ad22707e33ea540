"""Every error of this package, one tree.

    ClusterLLMError
    ├── ConfigError                 a setting is wrong; the message names it and the remedy
    ├── HttpError                   an HTTP exchange failed; has a `reason`
    ├── RecordError                 a retained payload or a service record is not what it should be
    ├── MdnsError                   this host cannot browse or advertise
    ├── BrokerError
    │   ├── BrokerUnavailableError  no connection now (transient)
    │   ├── BrokerRefusedError      the broker says no: password, certificate, ACL
    │   ├── PublishError            not acknowledged in time (transient)
    │   └── TakenOverError          another client uses our client id
    ├── LocalModelsError            the local Ollama does not list its models (transient)
    └── RegistryError
        ├── RegistryUnavailableError  no answer, 5xx, 408, 425, 429 (transient)
        ├── RegistryRejectedError     a redirect, or a 4xx other than 401, 408, 425 and 429
        └── RegistryRevokedError      401: stop for good

`transient` says whether trying again later, unchanged, can help. Retry code reads only that.
`exit_code` is what the process ends with when the error reaches the command line.
Messages never hold a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from clusterllm_mqtt.models import Reason


class ClusterLLMError(Exception):
    """The base of every error that this package raises on purpose."""

    transient: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1


class ConfigError(ClusterLLMError):
    """A setting is wrong or missing."""

    exit_code = 2


class HttpError(ClusterLLMError):
    """One HTTP exchange failed; `reason` says in which of the known ways."""

    transient = True

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RecordError(ClusterLLMError):
    """A payload from the network is not the record that its place promises."""


class MdnsError(ClusterLLMError):
    """Multicast DNS does not work on this host or interface."""

    transient = True


class BrokerError(ClusterLLMError):
    """Something between this process and the MQTT broker."""

    exit_code = 3


class BrokerUnavailableError(BrokerError):
    """The broker cannot be reached at the moment."""

    transient = True


class BrokerRefusedError(BrokerError):
    """The broker, or its certificate, does not accept us."""


class PublishError(BrokerError):
    """A message was not acknowledged in time, or the connection went away before it was."""

    transient = True


class TakenOverError(BrokerError):
    """Another client connected with our client id."""

    exit_code = 5


class LocalModelsError(ClusterLLMError):
    """The configured Ollama does not list its models at the moment."""

    transient = True


class RegistryError(ClusterLLMError):
    """A push did not succeed; `reason` says in which of the known ways.

    `retry_after_s` is how many seconds the registry asked to wait, None when it did not.
    """

    def __init__(self, reason: Reason, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class RegistryUnavailableError(RegistryError):
    """The registry did not answer, or asked to come back later."""

    transient = True


class RegistryRejectedError(RegistryError):
    """The registry does not accept this payload, or sends us elsewhere."""


class RegistryRevokedError(RegistryError):
    """The registry no longer accepts the token."""

    exit_code = 4


def first_of_ours(group: BaseExceptionGroup) -> BaseException:
    """The error that ended a group of tasks: ours if there is one."""
    ours, others = group.split(ClusterLLMError)
    found: BaseException = ours or others or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
