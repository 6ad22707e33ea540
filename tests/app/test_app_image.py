"""What the app's Dockerfile installs, in a virtual environment instead of an image."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import clusterllm_mqtt

ROOT: Final = Path(__file__).parents[2]
DOCKERFILE: Final = ROOT / "homeassistant" / "app" / "Dockerfile"


def installation() -> str:
    """The commands that install us, without those that only an image needs."""
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    [run] = re.findall(r"^RUN (.*)$", text, re.MULTILINE)
    commands, _, rest = run.partition("&& rm -rf /wheels")
    assert "useradd" in rest
    return str(commands)


@pytest.mark.timeout(240)
def test_it_installs_our_wheel_with_what_the_lock_pins(tmp_path: Path) -> None:
    wheels, venv = tmp_path / "wheels", tmp_path / "venv"
    build = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", str(wheels)]
    subprocess.run([*build, str(ROOT)], check=True)
    shutil.copy(ROOT / "requirements.lock", wheels)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    path = f"{venv}/bin:/usr/bin:/bin"
    subprocess.run(
        ["sh", "-euc", installation().replace("/wheels", str(wheels))],
        env={**os.environ, "PATH": path, "BUILD_VERSION": clusterllm_mqtt.__version__},
        check=True,
        capture_output=True,
    )
    shown = subprocess.run(
        [venv / "bin" / "clusterllm-mqtt", "--version"], capture_output=True, text=True, check=True
    )
    assert clusterllm_mqtt.__version__ in shown.stdout
    listed = subprocess.run(
        [venv / "bin" / "pip", "freeze"], capture_output=True, text=True, check=True
    )
    locked = ROOT.joinpath("requirements.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^(\S+==\S+)", locked, re.MULTILINE))
    lines = {line.lower().replace("_", "-") for line in listed.stdout.splitlines()}
    installed = {line for line in lines if "clusterllm" not in line}
    assert installed <= pinned
