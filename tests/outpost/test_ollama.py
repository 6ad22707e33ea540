"""Asking an Ollama: what is asked, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from rig.mosquitto import eventually
from rig.stub import StubEndpoint

from clusterllm_mqtt.errors import LocalModelsError
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.outpost.ollama import MAX_SHOWS, Ollama
from clusterllm_mqtt.outpost.payload import RegistryModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SAMPLES = sorted((Path(__file__).parents[1] / "data" / "ollama").glob("*.json"))
TAGS, SHOW = "/api/tags", "/api/show"
GET_TAGS, POST_SHOW = ("endpoint", "GET", TAGS), ("endpoint", "POST", SHOW)
SHOWN = {"capabilities": ["tools"]}


def load(path: Path) -> dict[str, Any]:
    sample: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return sample


def listing(*names: str, **fields: object) -> dict[str, Any]:
    """The reply with these models; the digest is the name's first word, without which none."""
    rows = [{"name": n, "digest": n.partition(":")[0], "size": 7, **fields} for n in names]
    return {"body": json.dumps({"models": rows})}


def scenario(tags: object, show: object = None) -> dict[str, Any]:
    return {"routes": {TAGS: tags, SHOW: show or {"body": json.dumps(SHOWN)}}}


@asynccontextmanager
async def asking(
    script: dict[str, Any], *, path: str = "", request_s: float = 2.0, call_s: float = 10.0
) -> AsyncIterator[tuple[StubEndpoint, Ollama]]:
    async with StubEndpoint(script) as stub, new_client() as client:
        yield stub, Ollama(client, stub.url + path, request_s=request_s, call_s=call_s)


def asked(stub: StubEndpoint) -> list[tuple[str, str, str]]:
    return [(r.server, r.method, r.target) for r in stub.requests]


class FakeServer:
    """Many models without sockets: `show` answers by name; `shown` are the names asked for."""

    def __init__(self, tags: dict[str, Any], show: Callable[[str], httpx.Response]) -> None:
        self.tags = tags
        self.show = show
        self.shown: list[str] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        assert str(request.url).startswith("http://ollama:11434/api/")
        if (request.method, request.url.path) == ("GET", TAGS):
            return httpx.Response(200, json=self.tags)
        assert (request.method, request.url.path) == ("POST", SHOW)
        assert request.headers["content-type"] == "application/json"
        question = json.loads(request.content)
        self.shown.append(question.pop("model"))
        assert question == {}
        return self.show(self.shown[-1])

    @asynccontextmanager
    async def ollama(self) -> AsyncIterator[Ollama]:
        transport = httpx.MockTransport(self.answer)
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            yield Ollama(client, "http://ollama:11434/")


# one call


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
async def test_the_models_of_each_release(path: Path) -> None:
    sample = load(path)

    def show(name: str) -> httpx.Response:
        known = sample["shows"].get(name)
        return httpx.Response(200, json=known) if known else httpx.Response(400)

    server = FakeServer(sample["tags"], show)
    async with server.ollama() as ollama:
        models = await ollama.models()
    wanted = [{**m, "capabilities": tuple(m.get("capabilities", ()))} for m in sample["expect"]]
    assert models == tuple(RegistryModel(**model) for model in wanted)
    rows = sample["tags"]["models"] or ()
    digests = {r["digest"] for r in rows if r["digest"] and not r.get("remote_host")}
    assert len(server.shown) == len(digests)


