"""Looks at the local models again and again, and knows when they are gone."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from clusterllm_mqtt.errors import LocalModelsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterllm_mqtt.outpost.payload import RegistryModel

EVERY_S: Final = 30.0
AGAIN_S: Final = 1.0
_DOUBLINGS: Final = 16
_LOGGER = logging.getLogger(__name__)


class ModelSource(Protocol):
    """What `LocalModels` needs of an Ollama."""

    async def models(self) -> tuple[RegistryModel, ...]:
        """All of them; raises `LocalModelsError`."""
        ...


class LocalModels:
    """`run` until cancelled; `models` and `trouble` are what is known meanwhile.

    `models` is None before the first look. `changed` is called whenever one of the two is another.
    """

    def __init__(
        self,
        ollama: ModelSource,
        changed: Callable[[], None],
        *,
        every_s: float = EVERY_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self._ollama = ollama
        self._changed = changed
        self._every_s = every_s
        self._again_s = again_s
        self._failures = 0
        self.models: tuple[RegistryModel, ...] | None = None
        self.trouble = ""

    async def run(self) -> None:
        """Look every `every_s`.

        One failure changes nothing; with the second in a row there are no models any more, and the
        pauses double from `again_s` to `every_s`, so that a restart is seen soon.
        """
        while True:
            pause_s = await self._look()
            await asyncio.sleep(pause_s)

    async def _look(self) -> float:
        """Ask once; in how many seconds to ask again."""
        try:
            models = await self._ollama.models()
        except LocalModelsError as error:
            self._failures += 1
            if self._failures > 1:
                self._lose(str(error))
            doublings = min(self._failures - 1, _DOUBLINGS)
            return min(self._again_s * 2.0**doublings, self._every_s)
        self._failures = 0
        if self.trouble:
            _LOGGER.info("local models: listed again")
        self._become(models, "")
        return self._every_s

    def _lose(self, trouble: str) -> None:
        if not self.trouble:
            _LOGGER.warning("%s; pushing without them", trouble)
        self._become((), trouble)

    def _become(self, models: tuple[RegistryModel, ...], trouble: str) -> None:
        before = self.models, self.trouble
        self.models, self.trouble = models, trouble
        if before != (models, trouble):
            self._changed()
