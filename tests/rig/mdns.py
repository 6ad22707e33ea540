"""Real multicast on loopback: a browser that is watched, and packets made by hand."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from clusterllm_mqtt.mdns.advertiser import Advertisement
from clusterllm_mqtt.mdns.browser import Browser, BrowserEvent, MdnsOptions
from clusterllm_mqtt.models import EndpointFound, EndpointLost, MdnsHealth, Service
from rig.mosquitto import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

LOOPBACK: Final = ("127.0.0.1",)
GROUP: Final = ("224.0.0.251", 5353)
PTR, A, TXT, AAAA, SRV = 12, 1, 16, 28, 33
CACHE_FLUSH: Final = 0x8000


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
    """A browser on loopback that has started; `options` of `MdnsOptions`."""
    chosen = MdnsOptions(service_types=(service_type,), interfaces=LOOPBACK)
    async with Browser(replace(chosen, **options)) as browser:
        watch = Watch(browser)
        await eventually(lambda: bool(watch.seen))
        yield watch
        watch.task.cancel()


def announcement(service_type: str, name: str = "Box", port: int = 8080) -> Advertisement:
    txt = {"backend": "llamacpp", "path": "/llm"}
    return Advertisement(name, port, service_type, txt, LOOPBACK)


def encoded(name: str) -> bytes:
    """A domain name; its first label may hold dots when it is given as `first|rest`."""
    first, _, rest = name.rpartition("|")
    labels = [first, *rest.split(".")] if first else rest.split(".")
    raw = (label.encode("utf-8", "surrogateescape") for label in labels)
    return b"".join(bytes([len(label)]) + label for label in raw) + b"\0"


def record(owner: bytes, kind: int, data: bytes, *, ttl: int = 120, flags: int = 0) -> bytes:
    return owner + struct.pack("!HHIH", kind, 1 | flags, ttl, len(data)) + data


def answer(*records: bytes) -> bytes:
    return struct.pack("!HHHHHH", 0, 0x8400, 0, len(records), 0, 0) + b"".join(records)


def pointer(service_type: str, label: str, *, ttl: int = 4500) -> bytes:
    instance = encoded(f"{label}|{service_type}.local")
    return record(encoded(f"{service_type}.local"), PTR, instance, ttl=ttl)


def service_packet(
    service_type: str,
    label: str,
    txt: bytes = b"\0",
    *,
    port: int = 8080,
    address: str = "127.0.0.1",
    ttl: int = 4500,
) -> bytes:
    """PTR, SRV, TXT and A of one service, as a responder announces them; `ttl` 0 is a goodbye."""
    instance, host = encoded(f"{label}|{service_type}.local"), encoded(f"{label}-host|local")
    location = struct.pack("!HHH", 0, 0, port) + host
    return answer(
        pointer(service_type, label, ttl=ttl),
        record(instance, SRV, location, ttl=ttl, flags=CACHE_FLUSH),
        record(instance, TXT, txt, ttl=ttl, flags=CACHE_FLUSH),
        record(host, A, socket.inet_aton(address), ttl=ttl, flags=CACHE_FLUSH),
    )


@contextlib.contextmanager
def multicast() -> Iterator[Callable[[bytes], int]]:
    """Send to everybody's mDNS socket; it stays on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        sender.bind(("127.0.0.1", 0))
        yield lambda packet: sender.sendto(packet, GROUP)


@contextlib.asynccontextmanager
async def responder(label: str, packet: bytes) -> AsyncIterator[list[bytes]]:
    """Says `packet` to whoever asks for a name with this first label; what was asked."""
    asked: list[bytes] = []
    with multicast() as send, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setblocking(False)  # noqa: FBT003  # its only parameter
        listener.bind(("", GROUP[1]))
        membership = socket.inet_aton(GROUP[0]) + socket.inet_aton("127.0.0.1")
        listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)

        def hear() -> None:
            heard = listener.recv(9000)
            is_question = not heard[2] & 0x80
            if is_question and encoded(f"{label}|x")[: len(label) + 1] in heard:
                asked.append(heard)
                send(packet)

        loop = asyncio.get_running_loop()
        loop.add_reader(listener, hear)
        yield asked
        loop.remove_reader(listener)
