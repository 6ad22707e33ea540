"""Browsing and advertising with real multicast, on loopback only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from rig.mosquitto import eventually
from zeroconf._protocol.incoming import DNSIncoming

from clusterllm_mqtt.errors import MdnsError
from clusterllm_mqtt.mdns.advertiser import Advertisement, Advertiser
from clusterllm_mqtt.mdns.browser import Browser, BrowserEvent, MdnsOptions
from clusterllm_mqtt.models import (
    EndpointFound,
    EndpointLost,
    MdnsHealth,
    MdnsState,
    Service,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

LOOPBACK = ("127.0.0.1",)


@pytest.fixture
def service_type() -> str:
    """A type of this test's own: others may announce on loopback at the same time."""
    return f"_t{uuid.uuid4().hex[:10]}._tcp"


class Watch:
    """What a browser tells."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.seen: list[BrowserEvent] = []
        self.task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for event in self.browser.events():
            self.seen.append(event)

    @property
    def found(self) -> list[Service]:
        return [e.service for e in self.seen if isinstance(e, EndpointFound)]

    @property
    def lost(self) -> list[str]:
        return [e.instance for e in self.seen if isinstance(e, EndpointLost)]

    @property
    def health(self) -> MdnsHealth:
        return [e for e in self.seen if isinstance(e, MdnsHealth)][-1]


@contextlib.asynccontextmanager
async def browsing(service_type: str, **options: Any) -> AsyncIterator[Watch]:  # noqa: ANN401
    chosen = MdnsOptions(service_types=(service_type,), interfaces=LOOPBACK)
    async with Browser(replace(chosen, **options)) as browser:
        watch = Watch(browser)
        await eventually(lambda: bool(watch.seen))
        yield watch
        watch.task.cancel()


def announcement(service_type: str, name: str = "Box", port: int = 8080) -> Advertisement:
    txt = {"backend": "llamacpp", "path": "/llm"}
    return Advertisement(name, port, service_type, txt, LOOPBACK)


async def test_what_is_advertised_is_found_and_its_goodbye_is_told(service_type: str) -> None:
    async with browsing(service_type) as watch:
        started_s = asyncio.get_running_loop().time()
        async with Advertiser(announcement(service_type)) as advertiser:
            assert advertiser.instance == f"Box.{service_type}.local."
            await eventually(lambda: len(watch.found) == 1)
            assert asyncio.get_running_loop().time() - started_s < 2.5
            [service] = watch.found
            assert service.url == "http://127.0.0.1:8080/llm"
            assert (service.name, service.backend) == ("Box", "llamacpp")
            assert watch.health == MdnsHealth(MdnsState.OK, 1)
        await eventually(lambda: watch.lost == [f"Box.{service_type}.local."])
        assert watch.health == MdnsHealth(MdnsState.OK, 0)


async def test_who_browses_later_finds_what_is_there(service_type: str) -> None:
    async with (
        Advertiser(announcement(service_type)),
        browsing(service_type) as watch,
    ):
        await eventually(lambda: len(watch.found) == 1)
        watch.browser.refresh(watch.found[0].instance)
        watch.browser.refresh("unknown")
        await asyncio.sleep(0.3)
        assert len(watch.found) == 1, "unchanged is no news"


async def test_a_name_that_is_taken_gets_a_number(service_type: str) -> None:
    async with (
        Advertiser(announcement(service_type)),
        Advertiser(announcement(service_type, port=8081)) as second,
        browsing(service_type) as watch,
    ):
        assert second.instance != f"Box.{service_type}.local."
        await eventually(lambda: len(watch.found) == 2)
        assert {s.url for s in watch.found} == {
            "http://127.0.0.1:8080/llm",
            "http://127.0.0.1:8081/llm",
        }


async def test_a_service_that_moves_is_found_again(service_type: str) -> None:
    async with browsing(service_type) as watch:
        for port in (8080, 8090):
            async with Advertiser(announcement(service_type, port=port)):
                expected = f"http://127.0.0.1:{port}/llm"
                await eventually(partial(lambda url: url in [s.url for s in watch.found], expected))
        assert len({s.instance for s in watch.found}) == 1


async def test_more_services_than_allowed_are_ignored_with_one_warning(
    service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Advertiser(announcement(service_type, "one", 1)),
        Advertiser(announcement(service_type, "two", 2)),
        Advertiser(announcement(service_type, "three", 3)),
        browsing(service_type, max_services=2) as watch,
    ):
        await eventually(lambda: len(watch.found) == 2)
        await asyncio.sleep(0.5)
        assert len(watch.found) == 2
    assert caplog.text.count("more are ignored") == 1


async def test_what_is_refused_is_said_once(
    service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bad = replace(announcement(service_type), txt={"path": "../etc"})
    async with Advertiser(bad), browsing(service_type) as watch:
        await eventually(lambda: "ignored: path '../etc'" in caplog.text)
        assert watch.found == []
    assert caplog.text.count("ignored") == 1


async def test_no_multicast_is_told_as_health_with_the_remedy() -> None:
    options = MdnsOptions(interfaces=("192.0.2.1",))
    async with Browser(options) as browser:
        event = await anext(browser.events())
        assert isinstance(event, MdnsHealth)
        assert event.state is MdnsState.FAILED
        assert "configure endpoints by URL" in event.detail


async def test_what_cannot_be_browsed_or_advertised_is_told() -> None:
    async with Browser(MdnsOptions(service_types=("a b._tcp",), interfaces=LOOPBACK)) as browser:
        event = await anext(browser.events())
        assert isinstance(event, MdnsHealth)
        assert "cannot browse" in event.detail
    for bad in ("nonsense", "_x._tcp"):
        with pytest.raises(MdnsError, match="cannot advertise"):
            async with Advertiser(announcement(bad, "x" * 200)):
                pass
    with pytest.raises(MdnsError, match="no multicast"):
        async with Advertiser(replace(announcement("_x._tcp"), interfaces=("192.0.2.1",))):
            pass


# hand-made packets


def name(text: str) -> bytes:
    labels = [label.encode() for label in text.rstrip(".").split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def record(owner: bytes, kind: int, data: bytes, ttl: int = 120) -> bytes:
    return owner + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data


def answer(*records: bytes) -> bytes:
    return struct.pack("!HHHHHH", 0, 0x8400, 0, len(records), 0, 0) + b"".join(records)


def service_packet(service_type: str, label: str, txt: bytes, port: int = 8080) -> bytes:
    """PTR, SRV, TXT and A of one service, as a responder announces them."""
    type_name, instance = name(f"{service_type}.local"), name(f"{label}.{service_type}.local")
    host = name(f"{label}-host.local")
    return answer(
        record(type_name, 12, instance),
        record(instance, 33, struct.pack("!HHH", 0, 0, port) + host),
        record(instance, 16, txt),
        record(host, 1, socket.inet_aton("127.0.0.1")),
    )


@contextlib.contextmanager
def multicast() -> Iterator[Callable[[bytes], int]]:
    """Send to everybody's mDNS socket; it stays on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        sender.bind(("127.0.0.1", 0))
        yield lambda packet: sender.sendto(packet, ("224.0.0.251", 5353))


