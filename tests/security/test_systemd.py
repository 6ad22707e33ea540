"""systemd/*.service, as systemd itself reads and rates them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

UNITS: Final = sorted((Path(__file__).parents[2] / "systemd").glob("*.service"))
EXPOSURE: Final = 15
"""Of 100, in `systemd-analyze security`: what remains is the network, which is the purpose."""


@pytest.fixture(params=UNITS, ids=lambda unit: unit.name)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """With a program that is there."""
    source: Path = request.param
    text = source.read_text(encoding="utf-8")
    path = tmp_path / source.name
    path.write_text(text.replace("/opt/clusterllm-mqtt/bin/clusterllm-mqtt", sys.executable))
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze; it needs no running systemd for this."""
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_there_is_a_unit_for_each_process() -> None:
    assert [unit.name for unit in UNITS] == [
        "clusterllm-mqtt-bridge.service",
        "clusterllm-mqtt-outpost.service",
    ]


def test_systemd_has_nothing_to_say_about_it(unit: Path) -> None:
    seen = analyze("verify", "--man=no", str(unit))
    assert (seen.returncode, seen.stderr) == (0, "")


def test_its_sandbox_is_tight(unit: Path) -> None:
    seen = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(unit))
    assert seen.returncode == 0, seen.stdout + seen.stderr


def test_secrets_are_credentials_and_never_in_the_unit(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    given = [line for line in text.splitlines() if "PASSWORD" in line or "TOKEN" in line]
    assert given
    assert all("_FILE=%d/" in line for line in given)
    assert "PASSWORD=" not in text.replace("PASSWORD_FILE=", "")
