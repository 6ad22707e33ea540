"""GPUStack, versions 0.2 to 2.3.

`/version` needs no key; with a `git_commit` it proves GPUStack and tells where the management API
is: `/v1` in 0.x, `/v2` since. Models come from the alias path, which every version has: on 0.x,
`/v1/models` is the management list. A key that may not see the cluster gets 403, or since 2.2 an
empty listing: that is hidden, not zero. Without the proof, a device listing is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from clusterllm_mqtt.drivers import llamacpp
from clusterllm_mqtt.drivers.base import Finding, missing
from clusterllm_mqtt.drivers.gpustack_inventory import (
    PER_PAGE,
    Device,
    Page,
    Totals,
    Worker,
    devices_page,
    totals,
    workers_page,
)
from clusterllm_mqtt.drivers.json_reader import Malformed, fields, text
from clusterllm_mqtt.drivers.look import ALIAS, Look, Reading
from clusterllm_mqtt.drivers.model_list import served_models
from clusterllm_mqtt.drivers.parts import Part, watch
from clusterllm_mqtt.drivers.trouble import Trouble, worst
from clusterllm_mqtt.models import BACKEND_GPUSTACK, BACKEND_LLAMACPP, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterllm_mqtt.drivers.http import Answer
    from clusterllm_mqtt.drivers.listing import Models

T = TypeVar("T")

_HIDES_SINCE: Final = 2
_HIDDEN: Final = Trouble(
    Reason.FORBIDDEN, "the key sees no workers; use an administrator's key, or add a worker"
)
_NO_KEY: Final = Trouble(Reason.UNAUTHORIZED, "members and memory need a key; set api_key")


@dataclass(slots=True)
class _Listing(Generic[T]):
    """A paged listing, a part for each page."""

    pages: list[Part[Page[T]]] = field(default_factory=list)

    @property
    def items(self) -> tuple[T, ...] | None:
        """Of all pages; None when one of them was not read."""
        values = [page.reading.value for page in self.pages]
        known = [value for value in values if value is not None]
        if not values or len(known) < len(values):
            return None
        return tuple(item for value in known for item in value.items)

    @property
    def trouble(self) -> Trouble | None:
        """Of any page."""
        return worst(page.reading.trouble for page in self.pages)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What was read of one GPUStack; without a key there are no listings.

    `unproven` says why `/version` did not prove it, though something else did.
    """

    version: Part[str]
    models: Part[Models]
    devices: _Listing[Device] = field(default_factory=_Listing)
    workers: _Listing[Worker] = field(default_factory=_Listing)
    is_proven: bool = True
    unproven: Trouble | None = None

    @property
    def parts(self) -> list[Part[Any]]:
        """What is watched."""
        return [*self.devices.pages, *self.workers.pages, self.models, self.version]


async def detect(look: Look, first: Answer) -> Finding | None:
    """Ask for the version; with a key for devices, workers and models."""
    if look.label == BACKEND_LLAMACPP or llamacpp.names_itself(first):
        return None
    base, proof = await _prove(look)
    cluster = (
        await _read_proven(look, base, proof, first)
        if proof.value
        else await _read_unproven(look, proof, first)
    )
    return watch(cluster.parts, partial(_conclude, cluster)) if cluster else None


async def _prove(look: Look) -> tuple[str, Reading[str]]:
    """The base below which `/version` proves a GPUStack; else the endpoint, and why not."""
    readings = []
    for base in look.urls(""):
        readings.append(await look.ask(f"{base}/version", _proof))
        if readings[-1].value:
            return base, readings[-1]
    return look.endpoint, readings[0]


async def _read_proven(look: Look, base: str, proof: Reading[str], first: Answer) -> _Cluster:
    version, major = Part(proof, _proof), _major(proof.value or "")
    if not look.key:
        return _Cluster(version, await _read_openly(look, base, first))
    devices, workers = await _read_machines(
        look, base, ("/v2", "/v1") if major > 1 else ("/v1", "/v2")
    )
    return _Cluster(version, await _read_models(look, base, major), devices, workers)


async def _read_unproven(look: Look, proof: Reading[str], first: Answer) -> _Cluster | None:
    """A device listing is a proof, too; the models are then only read without the key."""
    if not look.key:
        return None
    base = look.endpoint
    devices, workers = await _read_machines(look, base, ("/v2", "/v1"))
    if devices.items is None:
        return None
    version, models = await _read_version(look, base), await _read_openly(look, base, first)
    return _Cluster(version, models, devices, workers, is_proven=False, unproven=proof.trouble)


