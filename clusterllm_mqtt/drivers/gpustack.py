"""GPUStack, versions 0.2 to 2.3.

`/version` needs no key; with a `git_commit` it proves GPUStack and tells where the management API
is: `/v1` in 0.x, `/v2` since. Models come from the alias path, which every version has: on 0.x,
`/v1/models` is the management list. A key that may not see the cluster gets 403, or since 2.2 an
empty listing: that is hidden, not zero. Without the proof, a device listing is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from clusterllm_mqtt.drivers.base import Finding, Trouble, missing, worst
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
from clusterllm_mqtt.drivers.llamacpp import SERVER as LLAMACPP_SERVER
from clusterllm_mqtt.drivers.look import ALIAS, Look, Reading
from clusterllm_mqtt.drivers.model_list import Served, served_models
from clusterllm_mqtt.drivers.parts import Part, watch
from clusterllm_mqtt.models import BACKEND_GPUSTACK, BACKEND_LLAMACPP, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterllm_mqtt.drivers.http import Answer

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


@dataclass(slots=True)
class _Cluster:
    """What was read of one GPUStack.

    `major` is None without the proof; `unproven` says why, when that may pass.
    """

    version: Part[str] | None = None
    major: int | None = None
    unproven: Trouble | None = None
    devices: _Listing[Device] = field(default_factory=_Listing)
    workers: _Listing[Worker] = field(default_factory=_Listing)
    models: Part[tuple[Served, ...]] | None = None

    @property
    def parts(self) -> list[Part[Any]]:
        """What is watched."""
        return [
            p for p in (*self.devices.pages, *self.workers.pages, self.models, self.version) if p
        ]


async def detect(look: Look, first: Answer) -> Finding | None:
    """Ask for the version; with a key for devices, workers and models."""
    if look.label == BACKEND_LLAMACPP or first.server == LLAMACPP_SERVER:
        return None
    base, cluster = await _prove(look)
    cluster.models = await _read_openly(look, base, first)
    if look.key:
        await _read_machines(look, base, cluster)
        if cluster.major is not None:
            cluster.models = await _read_models(look, base, cluster.major)
        elif cluster.devices.items is None:
            return None
        else:
            cluster.version = await _read_version(look, base)
    elif cluster.major is None:
        return None
    has_key = bool(look.key)
    return watch(cluster.parts, lambda: _conclude(cluster, has_key=has_key))


async def _prove(look: Look) -> tuple[str, _Cluster]:
    """The base below which `/version` proves a GPUStack, else the endpoint and no proof."""
    unproven = None
    for base in look.urls(""):
        reading = await look.ask(f"{base}/version", _proof)
        if reading.value:
            found = re.match(r"v?(\d{1,4})\.", reading.value)
            major = int(found[1]) if found else _HIDES_SINCE
            return base, _Cluster(Part(f"{base}/version", _proof, reading), major)
        unproven = unproven or reading.trouble
    return look.endpoint, _Cluster(unproven=unproven)


async def _read_openly(look: Look, base: str, first: Answer) -> Part[tuple[Served, ...]]:
    """The models as anybody may read them; `first` was the endpoint's own answer."""
    url = base + ALIAS
    if base == look.endpoint:
        return Part(url, served_models, look.read(url, first, served_models))
    return Part(url, served_models, await look.ask(url, served_models))


async def _read_models(look: Look, base: str, major: int) -> Part[tuple[Served, ...]]:
    """The models with the key; the alias path is a legacy one, and may go."""
    url = base + ALIAS
    reading = await look.ask(url, served_models, keyed=True)
    if reading.status == 404 and major >= _HIDES_SINCE:  # noqa: PLR2004
        url = f"{base}/v1/models"
        reading = await look.ask(url, served_models, keyed=True)
    return Part(url, served_models, reading)


async def _read_version(look: Look, base: str) -> Part[str]:
    """The version with the key, which counts only beside a device listing."""
    tried = []
    for path in ("/v1/version", "/version"):
        reading = await look.ask(base + path, _version, keyed=True)
        tried.append(Part(base + path, _version, reading))
        if reading.value:
            break
    return tried[-1]


async def _read_machines(look: Look, base: str, cluster: _Cluster) -> None:
    """Devices and workers, from wherever this version has them."""
    prefixes = ("/v1", "/v2") if cluster.major in {0, 1} else ("/v2", "/v1")
    tried: list[_Listing[Device]] = []
    for prefix in prefixes:
        tried.append(await _read_listing(look, f"{base}{prefix}/gpu-devices", devices_page))
        if tried[-1].items is not None:
            cluster.devices = tried[-1]
            cluster.workers = await _read_listing(look, f"{base}{prefix}/workers", workers_page)
            return
    cluster.devices = _Listing([page for listing in tried for page in listing.pages])


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
        listing.pages.append(Part(page_url, convert, reading, lambda page: page.total_pages))
        if page is None:
            break
        number, total_pages = number + 1, page.total_pages
    return listing


def _conclude(cluster: _Cluster, *, has_key: bool) -> Finding:
    """What the parts say together."""
    devices, workers = cluster.devices.items, cluster.workers.items
    found = Totals(1, 0) if devices is None else totals(devices, workers or ())
    machines = worst([cluster.devices.trouble, cluster.workers.trouble])
    if not has_key:
        machines = _NO_KEY
    elif devices == () and workers == () and (cluster.major or 0) >= _HIDES_SINCE:
        machines = _HIDDEN
    models = cluster.models.reading if cluster.models else Reading[tuple[Served, ...]]()
    trouble = cluster.unproven if cluster.major is None else models.trouble
    version = cluster.version.reading if cluster.version else Reading[str]()
    return Finding(
        BACKEND_GPUSTACK,
        version=version.value or "",
        member_count=found.member_count,
        aggregate_vram_bytes=found.aggregate_vram_bytes,
        models=tuple(each.model for each in models.value or ()),
        trouble=worst([machines, models.trouble if cluster.major is not None else None]),
        note=_note(workers or ()),
        missing=missing(machines=machines, models=trouble, version=version.trouble),
    )


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
