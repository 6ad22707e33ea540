"""What a Home Assistant user sees, in a real Home Assistant on a real broker.

The tests run in this order and share one home; each leaves it as it found it, the last takes it
away.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest
from homeassistant_log import BROKER_RESTARTED, DEVICE_GONE, INTEGRATION_RELOADED, complaints
from homeassistant_tables import (
    BRIDGE,
    DISABLED,
    ENDPOINT,
    ENTITIES,
    OUTPOST,
    PLATFORMS,
    SOME,
)
from homeassistant_view import (
    device,
    entity,
    eventually,
    following,
    from_blueprint,
    listening,
    notified,
    release,
    rows,
    states,
    telling,
    triggers,
    whole_log,
)
from rig.live_home import INTERVAL_S, LiveHome, MqttObserver

if TYPE_CHECKING:
    from rig.homeassistant import HomeAssistant

pytestmark = pytest.mark.homeassistant

_NO_STATE = {"unknown", "unavailable", None}


@pytest.mark.parametrize("identifier", ENTITIES)
def test_every_entity_is_there_as_it_should_be(hass: HomeAssistant, identifier: str) -> None:
    found = rows(hass, identifier)
    assert set(found) == set(ENTITIES[identifier])
    for component, wanted in ENTITIES[identifier].items():
        row = found[component]
        assert row["original_name"] == wanted.name
        assert row["entity_category"] == wanted.category, component
        assert row["disabled_by"] == ("integration" if wanted.state == DISABLED else None)
        if wanted.state == DISABLED:
            continue
        state, attributes = hass.state(row["entity_id"]), hass.attributes(row["entity_id"])
        assert attributes.get("device_class") == wanted.device_class, component
        assert attributes.get("unit_of_measurement") == wanted.unit, component
        assert attributes.get("icon") == wanted.icon, component
        name = device(hass, identifier)["name"]
        assert attributes["friendly_name"] == f"{name} {wanted.name}"
        assert state not in _NO_STATE if wanted.state == SOME else state == wanted.state, component


def test_an_endpoint_is_connected_via_its_bridge(hass: HomeAssistant) -> None:
    endpoint, bridge = device(hass, ENDPOINT), device(hass, BRIDGE)
    assert endpoint["via_device_id"] == bridge["id"]
    assert (endpoint["name"], endpoint["model"]) == ("Big box", "llama.cpp")
    assert (bridge["name"], bridge["via_device_id"]) == ("LLM bridge home", None)
    outpost = device(hass, OUTPOST)
    assert (outpost["name"], outpost["via_device_id"]) == ("LLM outpost home", None)


@pytest.mark.parametrize("identifier", ENTITIES)
def test_entity_ids_are_those_that_the_docs_promise(hass: HomeAssistant, identifier: str) -> None:
    """2025.10 and newer take the proposed ones; older ones make their own of the names."""
    stem = device(hass, identifier)["name"].lower().replace(" ", "_")
    for component, row in rows(hass, identifier).items():
        platform = next((p for p, ids in PLATFORMS.items() if component in ids), "sensor")
        proposed = f"{platform}.clusterllm_{stem}_{component}"
        name = ENTITIES[identifier][component].name.lower().replace(" ", "_")
        own = f"{platform}.{stem}_{name}"
        assert row["entity_id"] == (proposed if release(hass) >= (2025, 10) else own)


def test_the_summary_of_the_package(hass: HomeAssistant) -> None:
    hass.waits_for("binary_sensor.llm_reachable", "on")
    assert hass.attributes("binary_sensor.llm_reachable")["reachable"] == ["Big box"]
    hass.waits_for("sensor.llm_best_endpoint", "Big box")
    hass.waits_for("sensor.llm_total_vram", "unknown")


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
    listed = triggers(hass, ENDPOINT)
    assert set(listed) == {"became not reachable", "came back", "lost a member"}
    reachable = entity(hass, ENDPOINT, "reachable")
    automations = [
        from_blueprint("not_reachable", endpoints=[reachable], hold={"seconds": 1}),
        *(telling(trigger, f"device: {type_}") for type_, trigger in listed.items()),
    ]
    hass.write("automations.yaml", json.dumps(automations))
    hass.call("automation.reload")
    names = "{{ states.automation | selectattr('state', 'eq', 'on') | map(attribute='name') | list"
    eventually(lambda: "not_reachable" in hass.render(names + " }}"))


def test_a_dead_endpoint_is_shown_at_once_and_told(
    hass: HomeAssistant, live_home: LiveHome
) -> None:
    install_automations(hass)
    reachable = entity(hass, ENDPOINT, "reachable")
    with listening(live_home.broker.port) as observer, following(hass, reachable) as changes:
        killed_s = live_home.kill("llama")
        heard_s, state = next(changes)
        assert state == "off"
        sent_s = next(
            at
            for at, topic, payload in observer.messages
            if topic.endswith("/info") and "not_reachable" in payload
        )
    took_s = f"{heard_s - killed_s:.3f} s after the kill, {heard_s - sent_s:.3f} s after MQTT"
    print(f"Reachable is off {took_s}")  # noqa: T201  # how fast it was belongs to the result
    assert heard_s - sent_s < 0.3, took_s
    assert heard_s - killed_s < INTERVAL_S + 5, took_s
    hass.waits_for(entity(hass, ENDPOINT, "problem"), "on")
    found = states(hass, ENDPOINT)
    figures = ("members", "vram", "models", "backend", "version")
    assert {found[name] for name in figures} == {"unavailable"}
    assert found["state"] == "not_reachable"
    assert not {"unavailable", "unknown"} & {found[n] for n in ("last_change", "transition")}
    assert notified(hass, "Big box is not reachable") == "Big box does not answer (refused)."
    assert notified(hass, "device: became not reachable") == "not_reachable"
    event = hass.attributes(entity(hass, ENDPOINT, "transition"))
    assert (event["event_type"], event["old"], event["new"]) == (
        "not_reachable", "running", "not_reachable",
    )  # fmt: skip


def test_a_revived_endpoint_is_shown_and_told(hass: HomeAssistant, live_home: LiveHome) -> None:
    live_home.start("llama")
    hass.waits_for(entity(hass, ENDPOINT, "reachable"), "on")
    assert notified(hass, "Big box is back") == "Big box answers again."
    assert notified(hass, "device: came back") == "running"
    hass.waits_for(entity(hass, ENDPOINT, "members"), "1")
    hass.waits_for(entity(hass, ENDPOINT, "vram"), "unknown")
    hass.waits_for(entity(hass, ENDPOINT, "problem"), "off")
    assert "device: lost a member" not in hass.notifications()


def _was_heard(observer: MqttObserver, wanted: str) -> bool:
    return wanted in [topic for _, topic, _ in observer.messages]


def test_a_button_asks_the_bridge_to_probe(hass: HomeAssistant, live_home: LiveHome) -> None:
    key = ENDPOINT.removeprefix(f"{BRIDGE}_")
    root = "clusterllm/bridge/home"
    commands = {
        entity(hass, ENDPOINT, "probe_now"): f"{root}/endpoint/{key}/command/probe",
        entity(hass, BRIDGE, "probe_all"): f"{root}/command/probe",
    }
    with listening(live_home.broker.port) as observer:
        for button, command in commands.items():
            hass.call("button.press", entity_id=button)
            eventually(partial(_was_heard, observer, command))
            assert hass.state(button) not in _NO_STATE
    asked = [topic for _, topic, _ in observer.messages if topic.endswith("/command/probe")]
    assert asked == list(commands.values())


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
    hass.waits_for(entity(hass, OUTPOST, "pushes"), "unavailable")
    assert hass.state(entity(hass, OUTPOST, "problem")) == "off"
    live_home.start("outpost")
    hass.waits_for(entity(hass, OUTPOST, "connected"), "on")
    hass.waits_for(entity(hass, OUTPOST, "models"), "1")


def test_after_a_restart_of_the_broker_all_is_back(
    hass: HomeAssistant, live_home: LiveHome
) -> None:
    before = states(hass, ENDPOINT)
    live_home.broker.stop()
    hass.waits_for(entity(hass, ENDPOINT, "reachable"), "unavailable", 60)
    live_home.broker.start()
    hass.waits_for(entity(hass, ENDPOINT, "reachable"), "on", 60)
    hass.waits_for(entity(hass, OUTPOST, "connected"), "on", 60)
    eventually(lambda: states(hass, ENDPOINT) == before, 15, lambda: str(states(hass, ENDPOINT)))


def test_after_a_restart_of_home_assistant_all_is_back(hass: HomeAssistant) -> None:
    before = {identifier: states(hass, identifier) for identifier in ENTITIES}
    hass.stop()
    hass.start()
    hass.waits_for("binary_sensor.llm_reachable", "on")
    eventually(lambda: {identifier: states(hass, identifier) for identifier in ENTITIES} == before)


def test_what_is_removed_leaves_nothing_behind(hass: HomeAssistant, live_home: LiveHome) -> None:
    live_home.stop("bridge")
    live_home.stop("outpost")
    live_home.run("clear", "--yes")
    live_home.run("clear", "--outpost", "--yes")
    eventually(lambda: not any(map(hass.device, ENTITIES)))
    registry = hass.ask({"type": "config/entity_registry/list"})
    left = [row["entity_id"] for row in registry if row["platform"] == "mqtt"]
    assert left == []
    assert live_home.broker.retained() == {}


def test_the_log_is_clean(hass: HomeAssistant) -> None:
    own = (DEVICE_GONE, INTEGRATION_RELOADED) if release(hass) <= (2026, 2) else ()
    assert complaints(whole_log(hass), [*BROKER_RESTARTED, *own]) == []
