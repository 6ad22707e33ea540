"""Home Assistant's devices: what is shown, and that its rules are kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rig.samples import at, browsed, configured, endpoint_state

from clusterllm_mqtt.models import (
    MAX_BYTES,
    Config,
    Endpoint,
    EventType,
    Info,
    MdnsHealth,
    ModelInfo,
    Reason,
    Source,
    State,
    Transition,
)
from clusterllm_mqtt.mqtt.discovery import (
    _device,
    bridge_discovery,
    endpoint_discovery,
    outpost_discovery,
)
from clusterllm_mqtt.mqtt.entities import (
    BRIDGE_COMPONENTS,
    ENDPOINT_COMPONENTS,
    OUTPOST_COMPONENTS,
    Component,
)
from clusterllm_mqtt.mqtt.messages import (
    BridgeFacts,
    OutpostFacts,
    encode,
    event_message,
    info_message,
    outpost_status_message,
    probe_message,
    status_message,
)
from clusterllm_mqtt.mqtt.topics import BridgeTopics, OutpostTopics

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

TOPICS = BridgeTopics()
OUTPOST = OutpostTopics()
DOCS = Path(__file__).parents[2] / "docs" / "home-assistant.md"
RECORDER_LIMIT = 16_384
"""Bytes of attributes that Home Assistant's recorder stores."""
ENTITY_ID = re.compile(r"(?!.+__)(?!_)[\da-z_]+(?<!_)\.(?!_)[\da-z_]+(?<!_)")
"""As Home Assistant has it."""
HOSTILE = "🦙\x01\"\\'{{" * 100
JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined)  # noqa: S701  # no HTML
DEVICE_LEVEL = {"device", "origin", "components", "qos"}
DEVICE_KEYS = {
    "identifiers", "name", "via_device", "model", "configuration_url", "sw_version",
}  # fmt: skip
FULL = Info(
    State.RUNNING,
    backend="gpustack",
    endpoint="http://192.168.1.5:8080",
    version="v2.3.0",
    member_count=2,
    aggregate_vram_bytes=60 * 2**30,
    models=(ModelInfo("qwen3-4b"), ModelInfo("/home/me/models/llama.gguf", 5)),
)


def device(endpoint: Endpoint, backend: str = "llamacpp") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(endpoint_discovery(TOPICS, endpoint, backend).payload)
    return found


def bridge() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bridge_discovery(TOPICS).payload)
    return found


def outpost() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(outpost_discovery(OUTPOST).payload)
    return found


def render(template: str, payload: bytes) -> str:
    """As Home Assistant does: `value` and `value_json` are what a template sees."""
    text = payload.decode()
    return JINJA.from_string(template).render(value=text, value_json=json.loads(text))


def test_the_device_of_an_endpoint(snapshot_json: SnapshotAssertion) -> None:
    message = endpoint_discovery(TOPICS, configured("Big box"), "gpustack")
    assert message.topic.startswith("homeassistant/device/clusterllm_home_big-box-")
    assert message.retain
    assert json.loads(message.payload) == snapshot_json


@pytest.mark.parametrize(
    ("name", "url", "backend"),
    [
        ("Big box", "http://box.lan:8080", "gpustack"),
        ("tiny", "https://[fd00::1]:9931/llama", "llamacpp"),
        ("unknown kind", "http://192.168.1.5:11434", "openai"),
        ("not yet seen", "http://192.168.1.6", ""),
        ("模型", "http://[fe80::1%25eth0]:8080", "llamacpp"),
    ],
    ids=["gpustack", "llamacpp", "other", "unseen", "link-local"],
)
def test_what_a_device_page_says(
    name: str, url: str, backend: str, snapshot_json: SnapshotAssertion
) -> None:
    assert device(configured(name, url), backend)["device"] == snapshot_json


def test_the_device_of_the_bridge(snapshot_json: SnapshotAssertion) -> None:
    assert bridge() == snapshot_json


def test_the_device_of_an_outpost(snapshot_json: SnapshotAssertion) -> None:
    assert outpost() == snapshot_json


@pytest.mark.parametrize(
    "payload", [device(configured()), device(browsed(), ""), bridge(), outpost()]
)
def test_the_schema_that_every_supported_release_knows(payload: dict[str, Any]) -> None:
    assert set(payload) <= DEVICE_LEVEL
    assert set(payload["device"]) <= DEVICE_KEYS
    assert payload["origin"]["name"] == "clusterllm-mqtt"
    components = payload["components"]
    unique_ids = [c["unique_id"] for c in components.values() if "unique_id" in c]
    assert len(set(unique_ids)) == len(unique_ids)
    for component in components.values():
        if component["platform"] == "device_automation":
            continue
        assert component["default_entity_id"].startswith(component["platform"] + ".")
        assert payload["device"]["name"] not in component["name"]
        assert not {"object_id", "expire_after", "availability_topic"} & set(component)
        if component["platform"] == "sensor":
            assert component.get("entity_category") != "config"


