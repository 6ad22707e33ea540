"""Placeholder until the real one is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from clusterllm_mqtt.outpost.payload import RegistryModel


class Ollama:
    """Placeholder."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None: ...


class LocalModels:
    """Placeholder."""

    models: tuple[RegistryModel, ...] | None = None
    trouble: str = ""

    def __init__(self, ollama: Ollama, changed: Callable[[], None]) -> None: ...

    async def run(self) -> None:
        """Do nothing."""
