"""An outpost on a real broker: what it pushes, and what it tells of itself."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr
from rig.home import Home, a_home, running
from rig.mosquitto import Mosquitto, eventually
from rig.stub import StubEndpoint

from clusterllm_mqtt.errors import RegistryRevokedError, TakenOverError
from clusterllm_mqtt.mqtt.topics import OutpostTopics
from clusterllm_mqtt.outpost.registry import PATH
from clusterllm_mqtt.outpost.runner import Outpost, OutpostOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOKEN = "open-sesame-31337"  # noqa: S105
TOPICS = OutpostTopics()
OK = {"routes": {PATH: {"status": 200, "body": "{}"}}}


def answers(**reply: Any) -> dict[str, Any]:  # noqa: ANN401  # the stub's replies are JSON
    return {"routes": {PATH: reply}}


class Registry(StubEndpoint):
    """The registry's end of the wire."""

    @property
    def pushes(self) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self.requests]

    @property
    def last(self) -> dict[str, Any]:
        return self.pushes[-1] if self.requests else {}

    def has(self, *models: str) -> bool:
        return bool(self.requests) and [m["name"] for m in self.last["models"]] == list(models)


def options(broker: Mosquitto, registry: Registry, **more: Any) -> OutpostOptions:  # noqa: ANN401
    return OutpostOptions(
        cloudbox_url=registry.url,
        token=SecretStr(TOKEN),
        broker=broker.options,
        **{"coalesce_s": 0.1, **more},
    )


