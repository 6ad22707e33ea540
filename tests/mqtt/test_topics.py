"""Topics and keys are an interface: total, stable, injective, read back as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.mqtt.topics import (
    KEY_PATTERN,
    BridgeTopic,
    BridgeTopics,
    EndpointTopic,
    OutpostTopics,
    endpoint_key,
    slug,
)

TOPICS = BridgeTopics()
OUTPOST = OutpostTopics()
keys = st.from_regex(KEY_PATTERN, fullmatch=True)
names = st.text(max_size=80)


def test_the_topics_are_these() -> None:
    assert TOPICS.availability == "clusterllm/bridge/home/availability"
    assert TOPICS.status == "clusterllm/bridge/home/status"
    assert TOPICS.info("k") == "clusterllm/bridge/home/endpoint/k/info"
    assert TOPICS.probe("k") == "clusterllm/bridge/home/endpoint/k/probe"
    assert TOPICS.event("k") == "clusterllm/bridge/home/endpoint/k/event"
    assert TOPICS.command_probe == "clusterllm/bridge/home/command/probe"
    assert TOPICS.endpoint_command_probe("k") == "clusterllm/bridge/home/endpoint/k/command/probe"
    assert TOPICS.discovery("k") == "homeassistant/device/clusterllm_home_k/config"
    assert TOPICS.bridge_discovery == "homeassistant/device/clusterllm_home/config"
    assert TOPICS.home_assistant_status == "homeassistant/status"


def test_every_topic_is_documented() -> None:
    documentation = (Path(__file__).parents[2] / "docs" / "topics.md").read_text("utf-8")
    documented = set(re.findall(r"^\| `(\S+)` \|", documentation, re.MULTILINE))
    built = (TOPICS.info, TOPICS.probe, TOPICS.event, TOPICS.endpoint_command_probe)
    assert documented == {
        TOPICS.availability,
        TOPICS.status,
        TOPICS.command_probe,
        TOPICS.bridge_discovery,
        TOPICS.discovery("<key>"),
        *(build("<key>") for build in built),
        OUTPOST.availability,
        OUTPOST.status,
        OUTPOST.discovery,
    }


@pytest.mark.parametrize(
    ("name", "identity", "key"),
    [
        ("Tiny box", "mdns:tiny box._llamacpp._tcp.local.", "tiny-box-ea8265a89f"),
        ("größe/ABC", "configured:größe/ABC", "groe-abc-1df119c6d0"),
        ("模型", "configured:模型", "4ec07a5e8d"),
    ],
)
def test_keys_never_change_between_releases(name: str, identity: str, key: str) -> None:
    assert endpoint_key(name, identity) == key


@given(names, names)
def test_a_key_is_always_fit_for_a_topic_and_home_assistant(name: str, identity: str) -> None:
    assert KEY_PATTERN.fullmatch(endpoint_key(name, identity))


@given(names, names, names)
def test_different_identities_have_different_keys(name: str, one: str, other: str) -> None:
    assert (endpoint_key(name, one) == endpoint_key(name, other)) == (one == other)


@given(names)
def test_a_slug_is_total_short_and_stable(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9_-]{0,32}", slug(text))
    assert slug(slug(text)) == slug(text)


@given(keys, st.sampled_from(["info", "probe", "event", "command/probe"]))
def test_what_is_built_is_read_back(key: str, leaf: str) -> None:
    topic = f"{TOPICS.root}/endpoint/{key}/{leaf}"
    assert TOPICS.parse_endpoint(topic) == EndpointTopic(key, leaf)


@given(keys)
def test_discovery_topics_of_two_bridges_never_meet(key: str) -> None:
    other = BridgeTopics(bridge="home-2")
    assert not other.is_own_discovery(TOPICS.discovery(key))
    assert TOPICS.is_own_discovery(TOPICS.discovery(key))
    assert TOPICS.is_own_discovery(TOPICS.bridge_discovery)


@pytest.mark.parametrize(
    "topic",
    [
        "homeassistant/device/clusterllm_home_/config",
        "homeassistant/device/clusterllm_home_K/config",
        "homeassistant/device/clusterllm_home_a/b/config",
        "homeassistant/device/clusterllm_home_a",
        "homeassistant/sensor/clusterllm_home_a/config",
        "homeassistant/device/clusterllm_homestead/config",
        "homeassistant/status",
    ],
)
def test_discovery_topics_of_others_are_not_ours(topic: str) -> None:
    assert not TOPICS.is_own_discovery(topic)


def test_a_bridge_reads_back_its_own_topics_only() -> None:
    assert TOPICS.own_filters() == (
        "clusterllm/bridge/home/availability",
        "clusterllm/bridge/home/status",
        "homeassistant/device/clusterllm_home/config",
        "clusterllm/bridge/home/endpoint/+/info",
        "clusterllm/bridge/home/endpoint/+/probe",
    )


@pytest.mark.parametrize(
    "topic",
    [
        "clusterllm/bridge/other/endpoint/k/info",
        "clusterllm/bridge/home/endpoint/k",
        "clusterllm/bridge/home/endpoint/K/info",
        "clusterllm/bridge/home/endpoint//info",
        "clusterllm/bridge/home/endpoint/k/info/more",
        "clusterllm/bridge/home/status",
        "",
    ],
)
def test_other_topics_are_not_ours(topic: str) -> None:
    assert TOPICS.parse_endpoint(topic) is None


@pytest.mark.parametrize("bridge", ["", "outpost", "a b", "A", "a/b", "a+", "x" * 65, "a_b"])
def test_a_bridge_id_that_makes_no_topic_is_refused(bridge: str) -> None:
    with pytest.raises(ConfigError, match="bridge id"):
        BridgeTopics(bridge=bridge)


@pytest.mark.parametrize("text", ["", "/a", "a/", "a//b", "a/+", "#", "$SYS", "a\n", "x" * 201])
def test_a_prefix_that_makes_no_topic_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="base topic"):
        BridgeTopics(base=text)
    with pytest.raises(ConfigError, match="discovery prefix"):
        BridgeTopics(discovery_prefix=text)


def test_what_an_outpost_reads_starts_with_the_indexes() -> None:
    assert OUTPOST.bridge_filters() == (
        "clusterllm/bridge/+/status",
        "clusterllm/bridge/+/availability",
        "clusterllm/bridge/+/endpoint/+/info",
    )
    assert OutpostTopics("a/b", bridges=("x", "y")).bridge_filters()[:3] == (
        "a/b/bridge/x/status",
        "a/b/bridge/y/status",
        "a/b/bridge/x/availability",
    )


@given(st.sampled_from(["home", "a-1"]), keys)
def test_an_outpost_reads_back_what_bridges_publish(bridge: str, key: str) -> None:
    topics = BridgeTopics(bridge=bridge)
    for topic, parsed in (
        (topics.availability, BridgeTopic(bridge, "availability")),
        (topics.status, BridgeTopic(bridge, "status")),
        (topics.info(key), BridgeTopic(bridge, "info", key)),
    ):
        assert OUTPOST.parse_bridge(topic) == parsed
        assert OUTPOST.of_bridge(parsed) == topic
    assert OUTPOST.parse_bridge(topics.probe(key)) is None


@given(st.text())
def test_any_other_topic_is_none_of_a_bridge(topic: str) -> None:
    parsed = OUTPOST.parse_bridge(topic)
    assert parsed is None or OUTPOST.of_bridge(parsed) == topic


@pytest.mark.parametrize("name", ["", "Home", "a_b", "a/b", "+", "x" * 65, "hölle"])
def test_an_outpost_or_bridge_that_makes_no_topic_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="use 1 to 64 of a-z, 0-9 and -"):
        OutpostTopics(agent=name)
    with pytest.raises(ConfigError, match="use 1 to 64 of a-z, 0-9 and -"):
        OutpostTopics(bridges=(name,))
