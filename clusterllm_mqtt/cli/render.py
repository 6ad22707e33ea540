"""Endpoints as a table for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from clusterllm_mqtt.cli.figures import ago, model_names, size
from clusterllm_mqtt.models import Info, Reason, State
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLUMNS: Final = ("Endpoint", "Backend", "State", "Members", "VRAM", "Models", "Age", "Reason")
_STYLES: Final = {State.RUNNING: "green", State.NOT_REACHABLE: "red"}


@dataclass(frozen=True, slots=True)
class Row:
    """One endpoint in a table; `age_s` is how long ago what the caller counts was."""

    name: str
    backend: str
    info: Info
    reason: Reason | str | None = None
    age_s: float | None = None

    @property
    def urgency(self) -> tuple[bool, bool, str]:
        """What sorts trouble first, then by name."""
        return self.info.state is State.RUNNING, self.reason is None, self.name


def endpoint_table(rows: Iterable[Row], *, age: str) -> Table:
    """Trouble first; `age` heads the column of ages."""
    table = Table(*(age if column == "Age" else column for column in _COLUMNS))
    for row in sorted(rows, key=lambda row: row.urgency):
        cells = (
            clean(row.name, 40),
            clean(row.backend, 16),
            str(row.info.state),
            str(row.info.member_count or ""),
            size(row.info.aggregate_vram_bytes),
            model_names(row.info),
            "" if row.age_s is None else ago(row.age_s),
            clean(str(row.reason or ""), 20),
        )
        # as Text: rich would obey markup in a stranger's string
        texts = [Text(cell) for cell in cells]
        texts[_COLUMNS.index("State")].stylize(_STYLES.get(row.info.state, ""))
        table.add_row(*texts)
    return table
