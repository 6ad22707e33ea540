"""A cluster that tells of its members and memory, in a real Home Assistant.

It shrinks, changes its models, goes down and is taken away; the home beside it stays as it was.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from homeassistant_lab import BRIDGE, NAME, Lab
from homeassistant_view import (
    device,
    entity,
    eventually,
    from_blueprint,
    notified,
    rows,
    states,
    telling,
    triggers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rig.homeassistant import HomeAssistant
    from rig.live_home import LiveHome

pytestmark = pytest.mark.homeassistant


@pytest.fixture(scope="module")
def lab(
    hass: HomeAssistant, live_home: LiveHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    with Lab(live_home.broker.port, tmp_path_factory.mktemp("lab")) as lab:
        eventually(lambda: _found(hass), 30, lambda: "the lab's device did not appear")
        install_automations(hass, _identifier(hass))
        yield lab
        lab.stop_bridge()
        lab.clear()


@pytest.fixture
def cluster(hass: HomeAssistant, lab: Lab) -> str:
    """Its identifier; it is whole, and nothing was told of it yet."""
    lab.serve("qwen3-4b")
    found = _identifier(hass)
    hass.waits_for(entity(hass, found, "members"), "2")
    hass.waits_for(entity(hass, found, "models"), "1")
    hass.call("persistent_notification.dismiss_all")
    return found


def _found(hass: HomeAssistant) -> list[dict[str, Any]]:
    devices = hass.ask({"type": "config/device_registry/list"})
    return [one for one in devices if one["name"] == NAME]


def _identifier(hass: HomeAssistant) -> str:
    [one] = _found(hass)
    [[domain, identifier]] = one["identifiers"]
    assert domain == "mqtt"
    return str(identifier)


def install_automations(hass: HomeAssistant, cluster: str) -> None:
    listed = triggers(hass, cluster)
    transition = entity(hass, cluster, "transition")
    automations = [
        *(telling(trigger, f"device: {type_}") for type_, trigger in listed.items()),
        from_blueprint("shrunk", transitions=[transition]),
        from_blueprint("model", transitions=[transition], model="LLAMA"),
    ]
    hass.write("automations.yaml", json.dumps(automations))
    hass.call("automation.reload")
    count = "{{ states.automation | selectattr('state', 'eq', 'on') | list | count }}"
    eventually(lambda: hass.render(count) == str(len(automations)))


def test_what_a_cluster_tells_is_shown(hass: HomeAssistant, cluster: str) -> None:
    shown = states(hass, cluster)
    figures = ("reachable", "state", "members", "models", "backend", "version", "problem")
    assert [shown[name] for name in figures] == [
        "on", "running", "2", "1", "gpustack", "v2.3.0", "off",
    ]  # fmt: skip
    assert shown["vram"] == "83.977"
    assert hass.attributes(entity(hass, cluster, "models"))["models"] == ["qwen3-4b"]
    found = device(hass, cluster)
    assert found["model"] == "GPUStack"
    assert found["via_device_id"] == device(hass, BRIDGE)["id"]
    assert found["configuration_url"].startswith("http://127.0.0.1:")


def test_the_summary_of_the_package_sums_up_two_homes(hass: HomeAssistant, cluster: str) -> None:
    assert cluster
    hass.waits_for("sensor.llm_best_endpoint", NAME)
    hass.waits_for("sensor.llm_total_vram", "83.977")
    eventually(
        lambda: hass.attributes("binary_sensor.llm_reachable")["reachable"] == ["Big box", NAME]
    )


def test_a_lost_member_is_shown_and_told(hass: HomeAssistant, lab: Lab, cluster: str) -> None:
    lab.lose_workers()
    hass.waits_for(entity(hass, cluster, "members"), "1")
    assert notified(hass, f"{NAME} lost a member") == f"{NAME} has 1 machine now, 2 before."
    assert notified(hass, "device: lost a member") == "members_changed"
    hass.waits_for(entity(hass, cluster, "vram"), "unknown")
    assert hass.state(entity(hass, cluster, "reachable")) == "on"
    assert not {"device: came back", "device: became not reachable"} & set(hass.notifications())


def test_a_member_that_comes_back_is_no_loss(hass: HomeAssistant, lab: Lab, cluster: str) -> None:
    lab.lose_workers()
    hass.waits_for(entity(hass, cluster, "members"), "1")
    notified(hass, "device: lost a member")
    notified(hass, f"{NAME} lost a member")
    hass.call("persistent_notification.dismiss_all")
    lab.serve("qwen3-4b")
    hass.waits_for(entity(hass, cluster, "members"), "2")
    hass.waits_for(entity(hass, cluster, "vram"), "83.977")
    assert hass.notifications() == {}


def test_a_model_that_comes_and_goes_is_told(hass: HomeAssistant, lab: Lab, cluster: str) -> None:
    lab.serve("qwen3-4b", "llama-70b")
    assert notified(hass, f"{NAME}: a model is available") == f"{NAME} serves llama-70b now."
    assert hass.attributes(entity(hass, cluster, "models"))["models"] == ["qwen3-4b", "llama-70b"]
    lab.serve("qwen3-4b")
    assert notified(hass, f"{NAME}: a model is gone") == f"{NAME} no longer serves llama-70b."


def test_going_down_and_coming_back_tells_of_nothing_else(
    hass: HomeAssistant, lab: Lab, cluster: str
) -> None:
    lab.break_down()
    assert notified(hass, "device: became not reachable") == "not_reachable"
    assert hass.state(entity(hass, cluster, "members")) == "unavailable"
    lab.serve("qwen3-4b")
    assert notified(hass, "device: came back") == "running"
    hass.waits_for(entity(hass, cluster, "members"), "2")
    hass.waits_for(entity(hass, cluster, "vram"), "83.977")
    told = set(hass.notifications())
    assert told == {"device: became not reachable", "device: came back"}


def test_an_entity_that_is_disabled_can_be_enabled(
    hass: HomeAssistant, lab: Lab, cluster: str
) -> None:
    """Home Assistant loads its MQTT integration anew, 30 s later; nothing else may suffer."""
    row = rows(hass, cluster)["response_time"]
    assert row["disabled_by"] == "integration"
    update = {"type": "config/entity_registry/update", "entity_id": row["entity_id"]}
    hass.ask({**update, "disabled_by": None})
    eventually(lambda: hass.state(row["entity_id"]) not in {None, "unavailable", "unknown"}, 60)
    assert float(hass.state(row["entity_id"]) or 0) > 0
    hass.waits_for(entity(hass, cluster, "members"), "2")
    assert hass.notifications() == {}  # what is only shown again is not told
    lab.lose_workers()
    assert notified(hass, "device: lost a member") == "members_changed"
    assert notified(hass, f"{NAME} lost a member") == f"{NAME} has 1 machine now, 2 before."


def test_clearing_one_bridge_leaves_the_other(
    hass: HomeAssistant, live_home: LiveHome, lab: Lab, cluster: str
) -> None:
    before = hass.ask({"type": "config/entity_registry/list"})
    lab.stop_bridge()
    hass.waits_for(entity(hass, cluster, "reachable"), "unavailable")
    lab.clear()
    eventually(lambda: not hass.device(cluster) and not hass.device(BRIDGE))
    after = hass.ask({"type": "config/entity_registry/list"})
    gone = {row["unique_id"] for row in before} - {row["unique_id"] for row in after}
    assert gone
    assert all(BRIDGE in unique_id for unique_id in gone)
    assert not [row for row in after if BRIDGE in str(row["unique_id"])]
    left = [t for t in live_home.broker.retained() if t.startswith("clusterllm-lab") or BRIDGE in t]
    assert left == []
    hass.waits_for("sensor.llm_best_endpoint", "Big box")
    hass.waits_for("sensor.llm_total_vram", "unknown")
