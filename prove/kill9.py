"""kill9: processes killed at any instant, and stopped and continued, on a shared home.

Writers append to one log, to a log by days each and one for all, count in a document by
update and by compare-and-swap, refresh a view and take a lease.  They are killed from outside
at random, at named steps of the protocol, and in the middle of a write.  A case is one kill;
it fired if the wait status says SIGKILL.  Every acknowledgement that came out of a victim's
channel is looked for, not only the last.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.store.home import Home
from prove import frame
from prove.frame import Control, Harness, Result
from prove.oracle import History, Life, judge
from prove.properties import Broken, lost_in
from prove.victims import Nursery, Victim

HARNESS = Harness(
    name="kill9",
    proves="No acknowledged write is lost, doubled or reordered when writers are killed.",
    targets={"quick": 150, "ci": 1_000, "full": 10_000},
    unit="kills",
)


class Plan(NamedTuple):
    """How much of it: on memory and on disk."""

    kills: int
    acks: int
    rounds: int


_PLANS = {
    "quick": {"memory": Plan(220, 20_000, 2), "disk": Plan(40, 2_000, 1)},
    "ci": {"memory": Plan(950, 75_000, 6), "disk": Plan(80, 5_000, 2)},
    "full": {"memory": Plan(9_500, 1_000_000, 40), "disk": Plan(600, 50_000, 6)},
}
WRITERS = 16
_FATES = (["outside", "step", "half"], [60, 30, 10])
_MIX = {
    "shared": 50,
    "batch": 5,
    "transact": 5,
    "own": 20,
    "days": 10,
    "count": 8,
    "view": 5,
    "lease": 3,
}
_STEPS = (
    "log.append.written",
    "log.append.unlocked",
    "log.append.synced",
    "segment.written",
    "segment.linked",
    "segment.durable",
    "document.written",
    "document.renamed",
    "view.stamped",
    "lease.taken",
)
_MEMORY = Path("/dev/shm")


@dataclass
class Hand:
    """A living victim, and what is going to happen to it."""

    victim: Victim
    life: Life
    fate: str
    """`outside`, `half`, or the step of the protocol at which it kills itself."""
    stopped_until: float = 0.0


class Round:
    """Some kills on one home."""

    writers = WRITERS
    mix = _MIX

    def __init__(self, home: Path, seed: int, plan: Plan, *, broken: str = "") -> None:
        self._home, self._plan, self._broken = str(home), plan, broken
        self._rng = Random(seed)
        self._nursery = Nursery()
        self._hands: dict[int, Hand] = {}
        self._selector = selectors.DefaultSelector()
        self._lives = 0
        self.history = History()
        self.kills: Counter[str] = Counter()
        """By what ended the victim."""
        self.stops = 0

    def run(self) -> list[Broken]:
        """Start the writers, kill them as planned, kill those that are left, and judge."""
        Home.open(self._home, create=True, timezone="UTC").close()
        try:
            for me in range(self.writers):
                self._start(me)
            self._go()
            for hand in list(self._hands.values()):
                self._bury(hand)
        finally:
            self._nursery.close()
            self._selector.close()
        return judge(self._home, self.history)

    def _go(self) -> None:
        plan, started = self._plan, time.monotonic()
        while self.kills.total() < plan.kills or self.history.acks < plan.acks:
            for key, _ in self._selector.select(0.002):
                self._listen(key.data)
            self._wake_up()
            # As many kills as go with the acknowledgements so far, and at least 5 a second.
            due = plan.kills * self.history.acks / plan.acks
            due = max(due, 5 * (time.monotonic() - started))
            if self.kills.total() < due:
                self._shoot()
            if self.history.complaints and not self._broken:
                return

    def _start(self, me: int) -> None:
        self._lives += 1
        fate, arguments = self._fate(me)
        victim = self._nursery.start(
            "writer",
            home=self._home,
            me=me,
            life=self._lives,
            seed=self._rng.getrandbits(48),
            mix=self.mix,
            broken=self._broken,
            **arguments,
        )
        hand = Hand(victim, self.history.born(me, self._lives), fate)
        self._hands[me] = hand
        self._selector.register(victim.channel, selectors.EVENT_READ, hand)

    def _fate(self, me: int) -> tuple[str, dict[str, Any]]:
        """What is going to end the next life of a writer, and what it has to be told for that."""
        rng = self._rng
        fate = "outside" if self._broken else rng.choices(*_FATES)[0]
        if fate == "step":
            fate = rng.choice(_STEPS)
            most = 40 if fate.startswith("log.") else 4
            return fate, {"arm": f"{fate}=kill@{rng.randint(1, most)}"}
        if fate == "half":
            part = rng.choice([0.0, 0.5, rng.random(), 1.0])
            return fate, {"half": (rng.randint(1, 40), part)}
        return fate, {}

    def _take(self, hand: Hand, packet: bytes) -> None:
        self.history.take(hand.life, packet)

    def _listen(self, hand: Hand) -> None:
        for packet in hand.victim.packets():
            self._take(hand, packet)
        if hand.victim.gone:
            self._bury(hand)
            self._start(hand.life.me)

    def _shoot(self) -> None:
        rng = self._rng
        hand = self._hands[rng.choice(list(self._hands))]
        if rng.random() < 0.15 and not hand.stopped_until:
            hand.victim.signal(signal.SIGSTOP)
            hand.stopped_until = time.monotonic() + rng.uniform(0.001, 0.02)
            self.stops += 1
            return
        self._bury(hand)
        self._start(hand.life.me)

    def _wake_up(self) -> None:
        now = time.monotonic()
        for hand in self._hands.values():
            if 0 < hand.stopped_until < now:
                hand.stopped_until = 0.0
                hand.victim.signal(signal.SIGCONT)

    def _bury(self, hand: Hand) -> None:
        """See that a victim is dead and by what; what it had said before counts."""
        self._selector.unregister(hand.victim.channel)
        by = hand.fate if hand.victim.gone else "outside"
        status = hand.victim.kill()
        for packet in hand.victim.packets():
            self.history.take(hand.life, packet)
        hand.victim.channel.close()
        del self._hands[hand.life.me]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.kills[by] += 1
        elif not self.history.complaints:
            self.history.complaints.append(f"a victim ended with status {status:#x}")


# --- the harness ----------------------------------------------------------------------------


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    kills: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for where, plan in _PLANS[tier].items():
        for number in range(plan.rounds):
            name = f"{where}:{number}"
            if case is not None and case != name:
                continue
            part = Plan(-(-plan.kills // plan.rounds), -(-plan.acks // plan.rounds), 1)
            with frame.scratch("kill9", _MEMORY if where == "memory" else None) as place:
                one = Round(place / "home", _seed(seed, name), part)
                found = one.run()
            _count(result, name, one, found)
            kills += one.kills
            counts[f"acks_{where}"] += one.history.acks
            counts["stops"] += one.stops
            counts["torn_lines"] += one.history.fragments
            counts["lives"] += len(one.history.lives)
    result.details = {"writers": WRITERS, **counts, "killed_by": dict(sorted(kills.items()))}
    return result


def _count(result: Result, name: str, one: Round, found: list[Broken]) -> None:
    kills = one.kills.total()
    result.tried += kills
    result.fired += kills
    result.lost += lost_in(found)
    if found:
        result.add_failure(name, str(found[0]), tuple(str(each) for each in found[1:10]))
        result.failed += kills - 1
    else:
        result.survived += kills


def control(seed: int) -> list[Control]:
    """A writer that acknowledges before it writes, and one that does not take the lock."""
    found: list[Control] = []
    for broken, properties in (("ackfirst", {"P1"}), ("nolock", {"P1", "P2", "P4", "P6"})):
        with frame.scratch("kill9", _MEMORY) as place:
            one = Round(place / "home", seed, Plan(40, 1_000, 1), broken=broken)
            said = [each for each in one.run() if each.property in properties]
        found.append(Control(broken, bool(said), str(said[0]) if said else "nothing noticed"))
    return found


def _seed(seed: int, name: str) -> int:
    return frame.seed_of(f"{seed} {name}")
