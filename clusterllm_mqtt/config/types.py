"""The kinds of values that settings take, and how people may write them."""

from __future__ import annotations

import difflib
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)

from clusterllm_mqtt.models import BACKEND_GPUSTACK, BACKEND_LLAMACPP

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(value: object) -> object:
    """`15`, `15s`, `10m`, `12h` or `7d`."""
    if isinstance(value, str) and value[-1:] in _UNITS:
        number = value[:-1].strip()
        if number.replace(".", "", 1).isdigit():
            return float(number) * _UNITS[value[-1]]
    return value


def _version(value: object) -> object:
    """YAML reads a bare 5 as a number."""
    return str(value) if isinstance(value, int | float) else value


def _label(value: str) -> str:
    """Any label is allowed, but one that means a backend has to be its name."""
    close = difflib.get_close_matches(value.lower(), (BACKEND_LLAMACPP, BACKEND_GPUSTACK), 1, 0.8)
    if close and value != close[0]:
        raise ValueError(f"did you mean {close[0]}?")
    return value


Duration = Annotated[float, BeforeValidator(_seconds), Field(allow_inf_nan=False)]
Protocol = Annotated[Literal["auto", "5", "3.1.1"], BeforeValidator(_version)]
ServiceType = Annotated[str, Field(pattern=r"^_[A-Za-z0-9-]{1,15}\._tcp$")]
CheckedNetwork = Annotated[
    IPv4Network | IPv6Network,
    PlainValidator(ip_network),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "description": "like 192.168.0.0/16"}),
]
BackendLabel = Annotated[str, AfterValidator(_label)]
