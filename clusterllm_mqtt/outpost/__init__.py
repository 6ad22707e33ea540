"""The outpost: retained MQTT state becomes registry pushes."""
