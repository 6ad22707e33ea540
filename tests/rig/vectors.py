"""The recorded behaviour of the first implementation: scenario and config -> info and requests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clusterllm_mqtt.models import Config

if TYPE_CHECKING:
    from rig.stub import StubEndpoint

DATA: Final = Path(__file__).parents[1] / "data" / "detect" / "vectors.jsonl"


@dataclass(frozen=True)
class Vector:
    """One recorded detection; `requests` are (server, path without query) -> was the key sent."""

    id: str
    is_contract: bool
    scenario: dict[str, Any]
    config: dict[str, str]
    expect: dict[str, Any]
    requests: dict[tuple[str, str], bool]

    def config_for(self, stub: StubEndpoint) -> Config:
        """The configuration that points to the stub."""
        return Config(**{name: stub.expand(value) for name, value in self.config.items()})


def load_vectors() -> list[Vector]:
    """All of them, in the order of the file."""
    return [_vector(json.loads(line)) for line in DATA.read_text(encoding="utf-8").splitlines()]


def _vector(record: dict[str, Any]) -> Vector:
    requests: dict[tuple[str, str], bool] = {}
    for request in record["requests"]:
        asked = request.get("server", "endpoint"), request["path"].split("?", 1)[0]
        requests[asked] = requests.get(asked, False) or request["auth"]
    return Vector(
        id=record["id"],
        is_contract=record["class"] == "contract",
        scenario=record["scenario"],
        config=record["config"],
        expect=record["expect"],
        requests=requests,
    )
