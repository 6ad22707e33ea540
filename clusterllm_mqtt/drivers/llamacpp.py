"""llama.cpp's own HTTP server (`llama-server`, routers, RPC leaders), builds b7710 to b11549.

Recognised by a positive sign only. `/props` and `/v1/models` are asked without a key first, and
with the configured key when that is refused. `/slots` and `/metrics` are never asked: in some
releases they wake a sleeping model or keep it awake. A query `model=` would load it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clusterllm_mqtt.drivers.base import Finding, Look
from clusterllm_mqtt.drivers.json_reader import Malformed, Number, fields, is_int64, text, trim
from clusterllm_mqtt.drivers.listing import LOADING, Listing, below, read_list, with_list
from clusterllm_mqtt.drivers.model_list import Row, models_from_rows
from clusterllm_mqtt.endpoint_url import is_loopback
from clusterllm_mqtt.models import BACKEND_LLAMACPP, ModelInfo, Reason

if TYPE_CHECKING:
    from clusterllm_mqtt.drivers.http import Answer

SERVER: Final = "llama.cpp"
_RPC: Final = "--rpc"


@dataclass(frozen=True, slots=True)
class Props:
    """What `/props` tells."""

    is_identified: bool = False
    version: str = ""
    model_path: str = ""
    is_sleeping: bool = False


async def detect(look: Look, first: Answer) -> Finding | None:
    """Look at `/props`, else `/health`; then at the model list."""
    props = await _read_props(look)
    if any(trouble.reason is Reason.LOADING for trouble in look.troubles):
        return Finding(BACKEND_LLAMACPP, trouble=LOADING)
    is_identified = props.is_identified or first.server == SERVER or await _is_healthy(look)
    if not is_identified and look.backend != BACKEND_LLAMACPP:
        return None
    listing = await read_list(look)
    finding = Finding(
        BACKEND_LLAMACPP,
        version=props.version if props.is_identified else "",
        trouble=look.worst_trouble,
        note="asleep" if props.is_sleeping else "",
        is_identified=is_identified,
    )
    if listing is None:
        return finding
    size = await _local_size(look, listing, props)
    return with_list(finding, listing, partial(describe, local_size=size))


def describe(finding: Finding, rows: list[Row], *, local_size: int = 0) -> Finding:
    """Models, and what a router tells about them and about its RPC workers."""
    models = models_from_rows(rows)
    if local_size and len(models) == 1 and not models[0].size:
        models = (ModelInfo(models[0].name, local_size),)
    statuses = [row["status"] for row in rows if isinstance(row.get("status"), dict)]
    workers = {worker for status in statuses for worker in _rpc_workers(status.get("args"))}
    states = Counter(str(status.get("value")) for status in statuses)
    note = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return replace(
        finding,
        models=models,
        member_count=1 + len(workers),
        note=note or finding.note,
    )


def _rpc_workers(args: object) -> list[str]:
    """The addresses behind `--rpc` in a child's command line."""
    words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
    lists = [after for word, after in pairwise(words) if word == _RPC]
    return [address for found in lists for address in found.split(",") if address]


async def _read_props(look: Look) -> Props:
    """The first `/props` that identifies; its model path may come from another one."""
    found = Props()
    for url in below(look.base, "/props"):
        props, _ = await look.read_openly(url, props_from_document)
        if props is None:
            continue
        if props.is_identified and not found.is_identified:
            found = replace(props, model_path=props.model_path or found.model_path)
        elif not found.model_path:
            found = replace(found, model_path=props.model_path)
        if found.is_identified and found.model_path:
            break
    return found


def props_from_document(document: object) -> Props:
    """`total_slots`, `build_info` or `model_path` are the positive signs.

    Raises:
        Malformed: one of them has the wrong type.
    """
    found = fields(document)
    build, path = text(found, "build_info"), text(found, "model_path")
    version = trim(build) or trim(text(found, "version"))
    slots: Any = found.get("total_slots")
    if slots is not None and not (isinstance(slots, Number) and is_int64(slots)):
        raise Malformed("total_slots is no integer")
    return Props(
        is_identified=slots is not None or bool(trim(build)) or bool(trim(path)),
        version=version,
        model_path=path,
        is_sleeping=found.get("is_sleeping") is True,
    )


async def _is_healthy(look: Look) -> bool:
    for url in below(look.base, "/health"):
        status = await look.read(url, lambda document: trim(text(fields(document), "status")))
        if status:
            return True
    return False


async def _local_size(look: Look, listing: Listing, props: Props) -> int:
    """A single model without a size may be a file of this machine; only ours are looked up."""
    models = models_from_rows(listing.rows)
    if len(models) != 1 or models[0].size or not is_loopback(look.base):
        return 0
    return await asyncio.to_thread(_file_size, props.model_path)


def _file_size(name: str) -> int:
    path = Path(name)
    try:
        return path.stat().st_size if path.is_absolute() and path.is_file() else 0
    except (OSError, ValueError):
        return 0
