"""Which endpoints there are, and which service is which of them; pure, time is an argument.

Found and lost services, recalled records and probe results go in; `EndpointState`s and
`Transition`s come out. Aliases, duplicates, moved addresses, the cap and forgetting are decided
here and nowhere else; what one endpoint's probes mean is decided in `endpoint_memory`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from clusterllm_mqtt.defaults import FAILURE_THRESHOLD, FORGET_AFTER_S, MAX_BROWSED
from clusterllm_mqtt.endpoint_memory import EndpointMemory
from clusterllm_mqtt.models import Config, Endpoint, Info, Source, State
from clusterllm_mqtt.mqtt.topics import endpoint_key

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from clusterllm_mqtt.models import EndpointState, ProbeResult, Service, Transition

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_OBSERVED_S: Final = 3600.0  # nothing is forgotten before this process has watched it for an hour


def mdns_identity(instance: str) -> str:
    """What the key of a browsed endpoint is made from; DNS names know no case."""
    return f"mdns:{instance.lower()}"


class Inventory:
    """All endpoints of one bridge.

    `failure_threshold` failures in a row (at least 1) make an endpoint `not_reachable`;
    `forget_after_s` 0 forgets nothing; `max_browsed` caps what neighbours can make us hold.
    """

    def __init__(
        self,
        configured: Iterable[Endpoint] = (),
        *,
        failure_threshold: int = FAILURE_THRESHOLD,
        forget_after_s: float = FORGET_AFTER_S,
        max_browsed: int = MAX_BROWSED,
    ) -> None:
        self._failure_threshold = failure_threshold
        self._forget_after_s = forget_after_s
        self._max_browsed = max_browsed
        self._entries: dict[str, EndpointMemory] = {}
        self._by_instance: dict[str, EndpointMemory] = {}
        self.refused = 0
        """Services that were not taken in because `max_browsed` was reached."""
        self._replaced: dict[str, str] = {}
        for endpoint in configured:
            self._add(endpoint, _hosts(endpoint.config.endpoint))

    @property
    def watched(self) -> tuple[Endpoint, ...]:
        """Every endpoint: what the scheduler probes."""
        return tuple(entry.endpoint for entry in self._entries.values())

    @property
    def states(self) -> tuple[EndpointState, ...]:
        """What is published, by key; an endpoint appears with its first verdict."""
        entries = (entry for _, entry in sorted(self._entries.items()))
        return tuple(state for entry in entries if (state := entry.state) is not None)

    def state(self, key: str) -> EndpointState | None:
        """What is published of one endpoint; None before its first verdict."""
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    def instances(self, key: str) -> frozenset[str]:
        """The services that name an endpoint now."""
        entry = self._entries.get(key)
        return frozenset() if entry is None else frozenset(entry.instances)

    @property
    def unprobed(self) -> frozenset[str]:
        """Keys of endpoints that this process has not probed yet."""
        return frozenset(key for key, e in self._entries.items() if e.probed_at is None)

    def recall(
        self, endpoint: Endpoint, info: Info, state_since: datetime, *, now: datetime, now_s: float
    ) -> bool:
        """Take back a browsed endpoint from an earlier life; False when it is not wanted.

        What the record says of its state is not believed, only how long it has been so.
        """
        hosts = _hosts(endpoint.config.endpoint)
        configured = self._configured_at(hosts)
        if configured is not None and endpoint.key not in self._entries:
            self._replaced[endpoint.key] = configured.endpoint.key
        if endpoint.key in self._entries or configured is not None or not self._has_room():
            return False
        entry = self._add(endpoint, hosts)
        entry.info = info
        entry.state_since = state_since
        if info.state is not State.RUNNING:
            age_s = (now - state_since).total_seconds()
            limit_s = max(self._forget_after_s - _OBSERVED_S, 0.0)
            entry.gone_since_s = now_s - min(max(age_s, 0.0), limit_s)
        self._settle_claims(hosts)
        return True

    def found(self, service: Service) -> Endpoint | None:
        """A service is there: the endpoint it belongs to, None when there is no room.

        A service at the host and port of a known endpoint is that endpoint: of a configured one by
        any of its addresses or its host name, of a browsed one by the chosen address only, since a
        neighbour can write what it likes into the rest. A service that moved takes its key along.
        """
        key = endpoint_key(service.name, mdns_identity(service.instance))
        at = _hosts(service.url)
        configured = self._configured_at(_hosts(service.url, service.hosts))
        if configured is not None:
            self._drop_duplicates(key, at, service.instance, configured.endpoint.key)
        entry = configured or self._entries.get(key) or self._at(at)
        if entry is None:
            if not self._has_room():
                self.refused += 1
                return None
            identity = mdns_identity(service.instance)
            config = Config(service.url)
            entry = self._add(Endpoint(key, service.name, identity, Source.MDNS, config), at)
        self._advertise(service.instance, entry)
        if entry.is_browsed and entry.endpoint.key == key:
            self._move(entry, service.url, at)
        return entry.endpoint

    def take_replaced(self) -> dict[str, str]:
        """Keys of browsed endpoints that configured ones replaced since the last call."""
        replaced, self._replaced = self._replaced, {}
        return replaced

    def lost(self, instance: str, *, now_s: float) -> str | None:
        """A service said goodbye or expired: the key to probe at once, if it is known."""
        entry = self._by_instance.pop(instance, None)
        if entry is None:
            return None
        entry.instances.discard(instance)
        self._settle_claims(entry.hosts)
        entry.note_gone(now_s)
        return entry.endpoint.key

    def record(self, result: ProbeResult) -> tuple[Transition, ...]:
        """Take in a probe; the transitions that it confirmed."""
        entry = self._entries.get(result.key)
        if entry is None:
            return ()
        return entry.take(result, failure_threshold=self._failure_threshold)

    def forget(self, *, now_s: float) -> tuple[str, ...]:
        """Drop what has been unadvertised and unreachable for too long; the dropped keys."""
        if not self._forget_after_s:
            return ()
        dropped = [
            entry
            for entry in self._entries.values()
            if entry.gone_since_s is not None and now_s - entry.gone_since_s >= self._forget_after_s
        ]
        for entry in dropped:
            self._drop(entry)
        return tuple(entry.endpoint.key for entry in dropped)

    def _add(self, endpoint: Endpoint, hosts: frozenset[str]) -> EndpointMemory:
        info = Info(State.NOT_REACHABLE, endpoint=endpoint.config.endpoint)
        entry = self._entries[endpoint.key] = EndpointMemory(endpoint, hosts, info)
        return entry

    def _drop(self, entry: EndpointMemory) -> None:
        del self._entries[entry.endpoint.key]
        for instance in entry.instances:
            del self._by_instance[instance]

    def _drop_duplicates(self, key: str, at: frozenset[str], instance: str, winner: str) -> None:
        """Drop what a configured endpoint replaces, unless another service still names it."""
        for entry in [e for e in self._entries.values() if e.is_browsed]:
            if (entry.endpoint.key == key or entry.hosts & at) and entry.instances <= {instance}:
                self._replaced[entry.endpoint.key] = winner
                self._drop(entry)

    def _has_room(self) -> bool:
        """Whether one more browsed endpoint fits; the one gone longest makes room."""
        browsed = [e for e in self._entries.values() if e.is_browsed]
        if len(browsed) < self._max_browsed:
            return True
        gone = [(e.gone_since_s, e.endpoint.key) for e in browsed if e.gone_since_s is not None]
        if not gone:
            return False
        self._drop(self._entries[min(gone)[1]])
        return True

    def _configured_at(self, hosts: frozenset[str]) -> EndpointMemory | None:
        entries = self._entries.values()
        return next((e for e in entries if not e.is_browsed and e.hosts & hosts), None)

    def _at(self, hosts: frozenset[str]) -> EndpointMemory | None:
        return next((e for e in self._entries.values() if e.hosts & hosts), None)

    def _advertise(self, instance: str, entry: EndpointMemory) -> None:
        before = self._by_instance.get(instance)
        if before is not None:
            before.instances.discard(instance)
        self._by_instance[instance] = entry
        entry.instances.add(instance)
        entry.gone_since_s = None
        self._settle_claims(entry.hosts if before is None else entry.hosts | before.hosts)

    def _move(self, entry: EndpointMemory, url: str, hosts: frozenset[str]) -> None:
        left, entry.hosts = entry.hosts, hosts
        if entry.endpoint.config.endpoint != url:
            entry.endpoint = replace(entry.endpoint, config=Config(url))
        self._settle_claims(left | hosts)

    def _settle_claims(self, hosts: frozenset[str]) -> None:
        """An address belongs to whom mDNS names there now, not to whom it was remembered for.

        Without this, a machine that inherits the address of one that is off would answer for both.
        """
        rivals = [e for e in self._entries.values() if e.is_browsed and e.hosts & hosts]
        for entry in rivals:
            entry.displaced = not entry.instances and any(
                other.instances and other.hosts & entry.hosts for other in rivals
            )


def _hosts(url: str, also: Iterable[str] = ()) -> frozenset[str]:
    """`host:port` of a URL, and of other names and addresses with the same port."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return frozenset()
    return frozenset(f"{name}:{port}" for name in (host, *also) if name)
