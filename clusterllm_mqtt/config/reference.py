"""The settings and the `Info` record, described for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic_core import PydanticUndefined

from clusterllm_mqtt.config.settings import EndpointSettings, Settings
from clusterllm_mqtt.models import MAX_BYTES, State

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

INFO_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Info",
    "description": "What runs behind an endpoint. Readers ignore fields that they do not know.",
    "type": "object",
    "required": ["state"],
    "properties": {
        "backend": {"type": "string"},
        "state": {"enum": [str(state) for state in State]},
        "endpoint": {"type": "string"},
        "version": {"type": "string"},
        "member_count": {"type": "integer", "minimum": 1},
        "aggregate_vram_bytes": {"type": "integer", "minimum": 1, "maximum": MAX_BYTES},
        "models": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "size": {"type": "integer", "minimum": 1, "description": "bytes"},
                },
            },
        },
    },
}

_INTRODUCTION: Final = """\
# Configuration

One YAML file (JSON is a subset), given on the command line; [an example](example.yaml). Without
one, everything has a default: mDNS on all interfaces, and a private broker on this machine.

Environment variables lie over the file: `CLUSTERLLM_MQTT__HOST` is `mqtt.host`,
`CLUSTERLLM_PROBE__INTERVAL=30s` is `probe.interval`; lists are written as YAML, `[a, b]`.
Secrets are better in files: each has a `_file` twin. Times are seconds, or `15s`, `10m`, `12h`,
`7d`. An unknown key is an error that names the nearest known one. `clusterllm-mqtt config check`
checks a file; `clusterllm-mqtt schema` prints its JSON Schema.
"""


def markdown() -> str:
    """`docs/configuration.md`."""
    parts = [_INTRODUCTION]
    for name, found in Settings.model_fields.items():
        model = EndpointSettings if name == "endpoints" else found.annotation
        title = f"`{name}` (a list)" if name == "endpoints" else f"`{name}`"
        parts.append(f"## {title}\n\n{(model.__doc__ or '').strip()}\n\n{_table(model)}")  # type: ignore[arg-type]
    return "\n".join(parts)


def _table(model: type[BaseModel]) -> str:
    lines = ["| key | default | what |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {_default(found)} | {found.description or ''} |"
        for name, found in model.model_fields.items()
    ]
    return "\n".join(lines) + "\n"


def _default(found: FieldInfo) -> str:
    default = found.default
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, tuple):
        return ", ".join(f"`{item}`" for item in default)
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`" if default else ""
