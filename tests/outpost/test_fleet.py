"""Many homes on one central broker, two of them behind a Mosquitto of their own that forwards."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr
from rig.fleet import DIRECT, Fleet, Registry, beside, forwarding, outpost, serves
from rig.home import a_home, running
from rig.mosquitto import Mosquitto, eventually
from rig.program import Program

from clusterllm_mqtt.mqtt.messages import ONLINE, Message, clear_message
from clusterllm_mqtt.mqtt.topics import BridgeTopics

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
ONE = BridgeTopics(bridge="home-1")


@pytest.fixture
def fleet(make_mosquitto: Callable[..., Mosquitto]) -> Fleet:
    return Fleet(make_mosquitto)


@pytest.fixture
def guarded(make_mosquitto: Callable[..., Mosquitto], tmp_path: Path) -> Mosquitto:
    """A central broker with the access rules of the page; every password is `secret`."""
    passwords, rules = tmp_path / "passwords", tmp_path / "rules"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "home-1", "secret"], check=True)
    subprocess.run(["mosquitto_passwd", "-b", passwords, "outposts", "secret"], check=True)
    rules.write_text(block_of_the_page("pattern write"), encoding="utf-8")
    return make_mosquitto(f"password_file {passwords}", f"acl_file {rules}", anonymous=False)


async def test_an_outpost_has_its_home_and_one_for_all_has_all(fleet: Fleet) -> None:
    async with fleet.running():
        assert fleet.all.told == [fleet.truth], "the first push is whole"
        assert len(fleet.one.requests) == len(fleet.two.requests) == 1
        fleet.endpoints["home-1"].become(serves("home-1-model", "news"))
        await eventually(lambda: fleet.one.models == {"home-1-model", "news"}, 5)
        await eventually(lambda: fleet.all.models == {*fleet.truth, "news"}, 2)
        assert len(fleet.two.requests) == 1, "another home's change is none of its business"


async def test_a_home_whose_broker_is_killed_stays_as_it_was_until_the_broker_is_back(
    fleet: Fleet,
) -> None:
    async with fleet.running():
        fleet.brokers["home-1"].stop(signal.SIGKILL)
        fleet.endpoints["home-1"].become(serves("meanwhile"))
        await asyncio.sleep(2)
        assert len(fleet.one.requests) == len(fleet.all.requests) == 1
        fleet.brokers["home-1"].start()
        await eventually(lambda: fleet.one.models == {"meanwhile"})
        await eventually(lambda: "meanwhile" in (fleet.all.models or ()), 2)
        assert fleet.all.told == [fleet.truth, {*fleet.truth, "meanwhile"} - {"home-1-model"}]
        assert len(fleet.two.requests) == 1


async def test_a_central_broker_that_is_killed_and_forgets_makes_nobody_say_less(
    fleet: Fleet,
) -> None:
    async with fleet.running():
        fleet.central.stop(signal.SIGKILL)
        fleet.endpoints["home-1"].become(serves("home-1-model", "meanwhile"))
        await asyncio.sleep(2)
        assert [len(r.requests) for r in (fleet.one, fleet.two, fleet.all)] == [1, 1, 1]
        fleet.central.start()
        await eventually(lambda: "meanwhile" in (fleet.one.models or ()), 20)
        await eventually(lambda: "meanwhile" in (fleet.all.models or ()))
        assert fleet.all.told == [fleet.truth, {*fleet.truth, "meanwhile"}]
        assert len(fleet.two.requests) == 1


async def test_a_bridge_that_is_killed_is_taken_out_by_its_will_and_comes_back(
    fleet: Fleet, tmp_path: Path
) -> None:
    async with fleet.homes("home-2"):
        settings = {
            "mqtt": {"host": "127.0.0.1", "port": fleet.brokers["home-1"].port},
            "bridge": {"id": "home-1"},
            "mdns": {"enabled": False},
            "endpoints": [{"url": fleet.endpoints["home-1"].url}],
        }
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps(settings), encoding="utf-8")
        async with Program("bridge", str(config)) as program, fleet.outposts():
            await eventually(lambda: fleet.is_told, 20)
            program.process.send_signal(signal.SIGKILL)
            await eventually(lambda: fleet.one.models == set(), 5)
            await eventually(lambda: fleet.all.models == fleet.truth - {"home-1-model"}, 5)
            assert fleet.two.told == [{"home-2-model"}]
            async with Program("bridge", str(config)):
                await eventually(lambda: fleet.is_told, 20)


async def test_a_dead_home_whose_broker_died_with_it_counts_until_its_lease_ends(
    fleet: Fleet,
) -> None:
    """No will reaches the centre; what is left of the 180 s travels with the message."""
    home_broker = fleet.brokers["home-1"]
    async with fleet.homes("home-2"), a_home(home_broker, "home-1") as home:
        await home.tell(box=running("home-1-model"))
        almost_over = Message(ONE.availability, ONLINE, expiry_s=8)
        await home.session.publish(almost_over)
        await eventually(lambda: fleet.is_online("home-1"))
        async with fleet.outposts():
            await eventually(lambda: fleet.is_told, 6)
            home_broker.stop(signal.SIGKILL)
            await eventually(lambda: fleet.one.models == set())
            await eventually(lambda: fleet.all.models == fleet.truth - {"home-1-model"}, 2)
            assert fleet.two.told == [{"home-2-model"}]


async def test_what_a_home_withdrew_while_the_centre_was_away_counts_for_nobody(
    make_mosquitto: Callable[..., Mosquitto], tmp_path: Path
) -> None:
    """A Mosquitto does not forward a withdrawal later; the index does without it."""
    central = make_mosquitto("persistence true", f"persistence_location {tmp_path}/")
    home_broker = make_mosquitto(*forwarding("home-1", central.port))
    withdrawn = ONE.info("gone")
    async with a_home(home_broker, "home-1") as home, Registry() as registry:
        await home.tell(box=running("m"), gone=running("n"))
        await eventually(lambda: withdrawn in central.retained())
        central.stop()
        await home.session.publish(clear_message(withdrawn))
        await home.tell(box=running("m"))
        central.start()
        await eventually(lambda: central.retained()[ONE.status] == b'{"endpoints": ["box"]}')
        async with beside(outpost("home-1", central.options, registry).run()):
            await eventually(lambda: registry.models == {"m"})
        assert withdrawn in central.retained()


async def test_a_home_that_may_write_its_own_topics_only_cannot_speak_for_another(
    guarded: Mosquitto, make_mosquitto: Callable[..., Mosquitto]
) -> None:
    login = "remote_username home-1", "remote_password secret"
    home_broker = make_mosquitto(*forwarding("home-1", guarded.port), *login)
    centre = replace(guarded.options, username="outposts", password=SecretStr("secret"))
    async with Registry() as registry, beside(outpost("all", centre, registry).run()):
        await eventually(lambda: registry.models == set())
        for home in ("home-2", "home-1"):
            async with a_home(home_broker, home) as speaker:
                await speaker.tell(box=running(home))
                await asyncio.sleep(0.5)
        await eventually(lambda: "home-1" in set().union(*registry.told))
        assert "home-2" not in set().union(*registry.told)


def block_of_the_page(line: str) -> str:
    """The code block of the page that has this text."""
    blocks = re.findall(r"```\w*\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    [found] = [block for block in blocks if line in block]
    return str(found)


def test_the_page_shows_the_configuration_that_is_tested_here() -> None:
    shown = block_of_the_page("connection home-1").replace(
        "central.example.org:8883", "127.0.0.1:1"
    )
    assert set(forwarding("home-1", 1)) <= set(shown.splitlines())
    assert len(DIRECT) + 2 == 50
