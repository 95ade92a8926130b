"""inbox: deliverers and claimers of one mailbox, killed and stopped past their deadlines.

Sixteen processes claim from one mailbox, work a little, and acknowledge, renew or give back;
three deliver.  Any of them is killed at any instant or at a named step; claimers are stopped
until what they have was taken back, and go on as if nothing had happened.  What each of them was
told goes through a channel to the harness.  A case is a message.  The faults of a round fired if
there were as many kills and overlong stops as planned, and claims were refused as stale.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from holdfast.store.check import HARMLESS, check
from holdfast.store.home import Home
from prove import frame
from prove.claimers import INBOX, SECONDS, TRIES, now
from prove.frame import Control, Harness, Result
from prove.properties import Broken, lost_in
from prove.victims import Nursery, Victim

HARNESS = Harness(
    name="inbox",
    proves="No delivered message is lost, each is done once, and no stale claim is accepted.",
    targets={"quick": 1_500, "ci": 10_000, "full": 100_000},
    unit="messages",
)


class Plan(NamedTuple):
    messages: int
    kills: int
    stops: int


_PLANS = {
    "quick": {"memory": Plan(1_300, 40, 12), "disk": Plan(250, 10, 4)},
    "ci": {"memory": Plan(9_400, 250, 60), "disk": Plan(800, 30, 8)},
    "full": {"memory": Plan(94_000, 2_000, 500), "disk": Plan(7_000, 150, 40)},
}
CLAIMERS, DELIVERERS = 16, 3
_STEPS = {
    "claimer": ("mailbox.claimed", "mailbox.acked"),
    "deliverer": ("mailbox.written", "mailbox.linked"),
}
_MEMORY = Path("/dev/shm")
_SLACK = 0.002
"""Deadlines are rounded up to milliseconds."""
_QUIET = 3.0
_PATIENCE = 60.0


@dataclass
class Handing:
    """One time that a message was handed out."""

    life: int
    attempt: int
    began: float
    ended: float
    deadline: float
    giving_back: bool = False
    """It was about to, and was not heard of again."""
    given_back: bool = False


@dataclass
class Story:
    """Everything that was said of one message."""

    handed: list[Handing] = field(default_factory=list[Handing])
    acked: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])
    """Attempt, begin and end of acknowledgements that were accepted."""


@dataclass
class Hand:
    """A living victim."""

    victim: Victim
    role: str
    life: int
    delivered: int = 0
    stopped_until: float = 0.0


class Round:
    """Messages through one mailbox."""

    def __init__(self, home: Path, seed: int, plan: Plan, *, broken: str = "") -> None:
        self._home, self._plan, self._broken = str(home), plan, broken
        self._rng = Random(seed)
        self._nursery = Nursery(roles="prove.claimers")
        self._selector = selectors.DefaultSelector()
        self._hands: list[Hand] = []
        self._lives = 0
        self._patience = 0.0
        self.delivered: dict[str, float] = {}
        self.last: dict[int, int] = {}
        """For each deliverer the number of its newest message that was acknowledged."""
        self.stories: dict[str, Story] = {}
        self.died: dict[int, float] = {}
        """For each life when it was killed, or later."""
        self.kills, self.stops, self.acks = 0, 0, 0
        self.complaints: list[str] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> list[Broken]:
        Home.open(self._home, create=True, timezone="UTC").close()
        try:
            for role, count in (("deliverer", DELIVERERS), ("claimer", CLAIMERS)):
                for _ in range(count):
                    self._start(role)
            self._go()
            for hand in list(self._hands):
                self._bury(hand)
        finally:
            self._nursery.close()
            self._selector.close()
        return [*self._judge_stories(), *self._judge_home()]

    @property
    def fired(self) -> bool:
        enough = self.kills >= self._plan.kills and self.stops >= self._plan.stops
        return enough and self.counts["stale_refused"] > 0

    # -- what happens ------------------------------------------------------------------

    def _go(self) -> None:
        heard = time.monotonic()
        while not self._over(heard):
            for key, _ in self._selector.select(0.002):
                heard = time.monotonic()
                self._listen(key.data)
            self._wake_up()
            self._strike()
            if self.complaints and not self._broken:
                return

    def _enough(self) -> bool:
        """All messages are delivered and all faults fired, or will not within a minute more."""
        if len(self.delivered) < self._plan.messages:
            return False
        if self._broken or self.fired:
            return True
        self._patience = self._patience or time.monotonic() + _PATIENCE
        return time.monotonic() > self._patience

    def _over(self, heard: float) -> bool:
        if not self._enough():
            return False
        for hand in [each for each in self._hands if each.role == "deliverer"]:
            self._bury(hand)
        idle = time.monotonic() - heard > _QUIET and not self._stopped()
        return idle or (self.acks >= 0.98 * len(self.delivered) and not self._stopped())

    def _start(self, role: str) -> None:
        rng = self._rng
        self._lives += 1
        arm = ""
        if rng.random() < 0.3 and not self._broken:
            arm = f"{rng.choice(_STEPS[role])}=kill@{rng.randint(1, 60)}"
        victim = self._nursery.start(
            role,
            home=self._home,
            life=self._lives,
            seed=rng.getrandbits(48),
            arm=arm,
            broken=self._broken,
        )
        hand = Hand(victim, role, self._lives)
        self._hands.append(hand)
        self._selector.register(victim.channel, selectors.EVENT_READ, hand)

    def _strike(self) -> None:
        """As many faults as go with the messages so far."""
        # All of them before the last messages are through.
        share = min(1.0, self.acks / self._plan.messages / 0.9 + 0.02)
        if self.kills < self._plan.kills * share:
            hand = self._rng.choice(self._hands)
            self._bury(hand)
            self._replace(hand)
        elif self.stops + self._stopped() < self._plan.stops * share or (
            share == 1.0 and not self._enough() and self._stopped() < CLAIMERS // 4
        ):
            going = [each for each in self._hands if each.role == "claimer"]
            hand = self._rng.choice(going)
            if not hand.stopped_until:
                hand.victim.signal(signal.SIGSTOP)
                hand.stopped_until = now() + SECONDS * self._rng.uniform(1.2, 2.0)

    def _stopped(self) -> int:
        return sum(each.stopped_until > 0 for each in self._hands)

    def _wake_up(self) -> None:
        for hand in self._hands:
            if 0 < hand.stopped_until < now():
                hand.stopped_until = 0.0
                self.stops += 1
                hand.victim.signal(signal.SIGCONT)

    def _replace(self, hand: Hand) -> None:
        if hand.role == "claimer" or not self._enough():
            self._start(hand.role)

    def _listen(self, hand: Hand) -> None:
        for packet in hand.victim.packets():
            self._take(hand, packet)
        if hand.victim.gone:
            self._bury(hand)
            self._replace(hand)

    def _bury(self, hand: Hand) -> None:
        self._selector.unregister(hand.victim.channel)
        self._hands.remove(hand)
        # Its claims are void from here on, or from when it killed itself, heard of or not.
        at = now()
        by_itself = hand.victim.gone or _has_died(hand.victim.pid)
        self.died[hand.life] = 0.0 if by_itself else at
        status = hand.victim.kill()
        for packet in hand.victim.packets():
            self._take(hand, packet)
        hand.victim.channel.close()
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.kills += 1
        elif not self.complaints:
            self.complaints.append(f"a victim ended with status {status:#x}")

    def _take(self, hand: Hand, packet: bytes) -> None:
        if packet.startswith(b"!"):
            self.complaints.append(packet[1:].decode(errors="replace"))
            return
        what, id, attempt, *rest = json.loads(packet)
        if what == "D":
            self.delivered[id] = now()
            self.last[hand.life] = attempt
            return
        story = self.stories.setdefault(id, Story())
        match what:
            case "C":
                story.handed.append(Handing(hand.life, attempt, *rest))
            case "A":
                story.acked.append((attempt, *rest))
                self.acks += 1
            case _:
                self.counts["stale_refused"] += what == "L"
                for each in story.handed:
                    if each.attempt == attempt:
                        each.giving_back = what == "G"
                        each.given_back |= what == "B"
                        each.deadline = max(each.deadline, *rest, 0.0)

    # -- what it comes to --------------------------------------------------------------

    def _judge_stories(self) -> list[Broken]:
        found = [Broken("P7", says) for says in self.complaints]
        for id, story in self.stories.items():
            found += [Broken("P2", f"{id}: {says}") for says in self._judge(story)]
        return found

    def _judge(self, story: Story) -> list[str]:
        says: list[str] = []
        handed = sorted(story.handed, key=lambda each: each.attempt)
        self.counts["handed_out"] += len(handed)
        if len(story.acked) > 1:
            says.append(f"acknowledged {len(story.acked)} times")
        for attempt, began, _ in story.acked:
            later = [each for each in handed if each.attempt > attempt]
            if later:
                self.counts["stale_accepted"] += 1
                says.append(f"try {attempt} was accepted although try {later[0].attempt} was out")
            elif any(each.began > began for each in handed if each.attempt != attempt):
                says.append("handed out after it was done")
        for one, two in pairwise(handed):
            says += self._explain(one, two)
        return says

    def _explain(self, one: Handing, two: Handing) -> list[str]:
        """A message comes again only if the one before gave it back, died or was late."""
        self.counts["handed_out_again"] += 1
        if one.attempt == two.attempt:
            return [f"try {one.attempt} was handed out twice"]
        if two.attempt > one.attempt + 1:
            self.counts["claims_of_the_killed"] += two.attempt - one.attempt - 1
        if one.given_back or one.giving_back:
            self.counts["given_back"] += 1
        elif self.died.get(one.life, two.ended + 1) <= two.ended:
            self.counts["claimant_died"] += 1
        elif one.deadline <= two.ended + _SLACK:
            self.counts["deadline_passed"] += 1
        else:
            return [f"try {two.attempt} was handed out although try {one.attempt} was held"]
        return []

    def _judge_home(self) -> list[Broken]:
        """Do what is left, and see that every message is done and in no other place."""
        found: list[Broken] = []
        with Home.open(self._home) as home:
            box = home.mailbox(INBOX, tries=TRIES)
            deadline = time.monotonic() + 20 * SECONDS + 10
            while (box.waiting() or box.claimed()) and time.monotonic() < deadline:
                for claim in box.claim("drain", fence=self._lives + 1, seconds=60, limit=500):
                    box.ack(claim)
                    self.counts["drained"] += 1
                time.sleep(0.01)
            done = {message.id for message in box.done()}
            places = {"waiting": box.waiting(), "dead": box.dead(), "bad": box.bad()}
            for place, left in places.items():
                found += [Broken("P2", f"{each.id} is left {place}") for each in left]
            for finding in check(home):
                if finding.kind not in HARMLESS or finding.kind in ("temporary", "double"):
                    found.append(Broken("P6", f"check says {finding.kind}: {finding.detail}"))
        found += [
            Broken("P1", f"{id} was delivered, acknowledged, and is gone")
            for id in self.delivered
            if id not in done
        ]
        for id, story in self.stories.items():
            if story.acked and id not in done:
                found.append(Broken("P1", f"{id} was done, acknowledged, and is gone"))
        found += self._unheard(done - self.delivered.keys())
        return found

    def _unheard(self, names: set[str]) -> list[Broken]:
        """A message that nobody acknowledged is the next one of a deliverer that was killed."""
        found: list[Broken] = []
        self.counts["delivered_unheard"] = len(names)
        for name in names:
            path = Path(self._home, INBOX, ".done", f"{name}.json")
            life, _, number = str(json.loads(path.read_bytes())["n"]).partition(".")
            if int(number) != self.last.get(int(life), 0) + 1:
                found.append(Broken("P2", f"{name} is there and nobody delivered it"))
        return found


# --- the harness ----------------------------------------------------------------------------


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    counts: Counter[str] = Counter()
    for where, plan in _PLANS[tier].items():
        if case not in (None, where):
            continue
        with frame.scratch("inbox", _MEMORY if where == "memory" else None) as place:
            one = Round(place / "home", frame.seed_of(f"{seed} {where}"), plan)
            found = one.run()
        messages = len(one.delivered)
        result.tried += messages
        result.fired += messages if one.fired else 0
        result.lost += lost_in(found)
        failed = min(len(found), messages)
        if found:
            result.add_failure(where, str(found[0]), tuple(str(each) for each in found[1:10]))
            result.failed += failed - 1
        result.survived += messages - failed
        counts += one.counts
        counts += Counter(kills=one.kills, stops=one.stops, acks=one.acks)
        counts[f"messages_{where}"] = messages
    counts["stale_accepted"] += 0
    result.details = {"claimers": CLAIMERS, **dict(sorted(counts.items()))}
    return result


def control(seed: int) -> list[Control]:
    """A claim that leaves the message, an ack that takes any claim, an answer before the deed."""
    found: list[Control] = []
    for broken, says in (
        ("copy", "handed out twice"),
        ("anyname", "although"),
        ("ackfirst", "is gone"),
    ):
        said: list[str] = []
        # Whether a fault meets the bug is chance; that three rounds of them miss it is not.
        for again in range(3):
            with frame.scratch("inbox", _MEMORY) as place:
                one = Round(place / "home", seed + again, Plan(400, 30, 10), broken=broken)
                said = [str(each) for each in one.run() if says in each.says]
            if said:
                break
        found.append(Control(broken, bool(said), said[0] if said else "nothing noticed"))
    return found


def _has_died(pid: int) -> bool:
    """Whether a process has ended, also if nobody has looked after it yet."""
    try:
        about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
    return about.rpartition(")")[2].split()[0] in "ZX"
