"""What must hold however the parts of a home fail; pure, over what an observer saw."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_INFO: Final = re.compile(r"clusterllm/bridge/([a-z]+)/endpoint/([a-z0-9-]+)-[0-9a-f]{10}/info")


def stale_running(
    retained: Mapping[str, str],
    dead_since_s: Mapping[str, float],
    undisturbed_since_s: Mapping[str, float],
    now_s: float,
    *,
    within_s: float,
) -> list[str]:
    """Topics that say `running` of an endpoint that is dead, though their bridge is `online`.

    A bridge has `within_s` seconds to see it, from when the endpoint died or from when the bridge
    and its broker were last disturbed.
    """
    stale = []
    for topic, payload in retained.items():
        found = _INFO.fullmatch(topic)
        if found is None or found[2] not in dead_since_s or found[1] not in undisturbed_since_s:
            continue
        since_s = max(dead_since_s[found[2]], undisturbed_since_s[found[1]])
        is_online = retained.get(f"clusterllm/bridge/{found[1]}/availability") == "online"
        if is_online and '"state":"running"' in payload and now_s - since_s > within_s:
            stale.append(topic)
    return stale


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Ghost topics, lost topics, and records that are not what they were in calm."""
    told = [f"ghost: {topic}" for topic in sorted(after.keys() - before.keys())]
    told += [f"lost: {topic}" for topic in sorted(before.keys() - after.keys())]
    for topic in sorted(before.keys() & after.keys()):
        if topic.endswith(("/info", "/availability", "/config")) and before[topic] != after[topic]:
            told.append(f"other: {topic}: {after[topic][:200]}")
    return told


def registry_differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Outposts whose registry entry is not what it was in calm."""
    told = [f"lost at the registry: {agent}" for agent in sorted(before.keys() - after.keys())]
    both = {agent: _spelled(after[agent]) for agent in sorted(before.keys() & after.keys())}
    told += [
        f"other at the registry: {agent}: {spelled[:200]}"
        for agent, spelled in both.items()
        if spelled != _spelled(before[agent])
    ]
    return told


def _spelled(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def unhandled(logs: Mapping[str, Iterable[str]]) -> list[str]:
    """Processes whose log has a traceback."""
    return [part for part, lines in logs.items() if any("Traceback" in line for line in lines)]
