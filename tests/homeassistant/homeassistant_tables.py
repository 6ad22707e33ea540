"""What a person sees of each of our entities in a home with one llama.cpp, as tables."""

from __future__ import annotations

from typing import Final, NamedTuple

ENDPOINT: Final = "clusterllm_home_big-box-b242ab281f"
BRIDGE: Final = "clusterllm_home"
OUTPOST: Final = "clusterllm_outpost_home"

SOME: Final = "a state that is neither unknown nor unavailable"
DISABLED: Final = "no state, since it is disabled by the integration"


class Shown(NamedTuple):
    """One entity: its own name, without the device's; what decides its looks; its state."""

    name: str
    category: str | None
    device_class: str | None
    unit: str | None
    icon: str | None
    state: str


ENTITIES: Final[dict[str, dict[str, Shown]]] = {
    ENDPOINT: {
        "reachable": Shown("Reachable", None, "connectivity", None, None, "on"),
        "state": Shown("State", None, "enum", None, "mdi:state-machine", "running"),
        "members": Shown("Members", None, None, None, "mdi:server-network", "1"),
        "vram": Shown("VRAM", None, "data_size", "GiB", "mdi:expansion-card", "unknown"),
        "models": Shown("Models", None, None, None, "mdi:brain", "1"),
        "backend": Shown("Backend", "diagnostic", None, None, "mdi:application-cog", "llamacpp"),
        "version": Shown("Version", "diagnostic", None, None, "mdi:tag", SOME),
        "problem": Shown("Problem", "diagnostic", "problem", None, None, "off"),
        "response_time": Shown("Response time", "diagnostic", "duration", "ms", None, DISABLED),
        "last_change": Shown("Last change", "diagnostic", "timestamp", None, None, SOME),
        "transition": Shown("Transition", None, None, None, "mdi:swap-horizontal", "unknown"),
        "probe_now": Shown("Probe now", "diagnostic", None, None, "mdi:magnify-scan", "unknown"),
    },
    BRIDGE: {
        "connected": Shown("Connected", "diagnostic", "connectivity", None, None, "on"),
        "state": Shown("State", None, "enum", None, "mdi:state-machine", "running"),
        "endpoints": Shown("Endpoints", None, None, None, "mdi:server", "1"),
        "running": Shown("Running endpoints", None, None, None, "mdi:server-plus", "1"),
        "vram": Shown("VRAM", None, "data_size", "GiB", "mdi:expansion-card", "unknown"),
        "mdns": Shown("mDNS", "diagnostic", "problem", None, None, "off"),
        "version": Shown("Version", "diagnostic", None, None, "mdi:tag", SOME),
        "started_at": Shown("Started", "diagnostic", "timestamp", None, None, SOME),
        "last_error": Shown(
            "Last error", "diagnostic", None, None, "mdi:alert-circle-outline", "unknown"
        ),
        "probe_all": Shown(
            "Probe all now", "diagnostic", None, None, "mdi:magnify-scan", "unknown"
        ),
    },
    OUTPOST: {
        "connected": Shown("Connected", "diagnostic", "connectivity", None, None, "on"),
        "last_push": Shown("Last push", "diagnostic", "timestamp", None, None, SOME),
        "pushes": Shown("Pushes", "diagnostic", None, None, "mdi:cloud-upload", SOME),
        "models": Shown("Models", None, None, None, "mdi:brain", "1"),
        "problem": Shown("Problem", "diagnostic", "problem", None, None, "off"),
    },
}

PLATFORMS: Final = {
    "binary_sensor": {"reachable", "problem", "connected", "mdns"},
    "button": {"probe_now", "probe_all"},
    "event": {"transition"},
}
"""Platform -> its components; all others are sensors."""
