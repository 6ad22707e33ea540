"""Keeps what the registry holds equal to what is true: coalesces, repeats, backs off.

One push at a time. While the registry is away nothing queues: what is pushed next is what is true
by then.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from clusterllm_mqtt._version import __version__
from clusterllm_mqtt.errors import RegistryError, RegistryRevokedError
from clusterllm_mqtt.outpost.push_plan import PushPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterllm_mqtt.outpost.content import Content

COALESCE_S: Final = 1.0
"""How long after a change it is pushed, together with what else changes meanwhile."""

_LOGGER = logging.getLogger(__name__)


class Truth(Protocol):
    """What the pusher needs of the outpost."""

    def content(self) -> Content | None:
        """What is true now; None while it is not known."""
        ...

    def lapses_in_s(self) -> float:
        """In how many seconds that may change by itself."""
        ...


class PushTarget(Protocol):
    """What the pusher needs of a registry."""

    async def push(self, payload: bytes) -> None:
        """Deliver; raises `RegistryError`."""
        ...


@dataclass(frozen=True, slots=True)
class PushHistory:
    """What became of the pushes so far; `error` is that of the last one, None after a success."""

    pushes: int = 0
    last_push_at: datetime | None = None
    content: Content | None = None
    error: RegistryError | None = None


class Pusher:
    """`run` until cancelled, or until the registry revokes the token."""

    def __init__(
        self,
        registry: PushTarget,
        truth: Truth,
        agent: str,
        *,
        told: Callable[[], None],
        plan: PushPlan | None = None,
        coalesce_s: float = COALESCE_S,
    ) -> None:
        self._registry = registry
        self._truth = truth
        self._agent = agent
        self._told = told
        self._plan = plan or PushPlan()
        self._coalesce_s = coalesce_s
        self._changed = asyncio.Event()
        self.history = PushHistory()

    def changed(self) -> None:
        """Something that counts may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Push whenever it is due.

        Raises:
            RegistryRevokedError: the token is no longer accepted.
        """
        while True:
            await self._may_be_due()
            self._changed.clear()
            content = self._truth.content()
            if content is not None:
                await self._push_if_due(content)

    async def _may_be_due(self) -> None:
        """Return soon after a change, when a lease lapses, or when a heartbeat is due."""
        now_s = _now_s()
        wait_s = min(self._truth.lapses_in_s(), max(self._plan.heartbeat_due_s - now_s, 0.0))
        try:
            async with asyncio.timeout(max(wait_s, self._coalesce_s)):
                await self._changed.wait()
        except TimeoutError:
            pass
        else:
            await asyncio.sleep(self._coalesce_s)
        await asyncio.sleep(self._plan.not_before_s - _now_s())

    async def _push_if_due(self, content: Content) -> None:
        payload = content.payload(self._agent, __version__, datetime.now(UTC))
        if not self._plan.is_due(payload.content_hash, _now_s()):
            return
        try:
            await self._registry.push(payload.to_json())
        except RegistryError as error:
            self._failed(error)
            if isinstance(error, RegistryRevokedError):
                raise
        else:
            self._succeeded(content, payload.content_hash)
        finally:
            self._told()

    def _succeeded(self, content: Content, content_hash: str) -> None:
        before = self.history
        self._plan.succeeded(content_hash, _now_s())
        self.history = PushHistory(before.pushes + 1, datetime.now(UTC), content)
        if before.error is not None or before.content != content:
            _LOGGER.info("pushed: %s", content)

    def _failed(self, error: RegistryError) -> None:
        """Each new trouble is told once."""
        chance = random.random()  # noqa: S311  # spreads load
        backoff_s = self._plan.failed(error, _now_s(), chance=chance)
        self._changed.set()
        before = self.history
        self.history = PushHistory(before.pushes, before.last_push_at, before.content, error)
        is_final = isinstance(error, RegistryRevokedError)
        if str(before.error) != str(error) and not is_final:
            _LOGGER.warning("registry: %s; trying again in %.0f s", error, backoff_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
