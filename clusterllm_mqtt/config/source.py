"""Reads settings as plain values, and knows where each was written: in which line or variable.

JSON is a subset of YAML. Environment variables lie over the file: `CLUSTERLLM_MQTT__HOST` is
`mqtt.host`; lists are written as YAML, `[a, b]`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import SecretStr

from clusterllm_mqtt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ENV_PREFIX: Final = "CLUSTERLLM_"
_MAX_FILE: Final = 2**20
_MAX_SECRET: Final = 2**16
_MAX_PLACES: Final = 200_000
"""In a file, each alias counted as often as it is used: a few nested ones make billions."""

Place = tuple[str | int, ...]
"""The way to a setting: `("endpoints", 0, "url")`."""


@dataclass(slots=True)
class Source:
    """Values, and for each place the file and line or the variable that it comes from."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Place, str] = field(default_factory=dict)

    def origin(self, place: Place) -> str:
        """Where a setting was written; of one that was not, its nearest parent."""
        while place and place not in self.origins:
            place = place[:-1]
        return self.origins.get(place, "")


def read_source(path: Path | None, environ: Mapping[str, str] | None = None) -> Source:
    """The file, if any, under the environment (of this process, when none is given).

    Raises:
        ConfigError: the file cannot be read, is no YAML mapping, or doubles a key.
    """
    source = Source() if path is None else _read_file(path)
    for name, text in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(ENV_PREFIX):
            _lay_over(source, name, text)
    return source


def _read_file(path: Path) -> Source:
    text = _read_text(path)
    source = Source()
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return source
        _note_places(node, str(path), (), source.origins)
        values = loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}{_yaml_sentence(error)}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: the file holds a {type(values).__name__}, not settings by name")
    source.values = values
    return source


def _yaml_sentence(error: Exception) -> str:
    """What is not YAML, without the words that a tag, anchor or alias may be part of a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        problem = re.sub(r"'[^'<][^']+'", "of that name", error.problem or "")
        place = error.problem_mark.line + 1
        return f":{place}: not YAML: {problem}; text with special characters goes in quotes"
    if isinstance(error, yaml.reader.ReaderError):
        return ": not YAML: control characters are not allowed"
    if isinstance(error, RecursionError):
        return ": not YAML: nested too deeply"
    return ": not YAML: a date or number that is none; put it in quotes"


def _read_text(path: Path) -> str:
    try:
        raw = _read_bytes(path, _MAX_FILE + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; check the path and its permissions") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8; save it as UTF-8") from None
    if len(raw) > _MAX_FILE:
        raise ConfigError(f"{path}: larger than 1 MiB; is this the configuration file?")
    return text


def _read_bytes(path: Path, limit: int) -> bytes:
    """At most `limit` bytes; a pipe that nobody has open for writing is empty, not a long wait."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit)


def read_secret(path: Path, what: str) -> SecretStr:
    """The content of a secret file, without the line break at its end.

    Raises:
        ConfigError: it cannot be read, is empty or is no text; `what` names the setting.
    """
    try:
        raw = _read_bytes(path, _MAX_SECRET + 1)
        text = raw.decode().rstrip("\r\n")
    except OSError as error:
        text = f"{what} {path}: {error.strerror}; check the path and its permissions"
        raise ConfigError(text) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{what} {path}: not UTF-8; save it as UTF-8") from None
    if not text:
        raise ConfigError(f"{what} {path} is empty; write the secret into it")
    if len(raw) > _MAX_SECRET:
        raise ConfigError(f"{what} {path}: larger than 64 KiB; is this the right file?")
    return SecretStr(text)


def _note_places(node: yaml.Node, file: str, place: Place, origins: dict[Place, str]) -> None:
    """Remember each key's line; a key that stands twice is an error, since one would be lost."""
    origins[place] = f"{file}:{node.start_mark.line + 1}"
    if len(origins) > _MAX_PLACES:
        raise ConfigError(f"{file}: more than {_MAX_PLACES} values; use aliases (*name) sparingly")
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _note_places(item, file, (*place, number), origins)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            line = key.start_mark.line + 1
            if inner in origins:
                first = origins[inner].rpartition(":")[2]
                name = ".".join(map(str, inner))
                raise ConfigError(f"{file}:{line}: {name} stands in line {first} already; keep one")
            _note_places(value, file, inner, origins)
            origins[inner] = f"{file}:{line}"


def _lay_over(source: Source, variable: str, text: str) -> None:
    place = tuple(variable.removeprefix(ENV_PREFIX).lower().split("__"))
    for covered in [known for known in source.origins if known[: len(place)] == place]:
        del source.origins[covered]
    values = source.values
    for depth, name in enumerate(place[:-1], start=1):
        inner = values.get(name)
        if not isinstance(inner, dict):
            inner = values[name] = {}
            source.origins[place[:depth]] = variable
        values = inner
    values[place[-1]] = text
    source.origins[place] = variable


def read_list(value: object) -> object:
    """A list that an environment variable holds as YAML; anything else as it is.

    Raises:
        ValueError: it is no YAML.
    """
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        raise ValueError("not a YAML list; write it like [a, b]") from None
