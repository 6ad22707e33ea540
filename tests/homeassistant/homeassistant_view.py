"""How the tests look at Home Assistant: devices, entities and notifications by what is ours."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from rig.live_home import MqttObserver, observing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rig.homeassistant import HomeAssistant


def device(hass: HomeAssistant, identifier: str) -> dict[str, Any]:
    """The device of that MQTT identifier, which must be there."""
    found = hass.device(identifier)
    assert found is not None, identifier
    return found


def rows(hass: HomeAssistant, identifier: str) -> dict[str, dict[str, Any]]:
    """Component -> its row in the entity registry."""
    found = hass.entities(device(hass, identifier)["id"])
    assert all(row["unique_id"].startswith(f"{identifier}_") for row in found)
    return {row["unique_id"].removeprefix(f"{identifier}_"): row for row in found}


def entity(hass: HomeAssistant, identifier: str, component: str) -> str:
    """Its id: 2025.10 and newer take the proposed one, older ones make their own."""
    found: str = rows(hass, identifier)[component]["entity_id"]
    return found


def states(hass: HomeAssistant, identifier: str) -> dict[str, str | None]:
    """Component -> state; None for one that is disabled."""
    return {name: hass.state(row["entity_id"]) for name, row in rows(hass, identifier).items()}


def triggers(hass: HomeAssistant, identifier: str) -> dict[str, dict[str, Any]]:
    """The type of each device trigger of ours -> what an automation needs of it."""
    command = {"type": "device_automation/trigger/list"}
    listed = hass.ask({**command, "device_id": device(hass, identifier)["id"]})
    keys = ("domain", "device_id", "type", "subtype")
    return {t["type"]: {key: t[key] for key in keys} for t in listed if t["domain"] == "mqtt"}


def telling(trigger: dict[str, Any], title: str) -> dict[str, Any]:
    """An automation on a device trigger that notifies with the payload that fired it."""
    data = {"title": title, "message": "{{ trigger.payload_json.event_type }}"}
    return {
        "id": title,
        "alias": title,
        "triggers": [{**trigger, "trigger": "device"}],
        "actions": [{"action": "persistent_notification.create", "data": data}],
    }


def from_blueprint(name: str, **inputs: object) -> dict[str, Any]:
    """An automation made from a blueprint of ours."""
    blueprint = {"path": f"clusterllm/{name}.yaml", "input": inputs}
    return {"id": name, "alias": name, "use_blueprint": blueprint}


def notified(hass: HomeAssistant, title: str, seconds: float = 15) -> str:
    """The message of the notification of that title, as soon as it is shown."""
    eventually(lambda: title in hass.notifications(), seconds, lambda: str(hass.notifications()))
    return hass.notifications()[title]


def eventually(
    check: Callable[[], object], seconds: float = 15, explain: Callable[[], str] = str
) -> None:
    """Wait until something is so; fail, with what is so instead, when it is not in time."""
    deadline_s = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline_s, explain()
        time.sleep(0.05)


@contextlib.contextmanager
def listening(port: int) -> Iterator[MqttObserver]:
    """An observer that listens already: what is retained has begun to arrive."""
    with observing(port) as observer:
        eventually(lambda: observer.messages)
        yield observer


@contextlib.contextmanager
def following(hass: HomeAssistant, entity_id: str) -> Iterator[Iterator[tuple[float, str]]]:
    """Each new state of an entity, and when it was heard; subscribed to before it is needed."""
    with hass.open() as socket:
        trigger = {"platform": "state", "entity_id": entity_id}
        socket.send(json.dumps({"id": 1, "type": "subscribe_trigger", "trigger": trigger}))
        assert json.loads(socket.recv(10))["success"]
        yield _heard(socket.recv)


def _heard(receive: Callable[[float], str | bytes]) -> Iterator[tuple[float, str]]:
    while True:
        event = json.loads(receive(60))["event"]["variables"]["trigger"]
        yield time.monotonic(), event["to_state"]["state"]


def release(hass: HomeAssistant) -> tuple[int, int]:
    """Its year and month."""
    year, month, *_ = hass.get("/api/config")["version"].split(".")
    return int(year), int(month)


def whole_log(hass: HomeAssistant) -> str:
    """All that it logged; each start puts the log of the one before it aside."""
    files = sorted(hass.folder.glob("home-assistant.log*"), reverse=True)
    names = ("home-assistant.log", "home-assistant.log.1")
    return "".join(f.read_text("utf-8", errors="replace") for f in files if f.name in names)
