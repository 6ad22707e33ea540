# ruff: noqa: INP001  # part of a program in an image, no package
"""Asks the Supervisor for the broker that its MQTT service names. Standard library only."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any, Final

RETRY_S: Final = 2.0
_ANSWER_S: Final = 10.0
_MAX_ANSWER: Final = 2**16


class StartError(Exception):
    """A start that cannot succeed; says what to do. `exit_code` is that of the command line."""

    def __init__(self, sentence: str, exit_code: int = 2) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class NotYetError(StartError):
    """What may be there in a moment: the broker's app starts beside this one."""


def say(text: str) -> None:
    """A line in the app's log."""
    print(f"clusterllm-mqtt: {text}", file=sys.stderr, flush=True)  # noqa: T201  # a program's log


def with_broker(
    options: dict[str, Any], supervisor: str, token: str, patience_s: float
) -> dict[str, Any]:
    """The options with the Supervisor's broker under those of `mqtt`; none is asked for a host.

    Raises:
        StartError: the Supervisor does not tell, for `patience_s` if that may change.
    """
    own = options.get("mqtt", {})
    if own.get("host"):
        return options
    deadline_s = time.monotonic() + patience_s
    told = False
    while True:
        try:
            return {**options, "mqtt": {**ask_for_broker(supervisor, token), **own}}
        except NotYetError as error:
            if time.monotonic() >= deadline_s:
                raise
            if not told:
                say(f"{error}; waiting for it")
            told = True
            time.sleep(min(RETRY_S, max(0.0, deadline_s - time.monotonic())))


def ask_for_broker(supervisor: str, token: str) -> dict[str, Any]:
    """What the Supervisor's MQTT service tells, as our settings.

    Raises:
        NotYetError: there is none, or no Supervisor, at this moment.
        StartError: it refuses us, or its answer is none.
    """
    request = urllib.request.Request(  # noqa: S310  # the scheme is ours
        f"{supervisor}/services/mqtt", headers={"Authorization": f"Bearer {token}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ANSWER_S) as answer:
            return broker_of(answer.read(_MAX_ANSWER))
    except urllib.error.HTTPError as error:
        with error:
            if error.code in {401, 403}:
                text = f"the Supervisor refuses us its MQTT service ({error.code})"
                raise StartError(text, 3) from None
            text = "there is no MQTT service; install and start a broker's app, like Mosquitto"
            raise NotYetError(f"{text}, or set mqtt.host", 3) from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise NotYetError(f"the Supervisor does not answer: {reason}", 3) from None


def broker_of(body: bytes) -> dict[str, Any]:
    """`{"result": "ok", "data": {…}}` -> the settings below `mqtt`.

    Raises:
        StartError: it is something else; the answer, which has a password, is not told.
    """
    with contextlib.suppress(ValueError, LookupError, TypeError):
        data = json.loads(body)["data"]
        broker = {
            "host": str(data["host"]),
            "port": int(data["port"]),
            "tls": bool(data.get("ssl")),
        }
        return broker | {k: data[k] for k in ("username", "password") if data.get(k)}
    raise StartError("the Supervisor's answer about MQTT cannot be read; update it, or us", 3)
