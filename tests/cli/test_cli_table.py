"""Figures and tables for people."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rig.samples import at, configured, endpoint_state

from clusterllm_mqtt.cli.figures import ago, model_names, size
from clusterllm_mqtt.cli.live import bridge_table
from clusterllm_mqtt.cli.render import Row, endpoint_table
from clusterllm_mqtt.models import Info, ModelInfo, Reason, State

if TYPE_CHECKING:
    from rich.table import Table


def shown(table: Table) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"), (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"),
        (7200, "2 h"), (86400, "1 d"), (200_000, "2 d"),
    ],
)  # fmt: skip
def test_an_age_is_in_its_largest_unit(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def test_memory_is_in_gib_and_unknown_is_empty() -> None:
    assert size(0) == ""
    assert size(24 * 2**30) == "24.0 GiB"


def test_models_are_shown_by_their_file_names_and_only_a_few() -> None:
    names = ("/a/0.gguf", r"C:\m\1.gguf", "org/2", "3", "4")
    info = Info(State.RUNNING, models=tuple(map(ModelInfo, names)))
    assert model_names(info) == "0.gguf, 1.gguf, 2 +2"
    assert model_names(info, most=5) == "0.gguf, 1.gguf, 2, 3, 4"


def test_trouble_comes_first_then_names() -> None:
    rows = [
        Row("b", "", Info(State.RUNNING)),
        Row("a", "", Info(State.RUNNING)),
        Row("d", "", Info(State.RUNNING), Reason.LOADING),
        Row("c", "", Info(State.NOT_REACHABLE), Reason.DNS),
    ]
    lines = shown(endpoint_table(rows, age="Age")).splitlines()
    assert [line.split()[1] for line in lines if "│" in line] == ["c", "d", "a", "b"]


def test_the_bridges_table_shows_what_was_identified_not_a_label() -> None:
    info = Info(State.NOT_REACHABLE, backend="gpustack")
    states = (endpoint_state(configured("my box"), info, reason=Reason.REFUSED),)
    text = shown(bridge_table(states, now=at(40)))
    assert "Last probe" in text
    assert "my box" in text
    assert "30 s" in text
    assert "refused" in text
    assert "gpustack" not in text
