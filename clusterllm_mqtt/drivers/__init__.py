"""What speaks HTTP to a backend. To add one, write a file like `openai.py` and list it here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.drivers import gpustack, llamacpp, openai

if TYPE_CHECKING:
    from clusterllm_mqtt.drivers.base import Driver

DRIVERS: Final[tuple[Driver, ...]] = (gpustack.detect, llamacpp.detect, openai.detect)
"""Asked in this order, the most specific first; the first that finds its own wins."""