async def test_each_digest_is_shown_once_for_as_long_as_it_is_listed() -> None:
    async with asking(scenario(listing("a:1", "b:1", "a:2"))) as (stub, ollama):
        models = await ollama.models()
        assert [(m.name, m.digest, m.capabilities) for m in models] == [
            ("a:1", "a", ("tools",)),
            ("a:2", "a", ("tools",)),
            ("b:1", "b", ("tools",)),
        ]
        assert asked(stub) == [GET_TAGS, POST_SHOW, POST_SHOW]
        assert [json.loads(r.body) for r in stub.requests[1:]] == [
            {"model": "a:1"},
            {"model": "b:1"},
        ]
        assert await ollama.models() == models
        assert asked(stub)[3:] == [GET_TAGS]

        stub.become(scenario(listing("b:1", "c:1")))
        await ollama.models()
        assert asked(stub) == [GET_TAGS, POST_SHOW]
        stub.become(scenario(listing("a:1", "b:1", "c:1")))
        await ollama.models()
        assert asked(stub) == [GET_TAGS, POST_SHOW], "a was gone meanwhile"


async def test_nothing_is_kept_of_what_is_no_longer_listed() -> None:
    tags = [listing(f"m{n}") for n in range(5)]
    async with asking(scenario(tags, [{"status": 500}, {"body": "{}"}])) as (_, ollama):
        for _ in tags:
            await ollama.models()
        assert ollama._tries.keys() == ollama._details.keys() == {"m4"}


async def test_a_list_that_fails_forgets_nothing() -> None:
    tags = [listing("a:1"), {"status": 500}, listing("a:1")]
    async with asking(scenario(tags)) as (stub, ollama):
        await ollama.models()
        with pytest.raises(LocalModelsError):
            await ollama.models()
        await ollama.models()
        assert asked(stub) == [GET_TAGS, POST_SHOW, GET_TAGS, GET_TAGS]


async def test_the_order_is_that_of_the_names() -> None:
    async with asking(scenario([listing("b", "a"), listing("a", "b")])) as (_, ollama):
        assert await ollama.models() == await ollama.models()


async def test_what_ollamas_cloud_serves_is_neither_listed_nor_asked_about() -> None:
    remote = {"remote_host": "https://ollama.com:443", "remote_model": "x"}
    async with asking(scenario(listing("x:cloud", **remote))) as (stub, ollama):
        assert await ollama.models() == ()
        stub.become(scenario(listing("mine:cloud", "mine:8b-cloud")))
        assert [m.name for m in await ollama.models()] == ["mine:8b-cloud", "mine:cloud"]
        assert asked(stub) == [GET_TAGS]


async def test_without_a_digest_there_is_no_show() -> None:
    async with asking(scenario(listing("a", digest=""))) as (stub, ollama):
        assert await ollama.models() == (RegistryModel("a", size=7),)
        assert asked(stub) == [GET_TAGS]


async def test_no_key_and_no_cookie_is_sent() -> None:
    cookie = {"Set-Cookie": "id=1; Path=/"}
    async with asking(scenario({**listing("a"), "headers": cookie})) as (stub, ollama):
        await ollama.models()
        await ollama.models()
        assert asked(stub) == [GET_TAGS, POST_SHOW, GET_TAGS]
        for request in stub.requests:
            assert not {"cookie", "authorization", "origin", "referer"} & request.headers.keys()


@pytest.mark.parametrize("path", ["/", "/ollama", "/ollama/"])
async def test_the_url_may_have_a_path(path: str) -> None:
    prefix = path.rstrip("/")
    routes = {prefix + TAGS: listing("a"), prefix + SHOW: {"body": json.dumps(SHOWN)}}
    async with asking({"routes": routes}, path=path) as (_, ollama):
        assert (await ollama.models())[0].capabilities == ("tools",)


# no list

