"""Browsing and advertising with real multicast, on loopback only."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from rig.mdns import (
    announcement,
    answer,
    browsing,
    multicast,
    pointer,
    responder,
    service_packet,
)
from rig.mosquitto import eventually

from clusterllm_mqtt.errors import MdnsError
from clusterllm_mqtt.mdns.advertiser import Advertiser
from clusterllm_mqtt.mdns.browser import Browser, MdnsOptions
from clusterllm_mqtt.models import MdnsHealth, MdnsState

NOWHERE = ("192.0.2.77",)


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
            assert dict(service.txt)["txtvers"] == "1"
            assert watch.health == MdnsHealth(MdnsState.OK, 1)
        await eventually(lambda: watch.lost == [f"Box.{service_type}.local."])
        assert watch.health == MdnsHealth(MdnsState.OK, 0)


async def test_who_browses_later_finds_what_is_there(service_type: str) -> None:
    async with Advertiser(announcement(service_type)), browsing(service_type) as watch:
        await eventually(lambda: len(watch.found) == 1)


async def test_every_browser_on_a_host_hears_everything(service_type: str) -> None:
    async with (
        browsing(service_type) as one,
        browsing(service_type) as other,
        Advertiser(announcement(service_type)),
    ):
        await eventually(lambda: len(one.found) == len(other.found) == 1)


async def test_to_look_again_at_what_did_not_change_is_no_news(service_type: str) -> None:
    async with Advertiser(announcement(service_type)), browsing(service_type) as watch:
        await eventually(lambda: len(watch.found) == 1)
        watch.browser.refresh(watch.found[0].instance)
        watch.browser.refresh("unknown")
        await asyncio.sleep(2)
        assert len(watch.found) == 1
        assert watch.lost == []


async def test_a_name_that_is_taken_gets_a_number(service_type: str) -> None:
    async with (
        Advertiser(announcement(service_type)),
        Advertiser(announcement(service_type, port=8081)) as second,
        browsing(service_type) as watch,
    ):
        assert second.instance == f"Box-2.{service_type}.local."
        await eventually(lambda: len(watch.found) == 2)
        assert {(s.name, s.url) for s in watch.found} == {
            ("Box", "http://127.0.0.1:8080/llm"),
            ("Box-2", "http://127.0.0.1:8081/llm"),
        }


async def test_a_service_that_comes_back_elsewhere_is_found_again(service_type: str) -> None:
    async with browsing(service_type) as watch:
        async with Advertiser(announcement(service_type, port=8080)) as first:
            await eventually(lambda: len(watch.found) == 1)
        async with Advertiser(announcement(service_type, port=8090)) as second:
            await eventually(lambda: len(watch.found) == 2)
        assert first.instance == second.instance
        assert watch.found[-1].url == "http://127.0.0.1:8090/llm"


async def test_one_that_leaves_takes_no_address_of_the_host_along(service_type: str) -> None:
    async with (
        Advertiser(announcement(service_type, "stays")),
        browsing(service_type) as watch,
    ):
        async with Advertiser(announcement(service_type, "leaves", 8081)):
            await eventually(lambda: len(watch.found) == 2)
        await eventually(lambda: watch.lost == [f"leaves.{service_type}.local."])
        zeroconf = watch.browser._zeroconf
        assert zeroconf is not None
        stays = await zeroconf.async_get_service_info(
            f"{service_type}.local.", f"stays.{service_type}.local.", timeout=1
        )
        assert stays is not None, "its address is still in the cache: nobody had to ask"


async def test_a_goodbye_right_after_the_first_words_leaves_no_ghost(service_type: str) -> None:
    async with browsing(service_type) as watch:
        async with Advertiser(announcement(service_type)):
            await eventually(lambda: len(watch.found) == 1)
            await asyncio.sleep(0.1)
        await eventually(lambda: len(watch.lost) == 1)
        await asyncio.sleep(2)
        assert len(watch.found) == 1


async def test_changed_records_are_news_and_the_replaced_address_is_left(
    service_type: str,
) -> None:
    def urls() -> list[str]:
        return [service.url for service in watch.found]

    async with browsing(service_type) as watch:
        with multicast() as send:
            send(service_packet(service_type, "box"))
            await eventually(lambda: urls() == ["http://127.0.0.1:8080"])
            await asyncio.sleep(1.1)  # what is younger than a second is not flushed (RFC 6762)
            send(service_packet(service_type, "box", address="127.0.0.9"))
            await eventually(lambda: urls()[-1] == "http://127.0.0.9:8080")
            send(service_packet(service_type, "box", b"\x09path=/llm", address="127.0.0.9"))
            await eventually(lambda: urls()[-1] == "http://127.0.0.9:8080/llm")
        assert watch.lost == []


async def test_a_service_that_moved_without_a_word_is_asked_where_it_is(
    service_type: str,
) -> None:
    moved = service_packet(service_type, "box", address="127.0.0.9")
    async with browsing(service_type) as watch:
        with multicast() as send:
            send(service_packet(service_type, "box"))
        await eventually(lambda: len(watch.found) == 1)
        await asyncio.sleep(1.1)
        async with responder("box", moved) as asked:
            watch.browser.refresh(watch.found[0].instance)
            await eventually(lambda: watch.found[-1].url == "http://127.0.0.9:8080")
            assert asked


async def test_one_that_no_longer_answers_is_not_lost_by_that(
    service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with browsing(service_type) as watch:
        with multicast() as send:
            send(service_packet(service_type, "box"))
        await eventually(lambda: len(watch.found) == 1)
        watch.browser.refresh(watch.found[0].instance)
        await asyncio.sleep(4)
        assert watch.lost == []
        assert len(watch.found) == 1
    assert "ignored" not in caplog.text


async def test_a_service_without_a_txt_record_is_found_all_the_same(service_type: str) -> None:
    whole = service_packet(service_type, "bare")
    async with browsing(service_type) as watch:
        with multicast() as send:
            send(whole.replace(b"\x00\x10\x80\x01", b"\x00\x63\x80\x01"))
        await eventually(lambda: [s.url for s in watch.found] == ["http://127.0.0.1:8080"])


async def test_who_names_itself_and_answers_nothing_is_told_once(
    service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with browsing(service_type, check_every_s=0.5) as watch:
        with multicast() as send:
            send(answer(pointer(service_type, "mute")))
        await eventually(lambda: "it does not answer" in caplog.text)
        await asyncio.sleep(1)
        assert watch.found == []
    assert caplog.text.count("mute") == 1


async def test_more_services_than_allowed_are_ignored_with_one_warning(
    service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with browsing(service_type, max_services=2, check_every_s=0.5) as watch:
        with multicast() as send:
            for name in ("one", "two", "three", "four"):
                send(service_packet(service_type, name))
            await eventually(lambda: len(watch.found) == 2)
            await asyncio.sleep(1)
            assert len(watch.found) == 2
            assert caplog.text.count("more are ignored") == 1

            send(service_packet(service_type, watch.found[0].name, ttl=0))
            await eventually(lambda: len(watch.found) == 3)  # it makes room for one that waited


async def test_what_is_refused_is_said_once(
    service_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bad = replace(announcement(service_type), txt={"path": "../etc"})
    async with Advertiser(bad), browsing(service_type, check_every_s=0.2) as watch:
        await eventually(lambda: "ignored: path '../etc'" in caplog.text)
        await asyncio.sleep(2)
        assert watch.found == []
    assert caplog.text.count("ignored") == 1


async def test_no_multicast_is_told_as_health_with_the_remedy_and_tried_again() -> None:
    async with Browser(MdnsOptions(interfaces=NOWHERE, check_every_s=0.1)) as browser:
        events = browser.events()
        for _ in range(2):
            event = await anext(events)
            assert isinstance(event, MdnsHealth)
            assert event.state is MdnsState.FAILED
            assert "configure endpoints by URL" in event.detail


async def test_what_cannot_be_browsed_is_told() -> None:
    options = MdnsOptions(service_types=("a b._tcp",), interfaces=("127.0.0.1",))
    async with Browser(options) as browser:
        event = await anext(browser.events())
        assert isinstance(event, MdnsHealth)
        assert "cannot browse" in event.detail


@pytest.mark.parametrize(
    ("bad", "remedy"),
    [
        (announcement("nonsense"), "a service type like _llamacpp._tcp"),
        (announcement("_x._tcp", "x" * 200), "a name of at most 63 bytes"),
        (announcement("_x._tcp", "\x1b[31m"), "without control characters"),
        (replace(announcement("_x._tcp"), txt={"model": "x" * 300}), "at most 255 bytes"),
    ],
)
async def test_what_cannot_be_advertised_is_told(bad: object, remedy: str) -> None:
    with pytest.raises(MdnsError, match=f"cannot advertise .*{remedy}"):
        async with Advertiser(bad):  # type: ignore[arg-type]
            pass


async def test_to_advertise_without_multicast_is_told() -> None:
    with pytest.raises(MdnsError, match="no multicast"):
        async with Advertiser(replace(announcement("_x._tcp"), interfaces=NOWHERE)):
            pass


async def test_to_stop_while_the_name_is_being_asked_for_leaves_nothing_open(
    service_type: str,
) -> None:
    async def advertise() -> None:
        async with Advertiser(announcement(service_type)):
            await asyncio.Event().wait()

    async with browsing(service_type) as watch:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(advertise(), 0.2)
        await asyncio.sleep(1)
        assert watch.found == []
