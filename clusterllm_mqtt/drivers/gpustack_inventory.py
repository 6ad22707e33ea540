"""GPUStack's device and worker listings -> members and memory; pure.

Seen in 0.2 to 2.3: memory is in bytes and may be null or 0 (unknown); a lost worker keeps its
devices, so only those of `ready` workers count; the order of a listing is not stable between its
pages, so devices are told apart by `id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from clusterllm_mqtt.drivers.json_reader import (
    Malformed,
    Number,
    fields,
    number,
    positive,
    rows,
    text,
    trim,
)
from clusterllm_mqtt.models import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")

PER_PAGE: Final = 100
"""More is a 422 on every 0.x."""

MAX_PAGES: Final = 50


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU; `worker` tells its machine apart, `worker_id` joins it with the workers."""

    id: str
    worker: str
    worker_id: str
    memory: int


@dataclass(frozen=True, slots=True)
class Worker:
    """One machine."""

    id: str
    name: str
    is_ready: bool


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a listing; 1 <= `total_pages` <= `MAX_PAGES`, `number` is 0 if it does not say."""

    items: tuple[T, ...]
    number: int
    total_pages: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What a cluster has; memory saturates instead of wrapping."""

    member_count: int
    aggregate_vram_bytes: int


def devices_page(document: object) -> Page[Device]:
    """Raises `Malformed` when one device has a known field of the wrong type."""
    return _page(document, _device)


def workers_page(document: object) -> Page[Worker]:
    """Raises `Malformed` when it is no listing."""
    return _page(document, _worker)


def _page(document: object, convert: Callable[[object], T]) -> Page[T]:
    found = fields(document)
    given = found.get("pagination")
    pagination = fields(given) if isinstance(given, dict) else {}
    total = min(max(_count(pagination.get("totalpage")), 1), MAX_PAGES)
    items = tuple(convert(item) for item in rows(found, "items"))
    return Page(items, _count(pagination.get("page")), total)


def _count(value: object) -> int:
    return positive(value) if isinstance(value, Number) else 0


def _device(item: object) -> Device:
    found = fields(item)
    memory = fields(found.get("memory"))
    if not isinstance(memory.get("is_unified_memory"), bool | None):
        raise Malformed("is_unified_memory is no boolean")
    flat = number(found, "memory_total")
    worker_id = number(found, "worker_id")
    return Device(
        id=_identity(found.get("id")),
        worker=trim(text(found, "worker_name")) or worker_id,
        worker_id=worker_id,
        memory=positive(number(memory, "total")) or positive(flat),
    )


def _worker(item: object) -> Worker:
    found = fields(item)
    state = found.get("state")
    is_ready = isinstance(state, str) and state.lower() == "ready"
    return Worker(_identity(found.get("id")), trim(text(found, "name")), is_ready)


def _identity(value: object) -> str:
    return str(value) if isinstance(value, str) else ""


def totals(devices: Iterable[Device], workers: Sequence[Worker] = ()) -> Totals:
    """Sum and count; with a worker listing, the machines are its `ready` ones, GPU or not.

    The server itself is a machine: there is never less than 1 member.
    """
    counted = list({device.id or object(): device for device in devices}.values())
    members = {device.worker for device in counted if device.worker}
    if workers:
        counted = [device for device in counted if _is_ready(device, workers)]
        members = {worker.id or worker.name for worker in workers if worker.is_ready}
    memory = sum(device.memory for device in counted)
    return Totals(max(len(members), 1), min(memory, MAX_BYTES))


def _is_ready(device: Device, workers: Sequence[Worker]) -> bool:
    """Whether its worker is; names can be used again, so the id decides where it is known."""
    if not device.worker:
        return True
    by_id = [w.is_ready for w in workers if w.id and w.id == device.worker_id]
    return any(by_id or [w.is_ready for w in workers if w.name == device.worker])
