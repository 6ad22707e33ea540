#!/bin/sh
# Starts the broker with one user, whose password the environment tells. Passwords go through files
# in memory, never over a command line: mosquitto_passwd hashes the first in place, and
# mosquitto_sub, which asks for the broker's health, reads the second.
set -eu
umask 077
if [ -z "${MQTT_USERNAME:-}" ] || [ -z "${MQTT_PASSWORD:-}" ]; then
  echo "MQTT_USERNAME and MQTT_PASSWORD are needed; write them into .env" >&2
  exit 1
fi
printf '%s:%s\n' "$MQTT_USERNAME" "$MQTT_PASSWORD" > /tmp/mosquitto-passwords
mosquitto_passwd -U /tmp/mosquitto-passwords
printf -- '-u %s\n-P %s\n' "$MQTT_USERNAME" "$MQTT_PASSWORD" > /tmp/mosquitto_sub
unset MQTT_PASSWORD
exec mosquitto -c /mosquitto/config/mosquitto.conf
