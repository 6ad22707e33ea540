"""JSON as strangers send it: read strictly, numbers kept as spelled; pure.

The rules are those of the clients that these servers were written for: a known field of the wrong
type spoils its document, an unknown field never does, field names match without regard to case.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from clusterllm_mqtt.text import WHITE_SPACE

_JSON_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER: Final = re.compile(r"-?[0-9]+")
_INTEGER_DIGITS: Final = 20
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INT64: Final = 2**63

Fields = dict[str, Any]


class Malformed(ValueError):  # noqa: N818  # a state of a document, turned into a reason at once
    """The document is no JSON, or a known field has the wrong type."""


class Number(str):
    """A JSON number exactly as it was spelled: neither rounded nor limited in digits."""

    __slots__ = ()


def trim(text: str) -> str:
    """Without white space at both ends."""
    return text.strip(WHITE_SPACE)


def parse(body: bytes) -> Any:  # noqa: ANN401  # JSON is any of its types
    """A document; invalid UTF-8 becomes U+FFFD.

    Raises:
        Malformed: it is no JSON by RFC 8259, or nested deeper than Python reads (about 1,000).
    """
    try:
        return _DECODER.decode(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise Malformed("not JSON") from None


def _object(pairs: list[tuple[str, Any]]) -> Fields:
    """An object whose order is that of the last mentions, so that the last spelling wins."""
    found = dict(pairs)
    if len(found) < len(pairs):
        found = {}
        for name, value in pairs:
            found.pop(name, None)
            found[name] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=Number,
    parse_float=Number,
    parse_constant=_no_constant,
)


def fields(value: object) -> Fields:
    """An object's fields by lower-case name; `null` is an empty object.

    Raises:
        Malformed: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Malformed("not an object")
    return {name.lower(): field for name, field in value.items()}


def text(found: Fields, name: str) -> str:
    """A text field, "" when absent; lone surrogates become U+FFFD.

    Raises:
        Malformed: it is no text.
    """
    value = found.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Number):
        raise Malformed(f"{name} is no text")
    return plain(value)


def plain(value: str) -> str:
    """Text that can be encoded: lone surrogates become U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", value)


def number(found: Fields, name: str) -> str:
    """A number as spelled, also when it is quoted; "" when absent.

    Raises:
        Malformed: it is neither a number nor a quoted one.
    """
    value = found.get(name)
    if value is None:
        return ""
    if isinstance(value, str) and _JSON_NUMBER.fullmatch(value):
        return str(value)
    raise Malformed(f"{name} is no number")


def rows(found: Fields, name: str) -> list[Any]:
    """A list field, empty when absent.

    Raises:
        Malformed: it is no list.
    """
    value = found.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Malformed(f"{name} is no list")
    return value


def positive(spelled: str) -> int:
    """A spelled integer if it is above 0 and below 2^63, else 0 (unknown)."""
    value = int(spelled) if is_int64(spelled) else 0
    return max(value, 0)


def is_int64(spelled: str) -> bool:
    """Whether a spelled number is an integer of 64 bits; `1.0` and `1e3` are none."""
    if not _INTEGER.fullmatch(spelled) or len(spelled) > _INTEGER_DIGITS:
        return False
    return -_INT64 <= int(spelled) < _INT64
