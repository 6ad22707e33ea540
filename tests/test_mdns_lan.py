"""Between two hosts: addresses, cables and networks that come and go."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rig.mdns import GROUP, Watch, service_packet
from rig.mosquitto import eventually

from clusterllm_mqtt.mdns.advertiser import Advertisement, Advertiser
from clusterllm_mqtt.mdns.browser import Browser, MdnsOptions
from clusterllm_mqtt.mdns.sockets import own_addresses, own_interfaces
from clusterllm_mqtt.models import MdnsHealth, MdnsState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pytest
    from rig.lan import Host

    Lan = Callable[[], tuple[Host, Host]]

CHECK_S = 0.3


@asynccontextmanager
async def watched(service_type: str) -> AsyncIterator[Watch]:
    """A browser with default interfaces."""
    options = MdnsOptions(service_types=(service_type,), check_every_s=CHECK_S)
    async with Browser(options) as browser:
        watch = Watch(browser)
        await eventually(lambda: bool(watch.seen))
        yield watch
        watch.task.cancel()


def advertised(service_type: str) -> Advertiser:
    """An advertiser with default interfaces."""
    return Advertiser(Advertisement("Box", 8080, service_type, check_every_s=CHECK_S))


async def say(packet: bytes, address: str) -> None:
    """Multicast from one of a host's addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        sender.sendto(packet, GROUP)


async def addresses() -> tuple[list[str], list[str]]:
    return own_addresses(), [str(i) for i in own_interfaces()]


def test_a_service_of_another_host_is_found_by_the_address_of_the_shared_network(
    make_lan: Lan, service_type: str
) -> None:
    server, bridge = make_lan()
    server.ip("address", "add", "192.168.77.1/24", "dev", "lan")
    bridge.ip("address", "add", "192.168.77.2/24", "dev", "lan")
    for host in (server, bridge):  # as Docker does
        host.ip("address", "add", "172.17.0.1/16", "dev", "lo")
    named, _ = server.run(addresses())
    assert sorted(named) == ["172.17.0.1", "192.168.77.1"]

    watch = bridge.open(watched(service_type))
    server.open(advertised(service_type))
    bridge.run(eventually(lambda: len(watch.found) == 1))
    assert watch.found[0].url == "http://192.168.77.1:8080"
    server.leave()
    bridge.run(eventually(lambda: len(watch.lost) == 1))


def test_the_loopback_address_of_another_host_is_refused(
    make_lan: Lan, service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stranger, bridge = make_lan()
    stranger.ip("address", "add", "10.77.0.1/24", "dev", "lan")
    bridge.ip("address", "add", "10.77.0.2/24", "dev", "lan")
    watch = bridge.open(watched(service_type))
    for label, address in (("liar", "127.0.0.1"), ("good", "10.77.0.1")):
        stranger.run(say(service_packet(service_type, label, address=address), "10.77.0.1"))
    bridge.run(eventually(lambda: len(watch.found) == 1))
    refusal = f"liar.{service_type}.local.: ignored: no address in the allowed networks"
    bridge.run(eventually(lambda: refusal in caplog.text))
    assert watch.found[0].url == "http://10.77.0.1:8080"


def test_a_cable_that_is_pulled_is_no_verdict_and_a_new_address_is_followed(
    make_lan: Lan, service_type: str
) -> None:
    server, bridge = make_lan()
    server.ip("address", "add", "10.77.0.1/24", "dev", "lan")
    bridge.ip("address", "add", "10.77.0.2/24", "dev", "lan")
    watch = bridge.open(watched(service_type))
    server.open(advertised(service_type))
    bridge.run(eventually(lambda: len(watch.found) == 1))

    server.ip("link", "set", "lan", "down")
    watch.browser.refresh(watch.found[0].instance)  # as the bridge does when a probe fails
    bridge.run(asyncio.sleep(1))
    assert watch.lost == []

    server.ip("address", "flush", "dev", "lan")
    server.ip("link", "set", "lan", "up")
    server.ip("address", "add", "10.77.0.9/24", "dev", "lan")
    bridge.run(eventually(lambda: watch.found[-1].url == "http://10.77.0.9:8080", 15))
    assert watch.lost == []


def test_who_starts_before_the_network_finds_what_has_long_been_there(
    make_lan: Lan, service_type: str
) -> None:
    server, bridge = make_lan()
    server.ip("address", "add", "10.77.0.1/24", "dev", "lan")
    server.open(advertised(service_type))
    watch = bridge.open(watched(service_type))
    bridge.run(asyncio.sleep(1))
    assert watch.found == []

    bridge.ip("address", "add", "10.77.0.2/24", "dev", "lan")
    bridge.run(eventually(lambda: len(watch.found) == 1))


def test_who_advertises_before_the_network_is_there_names_its_address_later(
    make_lan: Lan, service_type: str
) -> None:
    server, bridge = make_lan()
    bridge.ip("address", "add", "10.77.0.2/24", "dev", "lan")
    watch = bridge.open(watched(service_type))
    server.open(advertised(service_type))
    assert server.run(addresses())[0] == ["127.0.0.1"]

    server.ip("address", "add", "10.77.0.1/24", "dev", "lan")
    bridge.run(eventually(lambda: [s.url for s in watch.found] == ["http://10.77.0.1:8080"]))


def test_a_host_without_any_interface_says_so_and_recovers(
    make_lan: Lan, service_type: str
) -> None:
    server, bridge = make_lan()
    bridge.ip("address", "flush", "dev", "lo")
    watch = bridge.open(watched(service_type))
    assert watch.health.state is MdnsState.FAILED
    assert "no multicast on any interface" in watch.health.detail

    server.ip("address", "add", "10.77.0.1/24", "dev", "lan")
    bridge.ip("address", "add", "10.77.0.2/24", "dev", "lan")
    server.open(advertised(service_type))
    bridge.run(eventually(lambda: watch.health == MdnsHealth(MdnsState.OK, 1)))
