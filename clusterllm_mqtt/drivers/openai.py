"""Whoever else lists models the way OpenAI does: the last resort.

A list that names no other owner is taken for llama.cpp (llama-cpp-python's own server has nothing
but the list); one that does (`vllm`, `library` of Ollama, ...) is called what it speaks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.drivers.base import Finding, Look
from clusterllm_mqtt.drivers.listing import read_list, with_list
from clusterllm_mqtt.drivers.model_list import Row, models_from_rows, owners
from clusterllm_mqtt.models import BACKEND_LLAMACPP

if TYPE_CHECKING:
    from clusterllm_mqtt.drivers.http import Answer

BACKEND_OPENAI: Final = "openai"
_LLAMACPP_OWNERS: Final = frozenset({"llamacpp", "me"})


async def detect(look: Look, first: Answer) -> Finding | None:  # noqa: ARG001  # a driver's signature
    """Look at the model list; an empty one proves nothing."""
    listing = await read_list(look)
    if listing is None or not models_from_rows(listing.rows):
        return None
    is_llamacpp = owners(listing.rows) <= _LLAMACPP_OWNERS
    backend = BACKEND_LLAMACPP if is_llamacpp else BACKEND_OPENAI
    return with_list(Finding(backend, member_count=1), listing, describe)


def describe(finding: Finding, rows: list[Row]) -> Finding:
    """The models are all that such a list tells."""
    return replace(finding, models=models_from_rows(rows))
