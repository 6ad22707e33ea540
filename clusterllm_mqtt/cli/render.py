"""How figures and endpoints look to a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from clusterllm_mqtt.models import Info, Reason, State
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLUMNS: Final = ("Endpoint", "Backend", "State", "Members", "VRAM", "Models", "Age", "Reason")
_STYLES: Final = {State.RUNNING: "green", State.NOT_REACHABLE: "red"}
_AGES: Final = ((86400, "d"), (3600, "h"), (60, "min"))


@dataclass(frozen=True, slots=True)
class Row:
    """One endpoint in a table; `age_s` is how long ago what the caller counts was."""

    name: str
    info: Info
    reason: Reason | str | None
    age_s: float


def endpoint_table(rows: Iterable[Row], *, age: str) -> Table:
    """Trouble first, then by name; `age` heads the column of ages."""
    table = Table(*(age if column == "Age" else column for column in _COLUMNS))
    for row in sorted(
        rows, key=lambda r: (r.info.state is State.RUNNING, r.reason is None, r.name)
    ):
        info = row.info
        table.add_row(
            clean(row.name, 40),
            clean(info.backend, 16),
            Text(info.state, _STYLES.get(info.state, "")),
            str(info.member_count or ""),
            size(info.aggregate_vram_bytes),
            model_names(info),
            ago(row.age_s),
            clean(str(row.reason or ""), 20),
        )
    return table


def model_names(info: Info, most: int = 3) -> str:
    """The first few models by their file names."""
    names = [clean(model.name.replace("\\", "/").rsplit("/", 1)[-1], 32) for model in info.models]
    more = f" +{len(names) - most}" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(number: int) -> str:
    """Bytes as GiB; unknown is empty."""
    return f"{number / 2**30:.1f} GiB" if number else ""


def ago(seconds: float) -> str:
    """A length of time in its largest unit."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"
