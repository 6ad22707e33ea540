"""GPUStack's device and worker listings -> members and memory; pure.

Seen in 0.2 to 2.3: memory is in bytes and may be null or 0 (unknown); lost workers keep their
devices, so only those of `ready` workers count; the order of a listing is not stable between pages,
so devices are told apart by `id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from clusterllm_mqtt.drivers.json_reader import Number, fields, number, positive, rows, text, trim
from clusterllm_mqtt.models import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

PER_PAGE: Final = 100
"""More is a 422 on every 0.x."""

MAX_PAGES: Final = 50


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU; `worker` is what tells its machine apart, `worker_id` joins with the workers."""

    id: str
    worker: str
    worker_id: str
    memory: int


@dataclass(frozen=True, slots=True)
class Worker:
    """One machine; its listing repeats its devices."""

    id: str
    is_ready: bool
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing; `total_pages` is at least 1 and bounded."""

    items: list[Any]
    total_pages: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What a cluster has; memory saturates instead of wrapping."""

    member_count: int
    aggregate_vram_bytes: int


def page(document: object) -> Page:
    """Raises `Malformed` when the document is no listing."""
    found = fields(document)
    pagination = found.get("pagination")
    total = fields(pagination).get("totalpage") if isinstance(pagination, dict) else None
    pages = positive(total) if isinstance(total, Number) else 1
    return Page(rows(found, "items"), min(max(pages, 1), MAX_PAGES))


def devices_from_page(document: object) -> tuple[Page, list[Device]]:
    """Raises `Malformed` when one device has a known field of the wrong type."""
    found = page(document)
    return found, [device(item) for item in found.items]


def workers_from_page(document: object) -> tuple[Page, list[Worker]]:
    """Raises `Malformed` when one worker has a known field of the wrong type."""
    found = page(document)
    return found, [worker(item) for item in found.items]


def device(item: object) -> Device:
    """One item of `gpu-devices`."""
    found = fields(item)
    memory = fields(found.get("memory"))
    flat = number(found, "memory_total")
    worker_id = number(found, "worker_id")
    return Device(
        id=str(found.get("id") or ""),
        worker=trim(text(found, "worker_name")) or worker_id,
        worker_id=worker_id,
        memory=positive(number(memory, "total")) or positive(flat),
    )


def worker(item: object) -> Worker:
    """One item of `workers`."""
    found = fields(item)
    devices = rows(fields(found.get("status")), "gpu_devices")
    is_ready = text(found, "state").lower() == "ready"
    return Worker(number(found, "id"), is_ready, tuple(device(d) for d in devices))


def totals_from_devices(devices: Iterable[Device], workers: Iterable[Worker] | None) -> Totals:
    """Sum and count; without a worker listing every device counts, by its worker's name."""
    unique = list({found.id or object(): found for found in devices}.values())
    if workers is None:
        names = {found.worker for found in unique if found.worker}
        return Totals(max(len(names), 1), _sum(unique))
    ready = {found.id for found in workers if found.is_ready}
    return Totals(max(len(ready), 1), _sum(d for d in unique if d.worker_id in ready))


def totals_from_workers(workers: Iterable[Worker]) -> Totals:
    """The same from the worker listing alone."""
    ready = [found for found in workers if found.is_ready]
    return Totals(max(len(ready), 1), _sum(d for found in ready for d in found.devices))


def _sum(devices: Iterable[Device]) -> int:
    return min(sum(found.memory for found in devices), MAX_BYTES)