ROW = json.dumps({"name": "m{i}", "digest": "d" * 99})
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "html": ({"body": "<html>It works!</html>"}, "is this an Ollama"),
    "another-json": ({"body": '{"object":"list","data":[]}'}, "is this an Ollama"),
    "nested": ({"body_nest": {"depth": 400_000}}, "is this an Ollama"),
    "bad-gzip": ({"body": "{}", "encoding": "gzip_bad"}, "did not speak HTTP"),
    "cut-gzip": ({"body": "{}" * 99, "encoding": "gzip_truncated"}, "did not speak HTTP"),
    "gzip-bomb": (
        {"body_gen": {"prefix": '{"models":[', "bytes": 2**26}, "encoding": "gzip"},
        "larger than 1048576 bytes",
    ),
    "endless": ({"body_gen": {"endless": True}}, "larger than 1048576 bytes"),
    "too-many": (
        {"body_items": {"prefix": '{"models":[', "item": ROW, "count": 10_000, "suffix": "]}"}},
        "larger than 1048576 bytes",
    ),
    "401": ({"status": 401}, "HTTP 401"),
    "403": ({"status": 403}, "HTTP 403"),
    "404": ({"status": 404, "body": '{"models":[]}'}, "HTTP 404"),
    "500": ({"status": 500, "body": '{"error":"model list cache unavailable"}'}, "HTTP 500"),
    "204": ({"status": 204}, "HTTP 204"),
    "reset": ({"close": "reset"}, "broke off"),
    "truncated": ({**listing("a"), "close": "truncate"}, "broke off"),
    "ssh": ({"raw": "SSH-2.0-OpenSSH_9.6\r\n"}, "did not speak HTTP"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_no_list_is_trouble_in_words_and_one_request(name: str) -> None:
    reply, words = HOSTILE[name]
    async with asking(scenario(reply)) as (stub, ollama):
        with pytest.raises(LocalModelsError, match=words) as caught:
            await ollama.models()
        assert str(caught.value).startswith(f"local models of {stub.host_port}: ")
        assert caught.value.transient
        assert len(str(caught.value)) < 200
        assert asked(stub) == [GET_TAGS]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["http://{other}/api/tags", "/moved", "http://[", ""])
async def test_no_redirect_is_followed(status: int, location: str) -> None:
    moved = {"status": status, "headers": {"Location": location}}
    script = scenario(moved) | {"peers": {"other": {"default": listing("x")}}}
    async with asking(script) as (stub, ollama):
        with pytest.raises(LocalModelsError, match=r"set outpost\.ollama_url"):
            await ollama.models()
        assert asked(stub) == [GET_TAGS]


@pytest.mark.parametrize(
    "reply",
    [
        {"hang": True},
        {"delay_s": 30},
        {**listing("a"), "body_delay_s": 30},
        {**listing("a"), "drip": {"bytes": 1, "every_s": 0.1}},
    ],
)
async def test_no_answer_in_time_is_trouble(reply: dict[str, Any]) -> None:
    async with asking(scenario(reply), request_s=0.3) as (_, ollama), asyncio.timeout(3):
        with pytest.raises(LocalModelsError, match="no answer in time"):
            await ollama.models()


async def test_nobody_at_home_is_trouble() -> None:
    async with asking({"accept": "closed"}) as (_, ollama):
        with pytest.raises(LocalModelsError, match="refused"):
            await ollama.models()


async def test_a_password_in_the_url_is_in_no_message() -> None:
    async with new_client() as client:
        with pytest.raises(LocalModelsError) as caught:
            await Ollama(client, "http://me:secret@127.0.0.1:1").models()
    assert "secret" not in str(caught.value)


async def test_a_url_that_is_none_is_trouble() -> None:
    async with new_client() as client:
        with pytest.raises(LocalModelsError):
            await Ollama(client, "http://host:99999").models()


# no show


