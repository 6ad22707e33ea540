"""What a Home Assistant user sees, in a real Home Assistant on a real broker.

The tests run in this order and share one home; each leaves it as it found it, the last takes it
away.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from rig.live_home import INTERVAL_S, LiveHome, observing

if TYPE_CHECKING:
    from rig.homeassistant import HomeAssistant

pytestmark = pytest.mark.homeassistant

ENDPOINT = "clusterllm_home_big-box-b242ab281f"
BRIDGE = "clusterllm_home"
OUTPOST = "clusterllm_outpost_home"
OUR_WORDS = ("clusterllm", "big_box", "llm_", "template", "mqtt")

ENTITIES: dict[str, dict[str, tuple[str | None, str | None, str | None, str]]] = {
    # component: (category, device class, unit, state); "?" is any state but unknown or unavailable
    ENDPOINT: {
        "reachable": (None, "connectivity", None, "on"),
        "state": (None, "enum", None, "running"),
        "members": (None, None, None, "1"),
        "vram": (None, "data_size", "GiB", "unknown"),
        "models": (None, None, None, "1"),
        "backend": ("diagnostic", None, None, "llamacpp"),
        "version": ("diagnostic", None, None, "?"),
        "problem": ("diagnostic", "problem", None, "off"),
        "response_time": ("diagnostic", "duration", "ms", "disabled"),
        "last_change": ("diagnostic", "timestamp", None, "?"),
        "transition": (None, None, None, "unknown"),
        "probe_now": ("diagnostic", None, None, "unknown"),
    },
    BRIDGE: {
        "connected": ("diagnostic", "connectivity", None, "on"),
        "state": (None, "enum", None, "running"),
        "endpoints": (None, None, None, "1"),
        "running": (None, None, None, "1"),
        "vram": (None, "data_size", "GiB", "unknown"),
        "mdns": ("diagnostic", "problem", None, "off"),
        "version": ("diagnostic", None, None, "?"),
        "started_at": ("diagnostic", "timestamp", None, "?"),
        "last_error": ("diagnostic", None, None, "unknown"),
        "probe_all": ("diagnostic", None, None, "unknown"),
    },
    OUTPOST: {
        "connected": ("diagnostic", "connectivity", None, "on"),
        "last_push": ("diagnostic", "timestamp", None, "?"),
        "pushes": ("diagnostic", None, None, "?"),
        "models": (None, None, None, "1"),
        "problem": ("diagnostic", "problem", None, "off"),
    },
}


def device(hass: HomeAssistant, identifier: str) -> dict[str, Any]:
    found = hass.device(identifier)
    assert found is not None, identifier
    return found


def rows(hass: HomeAssistant, identifier: str) -> dict[str, dict[str, Any]]:
    """Component -> its row in the entity registry."""
    found = hass.entities(device(hass, identifier)["id"])
    return {row["unique_id"].removeprefix(f"{identifier}_"): row for row in found}


def entity(hass: HomeAssistant, identifier: str, component: str) -> str:
    """Its id: 2025.10 and newer take the proposed one, older ones make their own."""
    found: str = rows(hass, identifier)[component]["entity_id"]
    return found


def our_log(hass: HomeAssistant) -> list[str]:
    """Warnings and errors that may be about us; not those of Home Assistant's own connection."""
    return [
        line
        for line in hass.log().splitlines()
        if (" WARNING " in line or " ERROR " in line)
        and any(word in line.lower() for word in OUR_WORDS)
        and "mqtt.client]" not in line
    ]


@pytest.mark.parametrize("identifier", ENTITIES)
def test_every_entity_is_there_as_it_should_be(hass: HomeAssistant, identifier: str) -> None:
    found = rows(hass, identifier)
    assert set(found) == set(ENTITIES[identifier])
    for name, (category, device_class, unit, state) in ENTITIES[identifier].items():
        row = found[name]
        assert row["entity_category"] == category, name
        if state == "disabled":
            assert row["disabled_by"] == "integration"
            continue
        shown = hass.state(row["entity_id"])
        attributes = hass.attributes(row["entity_id"])
        assert attributes.get("device_class") == device_class, name
        assert attributes.get("unit_of_measurement") == unit, name
        assert device(hass, identifier)["name"] not in row["original_name"]
        if state == "?":
            assert shown not in {"unknown", "unavailable", None}, name
        else:
            assert shown == state, name


