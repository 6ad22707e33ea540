"""The Supervisor's rules for an app, written down anew: what it refuses, warns of, or would ask.

As of Supervisor 2026.08. It drops keys that it does not know without a word; here they are errors.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

REQUIRED: Final = {"name", "version", "slug", "description", "arch"}
ARCHES: Final = {"aarch64", "amd64"}
ONE_OF: Final = {
    "startup": {"initialize", "system", "services", "application", "once"},
    "boot": {"auto", "manual", "manual_only"},
    "stage": {"stable", "experimental", "deprecated"},
    "backup": {"hot", "cold"},
    "hassio_role": {"default", "homeassistant", "backup", "manager", "admin"},
}
FLAGS: Final = {"init", "host_network", "tmpfs", "apparmor", "hassio_api", "homeassistant_api"}
OTHERS: Final = {"url", "homeassistant", "services", "map", "timeout", "options", "schema", "image"}
MAPPED: Final = {"data", "ssl", "share", "media", "backup", "homeassistant_config", "app_config"}
ELEMENT: Final = re.compile(
    r"(bool|email|url|port"
    r"|(?:str|password)(?:\(\d*,\d*\))?"
    r"|int(?:\((?:-?\d+)?,(?:-?\d+)?\))?"
    r"|float(?:\((?:-?\d*\.?\d+)?,(?:-?\d*\.?\d+)?\))?"
    r"|match\(.*\)|list\(.+\))\??"
)
MAX_DEPTH: Final = 2


def config_mistakes(config: dict[str, Any]) -> list[str]:
    """What is wrong with a `config.yaml`, but for its schema."""
    known = REQUIRED | ONE_OF.keys() | FLAGS | OTHERS
    found = [f"{name} is missing" for name in REQUIRED - config.keys()]
    found += [f"{name} is not known" for name in config.keys() - known]
    found += [f"{name} is no text" for name in REQUIRED - {"arch"} if not _is_text(config, name)]
    found += [f"{a} is no arch" for a in config.get("arch", []) if a not in ARCHES]
    found += [
        f"{n}: {config[n]}"
        for n, allowed in ONE_OF.items()
        if config.get(n) not in {*allowed, None}
    ]
    found += [f"{n} is no flag" for n in FLAGS & config.keys() if not isinstance(config[n], bool)]
    if not re.fullmatch(r"[-_.A-Za-z0-9]+", str(config.get("slug"))):
        found.append("slug")
    if not 10 <= config.get("timeout", 10) <= 300:
        found.append("timeout")
    service = re.compile(r"(mqtt|mysql):(provide|want|need)")
    found += [f"service {s}" for s in config.get("services", []) if not service.fullmatch(s)]
    return found + [f"map {m}" for m in config.get("map", []) if m.get("type") not in MAPPED]


def _is_text(config: dict[str, Any], name: str) -> bool:
    return isinstance(config.get(name), str)


def schema_mistakes(schema: object, depth: int = 0, place: str = "schema") -> list[str]:
    """What is wrong with a schema, or a part of one."""
    if isinstance(schema, str):
        return [] if ELEMENT.fullmatch(schema) else [f"{place}: {schema} is no type"]
    if depth > MAX_DEPTH:
        return [f"{place} is too deep"]
    if isinstance(schema, list):
        if len(schema) != 1 or isinstance(schema[0], list):
            return [f"{place} is no list of one type"]
        inner = depth if isinstance(schema[0], dict) else depth + 1
        return schema_mistakes(schema[0], inner, f"{place}[]")
    if not isinstance(schema, dict):
        return [f"{place} is no type"]
    parts = (schema_mistakes(v, depth + 1, f"{place}.{k}") for k, v in schema.items())
    return [mistake for part in parts for mistake in part]


def option_mistakes(schema: Any, value: object, place: str = "options") -> list[str]:  # noqa: ANN401  # YAML
    """What the Supervisor would say to options before a start."""
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{place} is no list"]
        return [
            m for n, v in enumerate(value) for m in option_mistakes(schema[0], v, f"{place}.{n}")
        ]
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{place} is no mapping"]
        found = [f"{place}.{k} is not in the schema" for k in value.keys() - schema.keys()]
        found += [
            f"{place}.{k} is missing"
            for k in schema.keys() - value.keys()
            if not _may_miss(schema[k])
        ]
        for key in schema.keys() & value.keys():
            found += option_mistakes(schema[key], value[key], f"{place}.{key}")
        return found
    return [] if _fits(schema.removesuffix("?"), value) else [f"{place}: {value!r} is no {schema}"]


def _may_miss(schema: object) -> bool:
    element = schema[0] if isinstance(schema, list) else schema
    return isinstance(element, str) and element.endswith("?")


def _fits(kind: str, value: object) -> bool:
    name, _, rest = kind.partition("(")
    inner = rest.removesuffix(")")
    if name == "match":
        return re.match(inner, str(value)) is not None
    if name == "list":
        return str(value) in inner.split("|")
    if name == "bool":
        return isinstance(value, bool)
    if name in {"int", "port"}:
        low, _, high = (inner or ("1,65535" if name == "port" else ",")).partition(",")
        return isinstance(value, int) and int(low or value) <= value <= int(high or value)
    if name == "url":
        return isinstance(value, str) and bool(urlsplit(value).scheme and urlsplit(value).netloc)
    return name in {"str", "password"} and isinstance(value, str)


def translation_mistakes(
    schema: dict[str, Any], texts: dict[str, Any], place: str = ""
) -> list[str]:
    """Options without a name and a description, and texts for options that are none."""
    found = [f"{place}{key} is no option" for key in texts.keys() - schema.keys()]
    for key, part in schema.items():
        text = texts.get(key, {})
        if not all(
            isinstance(text.get(what), str) and text[what] for what in ("name", "description")
        ):
            found.append(f"{place}{key} has no text")
        found += [
            f"{place}{key}: {extra}" for extra in text.keys() - {"name", "description", "fields"}
        ]
        inner = part[0] if isinstance(part, list) else part
        if isinstance(inner, dict):
            found += translation_mistakes(inner, text.get("fields", {}), f"{place}{key}.")
    return found
