"""What runs a big language model in this home, as a library, a bridge and an outpost.

The names below load on first use: importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt._version import __version__

if TYPE_CHECKING:
    from clusterllm_mqtt.detector import Detector, detect, shard_endpoint
    from clusterllm_mqtt.models import (
        BACKEND_GPUSTACK,
        BACKEND_LLAMACPP,
        DEFAULT_ENDPOINT,
        Config,
        Info,
        ModelInfo,
        State,
    )

__all__ = [
    "BACKEND_GPUSTACK",
    "BACKEND_LLAMACPP",
    "DEFAULT_ENDPOINT",
    "Config",
    "Detector",
    "Info",
    "ModelInfo",
    "State",
    "__version__",
    "detect",
    "shard_endpoint",
]

_IN_DETECTOR: Final = frozenset({"Detector", "detect", "shard_endpoint"})


def __getattr__(name: str) -> object:
    """Load a public name from its module (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "detector" if name in _IN_DETECTOR else "models"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
