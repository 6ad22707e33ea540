"""A hostile neighbour costs its own probe at most 5 s and 1 MiB an answer, and raises nothing."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from rig.stub import StubEndpoint

from clusterllm_mqtt.detector import Detector
from clusterllm_mqtt.models import Config, Detection, State

if TYPE_CHECKING:
    from rig.replies import Reply

MIB = 2**20
BOUND_S = 5.5
BOUND_BYTES = 24 * MIB
"""A few MiB are alive at once: the body, its text, and what JSON makes of it."""

DRIP = {"body": " " * 60, "drip": {"bytes": 1, "every_s": 1}}
HUGE = {"body_gen": {"prefix": '{"data":[', "unit": " ", "bytes": 50 * MIB, "suffix": "]}"}}
BOMB = {**HUGE, "encoding": "gzip"}
HOSTILE: dict[str, Reply] = {
    "never answers": {"hang": True},
    "drips a byte a second": DRIP,
    "drips a list": {**DRIP, "body": '{"data":[{"id":"m"}]}'},
    "50 MiB": HUGE,
    "without end": {"body_gen": {"endless": True}},
    "gzip bomb": BOMB,
    "10,000 brackets": {"body_nest": {"depth": 10_000}},
    "10,000 brackets in a row": {
        "body_nest": {"prefix": '{"data":[{"id":"m","meta":', "depth": 10_000, "suffix": "}]}"}
    },
    "metas in metas": {
        "body_nest": {
            "prefix": '{"data":[{"id":"m","meta":',
            "open": '{"meta":',
            "middle": '{"size":7}',
            "close": "}",
            "depth": 900,
            "suffix": "}]}",
        }
    },
    "redirects in circles": {"status": 302, "headers": {"Location": "/v1-openai/models"}},
    "redirects to nowhere": {"status": 302, "headers": {"Location": "http://[::bad/"}},
    "100,000 models": {
        "body_items": {
            "prefix": '{"data":[',
            "item": '{"id":"{i}"}',
            "count": 60_000,
            "suffix": "]}",
        }
    },
    "a number of 100,000 digits": {"body": '{"data":[{"id":"m","size":%s}]}' % ("9" * 100_000)},
    "no HTTP": {"raw": "SSH-2.0-OpenSSH_9.2\r\n"},
    "half a header": {"raw": "HTTP/1.1 200 OK\r\nContent-Le"},
    "two lengths": {"raw": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"},
    "1 MiB of header": {"headers": {"X-Flood": "f" * MIB}},
    "binary": {"body_b64": "/////wD/AAECAwQ="},
    "deflate": {"headers": {"Content-Encoding": "deflate"}, "body": "{}"},
    "reset": {"close": "reset"},
    "half a body": {"close": "truncate", "body": '{"data":[{"id":"m"}]}'},
    "status 999": {"status": 999, "reason": "Nine"},
}


async def probe_twice(scenario: dict[str, Any]) -> tuple[list[Detection], float]:
    """The cheap look and the full one; the longest of them in seconds."""
    took_s = 0.0
    found = []
    async with StubEndpoint(scenario) as stub:
        detector = Detector(Config(stub.url, api_key="sesame"))
        for _ in range(2):
            started = time.monotonic()
            found.append(await detector.probe())
            took_s = max(took_s, time.monotonic() - started)
    return found, took_s


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
async def test_an_endpoint_that_is_so_everywhere(reply: Reply) -> None:
    found, took_s = await probe_twice({"default": reply})
    assert took_s < BOUND_S
    assert all(detection.info.state is not State.UNCONFIGURED for detection in found)


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
async def test_a_llama_server_whose_list_is_so(reply: Reply) -> None:
    props = {"body": '{"total_slots":1,"build_info":"b1"}'}
    found, took_s = await probe_twice({"routes": {"/props": props, "/v1/models": reply}})
    assert took_s < BOUND_S
    for detection in found:
        assert detection.info.state is State.RUNNING
        assert detection.info.backend == "llamacpp"
        assert detection.info.version == "b1"
        assert len(detection.info.models) <= 4096


@pytest.mark.parametrize("reply", [HUGE, BOMB, HOSTILE["without end"]], ids=["huge", "bomb", "∞"])
async def test_memory_stays_bounded(reply: Reply) -> None:
    async with StubEndpoint({"default": reply}) as stub:
        await Detector(Config(stub.url)).probe()  # the stub has made what it sends
        detectors = [Detector(Config(stub.url, api_key="sesame")) for _ in range(8)]
        tracemalloc.start()
        try:
            await asyncio.gather(*(detector.probe() for detector in detectors))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 8 * BOUND_BYTES


async def test_what_a_stranger_writes_reaches_no_detail_as_it_is() -> None:
    escape = "\x1b]0;owned\x07"
    row = {"id": f"m{escape}", "status": {"value": "loaded\x1b[2J"}}
    routes = {
        "/props": {"body": '{"total_slots":1}'},
        "/v1/models": {"body": json.dumps({"data": [row]})},
    }
    async with StubEndpoint({"routes": routes}) as stub:
        found = await Detector(Config(stub.url)).probe()
    assert found.info.models[0].name == "m" + escape, "JSON keeps it"
    assert found.detail.startswith("router: m")
    assert found.detail.isprintable()


@pytest.mark.parametrize("location", ["http://[::", "http://box:port/", "//", "http://other.lan/"])
async def test_a_redirect_that_leads_nowhere_is_an_answer(location: str) -> None:
    reply = {"status": 302, "headers": {"Location": location}}
    async with StubEndpoint({"default": reply}) as stub:
        detection = await Detector(Config(stub.url)).probe()
    assert detection.info.state is State.RUNNING