def hostile_packets(service_type: str) -> list[bytes]:
    good = service_packet(service_type, "good", b"\0")
    loop = b"\xc0\x0c"
    return [
        b"",
        b"\0" * 12,
        good[: len(good) // 2],
        struct.pack("!HHHHHH", 0, 0x8400, 0, 65535, 0, 0) + b"\0" * 50,
        struct.pack("!HHHHHH", 0, 0x8400, 1, 0, 0, 0) + loop + b"\0\x0c\0\x01",
        answer(record(name(f"{service_type}.local"), 12, loop)),
        answer(record(name(f"{service_type}.local"), 12, b"\x3f" + b"\xff" * 63 + b"\0")),
        service_packet(service_type, "garbage", os.urandom(200)),
        service_packet(service_type, "long", (b"\xff" + b"x" * 255) * 5),
        os.urandom(500),
    ]


async def test_hostile_packets_break_nothing_and_the_good_service_is_found(
    service_type: str,
) -> None:
    async with browsing(service_type) as watch:
        with multicast() as send:
            for packet in hostile_packets(service_type):
                with contextlib.suppress(OSError):
                    send(packet)
            for _ in range(3):
                send(service_packet(service_type, "good", b"\0"))
                await asyncio.sleep(0.2)
        await eventually(lambda: any(s.name == "good" for s in watch.found))


def test_the_hand_made_packets_are_what_they_claim() -> None:
    packet = DNSIncoming(service_packet("_x._tcp", "good", b"\0"))
    assert packet.valid
    assert len(packet.answers()) == 4


def resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  # procfs
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def test_ten_thousand_services_cost_bounded_memory_and_no_other_loses_its_place(
    service_type: str,
) -> None:
    async with browsing(service_type, max_services=64) as watch:
        before_mb = resident_mb()
        with multicast() as send:
            for number in range(10_000):
                send(service_packet(service_type, f"s{number}", b"\x0abackend=xx"))
                if number % 50 == 0:
                    await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert len(watch.found) <= 64
        assert resident_mb() - before_mb < 20
