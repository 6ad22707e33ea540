"""Fixtures of the whole suite."""

from __future__ import annotations

pytest_plugins = ["rig.mosquitto"]
