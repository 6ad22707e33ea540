"""Text from the network, made fit for eyes, logs and terminals; pure."""

from __future__ import annotations

import unicodedata
from typing import Final

WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""Unicode's White_Space, which is not quite what `str.strip()` takes away."""

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, limit: int = 200) -> str:
    """One line of at most `limit` characters, without control and formatting characters.

    Escape sequences, line breaks and right-to-left overrides of a stranger must not reach a
    terminal; they become spaces. A cut text ends in an ellipsis.
    """
    head = text[: limit * 4]
    visible = "".join(" " if unicodedata.category(c) in _HIDDEN else c for c in head)
    line = " ".join(visible.split())
    return line if len(line) <= limit and len(head) == len(text) else line[: limit - 1] + "…"