@pytest.mark.parametrize(
    "reply",
    [
        {"body": "<html>"},
        {"body": "[]"},
        {"status": 400, "body": '{"error":"name is required"}'},
        {"status": 404},
        {"status": 500},
        {"status": 302, "headers": {"Location": "http://{other}/api/show"}},
        {"status": 307, "headers": {"Location": "http://{other}/api/show"}},
        {"close": "reset"},
        {"hang": True},
        {"body_gen": {"bytes": 2**26}, "encoding": "gzip"},
    ],
)
async def test_a_failed_show_spoils_nothing_and_is_tried_again(reply: dict[str, Any]) -> None:
    script = scenario(listing("a"), [reply, {"body": json.dumps(SHOWN)}])
    script["peers"] = {"other": {"default": {"body": json.dumps(SHOWN)}}}
    async with asking(script, request_s=0.5) as (stub, ollama):
        assert await ollama.models() == (RegistryModel("a", "a", 7),)
        assert (await ollama.models())[0].capabilities == ("tools",)
        assert asked(stub) == [GET_TAGS, POST_SHOW] * 2
        await ollama.models()
        assert asked(stub)[4:] == [GET_TAGS]


async def test_a_show_of_garbage_is_a_show() -> None:
    script = scenario(listing("a"), {"body": '{"capabilities":7,"model_info":[],"details":"x"}'})
    async with asking(script) as (stub, ollama):
        assert await ollama.models() == (RegistryModel("a", "a", 7),)
        await ollama.models()
        assert asked(stub) == [GET_TAGS, POST_SHOW, GET_TAGS]


async def test_a_call_ends_although_shows_hang() -> None:
    script = scenario(listing(*(f"m{n}" for n in range(50))), {"hang": True})
    async with asking(script, request_s=0.2, call_s=0.5) as (stub, ollama), asyncio.timeout(3):
        assert len(await ollama.models()) == 50
        assert 2 <= asked(stub).count(POST_SHOW) <= 3


async def test_a_call_ends_in_the_middle_of_a_request() -> None:
    script = scenario(listing("a", "b"), {"hang": True})
    async with asking(script, request_s=30, call_s=0.3) as (stub, ollama), asyncio.timeout(3):
        assert len(await ollama.models()) == 2
        assert asked(stub) == [GET_TAGS, POST_SHOW]


async def test_one_request_at_a_time() -> None:
    in_flight = 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal in_flight
        in_flight += 1
        assert in_flight == 1
        await asyncio.sleep(0)
        in_flight -= 1
        body = listing("a", "b", "c")["body"] if request.method == "GET" else "{}"
        return httpx.Response(200, text=body)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        assert len(await Ollama(client, "http://ollama:11434").models()) == 3


async def test_ten_thousand_models_are_2000_and_64_shows_a_call() -> None:
    many = {"prefix": '{"models":[', "item": '{"name":"m{i}","digest":"{i}"}', "count": 10_000}
    script = scenario({"body_items": {**many, "suffix": "]}"}})
    async with asking(script) as (stub, ollama):
        assert len(await ollama.models()) == 2000
        assert asked(stub) == [GET_TAGS, *[POST_SHOW] * MAX_SHOWS]
        models = await ollama.models()
        assert sum(m.capabilities == ("tools",) for m in models) == 2 * MAX_SHOWS
        names = [json.loads(r.body)["model"] for r in stub.requests if r.method == "POST"]
        assert names == [f"m{n}" for n in range(2 * MAX_SHOWS)]


async def test_shows_that_fail_do_not_starve_the_others() -> None:
    rows = [{"name": f"m{n}", "digest": f"{n}"} for n in range(MAX_SHOWS + 6)]
    server = FakeServer({"models": rows}, lambda _: httpx.Response(404))
    async with server.ollama() as ollama:
        await ollama.models()
        server.shown.clear()
        await ollama.models()
    assert server.shown[:7] == [*(f"m{n}" for n in range(MAX_SHOWS, MAX_SHOWS + 6)), "m0"]
    assert len(server.shown) == MAX_SHOWS


async def test_after_a_cancelled_call_the_next_one_works() -> None:
    async with asking(scenario({"hang": True}), request_s=30) as (stub, ollama):
        task = asyncio.create_task(ollama.models())
        await eventually(lambda: len(stub.requests) == 1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        stub.become(scenario(listing("a")))
        assert len(await ollama.models()) == 1
