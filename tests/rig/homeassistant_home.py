"""A home and a real Home Assistant beside it, for all tests that need one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterllm_mqtt.demo.receiver import Receiver
from rig.homeassistant import HomeAssistant
from rig.homeassistant_install import install
from rig.live_home import TOKEN, LiveHome
from rig.mosquitto import Mosquitto

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
OURS = ROOT / "homeassistant"


@pytest.fixture(scope="session")
def live_home(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[LiveHome]:
    folder = tmp_path_factory.mktemp("home")
    broker = Mosquitto(folder, "persistence true", f"persistence_location {folder}/")
    broker.start()
    with Receiver(TOKEN) as registry:
        home = LiveHome(folder, tiny_model, broker, registry)
        try:
            home.start("llama", "bridge", "outpost")
            yield home
        finally:
            home.close()
            broker.stop()


@pytest.fixture(scope="session")
def hass(tmp_path_factory: pytest.TempPathFactory, live_home: LiveHome) -> Iterator[HomeAssistant]:
    venv = Path(os.environ.get("HOMEASSISTANT_VENV", ROOT / ".homeassistant"))
    release = install(venv)
    with HomeAssistant(venv, tmp_path_factory.mktemp("homeassistant")) as hass:
        for name in ("packages", "dashboards", "blueprints"):
            shutil.copytree(OURS / name, hass.folder / name, dirs_exist_ok=True)
        hass.start()
        hass.add_mqtt(live_home.broker.port)
        print(f"Home Assistant {release}")  # noqa: T201  # which one it was belongs to the result
        hass.waits_for("binary_sensor.llm_reachable", "on")
        yield hass
