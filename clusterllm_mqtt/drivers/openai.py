"""Whoever else lists models the way OpenAI does: the last resort.

A list that names no owner is taken for llama.cpp's, and so is that of llama-cpp-python, whose own
server has nothing but the list. Another owner (`vllm`, `library` of Ollama, ...) is called what it
speaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.drivers.base import Finding
from clusterllm_mqtt.drivers.listing import find_model_list
from clusterllm_mqtt.drivers.parts import watch
from clusterllm_mqtt.models import BACKEND_GPUSTACK, BACKEND_LLAMACPP

if TYPE_CHECKING:
    from clusterllm_mqtt.drivers.http import Answer
    from clusterllm_mqtt.drivers.look import Look

BACKEND_OPENAI: Final = "openai"
_BACKENDS: Final = {
    "": BACKEND_LLAMACPP,
    "llamacpp": BACKEND_LLAMACPP,
    "me": BACKEND_LLAMACPP,
    "gpustack": BACKEND_GPUSTACK,
}
"""By `owned_by`; llama-cpp-python says "me"."""


async def detect(look: Look, first: Answer) -> Finding | None:  # noqa: ARG001  # a driver's signature
    """Look at the model list; an empty one proves nothing."""
    part = await find_model_list(look)

    def conclude() -> Finding:
        served = part.reading.value or ()
        backends = {_BACKENDS.get(each.owner, BACKEND_OPENAI) for each in served}
        backend = backends.pop() if len(backends) == 1 else BACKEND_OPENAI
        return Finding(backend, models=tuple(each.model for each in served))

    return watch([part], conclude) if part.reading.value else None
