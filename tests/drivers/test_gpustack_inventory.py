"""GPUStack's listings: which devices count, for how much, on how many machines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusterllm_mqtt.drivers.gpustack_inventory import (
    MAX_PAGES,
    Device,
    Page,
    Totals,
    Worker,
    devices_page,
    totals,
    workers_page,
)
from clusterllm_mqtt.drivers.json_reader import Malformed, parse
from clusterllm_mqtt.models import MAX_BYTES


def devices(*items: Any, **pagination: Any) -> Page[Device]:  # noqa: ANN401  # JSON
    document = {"items": items, "pagination": pagination or None}
    return devices_page(parse(json.dumps(document).encode()))


def workers(*items: Any) -> tuple[Worker, ...]:  # noqa: ANN401  # JSON
    return workers_page(parse(json.dumps({"items": items}).encode())).items


def gpu(name: str, worker: int, memory: int = 10) -> Device:
    return Device(name, f"box-{worker}", str(worker), memory)


def box(number: int, *, is_ready: bool = True) -> Worker:
    return Worker(str(number), f"box-{number}", is_ready)


def test_a_device_is_read() -> None:
    memory = {"total": 7, "is_unified_memory": True}
    page = devices({"id": "a", "worker_id": 3, "worker_name": " box ", "memory": memory})
    assert page.items == (Device("a", "box", "3", 7),)


@pytest.mark.parametrize(
    ("item", "memory"),
    [
        ({}, 0),
        (None, 0),
        ({"memory": None, "memory_total": 5}, 5),
        ({"memory": {"total": 0}, "memory_total": 5}, 5),
        ({"memory": {"total": 7}, "memory_total": 5}, 7),
        ({"memory": {"total": "7"}}, 7),
        ({"memory": {"total": -7}}, 0),
        ({"memory": {"total": 1.5}}, 0),
    ],
)
def test_memory_is_nested_or_flat_and_null_is_unknown(item: Any, memory: int) -> None:  # noqa: ANN401
    assert devices(item).items[0].memory == memory


@pytest.mark.parametrize(
    "item",
    [
        {"worker_id": "3fa85f64-5717-4562-b3fc-2c963f66afa6"},
        {"worker_name": 1},
        {"memory": "24 GiB"},
        {"memory": {"total": "24 GiB"}},
        {"memory": {"is_unified_memory": "yes"}},
        {"memory_total": True},
        [],
    ],
)
def test_one_device_with_a_known_field_of_the_wrong_type_spoils_the_listing(item: Any) -> None:  # noqa: ANN401
    with pytest.raises(Malformed):
        devices({"worker_name": "fine"}, item)


def test_pages_are_counted_and_bounded() -> None:
    assert (devices(page=2, totalPage=3).number, devices(page=2, totalPage=3).total_pages) == (2, 3)
    assert devices(totalPage=10**6).total_pages == MAX_PAGES
    for odd in ({"totalPage": 0}, {"totalPage": -1}, {"totalPage": "9"}, {"totalPage": None}):
        assert devices(**odd).total_pages == 1
    assert devices().total_pages == 1


def test_a_worker_is_ready_or_not_and_may_be_odd() -> None:
    found = workers({"id": 1, "name": "a", "state": "READY"}, {"id": "u-1", "state": 5}, {})
    assert [(w.id, w.name, w.is_ready) for w in found] == [
        ("1", "a", True),
        ("u-1", "", False),
        ("", "", False),
    ]


def test_without_a_worker_listing_every_device_counts_by_its_workers_name() -> None:
    assert totals([gpu("a", 1), gpu("b", 1), gpu("c", 2)]) == Totals(2, 30)
    assert totals([Device("", "", "", 5), Device("", "", "", 5)]) == Totals(1, 10)
    assert totals([]) == Totals(1, 0)


def test_a_device_on_two_pages_counts_once() -> None:
    assert totals([gpu("a", 1), gpu("a", 1)]) == Totals(1, 10)


def test_only_the_devices_of_ready_workers_count() -> None:
    found = totals([gpu("a", 1), gpu("b", 2)], [box(1), box(2, is_ready=False)])
    assert found == Totals(1, 10)


def test_a_ready_machine_without_a_device_is_a_member() -> None:
    assert totals([gpu("a", 1)], [box(1), box(2)]) == Totals(2, 10)


def test_when_every_worker_is_lost_the_server_remains() -> None:
    assert totals([gpu("a", 1)], [box(1, is_ready=False)]) == Totals(1, 0)


def test_a_name_that_is_used_again_does_not_bring_back_a_lost_workers_devices() -> None:
    old, new = Worker("1", "box", is_ready=False), Worker("2", "box", is_ready=True)
    found = totals([Device("a", "box", "1", 10), Device("b", "box", "2", 20)], [old, new])
    assert found == Totals(1, 20)


def test_a_device_without_an_id_of_a_worker_is_joined_by_name() -> None:
    devices = [Device("a", "box-1", "", 10), Device("b", "box-2", "", 20), Device("c", "", "", 30)]
    assert totals(devices, [box(1), box(2, is_ready=False)]) == Totals(1, 40)


def test_a_sum_saturates() -> None:
    assert totals([gpu("a", 1, MAX_BYTES), gpu("b", 1, MAX_BYTES)]) == Totals(1, MAX_BYTES)
