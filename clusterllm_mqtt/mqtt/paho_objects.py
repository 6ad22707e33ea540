"""paho's objects, made from ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paho.mqtt.client import Client as PahoClient
from paho.mqtt.client import MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

if TYPE_CHECKING:
    import ssl

    from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
    from clusterllm_mqtt.mqtt.events import ProtocolVersion
    from clusterllm_mqtt.mqtt.messages import Message

CONNECT_TIMEOUT_S: Final = 5.0


def new_paho(
    options: BrokerOptions,
    *,
    client_id: str,
    version: ProtocolVersion,
    will: Message | None,
    tls: ssl.SSLContext | None,
) -> PahoClient:
    """A client for one connection, which never connects again by itself."""
    paho = PahoClient(
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
    return paho


def publish_properties(message: Message, version: ProtocolVersion) -> Properties | None:
    """Content type and expiry, which only MQTT 5 has."""
    if version != "5":
        return None
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if message.payload.startswith(b"{"):
        properties.ContentType = "application/json"
    if message.expiry_s is not None:
        properties.MessageExpiryInterval = message.expiry_s
    return properties
