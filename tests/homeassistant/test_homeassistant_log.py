"""A clean log means something only if a complaint about us is never overlooked."""

from __future__ import annotations

import pytest
from homeassistant_log import BROKER_RESTARTED, DEVICE_GONE, complaints, records

AT = "2026-12-01 15:53:21.579"
MQTT = "homeassistant.components.mqtt"
KNOWN = (*BROKER_RESTARTED, DEVICE_GONE)

ABOUT_US = {
    "a refused device, whose payload speaks of connectivity": (
        f"{AT} WARNING (MainThread) [{MQTT}.discovery] Invalid MQTT device discovery payload for "
        "clusterllm_home, extra keys not allowed @ data['foo']: "
        '\'{"components": {"connected": {"device_class": "connectivity"}}}\''
    ),
    "a component that is refused, with an offset": (
        f"{AT}+00:00 ERROR (MainThread) [{MQTT}.entity] Error 'expected SensorDeviceClass' when "
        "processing MQTT discovery message topic: 'homeassistant/device/x/config'"
    ),
    "a payload that cannot be read, told by the client": (
        f"{AT} WARNING (MainThread) [{MQTT}.client] Can't decode payload b'\\xff' on t with "
        "encoding utf-8"
    ),
    "a template that names nobody": (
        f"{AT} WARNING (MainThread) [homeassistant.helpers.template] Template variable warning: "
        "'dict object' has no attribute 'x' when rendering '{{ value_json.x }}'"
    ),
    "a template that loops": (
        f"{AT}+00:00 WARNING (MainThread) [homeassistant.components.template.template_entity] "
        "Template loop detected while processing event: <Event state_changed[L]: "
        "entity_id=binary_sensor.llm_reachable, device_class=connectivity>"
    ),
    "attributes that are too large, told by the recorder": (
        f"{AT} WARNING (Recorder) [homeassistant.components.recorder.db_schema] State attributes "
        "for sensor.big_box_models exceed maximum size of 16384 bytes."
    ),
    "a traceback that names us in a later line": (
        f"{AT} ERROR (MainThread) [homeassistant.core] Error doing job: Task exception\n"
        "Traceback (most recent call last):\n"
        "ValueError: clusterllm/bridge/home/status"
    ),
}

NOT_ABOUT_US = (
    f"{AT} WARNING (MainThread) [homeassistant.bootstrap] Skipping pip installation",
    f"{AT} ERROR (MainThread) [haffmpeg.core] FFmpeg fails [Errno 2]",
    f"{AT} INFO (MainThread) [{MQTT}.client] Connected to MQTT server 127.0.0.1:1883",
    f"{AT} WARNING (MainThread) [{MQTT}.client] Error returned from MQTT server: lost.",
    f"{AT} WARNING (MainThread) [{MQTT}.discovery] No device components to cleanup for clusterllm_",
)


@pytest.mark.parametrize("record", ABOUT_US.values(), ids=ABOUT_US)
def test_what_is_about_us_is_found_among_the_rest(record: str) -> None:
    log = "\n".join([*NOT_ABOUT_US, record, *NOT_ABOUT_US])
    assert complaints(log, KNOWN) == [record]


def test_what_is_allowed_is_a_complaint_where_it_is_not_expected() -> None:
    assert complaints("\n".join(NOT_ABOUT_US), KNOWN) == []
    assert complaints("\n".join(NOT_ABOUT_US)) == list(NOT_ABOUT_US[3:])


def test_a_log_that_begins_within_a_record_is_read_from_its_first_whole_one() -> None:
    assert records(f"a rest\n{NOT_ABOUT_US[0]}\n more") == [f"{NOT_ABOUT_US[0]}\n more"]
    assert records("") == []
