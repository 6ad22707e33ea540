"""What an earlier life left on the broker is input like any other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rig.samples import browsed, configured, endpoint_state

from clusterllm_mqtt.defaults import PRIVATE_NETWORKS
from clusterllm_mqtt.models import Config, Endpoint, Info, State
from clusterllm_mqtt.mqtt.messages import info_message, probe_message
from clusterllm_mqtt.mqtt.topics import BridgeTopics
from clusterllm_mqtt.recall import recalled_endpoints

TOPICS = BridgeTopics()


def held(endpoint: Endpoint, state: State = State.RUNNING) -> dict[str, bytes]:
    found = endpoint_state(endpoint, Info(state, endpoint=endpoint.config.endpoint))
    messages = (info_message(TOPICS, found), probe_message(TOPICS, found))
    return {message.topic: message.payload for message in messages}


def recall(retained: dict[str, bytes]) -> list[Endpoint]:
    found = recalled_endpoints(TOPICS, retained, allowed=PRIVATE_NETWORKS)
    return [endpoint for endpoint, _ in found]


def test_a_browsed_endpoint_comes_back_as_it_was_without_a_key() -> None:
    [endpoint] = recall(held(browsed()))
    assert endpoint == browsed()
    assert endpoint.config == Config("http://192.168.1.5:8080")


def test_what_ran_comes_first() -> None:
    down, up = browsed("a", "http://192.168.1.6:1"), browsed("b")
    assert recall(held(down, State.NOT_REACHABLE) | held(up)) == [up, down]


@pytest.mark.parametrize(
    "endpoint",
    [
        configured(),  # comes from the configuration, or falls out
        browsed(url="http://8.8.8.8:80"),
        browsed(url="http://box.lan:80"),
        browsed(url="http://user:password@192.168.1.5"),
        browsed(url=""),
        replace(browsed(), key="made-by-hand"),
    ],
)
def test_what_mdns_could_not_have_named_falls_out(endpoint: Endpoint) -> None:
    assert recall(held(endpoint)) == []


def test_half_a_record_and_garbage_fall_out() -> None:
    retained = held(browsed())
    for topic in retained:
        assert recall({topic: retained[topic]}) == []
        assert recall(retained | {topic: b"garbage"}) == []
    assert recall({"other/topic": b"{}", TOPICS.status: b"{}"}) == []