async def _read_openly(look: Look, base: str, first: Answer) -> Part[Models]:
    """The models as anybody may read them; `first` was the endpoint's own answer."""
    url = base + ALIAS
    if base == look.endpoint:
        return Part(look.read(url, first, served_models), served_models)
    return Part(await look.ask(url, served_models), served_models)


async def _read_models(look: Look, base: str, major: int) -> Part[Models]:
    """The models with the key; the alias path is a legacy one, and may go."""
    reading = await look.ask(base + ALIAS, served_models, keyed=True)
    if reading.status == 404 and major >= _HIDES_SINCE:  # noqa: PLR2004
        reading = await look.ask(f"{base}/v1/models", served_models, keyed=True)
    return Part(reading, served_models)


async def _read_version(look: Look, base: str) -> Part[str]:
    """The version with the key, which counts only beside a device listing."""
    reading = await look.ask(f"{base}/v1/version", _version, keyed=True)
    if not reading.value:
        reading = await look.ask(f"{base}/version", _version, keyed=True)
    return Part(reading, _version)


async def _read_machines(
    look: Look, base: str, prefixes: tuple[str, ...]
) -> tuple[_Listing[Device], _Listing[Worker]]:
    """Devices and workers from where this version has them; else the refused device listings."""
    tried: list[Part[Page[Device]]] = []
    for prefix in prefixes:
        devices = await _read_listing(look, f"{base}{prefix}/gpu-devices", devices_page)
        if devices.items is not None:
            return devices, await _read_listing(look, f"{base}{prefix}/workers", workers_page)
        tried += devices.pages
    return _Listing(tried), _Listing()


async def _read_listing(look: Look, url: str, convert: Callable[[object], Page[T]]) -> _Listing[T]:
    """Every page, until one cannot be read or is not the one that was asked for."""
    listing: _Listing[T] = _Listing()
    number, total_pages = 1, 1
    while number <= total_pages:
        page_url = f"{url}?perPage={PER_PAGE}&page={number}"
        reading = await look.ask(page_url, convert, keyed=True)
        page = reading.value
        if page and number > 1 and page.number not in {0, number}:
            break
        listing.pages.append(Part(reading, convert, lambda page: page.total_pages))
        if page is None:
            break
        number, total_pages = number + 1, page.total_pages
    return listing


def _conclude(cluster: _Cluster) -> Finding:
    """What the parts say together."""
    devices, workers = cluster.devices.items, cluster.workers.items or ()
    found = Totals(1, 0) if devices is None else totals(devices, workers)
    version, models = cluster.version.reading, cluster.models.reading
    machines = _machines_trouble(cluster)
    models_trouble = models.trouble if cluster.is_proven else cluster.unproven
    return Finding(
        BACKEND_GPUSTACK,
        version=version.value or "",
        member_count=found.member_count,
        aggregate_vram_bytes=found.aggregate_vram_bytes,
        models=tuple(each.model for each in models.value or ()),
        trouble=worst([machines, models.trouble if cluster.is_proven else None]),
        note=_note(workers),
        missing=missing(version=version.trouble, machines=machines, models=models_trouble),
    )


def _machines_trouble(cluster: _Cluster) -> Trouble | None:
    """Why members and memory are not, or not surely, known."""
    if not cluster.devices.pages:
        return _NO_KEY
    is_empty = cluster.devices.items == () and cluster.workers.items == ()
    if (
        is_empty
        and cluster.is_proven
        and _major(cluster.version.reading.value or "") >= _HIDES_SINCE
    ):
        return _HIDDEN
    return worst([cluster.devices.trouble, cluster.workers.trouble])


def _major(version: str) -> int:
    """The first number of a version; a branch or a commit is taken for a recent one."""
    found = re.match(r"v?(\d{1,4})\.", version)
    return int(found[1]) if found else _HIDES_SINCE


def _note(workers: tuple[Worker, ...]) -> str:
    ready = sum(worker.is_ready for worker in workers)
    return f"{ready} of {len(workers)} workers are ready" if ready < len(workers) else ""


def _proof(document: object) -> str:
    """The version of what is surely a GPUStack."""
    found = fields(document)
    version = text(found, "version")
    if not version or not text(found, "git_commit"):
        raise Malformed("not the version of GPUStack")
    return version


def _version(document: object) -> str:
    """The version of what is a GPUStack by other proof."""
    found = fields(document)
    return text(found, "version") or text(found, "git_version")
