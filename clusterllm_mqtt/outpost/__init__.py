"""The outpost: retained state becomes registry pushes; it knows nothing of the probing side."""

from clusterllm_mqtt.outpost.payload import (
    CapacityReport,
    ClusterCapacity,
    RegistryModel,
    RegistryPushPayload,
    combine_hash,
    content_hash,
    merge_models,
)

__all__ = [
    "CapacityReport",
    "ClusterCapacity",
    "RegistryModel",
    "RegistryPushPayload",
    "combine_hash",
    "content_hash",
    "merge_models",
]