@asynccontextmanager
async def outpost(broker: Mosquitto, registry: Registry, **more: Any) -> AsyncIterator[None]:  # noqa: ANN401
    task = asyncio.create_task(Outpost(options(broker, registry, **more)).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


def own(broker: Mosquitto) -> dict[str, Any]:
    """The status that the outpost retains."""
    payload = broker.retained(TOPICS.status).get(TOPICS.status, b"{}")
    status: dict[str, Any] = json.loads(payload)
    return status


# what it pushes


async def test_what_runs_is_pushed_and_what_changes_is_pushed_soon(mosquitto: Mosquitto) -> None:
    async with Registry(OK) as registry, a_home(mosquitto) as home:
        await home.tell(a=running("m", vram=7, members=2), b={"state": "not_reachable"})
        async with outpost(mosquitto, registry):
            await eventually(lambda: registry.has("m"))
            assert registry.last["cluster"] == {
                "max_model_bytes": 7, "member_count": 2, "backend": "gpustack",
            }  # fmt: skip
            await home.change("b", running("n", vram=9))
            await eventually(lambda: registry.has("m", "n"), 2)
            assert registry.last["cluster"]["max_model_bytes"] == 9
            await home.tell(is_online=False, a=running("m"), b=running("n"))
            await eventually(registry.has, 2)
            assert "cluster" not in registry.last
    assert all(r.authorization == f"Bearer {TOKEN}" for r in registry.requests)


async def test_a_bridge_that_died_is_taken_out_by_its_will(mosquitto: Mosquitto) -> None:
    async with (
        Registry(OK) as registry,
        outpost(mosquitto, registry),
        a_home(mosquitto) as home,
    ):
        await home.tell(a=running("m"))
        await eventually(lambda: registry.has("m"))
        connection = home.session._connection
        assert connection is not None
        socket: Any = connection._paho.socket()
        socket.shutdown(2)
        await eventually(registry.has, 3)


async def test_models_of_all_bridges_are_in_one_push(mosquitto: Mosquitto) -> None:
    async with (
        Registry(OK) as registry,
        a_home(mosquitto, "one") as one,
        a_home(mosquitto, "two") as two,
    ):
        await one.tell(a=running("m", vram=1))
        await two.tell(a=running("n", vram=2))
        async with outpost(mosquitto, registry):
            await eventually(lambda: registry.has("m", "n"))
            assert registry.last["cluster"]["max_model_bytes"] == 2
        assert len(registry.requests) == 1, "the first push waits for the whole burst"


async def test_a_gap_is_never_pushed(mosquitto: Mosquitto) -> None:
    async with Registry(OK) as registry, a_home(mosquitto) as home:
        await home.tell(a=running("m"))
        await home.session.publish(home.index("a", "b"))
        async with outpost(mosquitto, registry):
            await eventually(lambda: own(mosquitto).get("reason") == "incomplete")
            assert "endpoint/b/info" in own(mosquitto)["last_error"]
            assert registry.requests == []
            await home.change("b", running("n"))
            await eventually(lambda: registry.has("m", "n"))
            await eventually(lambda: own(mosquitto).get("reason") is None)


async def test_a_broker_that_restarts_and_forgets_changes_nothing_at_the_registry(
    mosquitto: Mosquitto,
) -> None:
    async with Registry(OK) as registry, a_home(mosquitto) as home:
        await home.tell(a=running("m"))
        async with outpost(mosquitto, registry):
            await eventually(lambda: registry.has("m"))
            mosquitto.restart()
            await asyncio.sleep(4)
            await home.tell(a=running("m", "n"))
            await eventually(lambda: registry.has("m", "n"))
    assert [len(push["models"]) for push in registry.pushes] == [1, 2]


async def test_a_thousand_changes_in_a_second_are_at_most_three_pushes(
    mosquitto: Mosquitto,
) -> None:
    async with Registry(OK) as registry, a_home(mosquitto) as home:
        await home.tell(a=running("m"))
        async with outpost(mosquitto, registry, coalesce_s=1.0):
            await eventually(lambda: registry.has("m"))
            registry.requests.clear()
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            for number in range(1000):
                await home.change("a", running("m", vram=number + 1))
                await asyncio.sleep(started_s + number / 1000 - loop.time())
            await eventually(
                lambda: registry.last.get("cluster", {}).get("max_model_bytes") == 1000
            )
    assert loop.time() - started_s < 10
    assert len(registry.requests) <= 3


# local models


async def test_local_models_are_the_base_and_the_cluster_is_merged_into_them(
    mosquitto: Mosquitto,
) -> None:
    tags = {"models": [{"name": "m", "digest": "d", "size": 7}, {"name": "z", "digest": "e"}]}
    routes = {
        "/api/tags": {"status": 200, "body": json.dumps(tags)},
        "/api/show": {"status": 200, "body": '{"capabilities": ["tools"]}'},
    }
    async with (
        Registry(OK) as registry,
        StubEndpoint({"routes": routes}) as ollama,
        a_home(mosquitto) as home,
    ):
        await home.tell(a=running("m", "n"))
        async with outpost(mosquitto, registry, ollama_url=ollama.url):
            await eventually(lambda: registry.has("m", "n", "z"))
    assert len(registry.requests) == 1, "the first push waits for the first look"
    assert registry.last["models"] == [
        {"name": "m", "digest": "d", "size": 7, "capabilities": ["tools"]},
        {"name": "n"},
        {"name": "z", "digest": "e", "capabilities": ["tools"]},
    ]
    asked = [(request.method, request.target) for request in ollama.requests]
    assert asked == [("GET", "/api/tags"), ("POST", "/api/show"), ("POST", "/api/show")]
    assert all(request.authorization is None for request in ollama.requests)


async def test_without_its_ollama_the_cluster_is_pushed_and_the_trouble_told(
    mosquitto: Mosquitto,
) -> None:
    async with (
        Registry(OK) as registry,
        StubEndpoint({"accept": "closed"}) as ollama,
        a_home(mosquitto) as home,
    ):
        await home.tell(a=running("m"))
        async with outpost(mosquitto, registry, ollama_url=ollama.url):
            await eventually(lambda: registry.has("m"))
            await eventually(lambda: own(mosquitto).get("reason") == "local_models")
            assert ollama.host_port in own(mosquitto)["last_error"]


# what the registry answers


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        (answers(status=500), "bad_response"),
        (answers(status=503, headers={"Retry-After": "1"}), "bad_response"),
        (answers(status=429), "rate_limited"),
        (answers(status=403), "forbidden"),
        (answers(status=302, headers={"Location": "/login"}), "bad_response"),
        (answers(close="reset"), "bad_response"),
        ({"accept": "closed"}, "refused"),
        ({"accept": "silent"}, "timeout"),
    ],
    ids=["500", "503", "429", "403", "redirect", "reset", "refused", "never"],
)
async def test_trouble_with_the_registry_is_told_with_its_reason(
    mosquitto: Mosquitto, scenario: dict[str, Any], reason: str
) -> None:
    async with Registry(scenario) as registry, outpost(mosquitto, registry):
        await eventually(lambda: own(mosquitto).get("reason") == reason, 20)
        status = own(mosquitto)
        assert status["pushes"] == 0
        assert registry.host_port in status["last_error"]
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")


async def test_html_with_a_200_and_a_slow_answer_are_successes(mosquitto: Mosquitto) -> None:
    slow = answers(status=200, body="<html>hello</html>", delay_s=1)
    async with Registry(slow) as registry, outpost(mosquitto, registry):
        await eventually(lambda: own(mosquitto).get("pushes") == 1)
        assert own(mosquitto)["reason"] is None


