"""Every topic of ours, built and parsed here and nowhere else; pure.

The key of an endpoint is its name in topics and in Home Assistant's `unique_id`s: a readable slug
and a hash of the canonical identity. It never changes with an address, a restart or a release.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from clusterllm_mqtt.errors import ConfigError

KEY_PATTERN: Final = re.compile(r"[a-z0-9_-]{1,64}")
BRIDGE_PATTERN: Final = re.compile(r"[a-z0-9-]{1,64}")  # no "_": discovery ids stay unambiguous
_RESERVED: Final = frozenset({"outpost"})  # devices of outposts are clusterllm_outpost_<agent>
_LEAVES: Final = frozenset({"info", "probe", "event", "command/probe"})
_SLUG_LENGTH: Final = 32
_HASH_LENGTH: Final = 10


def slug(text: str) -> str:
    """Readable `[a-z0-9_-]`, at most 32 characters; different texts may give the same slug."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9_]+", "-", ascii_text).strip("-")[:_SLUG_LENGTH].strip("-")


def endpoint_key(name: str, identity: str) -> str:
    """The key of an endpoint: slug of its name, and a hash of its identity."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return "-".join(part for part in (slug(name), digest) if part)


@dataclass(frozen=True, slots=True)
class EndpointTopic:
    """A parsed topic `…/endpoint/<key>/<leaf>`; leaf is info, probe, event or command/probe."""

    key: str
    leaf: str


@dataclass(frozen=True, slots=True)
class BridgeTopics:
    """The topics of one bridge.

    Raises:
        ConfigError: `base`, `bridge` or `discovery_prefix` cannot be part of a topic.
    """

    base: str = "clusterllm"
    bridge: str = "home"
    discovery_prefix: str = "homeassistant"

    def __post_init__(self) -> None:
        """Refuse what would make a topic that nobody can read back."""
        if not _is_bridge(self.bridge):
            raise ConfigError(
                f"bridge id {self.bridge[:80]!r}: use 1 to 64 of a-z, 0-9 and -, not outpost"
            )
        check_topic_prefix("base topic", self.base)
        check_topic_prefix("discovery prefix", self.discovery_prefix)

    @property
    def root(self) -> str:
        """`clusterllm/bridge/<bridge>`."""
        return f"{self.base}/bridge/{self.bridge}"

    @property
    def availability(self) -> str:
        """`online` or `offline`; also the will."""
        return f"{self.root}/availability"

    @property
    def status(self) -> str:
        """The bridge's own record, with the index of its endpoints."""
        return f"{self.root}/status"

    @property
    def command_probe(self) -> str:
        """Anything published here probes every endpoint now."""
        return f"{self.root}/command/probe"

    @property
    def home_assistant_status(self) -> str:
        """Home Assistant's birth and will topic."""
        return f"{self.discovery_prefix}/status"

    def info(self, key: str) -> str:
        """The `Info` record of one endpoint: what outposts read."""
        return f"{self.root}/endpoint/{key}/info"

    def probe(self, key: str) -> str:
        """The facts of the last probe of one endpoint."""
        return f"{self.root}/endpoint/{key}/probe"

    def event(self, key: str) -> str:
        """Transitions of one endpoint; never retained."""
        return f"{self.root}/endpoint/{key}/event"

    def endpoint_command_probe(self, key: str) -> str:
        """Anything published here probes this endpoint now."""
        return f"{self.root}/endpoint/{key}/command/probe"

    def discovery(self, key: str) -> str:
        """Home Assistant's device discovery topic of one endpoint."""
        return f"{self.discovery_prefix}/device/clusterllm_{self.bridge}_{key}/config"

    @property
    def bridge_discovery(self) -> str:
        """Home Assistant's device discovery topic of the bridge itself.

        A bridge id has no underscore, so this never meets the topic of an endpoint.
        """
        return f"{self.discovery_prefix}/device/clusterllm_{self.bridge}/config"

    def is_own_discovery(self, topic: str) -> bool:
        """Whether a discovery topic is one of this bridge's endpoints or the bridge itself."""
        prefix, _, suffix = self.discovery("\0").partition("\0")
        key = topic.removeprefix(prefix).removesuffix(suffix)
        is_endpoint = KEY_PATTERN.fullmatch(key) is not None and topic == self.discovery(key)
        return is_endpoint or topic == self.bridge_discovery

    def own_filters(self) -> tuple[str, ...]:
        """Narrow filters that together hold every retained topic of this bridge.

        All but the discovery topics of its endpoints, which no filter can select: they follow from
        the keys, and the bridge's own tells whether they were published. Single topics come first,
        since a broker that drops when there is too much drops the last.
        """
        single = (self.availability, self.status, self.bridge_discovery)
        return (*single, self.info("+"), self.probe("+"))

    def command_filters(self) -> tuple[str, ...]:
        """What a bridge listens to."""
        return (self.command_probe, self.endpoint_command_probe("+"))

    def parse_endpoint(self, topic: str) -> EndpointTopic | None:
        """The key and leaf of one of this bridge's endpoint topics, else None."""
        prefix = f"{self.root}/endpoint/"
        if not topic.startswith(prefix):
            return None
        key, _, leaf = topic.removeprefix(prefix).partition("/")
        if not KEY_PATTERN.fullmatch(key) or leaf not in _LEAVES:
            return None
        return EndpointTopic(key, leaf)