def test_an_endpoint_is_connected_via_its_bridge(hass: HomeAssistant) -> None:
    endpoint, bridge = device(hass, ENDPOINT), device(hass, BRIDGE)
    assert endpoint["via_device_id"] == bridge["id"]
    assert endpoint["name"] == "Big box"
    assert endpoint["model"] == "llama.cpp"
    assert device(hass, OUTPOST)["via_device_id"] is None


def test_the_summary_of_the_package(hass: HomeAssistant) -> None:
    assert hass.state("binary_sensor.llm_reachable") == "on"
    assert hass.attributes("binary_sensor.llm_reachable")["reachable"] == ["Big box"]
    assert hass.state("sensor.llm_best_endpoint") == "Big box"
    assert hass.state("sensor.llm_total_vram") == "unknown"


def test_the_dashboard_is_read_and_names_only_entities_that_exist(hass: HomeAssistant) -> None:
    config = hass.ask({"type": "lovelace/config", "url_path": "clusterllm-home"})
    cards = [card for section in config["views"][0]["sections"] for card in section["cards"]]
    named = {card["entity"] for card in cards if "entity" in card}
    named |= {one["entity"] for card in cards for one in card.get("entities", [])}
    assert named
    assert all(hass.state(entity_id) is not None for entity_id in named)
    endpoints, models, problems = (
        hass.render(card["content"]) for card in cards if card["type"] == "markdown"
    )
    assert "| **Big box** | 1 |" in endpoints
    assert "- **Big box**: " in models
    assert problems.strip() == "None."


def install_automations(hass: HomeAssistant) -> None:
    triggers = hass.ask(
        {"type": "device_automation/trigger/list", "device_id": device(hass, ENDPOINT)["id"]}
    )
    keys = ("domain", "device_id", "type", "subtype")
    ours = {t["type"]: {key: t[key] for key in keys} for t in triggers if t["domain"] == "mqtt"}
    assert set(ours) == {"became not reachable", "came back", "lost a member"}
    automations = [
        {
            "id": "down",
            "alias": "Down",
            "use_blueprint": {
                "path": "clusterllm/not_reachable.yaml",
                "input": {
                    "endpoints": [entity(hass, ENDPOINT, "reachable")],
                    "hold": {"seconds": 1},
                },
            },
        },
        {
            "id": "device",
            "alias": "Device trigger",
            "triggers": [{**ours["became not reachable"], "trigger": "device"}],
            "actions": [{
                "action": "persistent_notification.create",
                "data": {"title": "device trigger", "message": "fired"},
            }],
        },
        {
            "id": "shrunk",
            "alias": "Shrunk",
            "use_blueprint": {
                "path": "clusterllm/shrunk.yaml",
                "input": {"transitions": [entity(hass, ENDPOINT, "transition")]},
            },
        },
        {
            "id": "model",
            "alias": "Model",
            "use_blueprint": {
                "path": "clusterllm/model.yaml",
                "input": {"transitions": [entity(hass, ENDPOINT, "transition")]},
            },
        },
    ]  # fmt: skip
    hass.write("automations.yaml", json.dumps(automations))
    hass.call("automation.reload")
    for name in ("down", "device_trigger", "shrunk", "model"):
        hass.waits_for(f"automation.{name}", "on")


def notified(hass: HomeAssistant, title: str, seconds: float = 10) -> str:
    deadline_s = time.monotonic() + seconds
    while title not in (shown := hass.notifications()):
        assert time.monotonic() < deadline_s, shown
        time.sleep(0.1)
    return shown[title]


def test_a_dead_endpoint_is_shown_at_once_and_told(
    hass: HomeAssistant, live_home: LiveHome
) -> None:
    install_automations(hass)
    reachable = entity(hass, ENDPOINT, "reachable")
    with observing(live_home.broker.port) as observer, hass.open() as socket:
        states = hass.follow(socket, reachable)
        time.sleep(0.5)
        killed_s = live_home.kill("llama")
        heard_s, state = next(states)
        assert state == "off"
        sent_s = next(
            at
            for at, topic, payload in observer.messages
            if topic.endswith("/info") and "not_reachable" in payload
        )
    assert heard_s - sent_s < 0.3
    assert heard_s - killed_s < INTERVAL_S + 5
    found = {name: hass.state(row["entity_id"]) for name, row in rows(hass, ENDPOINT).items()}
    figures = ("members", "vram", "models", "backend", "version")
    assert {found[name] for name in figures} == {"unavailable"}
    assert (found["state"], found["problem"]) == ("not_reachable", "on")
    assert notified(hass, "Big box is not reachable") == "Big box does not answer (refused)."
    assert notified(hass, "device trigger") == "fired"
    event = hass.attributes(entity(hass, ENDPOINT, "transition"))
    assert (event["event_type"], event["new"]) == ("not_reachable", "not_reachable")
    live_home.start("llama")
    hass.waits_for(entity(hass, ENDPOINT, "reachable"), "on")
    assert notified(hass, "Big box is back") == "Big box answers again."


