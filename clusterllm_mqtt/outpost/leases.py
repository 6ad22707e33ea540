"""Which bridges are online, by our own clock; pure.

A bridge is online while the last `online` of it is younger than 180 s: a broker that died together
with a bridge, and came back, fools nobody for longer. How old a retained `online` is follows from
what is left of its expiry; where it has none (MQTT 3.1.1), reading it again makes it no younger.
"""

from __future__ import annotations

from typing import Final

from clusterllm_mqtt.mqtt.messages import ONLINE, ONLINE_EXPIRY_S

LEASE_S: Final = float(ONLINE_EXPIRY_S)
GRACE_S: Final = 75.0
"""A bridge says `online` every 60 s."""

_LAST_WORDS_S: Final = 2.0
_EXPIRY_GRAIN_S: Final = 1.0
_NEVER: Final = float("-inf")


class Leases:
    """Who is online and, after a lost connection, who is waited for; times in monotonic seconds.

    What a broker retains after a restart may be older than what we know, or all gone: it may have
    saved an old state, or the wills that it told itself while it stopped. So we wait to hear from
    the bridges that were online, for a little longer than they need to say so again.
    """

    def __init__(self) -> None:
        self._online_s: dict[str, float] = {}
        self._heard_s: dict[str, float] = {}
        self._went_s: dict[str, float] = {}
        self._awaited: dict[str, float] = {}
        self._lost_s = _NEVER

    def lost(self, now_s: float) -> None:
        """The connection to the broker ended.

        One that stops tells everybody's will just before, ours not being the only connection that
        it ends.
        """
        went = {name for name, s in self._went_s.items() if s > now_s - _LAST_WORDS_S}
        self._awaited = dict.fromkeys({*self.online(now_s), *went, *self.awaited(now_s)}, _NEVER)
        self._lost_s = now_s

    def start_over(self, now_s: float) -> None:
        """A new connection: nobody is online before this broker says so."""
        self._online_s.clear()
        self._awaited = dict.fromkeys(self._awaited, now_s + GRACE_S)

    def heard(
        self,
        name: str,
        payload: bytes,
        now_s: float,
        *,
        is_retained: bool = False,
        expires_in_s: int | None = None,
    ) -> bool:
        """Take in an availability; whether something that counts has changed."""
        was_online = self.is_online(name, now_s)
        said_s = _NEVER
        if payload == ONLINE:
            said_s = self._heard_s.get(name, now_s) if is_retained else now_s
            if expires_in_s is not None:
                said_s = now_s - max(LEASE_S - expires_in_s, 0.0)
            self._heard_s[name] = said_s
        elif _lapses_s(self._heard_s.pop(name, _NEVER)) > now_s:
            self._went_s[name] = now_s
        self._online_s[name] = said_s
        is_news = not is_retained or said_s >= self._lost_s - _EXPIRY_GRAIN_S
        was_awaited = is_news and self._awaited.pop(name, _NEVER) > now_s
        return was_awaited or was_online != self.is_online(name, now_s)

    def is_online(self, name: str, now_s: float) -> bool:
        """Whether its lease holds."""
        return _lapses_s(self._online_s.get(name, _NEVER)) > now_s

    def online(self, now_s: float) -> tuple[str, ...]:
        """The bridges that count, by name."""
        return tuple(sorted(name for name in self._online_s if self.is_online(name, now_s)))

    def awaited(self, now_s: float) -> tuple[str, ...]:
        """The bridges that have to be heard of before it is known what runs, by name."""
        return tuple(sorted(name for name, until_s in self._awaited.items() if until_s > now_s))

    def lapses_s(self, now_s: float) -> float:
        """When somebody's lease or our patience ends, if nothing is heard until then."""
        leases = [_lapses_s(self._online_s[name]) for name in self.online(now_s)]
        waits = [self._awaited[name] for name in self.awaited(now_s)]
        return min([*leases, *waits], default=now_s + LEASE_S)


def _lapses_s(said_s: float) -> float:
    """When a lease ends; as a sum and a difference it would end twice, a rounding apart."""
    return said_s + LEASE_S
