"""Fixtures of the whole suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from syrupy.extensions.json import JSONSnapshotExtension

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

pytest_plugins = ["rig.llamacpp", "rig.mosquitto", "rig.mdns", "rig.lan", "rig.homeassistant_home"]


@pytest.fixture
def snapshot_json(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """What a reviewer reads as the user-visible change."""
    return snapshot.use_extension(JSONSnapshotExtension)