@dataclass(frozen=True, slots=True)
class BridgeTopic:
    """A parsed topic of some bridge that an outpost reads.

    `leaf` is availability, status or info; `key` is the endpoint's, "" for the bridge's own.
    """

    bridge: str
    leaf: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class OutpostTopics:
    """The topics of one outpost, and what it reads of bridges; no `bridges` means all of them.

    Raises:
        ConfigError: `base`, `agent`, `discovery_prefix` or a bridge cannot be part of a topic.
    """

    base: str = "clusterllm"
    agent: str = "home"
    discovery_prefix: str = "homeassistant"
    bridges: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would make a topic that nobody can read back."""
        if not BRIDGE_PATTERN.fullmatch(self.agent):
            raise ConfigError(f"outpost agent {self.agent[:80]!r}: use 1 to 64 of a-z, 0-9 and -")
        for bridge in self.bridges:
            BridgeTopics(self.base, bridge, self.discovery_prefix)
        check_topic_prefix("base topic", self.base)
        check_topic_prefix("discovery prefix", self.discovery_prefix)

    @property
    def availability(self) -> str:
        """`online` or `offline`; also the will."""
        return f"{self.base}/outpost/{self.agent}/availability"

    @property
    def status(self) -> str:
        """The outpost's own record."""
        return f"{self.base}/outpost/{self.agent}/status"

    @property
    def discovery(self) -> str:
        """Home Assistant's device discovery topic; no bridge may have the id `outpost`."""
        return f"{self.discovery_prefix}/device/clusterllm_outpost_{self.agent}/config"

    @property
    def home_assistant_status(self) -> str:
        """Home Assistant's birth and will topic."""
        return f"{self.discovery_prefix}/status"

    def bridge_filters(self) -> tuple[str, ...]:
        """What an outpost reads; indexes first, since a broker that drops drops the last."""
        bridges = self.bridges or ("+",)
        leaves = ("status", "availability", "endpoint/+/info")
        return tuple(f"{self.base}/bridge/{b}/{leaf}" for leaf in leaves for b in bridges)

    def of_bridge(self, topic: BridgeTopic) -> str:
        """The topic, spelled out."""
        middle = f"/endpoint/{topic.key}" if topic.key else ""
        return f"{self.base}/bridge/{topic.bridge}{middle}/{topic.leaf}"

    def parse_bridge(self, topic: str) -> BridgeTopic | None:
        """A topic that `bridge_filters` select, when its parts are what they should be."""
        levels = topic.removeprefix(f"{self.base}/bridge/").split("/")
        if not _is_bridge(levels[0]):
            return None
        if len(levels) == 4 and levels[1] == "endpoint":  # noqa: PLR2004
            parsed = BridgeTopic(levels[0], levels[3], levels[2])
            is_ours = parsed.leaf == "info" and KEY_PATTERN.fullmatch(parsed.key) is not None
        else:
            parsed = BridgeTopic(levels[0], levels[-1])
            is_ours = parsed.leaf in {"availability", "status"}
        return parsed if is_ours and topic == self.of_bridge(parsed) else None


def _is_bridge(text: str) -> bool:
    return BRIDGE_PATTERN.fullmatch(text) is not None and text not in _RESERVED


def check_topic_prefix(what: str, text: str) -> None:
    """Refuse a prefix that is empty, has wildcards or empty levels, or reaches into `$SYS`.

    Raises:
        ConfigError: with the setting's name and the remedy.
    """
    levels = text.split("/")
    bad = any(c in text for c in "+#") or not all(levels) or text.startswith("$")
    if bad or len(text) > 200 or any(unicodedata.category(c)[0] == "C" for c in text):  # noqa: PLR2004
        raise ConfigError(
            f"{what} {text[:80]!r}: use one or more non-empty levels without +, #, a leading $ "
            "or control characters, like 'clusterllm'"
        )
