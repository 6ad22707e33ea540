"""A minute of chaos; `make chaos` takes ten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chaos.run import chaos

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(240)
def test_the_truth_survives_a_minute_of_chaos(tmp_path: Path) -> None:
    assert chaos(tmp_path, seed=7, seconds=60.0).total() == 31