async def test_when_the_registry_comes_back_it_gets_what_is_true_by_then(
    mosquitto: Mosquitto,
) -> None:
    async with Registry(answers(status=503)) as registry, a_home(mosquitto) as home:
        await home.tell(a=running("old"))
        async with outpost(mosquitto, registry):
            await eventually(lambda: own(mosquitto).get("reason") == "bad_response")
            await home.change("a", running("newer"))
            await home.change("a", running("newest"))
            registry.become(OK)
            await eventually(lambda: own(mosquitto).get("pushes") == 1, 15)
            assert [len(registry.pushes), registry.has("newest")] == [1, True]
            assert own(mosquitto)["reason"] is None


async def test_a_revoked_token_ends_it_and_stays_readable_on_mqtt(mosquitto: Mosquitto) -> None:
    async with Registry(answers(status=401, body=f"Bearer {TOKEN}?")) as registry:
        with pytest.raises(RegistryRevokedError, match="does not accept the token"):
            await Outpost(options(mosquitto, registry)).run()
        status = own(mosquitto)
        assert status["reason"] == "unauthorized"
        assert "HTTP 401" in status["last_error"]
        retained = mosquitto.retained()
        assert retained[TOPICS.availability] == b"offline"
        assert TOKEN.encode() not in b"".join(retained.values())
        assert len(registry.requests) == 1


# what it tells of itself


async def test_its_own_topics(mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with Registry(OK) as registry, a_home(mosquitto) as home:
        await home.tell(a=running("m", vram=7, members=2))
        async with outpost(mosquitto, registry):
            await eventually(lambda: own(mosquitto).get("pushes") == 1)
            retained = mosquitto.retained()
            status = own(mosquitto)
            assert retained[TOPICS.availability] == b"online"
        assert mosquitto.retained()[TOPICS.availability] == b"offline"
    assert (status["models"], status["member_count"], status["max_model_bytes"]) == (1, 2, 7)
    assert status["cloudbox"] == registry.host_port
    assert status["last_push_at"].endswith("Z")
    assert json.loads(retained[TOPICS.discovery])["device"]["name"] == "LLM outpost home"
    assert TOKEN.encode() not in b"".join(retained.values())
    assert TOKEN not in caplog.text


async def test_without_home_assistant_there_is_no_device(mosquitto: Mosquitto) -> None:
    async with Registry(OK) as registry, outpost(mosquitto, registry, home_assistant=False):
        await eventually(lambda: own(mosquitto).get("pushes") == 1)
        retained = mosquitto.retained()
        assert TOPICS.status in retained
        assert TOPICS.discovery not in retained


async def test_an_offline_that_is_not_ours_does_not_stand(mosquitto: Mosquitto) -> None:
    async with Registry(OK) as registry, outpost(mosquitto, registry):
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")
        mosquitto.publish(TOPICS.availability, "offline", "-r", "-q", "1")
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")


async def test_home_assistants_birth_is_answered_with_everything(mosquitto: Mosquitto) -> None:
    async with Registry(OK) as registry, outpost(mosquitto, registry):
        await eventually(lambda: own(mosquitto).get("pushes") == 1)
        mosquitto.publish(TOPICS.discovery, "", "-r")
        await eventually(lambda: TOPICS.discovery not in mosquitto.retained())
        mosquitto.publish(TOPICS.home_assistant_status, "online")
        await eventually(lambda: TOPICS.discovery in mosquitto.retained())


async def test_after_a_broker_restart_its_topics_are_there_again(mosquitto: Mosquitto) -> None:
    async with Registry(OK) as registry, outpost(mosquitto, registry):
        await eventually(lambda: own(mosquitto).get("pushes") == 1)
        mosquitto.restart()
        await eventually(lambda: mosquitto.retained().get(TOPICS.availability) == b"online")
        assert TOPICS.discovery in mosquitto.retained()


async def test_a_second_outpost_of_the_same_name_ends_one_of_the_two(mosquitto: Mosquitto) -> None:
    async with Registry(OK) as registry:
        both = [asyncio.create_task(Outpost(options(mosquitto, registry)).run()) for _ in range(2)]
        async with asyncio.timeout(60):
            done, running_still = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(done.pop().exception(), TakenOverError)
        for task in running_still:
            task.cancel()
        await asyncio.wait(both)


async def test_everything_at_once_a_home_that_comes_after_the_outpost(
    mosquitto: Mosquitto,
) -> None:
    async with Registry(OK) as registry, outpost(mosquitto, registry):
        await eventually(registry.has)
        async with a_home(mosquitto) as home:
            await tell_slowly(home)
            await eventually(lambda: registry.has("m"), 3)


async def tell_slowly(home: Home) -> None:
    await home.change("a", running("m"))
    await home.session.publish(home.index("a"))
    await asyncio.sleep(0.3)
    await home.tell(a=running("m"))
