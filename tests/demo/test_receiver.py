"""The other side of the contract: bearer, replace, fast path, last seen, and a list."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from rig.outpost_vectors import load, payload_of
from rig.receiver import TOKEN, ReceiverProcess

from clusterllm_mqtt.demo.receiver import MAX_BODY, PATH, Receiver
from clusterllm_mqtt.outpost import ClusterCapacity, RegistryModel, RegistryPushPayload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VECTORS = [v for v in load("registry") if v["class"] == "contract"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(TOKEN) as receiver:
        yield receiver


def a_push(*names: str, agent: str = "home") -> dict[str, Any]:
    given = {
        "agent_name": agent,
        "version": "1",
        "models": [{"name": name} for name in names],
        "cluster": {"member_count": 1, "backend": "llamacpp"},
    }
    record: dict[str, Any] = json.loads(payload_of(given).to_json())
    return record


def post(receiver: Receiver, body: object, token: str = TOKEN, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        **headers,
    }
    return httpx.post(receiver.url + PATH, content=content, headers=all_headers, trust_env=False)


def test_a_push_replaces_all_that_was_held_of_the_agent(receiver: Receiver) -> None:
    assert post(receiver, a_push("a")).json() == {"status": "replaced"}
    assert post(receiver, a_push("b", agent="other")).json() == {"status": "replaced"}
    assert post(receiver, a_push("c")).json() == {"status": "replaced"}
    assert receiver.agents["home"].payload["models"] == [{"name": "c"}]
    assert receiver.agents["other"].payload["models"] == [{"name": "b"}]


def test_an_equal_hash_only_says_that_the_agent_lives(receiver: Receiver) -> None:
    post(receiver, a_push("a"))
    before = receiver.agents["home"]
    assert post(receiver, a_push("a")).json() == {"status": "unchanged"}
    after = receiver.agents["home"]
    assert (after.pushes, after.changes) == (2, 1)
    assert after.last_seen > before.last_seen


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["id"])
def test_every_vector_is_accepted(receiver: Receiver, vector: dict[str, Any]) -> None:
    answer = post(receiver, vector["expect"]["payload"].encode())
    assert (answer.status_code, answer.text) == (200, '{"status": "replaced"}')
    assert receiver.agents[vector["input"]["agent_name"]].pushes == 1


@pytest.mark.parametrize("token", ["wrong", "w x", TOKEN + "x", TOKEN[:-1]])
def test_another_bearer_is_401_and_holds_nothing(receiver: Receiver, token: str) -> None:
    assert post(receiver, a_push("a"), token).status_code == 401
    assert receiver.agents == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"agent_name": ""}, "agent_name has 1 to 200 characters"),
        ({"agent_name": 7}, "agent_name is text"),
        ({"heartbeat_at": "now"}, "heartbeat_at is not RFC 3339"),
        ({"heartbeat_at": "2026-01-01T00:00:00"}, "heartbeat_at has no time zone"),
        ({"models": {}}, "models is a list or null"),
        ({"models": [1]}, "models.0 is an object"),
        ({"models": [{"size": 1}]}, "models.0.name is text"),
        ({"models": [{"name": "a", "size": "1"}]}, "models.0.size is not int"),
        ({"models": [{"name": "a", "size": True}]}, "models.0.size is not int"),
        ({"models": [{"name": "a", "capabilities": [1]}]}, "models.0.capabilities is not tuple"),
        ({"models": [{"name": "a", "modified_at": "x"}]}, "models.0.modified_at is not RFC 3339"),
        ({"cluster": 3}, "cluster is an object"),
        ({"cluster": {"member_count": 1.5}}, "cluster.member_count is not int"),
        ({"capacity": None}, "capacity is an object"),
        ({"capacity": {"max_parallel": "4"}}, "capacity.max_parallel is not int"),
        ({"content_hash": None}, "content_hash is text"),
        ({"content_hash": "0" * 64}, "content_hash does not follow from models and cluster"),
        ({"cluster": None}, "content_hash does not follow from models and cluster"),
    ],
)
def test_a_field_that_is_not_right_is_a_400_that_names_it(
    receiver: Receiver, change: dict[str, Any], said: str
) -> None:
    answer = post(receiver, {**a_push("a"), **change})
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert receiver.agents == {}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"a":NaN}', b"[" * 100_000, b'{"a":1e999}']
)
def test_what_is_no_object_is_a_400(receiver: Receiver, body: bytes) -> None:
    assert post(receiver, body).status_code == 400


def test_unknown_fields_are_kept(receiver: Receiver) -> None:
    assert post(receiver, {**a_push("a"), "colour": "blue"}).status_code == 200
    assert receiver.agents["home"].payload["colour"] == "blue"


@pytest.mark.parametrize(
    ("header", "status"),
    [("X: y", 411), ("Content-Length: some", 411), (f"Content-Length: {MAX_BODY + 1}", 413)],
)
def test_too_much_and_without_a_length_are_refused(
    receiver: Receiver, header: str, status: int
) -> None:
    with socket.create_connection(("127.0.0.1", receiver.port)) as client:
        client.sendall(f"POST {PATH} HTTP/1.1\r\n{header}\r\n\r\n".encode())
        assert client.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


def test_another_path_type_or_method_is_refused(receiver: Receiver) -> None:
    assert httpx.get(receiver.url, trust_env=False).status_code == 404
    assert httpx.put(receiver.url + PATH, trust_env=False).status_code == 501
    assert post(receiver, a_push("a"), **{"Content-Type": "text/plain"}).status_code == 415


def test_what_is_held_is_listed_for_who_has_the_token(receiver: Receiver) -> None:
    post(receiver, a_push("a"))
    assert httpx.get(receiver.url + PATH, trust_env=False).status_code == 401
    headers = {"Authorization": f"Bearer {TOKEN}"}
    listed = httpx.get(receiver.url + PATH, headers=headers, trust_env=False)
    assert listed.json()["agents"]["home"]["payload"]["models"] == [{"name": "a"}]
    assert TOKEN not in listed.text


def test_a_client_that_hangs_keeps_nobody_waiting(receiver: Receiver) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", receiver.port)))
            client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
        assert post(receiver, a_push("a")).status_code == 200


def test_pushes_at_once_are_all_taken(receiver: Receiver) -> None:
    def push_many(agent: str) -> None:
        for number in range(10):
            post(receiver, a_push(str(number), agent=agent))

    threads = [threading.Thread(target=push_many, args=(f"home-{n}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {agent.pushes for agent in receiver.agents.values()} == {10}
    assert len(receiver.history) == 50


def test_who_waits_is_told(receiver: Receiver) -> None:
    assert not receiver.wait(lambda agents: "home" in agents, 0.01)
    threading.Timer(0.05, post, (receiver, a_push("a"))).start()
    assert receiver.wait(lambda agents: "home" in agents, 5)


def test_the_journal_outlives_it_and_a_torn_line_does_not_matter(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    with Receiver(TOKEN, journal=journal) as receiver:
        post(receiver, a_push("a"))
        post(receiver, a_push("b"))
    with journal.open("a", encoding="utf-8") as file:
        file.write('{"received_at": "2026-')
    with Receiver(TOKEN, journal=journal) as again:
        assert again.agents["home"].payload["models"] == [{"name": "b"}]
        assert (again.agents["home"].pushes, len(again.history)) == (2, 2)
        post(again, a_push("c"))
    assert len(journal.read_text(encoding="utf-8").splitlines()) == 3


async def test_as_a_process_it_comes_back_with_what_it_held(tmp_path: Path) -> None:
    async with ReceiverProcess(tmp_path) as process:
        await process.start()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.post(process.url + PATH, json=a_push("a"), headers=headers)
        await process.kill()
        await process.start()
        held = await process.held()
    assert held["home"]["payload"]["models"] == [{"name": "a"}]
    assert len(process.history()) == 1


def test_it_says_how_it_is_used() -> None:
    command = [sys.executable, "-m", "clusterllm_mqtt.demo.receiver", "--help"]
    assert "--journal" in subprocess.run(command, capture_output=True, check=True).stdout.decode()


def test_what_an_outpost_makes_is_what_it_takes(receiver: Receiver) -> None:
    models = (RegistryModel("m", capabilities=("b", "a"), modified_at="2026-01-02T03:04:05.50Z"),)
    payload = RegistryPushPayload("home", datetime.now(UTC), models, ClusterCapacity(1, 2, "x"))
    assert post(receiver, payload.to_json()).status_code == 200
