#!/bin/sh
# Starts the broker with one user, whose password the environment tells. It goes through a pipe to
# mosquitto_passwd and through a file in memory to mosquitto_sub, which asks for the broker's health;
# never over a command line.
set -eu
umask 077
if [ -z "${MQTT_USERNAME:-}" ] || [ -z "${MQTT_PASSWORD:-}" ]; then
  echo "MQTT_USERNAME and MQTT_PASSWORD are needed; write them into .env" >&2
  exit 1
fi
printf '%s\n%s\n' "$MQTT_PASSWORD" "$MQTT_PASSWORD" |
  mosquitto_passwd -c /tmp/mosquitto-passwords "$MQTT_USERNAME" > /tmp/mosquitto-passwd.log 2>&1 ||
  { cat /tmp/mosquitto-passwd.log >&2; exit 1; }
printf -- '-u %s\n-P %s\n' "$MQTT_USERNAME" "$MQTT_PASSWORD" > /tmp/mosquitto_sub
unset MQTT_PASSWORD
exec mosquitto -c /mosquitto/config/mosquitto.conf
