"""llama.cpp's own HTTP server: `llama-server`, routers, RPC leaders; builds b7710 to b11549.

Recognised by a positive sign only. The key is sent only where a request without it was refused.
`/slots` and `/metrics` are never asked: in some releases they wake a sleeping model or keep it
awake. A query `model=` would load one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.drivers.base import Finding, missing
from clusterllm_mqtt.drivers.json_reader import (
    Malformed,
    Number,
    fields,
    is_int64,
    rows,
    text,
    trim,
)
from clusterllm_mqtt.drivers.listing import Models, find_model_list
from clusterllm_mqtt.drivers.look import ALIAS, Look, Reading, is_loading, is_success, trouble_of
from clusterllm_mqtt.drivers.parts import watch
from clusterllm_mqtt.drivers.trouble import Trouble, worst
from clusterllm_mqtt.endpoint_url import is_loopback
from clusterllm_mqtt.models import BACKEND_LLAMACPP, ModelInfo, Reason
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from clusterllm_mqtt.drivers.http import Answer

SERVER: Final = "llama.cpp"
_SPRING_BOOT: Final = frozenset({"UP", "DOWN", "OUT_OF_SERVICE", "UNKNOWN"})
"""What its `/health` says; llama.cpp writes in lower case."""

_NOT_HERE: Final = Trouble(
    Reason.BAD_RESPONSE,
    "llama.cpp answers, but its API is not below this path; add its --api-prefix to the endpoint",
)


@dataclass(frozen=True, slots=True)
class Props:
    """What `/props` tells."""

    version: str
    model_path: str


def names_itself(first: Answer) -> bool:
    """Whether no other kind of server needs to be thought of."""
    return first.server == SERVER or is_loading(first)


async def detect(look: Look, first: Answer) -> Finding | None:
    """Look at `/props`, else `/health`; then at the model list."""
    if is_loading(first):
        return Finding(BACKEND_LLAMACPP, trouble=trouble_of(first, ALIAS))
    props = await _read_props(look)
    if not (
        props.value or SERVER in (first.server, props.server) or await _is_healthy(look, first)
    ):
        return None
    models = await find_model_list(look)
    size = await _local_size(look, models.reading, props)
    return watch([models], lambda: _conclude(props, models.reading, size))


def _conclude(props: Reading[Props], models: Reading[Models], local_size: int) -> Finding:
    """What is found; the model list proves life and has all that changes."""
    served = models.value or ()
    found = tuple(each.model for each in served)
    if local_size and len(found) == 1:
        found = (ModelInfo(found[0].name, found[0].size or local_size),)
    is_elsewhere = props.status == models.status == 404 and props.server == SERVER  # noqa: PLR2004
    return Finding(
        BACKEND_LLAMACPP,
        version=props.value.version if props.value else "",
        member_count=1 + len({worker for each in served for worker in each.workers}),
        models=found,
        trouble=_NOT_HERE if is_elsewhere else worst([props.trouble, models.trouble]),
        note=_router_note(served),
        missing=missing(version=props.trouble, machines=models.trouble, models=models.trouble),
    )


def _router_note(served: Models) -> str:
    """Each model's state, which only a router tells."""
    states = [f"{clean(s.model.name, 40)} {clean(s.state, 20)}" for s in served if s.state]
    return clean("router: " + ", ".join(states)) if states else ""


async def _read_props(look: Look) -> Reading[Props]:
    """The first `/props` that identifies, else the first one's answer."""
    readings = []
    for url in look.urls("/props"):
        readings.append(await look.ask_openly(url, props_from_document))
        if readings[-1].value:
            return readings[-1]
    return readings[0]


def props_from_document(document: object) -> Props:
    """`total_slots`, `build_info` or `model_path` are the positive signs.

    Raises:
        Malformed: there is none of them, or one has the wrong type.
    """
    found = fields(document)
    build, path = trim(text(found, "build_info")), text(found, "model_path")
    version = build or trim(text(found, "version"))
    slots = found.get("total_slots")
    if slots is not None and not (isinstance(slots, Number) and is_int64(slots)):
        raise Malformed("total_slots is no integer")
    if slots is None and not build and not trim(path):
        raise Malformed("not the properties of llama.cpp")
    return Props(version, path)


async def _is_healthy(look: Look, first: Answer) -> bool:
    """Whether `/health` sounds like llama.cpp's; it has no alias path, where others list models."""
    if is_success(first) and look.read(look.endpoint + ALIAS, first, _list).value is not None:
        return False
    for url in look.urls("/health"):
        if (await look.ask(url, _health)).value:
            return True
    return False


def _list(document: object) -> list[object]:
    found = fields(document)
    if "data" not in found:
        raise Malformed("no model list")
    return rows(found, "data")


def _health(document: object) -> bool:
    status = trim(text(fields(document), "status"))
    return bool(status) and status not in _SPRING_BOOT


async def _local_size(look: Look, models: Reading[Models], props: Reading[Props]) -> int:
    """A single model without a size may be a file of this machine; a neighbour's path is not."""
    served = models.value or ()
    if len(served) != 1 or served[0].model.size or not is_loopback(look.endpoint):
        return 0
    path = props.value.model_path if props.value else ""
    for url in look.urls("/props")[1:] if not path else ():
        again = await look.ask_openly(url, props_from_document)
        path = again.value.model_path if again.value else ""
    return await asyncio.to_thread(_file_size, path)


def _file_size(name: str) -> int:
    path = Path(name)
    try:
        return path.stat().st_size if path.is_absolute() and path.is_file() else 0
    except (OSError, ValueError):
        return 0
