"""One connection to a broker, from CONNECT to its end; with `paho_objects` all that knows paho.

paho runs in its own thread. Everything it tells is handed to the event loop by
`call_soon_threadsafe`, everything is sent from the event loop, and nothing waits in a callback. A
connection never reconnects: a new one starts with a new paho client, so that nothing that was
queued in an earlier connection can overtake what is true now.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt.subscribeoptions import SubscribeOptions

from clusterllm_mqtt.errors import BrokerRefusedError, BrokerUnavailableError
from clusterllm_mqtt.mqtt.acknowledgements import Acknowledgements, AcknowledgementTimeoutError
from clusterllm_mqtt.mqtt.broker_options import socket_error
from clusterllm_mqtt.mqtt.connack import NoAnswerError, ServerLimits, connect_error, server_limits
from clusterllm_mqtt.mqtt.events import Closed, Received
from clusterllm_mqtt.mqtt.paho_objects import CONNECT_TIMEOUT_S, new_paho, publish_properties

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from paho.mqtt.client import Client as PahoClient
    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
    from clusterllm_mqtt.mqtt.events import ProtocolVersion
    from clusterllm_mqtt.mqtt.messages import Message

CLOSE_TIMEOUT_S: Final = 1.0
_UNSPECIFIED: Final = 128
_TAKEN_OVER: Final = 142


class Connection:
    """One paho client and what it still owes us."""

    def __init__(
        self,
        options: BrokerOptions,
        *,
        client_id: str,
        version: ProtocolVersion,
        will: Message | None,
        tls: ssl.SSLContext | None,
        on_message: Callable[[Received], None],
    ) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._acks: Acknowledgements[ReasonCode] = Acknowledgements(
            str(options), timeout_s=options.ack_timeout_s
        )
        self._opened: asyncio.Future[Properties | None] = self._loop.create_future()
        self.closed: asyncio.Future[Closed] = self._loop.create_future()
        self.version: Final = version
        self._limits = ServerLimits()
        self._is_publishing = False
        self._is_abandoned = False
        self._turn = asyncio.Lock()
        self._paho = new_paho(options, client_id=client_id, version=version, will=will, tls=tls)
        self._listen(self._paho)

    async def open(self) -> None:
        """Connect.

        Raises:
            BrokerRefusedError: user, password, certificate or client id is not accepted, or the
                broker lacks what we need.
            UnsupportedProtocolError, NoAnswerError: the broker may not speak this version.
            BrokerUnavailableError: no connection now.
        """
        try:
            await asyncio.to_thread(self._connect)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that is none
            raise socket_error(self._options, error) from None
        except asyncio.CancelledError:
            self._is_abandoned = True
            raise
        self._paho.loop_start()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self._limits = server_limits(str(self._options), await self._opened)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                text = f"{self._options}: no answer to CONNECT"
                raise BrokerUnavailableError(text) from None
            raise

    def _connect(self) -> None:
        """In a thread, which nobody can cancel: who gave up meanwhile must not be taken over."""
        to = self._options
        self._paho.connect(to.host, to.port, to.keepalive_s)
        if self._is_abandoned:
            self._paho.disconnect()

    async def close(self, *, leave_will: bool = False) -> None:
        """DISCONNECT, or leave the will to be published; end paho's thread within a second."""
        if not leave_will:
            self._paho.disconnect()
        stopping = asyncio.create_task(asyncio.to_thread(self._paho.loop_stop))
        await asyncio.wait([stopping], timeout=0 if leave_will else CLOSE_TIMEOUT_S)
        connection = self._paho.socket()
        if not stopping.done() and isinstance(connection, socket.socket):
            with contextlib.suppress(OSError):  # paho waits for a broker that hangs; past TLS, too
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        await stopping

    async def publish(self, *messages: Message) -> None:
        """Send in this order; return when every QoS 1 message is acknowledged.

        Raises:
            PublishError: not acknowledged in time, or the connection ended before.
            BrokerRefusedError: the broker refused one or it is too large; the others went out.
        """
        size = self._limits.batch
        refused = []
        async with self._turn:
            for start in range(0, len(messages), size):
                refused += await self._publish(messages[start : start + size])
        if refused:
            raise BrokerRefusedError(f"{self._options} refused {', '.join(refused[:5])}")

    async def _publish(self, messages: Sequence[Message]) -> list[str]:
        """Send at once, and wait; what was refused, and why."""
        sent = []
        refused = []
        for message in messages:
            if not self._limits.takes(message):
                refused.append(f"{message.topic} (more than {self._limits.max_packet} bytes)")
                continue
            what = message.topic, message.payload, message.qos, message.retain
            properties = publish_properties(message, self.version)
            info = self._paho.publish(*what, properties)
            if message.qos:
                sent.append((message.topic, info.mid))
        self._is_publishing = True
        try:
            answers = await self._acknowledged(*(packet_id for _, packet_id in sent))
        finally:
            self._is_publishing = False
        for (topic, _), codes in zip(sent, answers, strict=True):
            refused += [f"{topic} ({code})" for code in codes if code.is_failure]
        return refused

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        """Subscribe; what is retained there follows.

        Raises:
            PublishError: no acknowledgement in time.
            BrokerRefusedError: a filter is not allowed.
        """
        how: Any = SubscribeOptions(qos) if self.version == "5" else qos
        _, mid = self._paho.subscribe([(topic_filter, how) for topic_filter in filters])
        [codes] = await self._acknowledged(mid)
        refused = [f for f, code in zip(filters, codes, strict=False) if code.is_failure]
        if refused:
            names = ", ".join(refused[:5])
            raise BrokerRefusedError(f"{self._options} refused to subscribe {names}: check its ACL")

    async def unsubscribe(self, *filters: str) -> None:
        """Stop listening.

        Raises:
            PublishError: no acknowledgement in time.
        """
        _, mid = self._paho.unsubscribe(list(filters))
        await self._acknowledged(mid)

    async def _acknowledged(self, *packet_ids: int | None) -> Sequence[list[ReasonCode]]:
        """The answers; a connection on which one is overdue is of no more use.

        paho sends nothing again before the next connection, and an answer that never comes would
        keep its place among those in flight for good.
        """
        try:
            return await self._acks.wait(packet_ids)
        except AcknowledgementTimeoutError:
            self._finish(Closed("an acknowledgement is overdue"))
            raise

    # paho's thread -> event loop

    def _listen(self, paho: PahoClient) -> None:
        hand_over = self._hand_over
        acknowledge = self._acks.acknowledge
        paho.on_connect = lambda _, __, ___, code, props: hand_over(self._connected, code, props)
        paho.on_disconnect = lambda _, __, flags, code, ___: hand_over(
            self._ended, code, flags.is_disconnect_packet_from_server
        )
        paho.on_publish = lambda _, __, mid, code, ___: hand_over(acknowledge, mid, [code])
        paho.on_subscribe = lambda _, __, mid, codes, ___: hand_over(acknowledge, mid, codes)
        paho.on_unsubscribe = lambda _, __, mid, codes, ___: hand_over(acknowledge, mid, codes)
        paho.on_message = self._on_paho_message

    def _hand_over(self, call: Callable[..., None], *args: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def _on_paho_message(self, _: PahoClient, __: object, message: MQTTMessage) -> None:
        try:
            left_s = getattr(message.properties, "MessageExpiryInterval", None)
            received = Received(message.topic, bytes(message.payload), message.retain, left_s)
        except UnicodeDecodeError:
            return  # MQTT forbids such topics; a broker that passes one on loses that message only
        self._hand_over(self._on_message, received)

    # event loop

    def _connected(self, code: ReasonCode, properties: Properties | None) -> None:
        if self._opened.done():
            return
        if not code.is_failure:
            self._opened.set_result(properties)
        else:
            error = connect_error(str(self._options), self.version, code.value, str(code))
            self._opened.set_exception(error)

    def _ended(self, code: ReasonCode, is_told: bool) -> None:  # noqa: FBT001  # handed over
        if not is_told and code.value == _UNSPECIFIED:
            is_publishing = self._is_publishing
            text = "closed by the other side"
            self._finish(Closed(text, is_silent=True, is_publishing=is_publishing))
        else:
            self._finish(Closed(str(code), is_taken_over=code.value == _TAKEN_OVER))

    def _finish(self, closed: Closed) -> None:
        if not self.closed.done():
            self.closed.set_result(closed)
        if not self._opened.done():
            text = f"{self._options} closed the connection; does it want TLS, or a certificate?"
            self._opened.set_exception(NoAnswerError(text))
        self._acks.give_up()
