"""The components of Home Assistant's devices, as tables; pure.

A figure that is missing in a record must render as `None` (unknown) without a warning, so every
template gives a default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from clusterllm_mqtt.models import EventType, State

if TYPE_CHECKING:
    from collections.abc import Mapping

_GIB: Final = 2**30
# What people see of a model: its file name when the id is a path. 30 names of 80 characters stay
# below the 16 KiB of attributes that Home Assistant's recorder stores, even if JSON escapes them.
_FILE_NAME: Final = r"replace('\\', '/').split('/')[-1][:80]"
_MODELS: Final = (
    "{%- set models = value_json.models | default([]) -%}{%- set ns = namespace(names=[]) -%}"
    "{%- for model in models[:30] -%}"
    f"{{%- set ns.names = ns.names + [model.name.{_FILE_NAME}] -%}}"
    "{%- endfor -%}"
    "{{ {'models': ns.names, 'models_truncated': models | count > 30} | tojson }}"
)
_EVENT: Final = (
    "{%- macro shown(value) -%}"
    "{%- if value is number -%}{{ value }}"
    "{%- elif value is string -%}{{ value[:255] | tojson }}{%- else -%}"
    f"[{{%- for name in value[:15] -%}}{{{{ name.{_FILE_NAME} | tojson }}}}"
    "{{ ',' if not loop.last }}{%- endfor -%}]"
    "{%- endif -%}{%- endmacro -%}"
    '{"event_type": {{ value_json.event_type | tojson }}, '
    '"old": {{ shown(value_json.old) }}, "new": {{ shown(value_json.new) }}}'
)
_LOST_A_MEMBER: Final = (
    "{{ 'lost_a_member' if value_json.event_type == 'members_changed'"
    " and value_json.new < value_json.old else '' }}"
)


def _field(name: str) -> str:
    return f"{{{{ value_json.{name} | default(None) }}}}"


def _text(name: str) -> str:
    return f"{{{{ (value_json.{name} | default('None', true))[:255] }}}}"


def _gib(name: str) -> str:
    value = f"value_json.{name} | default(0)"
    return f"{{{{ (({value}) / {_GIB}) | round(3) if {value} else None }}}}"


@dataclass(frozen=True, slots=True)
class Component:
    """One entity or trigger; `source` names the topic it reads, "" for none.

    `is_last_word` keeps it available when its process is gone: it may say why.
    """

    id: str
    platform: str
    source: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    needs_running: bool = False
    is_last_word: bool = False


_COUNT: Final = {"state_class": "measurement", "suggested_display_precision": 0}
_VRAM: Final = {
    "device_class": "data_size",
    "unit_of_measurement": "GiB",
    "state_class": "measurement",
    "suggested_display_precision": 1,
}
_DIAGNOSTIC: Final = {"entity_category": "diagnostic"}
_STATES: Final = {"device_class": "enum", "options": [str(state) for state in State]}


def _trigger(id_: str, type_: str, payload: str, template: str) -> Component:
    keys = {
        "automation_type": "trigger",
        "type": type_,
        "subtype": "endpoint",
        "payload": payload,
        "value_template": template,
    }
    return Component(id_, "device_automation", "event", keys)


ENDPOINT_COMPONENTS: Final = (
    Component("reachable", "binary_sensor", "info", {
        "name": "Reachable", "device_class": "connectivity",
        "value_template": "{{ 'ON' if value_json.state == 'running' else 'OFF' }}",
    }),
    Component("state", "sensor", "info", {
        "name": "State", "icon": "mdi:state-machine", "value_template": _field("state"), **_STATES,
    }),
    Component("members", "sensor", "info", {
        "name": "Members", "icon": "mdi:server-network",
        "value_template": _field("member_count"), **_COUNT,
    }, needs_running=True),
    Component("vram", "sensor", "info", {
        "name": "VRAM", "icon": "mdi:expansion-card",
        "value_template": _gib("aggregate_vram_bytes"), **_VRAM,
    }, needs_running=True),
    Component("models", "sensor", "info", {
        "name": "Models", "icon": "mdi:brain",
        "value_template":
            "{{ value_json.models | count if value_json.models is defined else None }}",
        "json_attributes_template": _MODELS, **_COUNT,
    }, needs_running=True),
    Component("backend", "sensor", "info", {
        "name": "Backend", "icon": "mdi:application-cog",
        "value_template": _text("backend"), **_DIAGNOSTIC,
    }, needs_running=True),
    Component("version", "sensor", "info", {
        "name": "Version", "icon": "mdi:tag", "value_template": _text("version"), **_DIAGNOSTIC,
    }, needs_running=True),
    Component("problem", "binary_sensor", "probe", {
        "name": "Problem", "device_class": "problem", **_DIAGNOSTIC,
        "value_template": "{{ 'ON' if value_json.reason | default(None) else 'OFF' }}",
        "json_attributes_template": "{{ {'reason': value_json.reason | default(None)} | tojson }}",
    }),
    Component("response_time", "sensor", "probe", {
        "name": "Response time", "device_class": "duration", "unit_of_measurement": "ms",
        "state_class": "measurement", "enabled_by_default": False,
        "value_template": _field("duration_ms"), **_DIAGNOSTIC,
    }, needs_running=True),
    Component("last_change", "sensor", "probe", {
        "name": "Last change", "device_class": "timestamp",
        "value_template": _field("state_since"), **_DIAGNOSTIC,
    }),
    Component("transition", "event", "event", {
        "name": "Transition", "icon": "mdi:swap-horizontal",
        "event_types": [str(kind) for kind in EventType], "value_template": _EVENT,
    }),
    _trigger("went_down", "became not reachable", "not_reachable", _field("event_type")),
    _trigger("came_back", "came back", "running", _field("event_type")),
    _trigger("lost_a_member", "lost a member", "lost_a_member", _LOST_A_MEMBER),
    Component("probe_now", "button", "", {
        "name": "Probe now", "icon": "mdi:magnify-scan", **_DIAGNOSTIC,
    }),
)  # fmt: skip

BRIDGE_COMPONENTS: Final = (
    Component("connected", "binary_sensor", "availability", {
        "name": "Connected", "device_class": "connectivity",
        "payload_on": "online", "payload_off": "offline", **_DIAGNOSTIC,
    }),
    Component("state", "sensor", "status", {
        "name": "State", "icon": "mdi:state-machine", "value_template": _field("state"), **_STATES,
    }),
    Component("endpoints", "sensor", "status", {
        "name": "Endpoints", "icon": "mdi:server",
        "value_template": "{{ value_json.endpoints | default([]) | count }}", **_COUNT,
    }),
    Component("running", "sensor", "status", {
        "name": "Running endpoints", "icon": "mdi:server-plus",
        "value_template": "{{ (value_json.counts | default({})).running | default(None) }}",
        **_COUNT,
    }),
    Component("vram", "sensor", "status", {
        "name": "VRAM", "icon": "mdi:expansion-card",
        "value_template": _gib("aggregate_vram_bytes"), **_VRAM,
    }),
    Component("mdns", "binary_sensor", "status", {
        "name": "mDNS", "device_class": "problem", **_DIAGNOSTIC,
        "value_template":
            "{{ 'ON' if (value_json.mdns | default({})).state | default('') == 'failed'"
            " else 'OFF' }}",
        "json_attributes_template": "{{ value_json.mdns | default({}) | tojson }}",
    }),
    Component("version", "sensor", "status", {
        "name": "Version", "icon": "mdi:tag", "value_template": _text("version"), **_DIAGNOSTIC,
    }),
    Component("started_at", "sensor", "status", {
        "name": "Started", "device_class": "timestamp",
        "value_template": _field("started_at"), **_DIAGNOSTIC,
    }),
    Component("last_error", "sensor", "status", {
        "name": "Last error", "icon": "mdi:alert-circle-outline",
        "value_template": _text("last_error"), **_DIAGNOSTIC,
    }),
    Component("probe_all", "button", "", {
        "name": "Probe all now", "icon": "mdi:magnify-scan", **_DIAGNOSTIC,
    }),
)  # fmt: skip

OUTPOST_COMPONENTS: Final = (
    Component("connected", "binary_sensor", "availability", {
        "name": "Connected", "device_class": "connectivity",
        "payload_on": "online", "payload_off": "offline", **_DIAGNOSTIC,
    }),
    Component("last_push", "sensor", "status", {
        "name": "Last push", "device_class": "timestamp",
        "value_template": _field("last_push_at"), **_DIAGNOSTIC,
    }),
    Component("pushes", "sensor", "status", {
        "name": "Pushes", "icon": "mdi:cloud-upload", "state_class": "total_increasing",
        "suggested_display_precision": 0, "value_template": _field("pushes"), **_DIAGNOSTIC,
    }),
    Component("models", "sensor", "status", {
        "name": "Models", "icon": "mdi:brain", "value_template": _field("models"), **_COUNT,
    }),
    Component("problem", "binary_sensor", "status", {
        "name": "Problem", "device_class": "problem", **_DIAGNOSTIC,
        "value_template": "{{ 'ON' if value_json.reason | default(None) else 'OFF' }}",
        "json_attributes_template":
            "{{ {'reason': value_json.reason | default(None),"
            " 'last_error': value_json.last_error | default(None)} | tojson }}",
    }, is_last_word=True),
)  # fmt: skip

RETIRED_COMPONENTS: Final[Mapping[str, str]] = {}
"""Component id -> platform of what a release dropped: Home Assistant removes a component only when
it is published once more with its platform alone; leaving it out removes nothing."""
