"""Lets the parts of a home fail as a seed has it, and watches that the truth survives.

python tests/chaos/run.py --seconds 600 --seed 7
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.home import INTERVAL_S, ChaosHome, Observer, wait_until_s
from chaos.invariants import differences, registry_differences, stale_running, unhandled
from chaos.plan import BRIDGES, ENDPOINTS, OUTPOSTS, Fault, draw_faults

if TYPE_CHECKING:
    from collections.abc import Callable

WITHIN_S: Final = INTERVAL_S + 10.0
CONVERGES_S: Final = 30.0
STARTS_S: Final = 60.0
MAX_RESIDENT_KB: Final = 65_536


class Broken(Exception):  # noqa: N818  # an invariant is
    """An invariant does not hold."""


class Chaos:
    """One run: `faults` are those that were survived."""

    def __init__(self, home: ChaosHome, observer: Observer, plan: list[Fault]) -> None:
        self.home = home
        self.faults: list[Fault] = []
        self._observer = observer
        self._plan = plan
        self._dead_since_s: dict[str, float] = {}
        self._undisturbed_since_s = dict.fromkeys(BRIDGES, time.monotonic())

    def run(self) -> None:
        """Let everything fail in its time.

        Raises:
            Broken: an invariant did not hold.
        """
        start_s = time.monotonic()
        steps = [(f.at_s, f, True) for f in self._plan] + [(f.ends_s, f, False) for f in self._plan]
        for at_s, fault, begins in sorted(steps, key=lambda step: step[0]):
            self._watch_until(start_s + at_s)
            (self._begin if begins else self._end)(fault)

    def _watch_until(self, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0:
            wait_until_s(time.monotonic() + min(left_s, 0.25))
            stale = stale_running(
                dict(self._observer.retained),
                self._dead_since_s,
                self._undisturbed_since_s,
                time.monotonic(),
                within_s=WITHIN_S,
            )
            if stale:
                raise Broken(f"running, but dead: {stale}")

    def _begin(self, fault: Fault) -> None:
        self.faults.append(fault)
        self.home.fail(fault.part, fault.kind)
        if fault.part in ENDPOINTS:
            self._dead_since_s[fault.part] = time.monotonic()
        for bridge in BRIDGES if fault.part == "broker" else {fault.part} & {*BRIDGES}:
            self._undisturbed_since_s.pop(bridge, None)

    def _end(self, fault: Fault) -> None:
        if fault.part == "broker" and fault.kind != "pause":
            self._observer.forget()
        self.home.recover(fault.part, fault.kind)
        self._dead_since_s.pop(fault.part, None)
        # its own reconnecting is a disturbance, too
        now_s = time.monotonic() + (10.0 if fault.part == "broker" else 5.0)
        for bridge in BRIDGES if fault.part == "broker" else {fault.part} & {*BRIDGES}:
            self._undisturbed_since_s[bridge] = now_s


def until(what: Callable[[], list[str]], within_s: float) -> float:
    """How long it took until there was nothing left to tell.

    Raises:
        Broken: there still is.
    """
    start_s = time.monotonic()
    while told := what():
        if time.monotonic() - start_s > within_s:
            raise Broken(f"after {within_s:g} s of calm: " + "; ".join(told))
        time.sleep(0.5)
    return time.monotonic() - start_s


def is_whole(home: ChaosHome) -> list[str]:
    """What is still missing of a home at its start."""
    retained = home.retained()
    running = sum('"state":"running"' in payload for t, payload in retained.items() if "/info" in t)
    told = [] if running == len(BRIDGES) * len(ENDPOINTS) else [f"{running} are running"]
    online = [t for t, payload in retained.items() if payload == "online"]
    if len(online) != len(BRIDGES) + len(OUTPOSTS):
        told.append(f"online: {online}")
    registered = home.registered()
    if not all("qwen3-4b" in str(registered.get(outpost)) for outpost in OUTPOSTS):
        told.append("the registry does not know all")
    return told


def checked_processes(home: ChaosHome) -> dict[str, int]:
    """Resident kB of each process of ours.

    Raises:
        Broken: one is too large, or said something that nobody handled.
    """
    tracebacks = unhandled(home.logs())
    if tracebacks:
        raise Broken(f"a traceback in the log of {tracebacks}")
    resident = {part: home.resident_kb(part) for part in (*BRIDGES, *OUTPOSTS)}
    if max(resident.values()) > MAX_RESIDENT_KB:
        raise Broken(f"resident kB: {resident}")
    return resident


def chaos(folder: Path, seed: int, seconds: float) -> Counter[str]:
    """One run; the faults survived, by part and kind.

    Raises:
        Broken: an invariant did not hold; the message has the last faults.
    """
    home = ChaosHome(folder)
    try:
        for part in home.parts:
            home.start(part)
            time.sleep(0.5 if part == "broker" else 0.1)
        observer = Observer(home.broker_port)
        try:
            return _chaos(home, observer, seed, seconds)
        finally:
            observer.close()
    finally:
        home.close()


def _chaos(home: ChaosHome, observer: Observer, seed: int, seconds: float) -> Counter[str]:
    until(lambda: is_whole(home), STARTS_S)
    before, registered = home.retained(), home.registered()
    run = Chaos(home, observer, draw_faults(seed, seconds))
    try:
        run.run()
        took_s = until(
            lambda: [
                *differences(before, home.retained()),
                *registry_differences(registered, home.registered()),
                *(f"ended by itself: {part}" for part in home.ended()),
            ],
            CONVERGES_S,
        )
        resident = checked_processes(home)
    except Broken as broken:
        raise Broken(f"seed {seed}: {broken}; last faults: {run.faults[-6:]}") from None
    print(f"converged {took_s:.1f} s after the last fault; resident kB: {resident}")  # noqa: T201
    return Counter(f"{fault.part} {fault.kind}" for fault in run.faults)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.seconds:g} s")  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        try:
            survived = chaos(Path(folder), arguments.seed, arguments.seconds)
        except Broken as broken:
            print(f"BROKEN {broken}")  # noqa: T201
            return 1
    for name, times in sorted(survived.items()):
        print(f"{times:4}  {name}")  # noqa: T201
    print(f"{survived.total():4}  faults survived")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
