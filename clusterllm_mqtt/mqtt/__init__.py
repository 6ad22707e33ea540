"""MQTT: topics, payloads, the client and a private broker."""
