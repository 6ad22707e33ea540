"""A LAN is hostile: packets made by hand, by the thousand."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import struct
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from rig.mdns import (
    CACHE_FLUSH,
    PTR,
    SRV,
    TXT,
    announcement,
    answer,
    browsing,
    encoded,
    multicast,
    pointer,
    record,
    service_packet,
)
from rig.mosquitto import eventually
from zeroconf import DNSIncoming  # type: ignore[attr-defined]  # left out of its __all__

from clusterllm_mqtt.mdns.advertiser import Advertiser
from clusterllm_mqtt.models import MdnsHealth, MdnsState

if TYPE_CHECKING:
    import pytest

MANY = 10_000


def test_the_hand_made_packets_are_what_they_claim() -> None:
    packet = DNSIncoming(service_packet("_x._tcp", "good.with.dots"))
    assert packet.valid
    assert len(packet.answers()) == 4


def hostile_packets(service_type: str, random: Random) -> list[bytes]:
    good = service_packet(service_type, "cut off")
    browsed = encoded(f"{service_type}.local")
    to_itself = b"\xc0\x0c"
    return [
        b"",
        b"\0" * 12,
        *(good[:length] for length in range(0, len(good), 7)),
        struct.pack("!HHHHHH", 0, 0x8400, 0, 65535, 0, 0) + b"\0" * 50,
        struct.pack("!HHHHHH", 0, 0x8400, 65535, 65535, 65535, 65535) + good[12:],
        struct.pack("!HHHHHH", 0, 0x8400, 1, 0, 0, 0) + to_itself + b"\0\x0c\0\x01",
        answer(record(browsed, PTR, to_itself)),
        answer(record(browsed, PTR, b"\xc0\xff")),
        answer(record(browsed, PTR, b"\x3f" + b"\xff" * 63 + b"\0")),
        answer(record(browsed, PTR, b"\0")),
        answer(record(browsed, PTR, encoded("elsewhere._ssh._tcp.local"))),
        answer(record(browsed, PTR, encoded("local"))),
        answer(record(browsed, PTR, browsed)),
        answer(record(encoded(f"x|{service_type}.local"), SRV, b"\0\0\0", flags=CACHE_FLUSH)),
        answer(record(encoded(f"x|{service_type}.local"), TXT, b"\xff", flags=CACHE_FLUSH)),
        service_packet(service_type, "port", port=0),
        service_packet(service_type, "address", address="8.8.8.8"),
        service_packet(service_type, "unspecified", address="0.0.0.0"),  # noqa: S104
        service_packet(service_type, "group", address="224.0.0.251"),
        service_packet(service_type, "escape\x1b[2J\n", b"\x06path=x"),
        service_packet(service_type, "\udcff\udcfe", b"\x07path=/."),
        service_packet(service_type, "long", (b"\xff" + b"x" * 255) * 5 + b"\x06path=x"),
        *(random.randbytes(random.randrange(600)) for _ in range(50)),
        *(service_packet(service_type, "t", random.randbytes(200)) for _ in range(20)),
    ]


async def test_hostile_packets_break_nothing_and_the_good_service_is_found(
    service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    packets = hostile_packets(service_type, Random(service_type))  # noqa: S311  # to be repeatable
    async with browsing(service_type) as watch:
        with multicast() as send:
            for packet in packets:
                with contextlib.suppress(OSError):
                    send(packet)
            for _ in range(3):
                send(service_packet(service_type, "good"))
                await asyncio.sleep(0.2)
        await eventually(lambda: any(s.name == "good" for s in watch.found))
        # what is made of random TXT bytes may be a service, or none
        allowed = {"good", "t", "cut off", "\ufffd\ufffd"}
        assert {s.name for s in watch.found} <= allowed
        assert all(s.url.startswith(("http://127.0.0.1:8080", "https://")) for s in watch.found)
    assert all("\x1b" not in r.getMessage() for r in caplog.records if "mdns" in r.getMessage())


async def test_labels_may_hold_dots_and_what_is_not_utf8(service_type: str) -> None:
    async with browsing(service_type) as watch:
        with multicast() as send:
            send(service_packet(service_type, "v1.2 on box.lan"))
            send(service_packet(service_type, "caf\udce9"))
        await eventually(lambda: len(watch.found) == 2)
        assert {s.name for s in watch.found} == {"v1.2 on box.lan", "caf\ufffd"}


async def test_a_flood_of_the_same_packet_is_one_event_and_one_line(
    service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with browsing(service_type) as watch:
        with multicast() as send:
            for number in range(500):
                send(service_packet(service_type, "same"))
                send(service_packet(service_type, "bad", b"\x06path=x"))
                if number % 50 == 0:
                    await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert len(watch.found) == 1
    assert caplog.text.count("ignored") == 1


async def test_a_flood_of_changes_is_heard_at_a_walking_pace(service_type: str) -> None:
    async with browsing(service_type) as watch:
        with multicast() as send:
            for number in range(600):
                txt = b"\x09model=%03d" % number
                send(service_packet(service_type, "flaps", txt, ttl=4500 if number % 3 else 0))
                await asyncio.sleep(0.005)
        assert 1 <= len(watch.found) + len(watch.lost) <= 5


def resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def test_ten_thousand_services_cost_bounded_memory_and_time(
    service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with browsing(service_type) as watch:
        with multicast() as send:
            send(service_packet(service_type, "early"))
        await eventually(lambda: len(watch.found) == 1)
        before_mb, before_s = resident_mb(), time.process_time()
        with multicast() as send:
            for number in range(MANY):
                send(service_packet(service_type, f"s{number}"))
                if number % 50 == 0:
                    await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert len(watch.found) == 64
        assert resident_mb() - before_mb < 15, "zeroconf's cache of 10,000 records"
        assert time.process_time() - before_s < 8
        assert watch.lost == [], "who was there keeps its place"
    assert len(caplog.records) <= 3


async def test_an_endless_flood_is_answered_with_new_sockets_and_the_known_stay(
    service_type: str,
) -> None:
    async with (
        Advertiser(announcement(service_type)),
        browsing(service_type, check_every_s=1) as watch,
    ):
        await eventually(lambda: len(watch.found) == 1)
        first = watch.browser._zeroconf
        with multicast() as send:
            for number in range(21_000):
                send(answer(pointer(service_type, f"s{number}")))
                if number % 100 == 0:
                    await asyncio.sleep(0.01)
        await eventually(lambda: watch.browser._zeroconf is not first)
        await asyncio.sleep(4)
        assert watch.lost == []
        assert [s.name for s in watch.found] == ["Box"]
        assert watch.health == MdnsHealth(MdnsState.OK, 1)


async def test_names_that_answer_nothing_give_their_places_back(service_type: str) -> None:
    async with browsing(service_type, max_services=3, check_every_s=0.5) as watch:
        with multicast() as send:
            for number in range(3):
                send(answer(pointer(service_type, f"mute{number}")))
            await asyncio.sleep(0.1)
            send(service_packet(service_type, "good"))
        await eventually(lambda: [s.name for s in watch.found] == ["good"], 15)
