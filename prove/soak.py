"""soak: the same load for an hour, a kill every ten seconds, and nothing may grow.

Eight writers share a home: appends to a log that goes on in a new file every megabyte,
batches, transactions, a counter in a document, a view, a lease.  Half of them live from
beginning to end and are measured: memory, open descriptors, how long an append takes.  The
others are killed in turn.  On memory, so that what is measured is the code and not the disk.
What an append takes is judged against that of a newcomer: a process of its own, on a home of its
own, begun anew for each tenth of the time.  A machine that has other work meanwhile slows both.

A case is one kill, or one limit at the end.  Short runs (quick, ci) do the same with a kill a
second; too short for a slope, they only report memory and latency.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from prove import frame
from prove.actors import ACK, KINDS
from prove.frame import Control, Harness, Result
from prove.kill9 import Hand, Round
from prove.kill9 import Plan as _Kills
from prove.properties import lost_in
from prove.soak_newcomer import POINT

_WINDOWS = 10
_STEADY, _MORTAL = 4, 4
_PAUSE = 0.02
_ROTATE_AT = 1 << 20
_MIX = {"shared": 55, "batch": 5, "transact": 5, "count": 12, "view": 15, "lease": 3}
_MEMORY = Path("/dev/shm")
_MEGABYTE = 1 << 20
_MEGABYTES_AN_HOUR = 1.0
_DRIFT = 0.10


class Plan(NamedTuple):
    """In seconds."""

    warm_up: float
    measured: float
    between_kills: float
    slopes: bool
    """Whether it is long enough to judge memory and latency."""

    @property
    def kills(self) -> int:
        """How many there surely are; those at the very end come on top."""
        return int((self.warm_up + self.measured) / self.between_kills) - 1


_PLANS = {
    "quick": Plan(2.0, 8.0, 1.0, slopes=False),
    "ci": Plan(2.0, 8.0, 1.0, slopes=False),
    "full": Plan(300.0, 3_300.0, 10.0, slopes=True),
}
HARNESS = Harness(
    name="soak",
    proves="Under constant load with kills nothing is lost, nothing is left over, nothing grows.",
    targets={tier: plan.kills for tier, plan in _PLANS.items()},
    unit="kills",
    missing=lambda tier: None if _MEMORY.is_dir() else "needs /dev/shm",
)


class Sample(NamedTuple):
    """One steady writer at one instant."""

    when: float
    memory: int
    descriptors: int


class Limit(NamedTuple):
    """Something that must not grow: what was seen, and whether it is too much."""

    name: str
    seen: str
    broken: bool


class Soak(Round):
    """Constant load; every so often one of the mortal half is killed."""

    writers = _STEADY + _MORTAL
    mix = _MIX

    def __init__(self, home: Path, seed: int, plan: Plan, *, broken: str = "") -> None:
        super().__init__(home, seed, _Kills(0, 0, 1), broken=broken)
        self.timing, self._place = plan, home
        self.since = 0.0
        self.samples: dict[int, list[Sample]] = {me: [] for me in range(_STEADY)}
        self.latencies: list[tuple[float, float]] = []
        """When an append of a steady writer was acknowledged, and how long it took."""
        self.newcomers: list[tuple[float, float]] = []
        """The same of whoever had just begun."""
        self.most_temporaries = 0
        self._newcomer: subprocess.Popen[bytes] | None = None

    def _fate(self, me: int) -> tuple[str, dict[str, Any]]:
        return "outside", {"rotate_at": _ROTATE_AT, "pause": _PAUSE}

    def _take(self, hand: Hand, packet: bytes) -> None:
        super()._take(hand, packet)
        if hand.life.me < _STEADY and not packet.startswith(b"!"):
            kind, _, _, began, ended = ACK.unpack(packet)
            if KINDS[kind] == "shared" and ended > self.since:
                self.latencies.append((ended, ended - began))

    def _go(self) -> None:
        plan, started = self.timing, time.monotonic()
        self.since = started + plan.warm_up
        end = self.since + plan.measured
        next_kill, next_look = started + plan.between_kills, self.since
        next_newcomer = self.since
        while (now := time.monotonic()) < end and not self.history.complaints:
            if now >= next_newcomer:
                next_newcomer += plan.measured / _WINDOWS
                self._begin_newcomer(min(next_newcomer, end))
            for key, _ in self._selector.select(0.05):
                self._listen(key.data)
            if now >= next_kill:
                hand = self._hands[self._rng.randrange(_STEADY, self.writers)]
                self._bury(hand)
                self._start(hand.life.me)
                next_kill += plan.between_kills
            if now >= next_look:
                self._look(now)
                next_look = now + plan.measured / _WINDOWS / 40

    def _begin_newcomer(self, until: float) -> None:
        words = [str(self._place.parent / "newcomers"), str(until), str(_PAUSE), str(_ROTATE_AT)]
        command = [sys.executable, "-m", "prove.soak_newcomer", *words]
        self._end_newcomer()
        self._newcomer = subprocess.Popen(command, cwd=frame.PROVE.parent)

    def _end_newcomer(self) -> None:
        if self._newcomer is not None:
            self._newcomer.kill()
            self._newcomer.wait()

    def run(self) -> Any:
        try:
            return super().run()
        finally:
            self._end_newcomer()
            folder = self._place.parent / "newcomers"
            for file in sorted(folder.glob("*.points")):
                data = file.read_bytes()
                self.newcomers += POINT.iter_unpack(data[: len(data) // POINT.size * POINT.size])

    def _look(self, now: float) -> None:
        for me, kept in self.samples.items():
            process = Path(f"/proc/{self._hands[me].victim.pid}")
            kept.append(Sample(now, _memory(process), len(os.listdir(process / "fd"))))
        left = sum(1 for _ in self._place.rglob(".*.tmp"))
        self.most_temporaries = max(self.most_temporaries, left)

    def limits(self) -> list[Limit]:
        """What was measured, against what is allowed."""
        span = (self.since, self.since + self.timing.measured)
        found: list[Limit] = []
        for me, samples in self.samples.items():
            open_files = [(one.when, float(one.descriptors)) for one in samples]
            memory = [(one.when, float(one.memory)) for one in samples]
            found.append(still(f"descriptors of writer {me}", in_windows(open_files, span, min)))
            found.append(
                growing(
                    f"memory of writer {me}",
                    in_windows(memory, span, statistics.median),
                    self.timing.measured,
                )
            )
        theirs = in_windows(self.newcomers, span, _p99)
        found.append(drifting("append, p99", in_windows(self.latencies, span, _p99), theirs))
        # Every writer may be in the middle of something, and the newest of the dead, too.
        found.append(
            Limit(
                "temporaries at once",
                str(self.most_temporaries),
                self.most_temporaries > 2 * self.writers,
            )
        )
        return found


def _memory(process: Path) -> int:
    for row in (process / "status").read_text(encoding="ascii").splitlines():
        if row.startswith("RssAnon:"):
            return int(row.split()[1]) * 1024
    raise OSError(f"{process} has no memory")


# --- judging --------------------------------------------------------------------------------


def in_windows(
    points: Sequence[tuple[float, float]], span: tuple[float, float], summary: Any
) -> list[float]:
    """One number for each of the windows that the measured time is cut into."""
    width = (span[1] - span[0]) / _WINDOWS
    parts: list[list[float]] = [[] for _ in range(_WINDOWS)]
    for when, value in points:
        parts[min(_WINDOWS - 1, max(0, int((when - span[0]) / width)))].append(value)
    return [float(summary(part)) for part in parts if part]


def slope(values: Sequence[float]) -> float:
    """How much it grows from window to window: the median over all pairs, deaf to outliers."""
    pairs = combinations(range(len(values)), 2)
    rises = [(values[b] - values[a]) / (b - a) for a, b in pairs]
    return statistics.median(rises) if rises else 0.0


def still(name: str, values: Sequence[float]) -> Limit:
    return Limit(name, f"{values[0]:.0f} to {values[-1]:.0f}", slope(values) > 0)


def growing(name: str, values: Sequence[float], seconds: float) -> Limit:
    an_hour = slope(values) * _WINDOWS / seconds * 3_600 / _MEGABYTE
    return Limit(name, f"{an_hour:+.2f} MB/h", an_hour >= _MEGABYTES_AN_HOUR)


def drifting(name: str, values: Sequence[float], beside: Sequence[float]) -> Limit:
    """How much slower it became than whoever had just begun."""
    shares = [mine / theirs for mine, theirs in zip(values, beside, strict=False)]
    middle = statistics.median(shares) if shares else 0.0
    drift = slope(shares) * (len(shares) - 1) / middle if middle else math.inf
    seen = (
        f"{statistics.median(values) * 1e3:.2f} ms, {middle:.2f} times a newcomer's, {drift:+.1%}"
    )
    return Limit(name, seen, drift >= _DRIFT)


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


_NEED_TIME = ("memory", "append")


def run(tier: str, seed: int, case: str | None = None) -> Result:
    return soaked(_PLANS[tier], tier, seed)


def soaked(plan: Plan, tier: str, seed: int) -> Result:
    result = Result(HARNESS.name, tier)
    with frame.scratch("soak", _MEMORY) as place:
        one = Soak(place / "home", seed, plan)
        found = one.run()
        files = sum(1 for _ in (place / "home").rglob("journal*.jsonl"))
    kills = one.kills.total()
    result.tried = result.fired = kills
    result.lost = lost_in(found)
    if found:
        result.add_failure("all", str(found[0]), tuple(str(each) for each in found[1:10]))
        result.failed += kills - 1
    else:
        result.survived = kills
    limits = one.limits()
    for limit in limits:
        result.tried += 1
        result.fired += 1
        if limit.broken and (plan.slopes or not limit.name.startswith(_NEED_TIME)):
            result.add_failure("all", f"{limit.name}: {limit.seen}")
        else:
            result.survived += 1
    result.details = {
        "seconds_measured": plan.measured,
        "acks": one.history.acks,
        "files_of_the_log": files,
        "limits": {limit.name: limit.seen for limit in limits},
        "slopes_judged": plan.slopes,
    }
    return result


def control(seed: int) -> list[Control]:
    """A writer that leaves directories open; and measurements that grow."""
    with frame.scratch("soak", _MEMORY) as place:
        leaky = Soak(place / "home", seed, Plan(0.5, 1.5, 1.0, slopes=False), broken="leak")
        leaky.run()
    leaks = [limit for limit in leaky.limits() if limit.broken and "descriptors" in limit.name]
    hour = [100.0 * _MEGABYTE + window * 0.15 * _MEGABYTE for window in range(_WINDOWS)]
    slower = [0.002 * (1 + window * 0.02) for window in range(_WINDOWS)]
    memory = growing("memory", hour, 3_600)
    latency = drifting("append", slower, [0.001] * _WINDOWS)
    return [
        Control("leaves directories open", bool(leaks), leaks[0].seen if leaks else "not seen"),
        Control("1.5 MB an hour", memory.broken, memory.seen),
        Control("18 % slower", latency.broken, latency.seen),
    ]