def test_reachability_and_state_stay_available_while_the_bridge_lives_figures_do_not() -> None:
    components = device(configured())["components"]
    for name in ("reachable", "state", "problem", "last_change", "transition"):
        assert components[name]["availability"] == [{"topic": TOPICS.availability}], name
    for name in ("members", "vram", "models", "backend", "version", "response_time"):
        bridge_too, running = components[name]["availability"]
        assert bridge_too == {"topic": TOPICS.availability}
        assert running["topic"] == TOPICS.info(configured().key)
        template = running["value_template"]
        assert render(template, b'{"state":"running"}') == "online"
        assert render(template, b'{"state":"not_reachable"}') == "offline"
        assert components[name]["availability_mode"] == "all"


def test_the_device_does_not_change_when_the_endpoint_comes_and_goes() -> None:
    assert endpoint_discovery(TOPICS, configured(), "x") == endpoint_discovery(
        TOPICS, configured(), "x"
    )
    assert "version" not in json.dumps(device(configured())["device"])


@pytest.mark.parametrize(
    ("url", "is_shown"),
    [
        ("http://box.lan:8080", True),
        ("http://[fd00::1]:8080", True),
        ("http://[fe80::1%25eth0]:8080", False),
        ("http://[broken", False),
    ],
)
def test_a_url_that_home_assistant_cannot_read_is_left_out(url: str, *, is_shown: bool) -> None:
    endpoint = Endpoint("k", "n", "i", configured().source, Config(url))
    assert ("configuration_url" in device(endpoint)["device"]) is is_shown


def named(name: str) -> Endpoint:
    return Endpoint("k", name, "i", Source.MDNS, Config("http://a"))


def test_a_name_from_the_network_is_cleaned_and_cut() -> None:
    shown = device(named("a\x1b[31m" + "x" * 500))["device"]["name"]
    assert len(shown) <= 100
    assert "\x1b" not in shown
    assert device(named("\x00"))["device"]["name"] == "k"


@given(st.text(max_size=60))
@example("_")
@example("_a_-_b_")
@example("模型")
def test_entity_ids_are_valid_whatever_the_name(name: str) -> None:
    components = device(named(name))["components"].values()
    ids = [c["default_entity_id"] for c in components if "default_entity_id" in c]
    assert all(ENTITY_ID.fullmatch(id_) for id_ in ids)
    assert len(set(ids)) == len(ids)


@given(st.text(max_size=60))
def test_unique_ids_and_topics_follow_from_bridge_and_key_only(name: str) -> None:
    def fixed(payload: dict[str, Any]) -> list[object]:
        components = payload["components"]
        ids = {id_: c.get("unique_id") for id_, c in components.items()}
        return [ids, payload["device"]["identifiers"]]

    moved = Endpoint("k", name, "other", Source.CONFIGURED, Config("http://b"))
    assert fixed(device(moved)) == fixed(device(named("box"), "gpustack"))


def test_a_retired_component_is_published_with_its_platform_alone() -> None:
    living = (Component("kept", "button", ""),)
    payload = _device(
        "id", {"name": "n"}, living, {"": "t", "availability": "a"}, {"old": "sensor"}
    )
    assert payload["components"]["old"] == {"platform": "sensor"}
    assert payload["components"]["kept"]["unique_id"] == "id_kept"


def rendered(info: Info, reason: Reason | None = None) -> dict[str, str]:
    """Every value of an endpoint's device for a state."""
    state = endpoint_state(configured(), info, reason=reason)
    payloads = {
        m.topic: m.payload for m in (info_message(TOPICS, state), probe_message(TOPICS, state))
    }
    return {
        name: render(component["value_template"], payloads[component["state_topic"]])
        for name, component in device(configured())["components"].items()
        if component.get("state_topic") in payloads
    }


def test_the_values_of_a_full_record() -> None:
    assert rendered(FULL) == {
        "reachable": "ON",
        "state": "running",
        "members": "2",
        "vram": "60.0",
        "models": "2",
        "backend": "gpustack",
        "version": "v2.3.0",
        "problem": "OFF",
        "response_time": "12",
        "last_change": "2026-01-01T00:00:05.000Z",
    }


def test_what_a_record_leaves_out_is_unknown_without_a_warning() -> None:
    values = rendered(Info(State.RUNNING), Reason.UNAUTHORIZED)
    assert {values[name] for name in ("members", "vram", "backend", "version")} == {"None"}
    assert values["models"] == "None"
    assert values["problem"] == "ON"
    assert rendered(Info(State.NOT_REACHABLE))["reachable"] == "OFF"


def test_no_state_is_longer_than_home_assistant_takes() -> None:
    values = rendered(Info(State.RUNNING, backend="b" * 999, version="v" * 20_000))
    assert max(map(len, values.values())) <= 255


@given(
    st.sampled_from(State),
    st.text(max_size=300),
    st.integers(0, MAX_BYTES),
    st.lists(st.text(min_size=1)),
)
def test_every_record_renders(state: State, text: str, number: int, names: list[str]) -> None:
    models = tuple(ModelInfo(name) for name in names)
    values = rendered(Info(state, text, text, text, number, number, models))
    assert max(map(len, values.values())) <= 255
    assert values["vram"] == "None" or float(values["vram"]) >= 0


