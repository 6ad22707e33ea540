"""Running endpoints and local models -> what a registry should hold of this home; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterllm_mqtt.outpost.payload import (
    ClusterCapacity,
    RegistryModel,
    RegistryPushPayload,
    merge_models,
)
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from clusterllm_mqtt.outpost.roster import Running


@dataclass(frozen=True, slots=True)
class Content:
    """The models of a home, and its one cluster."""

    models: tuple[RegistryModel, ...] = ()
    cluster: ClusterCapacity | None = None

    def __str__(self) -> str:
        count = len(self.models)
        models = f"{count} model{'' if count == 1 else 's'}"
        if self.cluster is None:
            return f"{models}, no cluster"
        of = self.cluster
        size = f"{of.max_model_bytes / 2**30:.1f} GiB" if of.max_model_bytes else "unknown size"
        return f"{models}, cluster {clean(of.backend, 40)} of {of.member_count}, {size}"

    def payload(self, agent: str, version: str, now: datetime) -> RegistryPushPayload:
        """What is pushed at this moment."""
        return RegistryPushPayload(agent, now, self.models, self.cluster, version)


def content_of(running: Sequence[Running], local: Sequence[RegistryModel] = ()) -> Content:
    """Equal states give equal contents, in whatever order they come."""
    return Content(merge_models(local, _cluster_models(running)) or (), _cluster(running))


def _cluster_models(running: Iterable[Running]) -> list[RegistryModel]:
    """Of a model that several endpoints serve, the largest known size comes first, and counts."""
    models = {(m.name, m.size) for one in running for m in one.info.models}
    return [RegistryModel(n, size=s) for n, s in sorted(models, key=lambda m: (m[0], -m[1]))]


def _cluster(running: Iterable[Running]) -> ClusterCapacity | None:
    """The endpoint with the most memory, then members, then the first by bridge and key."""
    ranked = sorted(
        running,
        key=lambda r: (-r.info.aggregate_vram_bytes, -r.info.member_count, r.bridge, r.key),
    )
    if not ranked:
        return None
    best = ranked[0].info
    return ClusterCapacity(best.aggregate_vram_bytes, best.member_count, best.backend)
