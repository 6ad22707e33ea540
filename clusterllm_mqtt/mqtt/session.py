"""A lasting session with the broker: connects, reconnects, falls back to MQTT 3.1.1, gives way.

What it tells comes as one ordered stream of `Connected`, `Received` and `Disconnected`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Final, Self

from clusterllm_mqtt.errors import (
    BrokerError,
    BrokerRefusedError,
    BrokerUnavailableError,
    PublishError,
    TakenOverError,
)
from clusterllm_mqtt.mqtt.broker_options import tls_context
from clusterllm_mqtt.mqtt.client import Connection
from clusterllm_mqtt.mqtt.connack import NoAnswerError, UnsupportedProtocolError
from clusterllm_mqtt.mqtt.events import Connected, Disconnected
from clusterllm_mqtt.mqtt.protocol_choice import ProtocolChoice

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
    from clusterllm_mqtt.mqtt.events import Closed, SessionEvent
    from clusterllm_mqtt.mqtt.messages import Message

MAX_BACKOFF_S: Final = 30.0
_GROWTH: Final = 1.3  # a broker that was away for a while is missed for a third of that, not more
STABLE_S: Final = 5.0
"""A connection that lived longer may be followed at once by the next."""

SHORT_LIFE_S: Final = 30.0
_TAKEOVER_DROPS: Final = 3
_LOGGER = logging.getLogger(__name__)


class Session:
    """The one client of a process; use it as a context manager.

    `client_id` must be stable: with a new one, the will of a half-dead old connection would
    overwrite a fresh `online`.
    """

    def __init__(
        self, options: BrokerOptions, *, client_id: str, will: Message | None = None
    ) -> None:
        self._options = options
        self._client_id = client_id
        self._will = will
        self._protocol = ProtocolChoice(options.protocol)
        self._events: asyncio.Queue[SessionEvent | BaseException] = asyncio.Queue()
        self._connection: Connection | None = None
        self._tls: ssl.SSLContext | None = None
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._short_lives = 0
        self._told = ""
        self._leaves_will = False

    async def __aenter__(self) -> Self:
        self._tls = tls_context(self._options)
        self._task = asyncio.create_task(self._run(), name=f"mqtt {self._options}")
        self._task.add_done_callback(self._tell_the_reader)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _tell_the_reader(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._events.put_nowait(error)

    def leave_will(self, *, leave: bool = True) -> None:
        """Whether the connection is to end without DISCONNECT, so that the will is published."""
        self._leaves_will = leave

    @property
    def is_connected(self) -> bool:
        """Whether publishing makes sense at this moment."""
        return self._connection is not None

    async def events(self) -> AsyncIterator[SessionEvent]:
        """What happens, in order; for one reader.

        Raises:
            BrokerRefusedError: the first connection was refused for good.
            TakenOverError: another client uses our client id.
        """
        while True:
            event = await self._events.get()
            if isinstance(event, BaseException):
                raise event
            yield event

    async def publish(self, *messages: Message) -> None:
        """Send in this order and wait for the acknowledgements; see `Connection.publish`."""
        await self._connected().publish(*messages)

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        """Subscribe for this connection; see `Connection.subscribe`."""
        await self._connected().subscribe(*filters, qos=qos)

    async def unsubscribe(self, *filters: str) -> None:
        """Stop listening; see `Connection.unsubscribe`."""
        await self._connected().unsubscribe(*filters)

    def _connected(self) -> Connection:
        if self._connection is None:
            raise PublishError(f"{self._options}: not connected")
        return self._connection

    async def _run(self) -> None:
        """Raises what ends the session for good."""
        connection = await self._connect(is_first=True)
        while True:
            await self._live(connection)
            connection = await self._connect(is_first=False)

    async def _connect(self, *, is_first: bool) -> Connection:
        """A connection, after as many attempts as it takes; only a first one can be refused."""
        while True:
            if self._failures:
                await asyncio.sleep(_backoff_s(self._failures - 1))
            self._failures += 1
            try:
                connection = await self._open()
            except BrokerRefusedError as error:
                if is_first:
                    raise
                self._missed(error)
            except BrokerUnavailableError as error:
                self._missed(error)
            else:
                self._protocol.worked()
                return connection

    def _missed(self, error: BrokerError) -> None:
        """An attempt failed; so the broker has not merely given our place to another client."""
        self._short_lives = 0
        self._tell(error)
        if isinstance(error, UnsupportedProtocolError):
            self._protocol.refused()
        elif isinstance(error, NoAnswerError):
            self._protocol.closed()

    async def _open(self) -> Connection:
        connection = Connection(
            self._options,
            client_id=self._client_id,
            version=self._protocol.version,
            will=self._will,
            tls=self._tls,
            on_message=self._events.put_nowait,
        )
        await connection.open()
        return connection

    async def _live(self, connection: Connection) -> None:
        """Until the connection ends.

        Raises:
            TakenOverError: the broker gave our place to another client, for good.
        """
        started_s = time.monotonic()
        self._tell(None)
        self._connection = connection
        self._events.put_nowait(Connected(connection.version))
        closed = None
        try:
            closed = await asyncio.shield(connection.closed)
        finally:
            self._connection = None
            await connection.close(leave_will=closed is not None or self._leaves_will)
        self._judge(closed, time.monotonic() - started_s)
        self._tell(BrokerUnavailableError(f"{self._options}: connection lost: {closed.detail}"))
        self._events.put_nowait(Disconnected(closed.detail))

    def _judge(self, closed: Closed, lived_s: float) -> None:
        """Tell a takeover from a broker that went away, and when to try again.

        MQTT 3.1.1 has no word for a takeover, and Mosquitto 2.0.11 does not say it on 5 either: it
        ends our connection and takes the next one at once, over and over. A broker that restarts
        looks the same but for one thing: it refuses for a moment. So after a silent end the next
        attempt is not delayed, and one that fails starts the count anew.
        """
        is_short = lived_s < SHORT_LIFE_S
        is_sudden = closed.is_silent and not closed.is_publishing  # else it may dislike a message
        self._short_lives = self._short_lives + 1 if is_sudden and is_short else 0
        if closed.is_taken_over or self._short_lives >= _TAKEOVER_DROPS:
            us = f"{self._options} as {self._client_id!r}"
            sign = "connected" if closed.is_taken_over else "seems to connect"
            raise TakenOverError(
                f"another client {sign} to {us}; stop one of the two, or give each its own id"
            )
        if is_sudden or lived_s > STABLE_S:
            self._failures = 0

    def _tell(self, error: BrokerError | None) -> None:
        """Log each change once."""
        text = "" if error is None else str(error)
        if text and text != self._told:
            _LOGGER.warning("mqtt: %s; trying again", text)
        elif error is None:
            _LOGGER.info(
                "mqtt: connected to %s with MQTT %s", self._options, self._protocol.version
            )
        self._told = text


def _backoff_s(failures: int) -> float:
    """From 1 s to 30 s, each a quarter shorter or longer, so that a fleet does not storm."""
    longest_s = min(_GROWTH ** min(failures, 100), MAX_BACKOFF_S)
    return longest_s * random.uniform(0.75, 1.25)  # noqa: S311  # spreads load
