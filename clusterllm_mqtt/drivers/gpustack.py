"""GPUStack, versions 0.2 to 2.3.

`/version` needs no key; with a `git_commit` it proves GPUStack and tells where the management API
is: `/v1` in 0.x, `/v2` since. Models come from `/v1-openai/models`, which every version has: on
0.x, `/v1/models` is the management list. A key that may not see the cluster gets 403, or since 2.2
an empty listing: that is hidden, not zero.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from clusterllm_mqtt.drivers.base import ALIAS, Finding, Look, Trouble
from clusterllm_mqtt.drivers.gpustack_inventory import (
    PER_PAGE,
    Page,
    Totals,
    devices_from_page,
    totals_from_devices,
    totals_from_workers,
    workers_from_page,
)
from clusterllm_mqtt.drivers.json_reader import fields, text
from clusterllm_mqtt.drivers.llamacpp import SERVER as LLAMACPP_SERVER
from clusterllm_mqtt.drivers.model_list import Row, model_rows, models_from_rows
from clusterllm_mqtt.models import BACKEND_GPUSTACK, BACKEND_LLAMACPP, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterllm_mqtt.drivers.http import Answer

T = TypeVar("T")

_ANSWERS_OF_GPUSTACK: Final = frozenset({200, 401, 403})
_HIDES_SINCE: Final = (2, 2)
_HIDDEN: Final = Trouble(Reason.FORBIDDEN, "the key sees no workers: use an administrator's key")
_NO_KEY: Final = Trouble(Reason.UNAUTHORIZED, "members, memory and models need an api_key")


@dataclass(frozen=True, slots=True)
class Version:
    """What `/version` says; `commit` is what no look-alike has."""

    text: str
    commit: str = ""

    @property
    def number(self) -> tuple[int, int]:
        """Major and minor; 0.0 when it is no number."""
        found = re.match(r"v?(\d{1,4})\.(\d{1,4})", self.text)
        return (int(found[1]), int(found[2])) if found else (0, 0)


async def detect(look: Look, first: Answer) -> Finding | None:
    """Ask for the version; with a key for devices, workers and models."""
    if look.backend == BACKEND_LLAMACPP or first.server == LLAMACPP_SERVER:
        return None
    proof = None
    if first.status in _ANSWERS_OF_GPUSTACK:
        proof = await look.read(look.base + "/version", _version)
    if proof is None or not proof.commit:
        return await _detect_unproven(look) if look.key else None
    finding = Finding(BACKEND_GPUSTACK, version=proof.text)
    if not look.key:
        return replace(finding, trouble=_NO_KEY)
    prefix = "/v2" if proof.number >= (1, 0) else "/v1"
    devices = await _read_all(look, f"{prefix}/gpu-devices", devices_from_page)
    workers = await _read_all(look, f"{prefix}/workers", workers_from_page)
    totals = None if devices is None else totals_from_devices(devices, workers)
    rows = await look.read(look.base + ALIAS, model_rows, keyed=True)
    finding = _finding(look, proof, totals, rows, is_empty=not devices and workers == [])
    return replace(finding, again=partial(_look_again, prefix=prefix, proof=proof))


async def _detect_unproven(look: Look) -> Finding | None:
    """Without a proof, a device listing is one; its version may then be told too."""
    version: Version | None = None
    for path in ("/v1/version", "/version"):
        if version is None:
            version = await look.read(look.base + path, _version, keyed=True)
    for prefix in ("/v2", "/v1"):
        devices = await _read_all(look, f"{prefix}/gpu-devices", devices_from_page)
        if devices is not None:
            finding = _with_totals(
                Finding(BACKEND_GPUSTACK, version=version.text if version else ""),
                totals_from_devices(devices, None),
            )
            return replace(finding, again=partial(_devices_again, prefix=prefix, known=finding))
    return None


async def _look_again(look: Look, *, prefix: str, proof: Version) -> Finding | None:
    """Two GETs: the models prove life, the worker listing repeats the devices."""
    rows = await look.ask(look.base + ALIAS, model_rows, keyed=True)
    workers = await _read_all(look, f"{prefix}/workers", workers_from_page)
    if rows is None and workers is None and not look.troubles:
        return None
    totals = None if workers is None else totals_from_workers(workers)
    return _finding(look, proof, totals, rows, is_empty=workers == [])


async def _devices_again(look: Look, *, prefix: str, known: Finding) -> Finding | None:
    """One GET; a listing of several pages is left to the full look."""
    found = await look.ask(
        _page_url(look, f"{prefix}/gpu-devices", 1), devices_from_page, keyed=True
    )
    if found is None or found[0].total_pages > 1:
        return None
    return _with_totals(known, totals_from_devices(found[1], None))


def _finding(
    look: Look, proof: Version, totals: Totals | None, rows: list[Row] | None, *, is_empty: bool
) -> Finding:
    trouble = look.worst_trouble
    if is_empty and trouble is None and proof.number >= _HIDES_SINCE:
        trouble = _HIDDEN
    models = models_from_rows(rows or [])
    finding = Finding(BACKEND_GPUSTACK, version=proof.text, models=models, trouble=trouble)
    return finding if totals is None else _with_totals(finding, totals)


def _with_totals(finding: Finding, totals: Totals) -> Finding:
    return replace(
        finding,
        member_count=totals.member_count,
        aggregate_vram_bytes=totals.aggregate_vram_bytes,
    )


def _page_url(look: Look, path: str, number: int) -> str:
    return f"{look.base}{path}?perPage={PER_PAGE}&page={number}"


async def _read_all(
    look: Look, path: str, convert: Callable[[object], tuple[Page, list[T]]]
) -> list[T] | None:
    """Every page of a listing; None when one of them cannot be read."""
    items: list[T] = []
    number, total_pages = 1, 1
    while number <= total_pages:
        found = await look.read(_page_url(look, path, number), convert, keyed=True)
        if found is None:
            return None
        page, more = found
        items += more
        number, total_pages = number + 1, page.total_pages
    return items


def _version(document: object) -> Version | None:
    found = fields(document)
    version = text(found, "version") or text(found, "git_version")
    return Version(version, text(found, "git_commit")) if version else None
