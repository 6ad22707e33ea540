"""One connection to a broker, from CONNECT to its end; the only file that knows paho.

paho runs in its own thread. Everything it tells is handed to the event loop by
`call_soon_threadsafe`, everything is sent from the event loop, and nothing waits in a callback. A
connection never reconnects: a new one starts with a new paho client, so that nothing that was
queued in an earlier connection can overtake what is true now.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt.client import Client as PahoClient
from paho.mqtt.client import MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from clusterllm_mqtt.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
)
from clusterllm_mqtt.mqtt.acknowledgements import Acknowledgements
from clusterllm_mqtt.mqtt.broker_options import tls_sentence
from clusterllm_mqtt.mqtt.events import Closed, Received

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.client import ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

    from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
    from clusterllm_mqtt.mqtt.events import ProtocolVersion
    from clusterllm_mqtt.mqtt.messages import Message

CONNECT_TIMEOUT_S: Final = 5.0
_PACKET_OVERHEAD: Final = 64  # fixed header, properties: an upper bound for what we send
_UNSUPPORTED_PROTOCOL: Final = 132
_TAKEN_OVER: Final = 142


class UnsupportedProtocolError(BrokerUnavailableError):
    """The broker does not speak this version of MQTT, or closes instead of saying so."""


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
        self._max_packet = 2**28
        self._paho = paho = PahoClient(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=None if version == "5" else True,
            protocol=MQTTv5 if version == "5" else MQTTv311,
            reconnect_on_failure=False,
        )
        paho.connect_timeout = CONNECT_TIMEOUT_S
        if options.username:
            password = options.password.get_secret_value() if options.password else None
            paho.username_pw_set(options.username, password)
        if tls is not None:
            paho.tls_set_context(tls)
        if will is not None:
            paho.will_set(will.topic, will.payload, will.qos, will.retain)
        paho.on_connect = self._on_connect
        paho.on_disconnect = self._on_disconnect
        paho.on_message = self._on_paho_message
        paho.on_publish = self._on_publish
        paho.on_subscribe = paho.on_unsubscribe = self._on_subscribe

    async def open(self) -> None:
        """Connect.

        Raises:
            BrokerRefusedError: user, password, certificate or client id is not accepted.
            UnsupportedProtocolError: the broker does not speak this version.
            BrokerUnavailableError: no connection now.
        """
        try:
            to = self._options
            await asyncio.to_thread(self._paho.connect, to.host, to.port, to.keepalive_s)
        except ssl.SSLError as error:
            raise BrokerRefusedError(tls_sentence(self._options, error)) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that is none
            hint = "; is this the broker's TLS port?" if self._options.tls else ""
            raise BrokerUnavailableError(f"{self._options}: {error}{hint}") from None
        self._paho.loop_start()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                properties = await self._opened
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                text = f"{self._options}: no answer to CONNECT"
                raise BrokerUnavailableError(text) from None
            raise
        self._max_packet = getattr(properties, "MaximumPacketSize", self._max_packet)

    async def close(self) -> None:
        """DISCONNECT, and end paho's thread."""
        self._paho.disconnect()
        await asyncio.to_thread(self._paho.loop_stop)

    async def publish(self, *messages: Message) -> None:
        """Send in this order; return when every QoS 1 message is acknowledged.

        Raises:
            PublishError: not acknowledged in time, or the connection ended before.
            BrokerRefusedError: the broker refused one or it is too large; the others went out.
        """
        refused = []
        sent = []
        for message in messages:
            if len(message.topic) + len(message.payload) + _PACKET_OVERHEAD > self._max_packet:
                refused.append(f"{message.topic} (more than {self._max_packet} bytes)")
            else:
                info = self._paho.publish(
                    message.topic,
                    message.payload,
                    message.qos,
                    message.retain,
                    self._properties(message),
                )
                if message.qos:
                    sent.append((message.topic, info.mid))
        answers = await self._acks.wait([mid for _, mid in sent])
        for (topic, _), codes in zip(sent, answers, strict=True):
            refused += [f"{topic} ({code})" for code in codes if code.is_failure]
        if refused:
            raise BrokerRefusedError(f"{self._options} refused {', '.join(refused[:5])}")

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        """Subscribe; what is retained there follows.

        Raises:
            PublishError: no acknowledgement in time.
            BrokerRefusedError: a filter is not allowed.
        """
        how: Any = SubscribeOptions(qos) if self.version == "5" else qos
        _, mid = self._paho.subscribe([(topic_filter, how) for topic_filter in filters])
        [codes] = await self._acks.wait([mid])
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
        await self._acks.wait([mid])

    def _properties(self, message: Message) -> Properties | None:
        if self.version != "5":
            return None
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if message.payload.startswith(b"{"):
            properties.ContentType = "application/json"
        if message.expiry_s is not None:
            properties.MessageExpiryInterval = message.expiry_s
        return properties

    # paho's thread -> event loop

    def _hand_over(self, call: Callable[..., None], *args: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def _on_connect(
        self,
        _: PahoClient,
        __: object,
        ___: ConnectFlags,
        code: ReasonCode,
        props: Properties | None,
    ) -> None:
        self._hand_over(self._connected, code, props)

    def _on_disconnect(
        self, _: PahoClient, __: object, ___: DisconnectFlags, code: ReasonCode, ____: object
    ) -> None:
        self._hand_over(self._ended, code)

    def _on_publish(
        self, _: PahoClient, __: object, mid: int, code: ReasonCode, ___: object
    ) -> None:
        self._hand_over(self._acks.acknowledge, mid, [code])

    def _on_subscribe(
        self, _: PahoClient, __: object, mid: int, codes: list[ReasonCode], ___: object
    ) -> None:
        self._hand_over(self._acks.acknowledge, mid, codes)

    def _on_paho_message(self, _: PahoClient, __: object, message: MQTTMessage) -> None:
        try:
            received = Received(message.topic, bytes(message.payload), message.retain)
        except UnicodeDecodeError:
            return  # MQTT forbids such topics; a broker that passes one on loses that message only
        self._hand_over(self._on_message, received)

    # event loop

    def _connected(self, code: ReasonCode, properties: Properties | None) -> None:
        if self._opened.done():
            return
        if not code.is_failure:
            self._opened.set_result(properties)
        elif code.value == _UNSUPPORTED_PROTOCOL:
            text = f"{self._options} does not speak MQTT {self.version}"
            self._opened.set_exception(UnsupportedProtocolError(text))
        else:
            text = (
                f"{self._options} refused the connection: {code}; check mqtt.username and password"
            )
            self._opened.set_exception(BrokerRefusedError(text))

    def _ended(self, code: ReasonCode) -> None:
        if not self.closed.done():
            self.closed.set_result(Closed(str(code), taken_over=code.value == _TAKEN_OVER))
        if not self._opened.done():
            text = f"{self._options} closed the connection; does it want TLS, or a certificate?"
            self._opened.set_exception(UnsupportedProtocolError(text))
        self._acks.give_up()