def attributes(name: str, payload: bytes) -> dict[str, Any]:
    template = device(configured())["components"][name]["json_attributes_template"]
    found: dict[str, Any] = json.loads(render(template, payload))
    return found


def test_models_are_shown_by_file_name_and_capped_below_16_kib() -> None:
    few = info_message(TOPICS, endpoint_state(configured(), FULL)).payload
    assert attributes("models", few) == {
        "models": ["qwen3-4b", "llama.gguf"],
        "models_truncated": False,
    }
    for name in ("🦙" * 300, "\x01" * 300, HOSTILE):
        models = tuple(ModelInfo(name + str(n)) for n in range(2000))
        shown = attributes("models", encode(Info(State.RUNNING, models=models).to_wire()))
        assert shown["models_truncated"] is True
        assert len(encode(shown)) < RECORDER_LIMIT
    assert attributes("models", b'{"state":"running"}') == {"models": [], "models_truncated": False}


def test_the_reason_is_an_attribute_of_the_problem() -> None:
    state = endpoint_state(configured(), FULL, reason=Reason.LOADING)
    assert attributes("problem", probe_message(TOPICS, state).payload) == {"reason": "loading"}


def test_transitions_reach_the_event_entity_and_the_triggers() -> None:
    components = device(configured())["components"]
    event = components["transition"]
    assert event["event_types"] == [str(kind) for kind in EventType]
    models = tuple(f"model {n}" + HOSTILE for n in range(100))
    for transition, fired in (
        (Transition("k", EventType.NOT_REACHABLE, "running", "not_reachable"), "went_down"),
        (Transition("k", EventType.RUNNING, "not_reachable", "running"), "came_back"),
        (Transition("k", EventType.MEMBERS_CHANGED, 3, 2), "lost_a_member"),
        (Transition("k", EventType.MEMBERS_CHANGED, 2, 3), ""),
        (Transition("k", EventType.VERSION_CHANGED, "b1", HOSTILE * 30), ""),
        (Transition("k", EventType.MODELS_CHANGED, models, models), ""),
    ):
        payload = event_message(TOPICS, transition).payload
        shown = json.loads(render(event["value_template"], payload))
        assert shown["event_type"] == transition.event_type
        assert len(encode(shown)) < RECORDER_LIMIT
        triggers = [
            name
            for name, component in components.items()
            if component["platform"] == "device_automation"
            and render(component["value_template"], payload) == component["payload"]
        ]
        assert triggers == [fired] * bool(fired)


def test_an_event_shows_old_and_new_and_models_by_file_name() -> None:
    template = device(configured())["components"]["transition"]["value_template"]
    for old, new, shown in (
        (3, 2, (3, 2)),
        ("b1", 'b"2', ("b1", 'b"2')),
        (("/models/a.gguf",), ("/models/a.gguf", "C:\\b.gguf"), (["a.gguf"], ["a.gguf", "b.gguf"])),
        ((), ("a",), ([], ["a"])),
    ):
        message = event_message(TOPICS, Transition("k", EventType.MODELS_CHANGED, old, new))
        record = json.loads(render(template, message.payload))
        assert (record["old"], record["new"]) == shown


def test_every_value_of_the_bridge_renders() -> None:
    facts = BridgeFacts("1", at(0), MdnsHealth())
    full = status_message(TOPICS, facts, [endpoint_state(configured(), FULL)]).payload
    for payload in (full, b"{}"):
        for name, component in bridge()["components"].items():
            if component.get("state_topic") != TOPICS.status:
                continue
            value = render(component["value_template"], payload)
            assert value, name
            if "json_attributes_template" in component:
                json.loads(render(component["json_attributes_template"], payload))


def test_every_value_of_an_outpost_renders() -> None:
    facts = OutpostFacts("1", at(0), "cloudbox.example.org")
    for payload in (outpost_status_message(OUTPOST, facts).payload, b"{}"):
        for name, component in outpost()["components"].items():
            if component["state_topic"] == OUTPOST.status:
                assert render(component["value_template"], payload), name


def test_an_outposts_problem_stays_readable_when_it_ended() -> None:
    components = outpost()["components"]
    assert "availability" not in components["problem"]
    assert "availability" not in components["connected"]
    assert components["pushes"]["availability"] == [{"topic": OUTPOST.availability}]
    facts = OutpostFacts("1", at(0), "cloudbox", reason="unauthorized", last_error="HTTP 401")
    payload = outpost_status_message(OUTPOST, facts).payload
    assert render(components["problem"]["value_template"], payload) == "ON"
    shown = json.loads(render(components["problem"]["json_attributes_template"], payload))
    assert shown == {"reason": "unauthorized", "last_error": "HTTP 401"}


@pytest.mark.parametrize(
    "component", [*ENDPOINT_COMPONENTS, *BRIDGE_COMPONENTS, *OUTPOST_COMPONENTS]
)
def test_every_entity_and_trigger_is_documented(component: Component) -> None:
    documentation = DOCS.read_text(encoding="utf-8")
    name = component.keys.get("name") or component.keys["type"]
    assert (
        f"| {name} | {component.platform} |".replace("device_automation", "trigger")
        in documentation
    )