def test_a_button_asks_the_bridge_to_probe(hass: HomeAssistant, live_home: LiveHome) -> None:
    with observing(live_home.broker.port) as observer:
        time.sleep(0.5)
        hass.call("button.press", entity_id=entity(hass, ENDPOINT, "probe_now"))
        hass.call("button.press", entity_id=entity(hass, BRIDGE, "probe_all"))
        time.sleep(0.5)
    asked = [topic for _, topic, _ in observer.messages if topic.endswith("/command/probe")]
    key = ENDPOINT.removeprefix(f"{BRIDGE}_")
    root = "clusterllm/bridge/home"
    assert asked == [f"{root}/endpoint/{key}/command/probe", f"{root}/command/probe"]


def test_a_bridge_that_dies_makes_all_unavailable_and_is_told(
    hass: HomeAssistant, live_home: LiveHome
) -> None:
    live_home.kill("bridge")
    hass.waits_for(entity(hass, ENDPOINT, "reachable"), "unavailable")
    hass.waits_for(entity(hass, BRIDGE, "connected"), "off")
    message = notified(hass, "Big box is not reachable")
    assert message == "Nothing is known of Big box: its bridge is offline."
    live_home.start("bridge")
    hass.waits_for(entity(hass, ENDPOINT, "reachable"), "on")


def test_an_outpost_says_why_it_ended(hass: HomeAssistant, live_home: LiveHome) -> None:
    live_home.kill("outpost")
    hass.waits_for(entity(hass, OUTPOST, "connected"), "off")
    assert hass.state(entity(hass, OUTPOST, "pushes")) == "unavailable"
    assert hass.state(entity(hass, OUTPOST, "problem")) == "off"
    live_home.start("outpost")
    hass.waits_for(entity(hass, OUTPOST, "connected"), "on")
    hass.waits_for(entity(hass, OUTPOST, "models"), "1")


def test_after_a_restart_of_the_broker_all_is_back(
    hass: HomeAssistant, live_home: LiveHome
) -> None:
    live_home.broker.restart()
    time.sleep(1)
    hass.waits_for(entity(hass, ENDPOINT, "reachable"), "on", 60)
    hass.waits_for(entity(hass, OUTPOST, "connected"), "on", 60)


def test_after_a_restart_of_home_assistant_all_is_back(hass: HomeAssistant) -> None:
    log_before = our_log(hass)
    hass.stop()
    hass.start()
    for entity_id, state in (
        (entity(hass, ENDPOINT, "reachable"), "on"),
        (entity(hass, ENDPOINT, "models"), "1"),
        (entity(hass, BRIDGE, "state"), "running"),
        (entity(hass, OUTPOST, "models"), "1"),
        ("binary_sensor.llm_reachable", "on"),
    ):
        hass.waits_for(entity_id, state)
    assert log_before == []


def test_what_is_removed_leaves_nothing_behind(hass: HomeAssistant, live_home: LiveHome) -> None:
    live_home.stop("bridge")
    live_home.stop("outpost")
    live_home.run("clear", "--yes")
    live_home.run("clear", "--outpost", "--yes")
    deadline_s = time.monotonic() + 10
    while any(hass.device(identifier) for identifier in ENTITIES):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    registry = hass.ask({"type": "config/entity_registry/list"})
    assert [
        row["entity_id"] for row in registry if "clusterllm_home" in str(row["unique_id"])
    ] == []
    assert live_home.broker.retained() == {}


def test_the_log_is_clean(hass: HomeAssistant) -> None:
    """2025.4 warns of its own accord for each disabled entity of a device that goes."""
    lines = [line for line in our_log(hass) if "No device components to cleanup" not in line]
    assert lines == []
