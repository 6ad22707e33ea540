"""What the broker still owes us: the acknowledgements of one connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from clusterllm_mqtt.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Code = TypeVar("Code")


class AcknowledgementTimeoutError(PublishError):
    """The connection stands, but an answer is overdue."""


class Acknowledgements(Generic[Code]):
    """Packet id -> future answer; None is that it will never come.

    All methods run on the event loop. Packets are sent from there too, so their ids are registered
    before an acknowledgement that another thread hands over can be looked up.
    """

    def __init__(self, broker: str, *, timeout_s: float) -> None:
        self._broker = broker
        self._timeout_s = timeout_s
        self._waiting: dict[int, asyncio.Future[list[Code] | None]] = {}
        self._is_over = False

    async def wait(self, packet_ids: Iterable[int | None]) -> Sequence[list[Code]]:
        """The answers, in order; `timeout_s` is the longest time from one to the next.

        Raises:
            AcknowledgementTimeoutError: one did not come in time.
            PublishError: the connection ended.
        """
        futures = [self._expect(packet_id) for packet_id in packet_ids]
        return [await self._answer(future) for future in futures]

    def acknowledge(self, packet_id: int, codes: list[Code]) -> None:
        """An answer came."""
        future = self._waiting.pop(packet_id, None)
        if future is not None and not future.done():
            future.set_result(codes)

    def give_up(self) -> None:
        """The connection ended: no answer will come."""
        self._is_over = True
        for future in self._waiting.values():
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def _expect(self, packet_id: int | None) -> asyncio.Future[list[Code] | None]:
        future: asyncio.Future[list[Code] | None] = asyncio.get_running_loop().create_future()
        if packet_id is None or self._is_over:
            future.set_result(None)
        else:
            self._waiting[packet_id] = future
        return future

    async def _answer(self, future: asyncio.Future[list[Code] | None]) -> list[Code]:
        try:
            async with asyncio.timeout(self._timeout_s):
                codes = await future
        except TimeoutError:
            text = f"{self._broker}: not acknowledged within {self._timeout_s:g} s"
            raise AcknowledgementTimeoutError(text) from None
        if codes is None:
            text = f"{self._broker}: the connection ended before the acknowledgement"
            raise PublishError(text)
        return codes
