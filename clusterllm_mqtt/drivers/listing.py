"""The model list of llama.cpp and of whoever speaks OpenAI's API, found and watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterllm_mqtt.drivers.model_list import Served, served_models
from clusterllm_mqtt.drivers.parts import Part

if TYPE_CHECKING:
    from clusterllm_mqtt.drivers.look import Look

Models = tuple[Served, ...]


async def find_model_list(look: Look) -> Part[Models]:
    """The first list that has a model, else the first answer that is a list, else the first.

    A list that names other models, or models of another owner, is another server's: its `shape`.
    """
    found = [await _read(look, url) for url in _urls(look)[:1]]
    if not found[0].reading.value:
        found += [await _read(look, url) for url in _urls(look)[1:]]
    return max(found, key=lambda part: (bool(part.reading.value), part.reading.value is not None))


def _urls(look: Look) -> tuple[str, ...]:
    """`/v1/models`; for an endpoint that ends in `/v1`, `/models` there and beside it."""
    is_openai_base = len(look.urls("")) > 1
    return look.urls("/models") if is_openai_base else look.urls("/v1/models")


async def _read(look: Look, url: str) -> Part[Models]:
    return Part(await look.ask_openly(url, served_models), served_models, _shape)


def _shape(models: Models) -> object:
    return [(served.model.name, served.owner) for served in models]
