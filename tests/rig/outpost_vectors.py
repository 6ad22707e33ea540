"""The recorded behaviour of the registry's other clients: hashes, payloads, and what a push did."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from clusterllm_mqtt.outpost import (
    CapacityReport,
    ClusterCapacity,
    RegistryModel,
    RegistryPushPayload,
    merge_models,
)

_DATA: Final = Path(__file__).parents[1] / "data" / "outpost"


def load(name: str) -> list[dict[str, Any]]:
    """`registry` or `push`, in the order of the file."""
    lines = (_DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def payload_of(given: dict[str, Any]) -> RegistryPushPayload:
    """The input of a vector, as a payload."""
    models = _models(given["models"])
    if "extra" in given:
        models = merge_models(models, _models(given["extra"]) or ())
    cluster = given.get("cluster")
    return RegistryPushPayload(
        agent_name=given["agent_name"],
        version=given["version"],
        heartbeat_at=datetime.fromisoformat(given.get("heartbeat_at", "2026-03-01T12:00:00Z")),
        models=models,
        cluster=None if cluster is None else ClusterCapacity(**cluster),
        capacity=_capacity(given["capacity"]) if "capacity" in given else CapacityReport(),
        lan_endpoint=given.get("lan_endpoint", ""),
        warm_budget_bytes=given.get("warm_budget_bytes", 0),
        busy=given.get("busy", False),
    )


def _models(rows: list[dict[str, Any]] | None) -> tuple[RegistryModel, ...] | None:
    if rows is None:
        return None
    return tuple(
        RegistryModel(**{**row, "capabilities": tuple(row.get("capabilities") or ())})
        for row in rows
    )


def _capacity(row: dict[str, Any]) -> CapacityReport:
    given = {"max_parallel": 0, **row, "loaded_models": tuple(row.get("loaded_models", ()))}
    return CapacityReport(**given)
