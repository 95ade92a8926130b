"""What is going on when the power goes: the scenarios of `powercut`.

`free` lets writers run as they like.  The others put several processes into a state that is
rare by chance, step by step: the first line of a day just acknowledged, a line written and
its writer frozen before the sync, a maker of a file dead before the directory was synced.  A
scenario returns at the instant of the cut; what was acknowledged by then is in the history.
"""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from prove.actors import DAYS, LEASE, SHARED, VIEWS, newest_day
from prove.oracle import History, Life
from prove.properties import Write
from prove.victims import Nursery, Victim

NOTE = "state/all/note.json"

_MIX = {
    "shared": 20,
    "batch": 4,
    "transact": 4,
    "own": 10,
    "days": 40,
    "count": 10,
    "view": 10,
    "lease": 3,
}
_FROZEN = ("log.append.unlocked", "log.append.synced")
"""Steps at which nobody else waits for a process that stands still."""
_KILLED = ("log.append.written", "segment.written", "segment.linked", "document.renamed")


class NotFired(Exception):
    """A part of the scenario that had to happen did not."""


class Stage:
    """One home on one disk, with the processes that work on it."""

    def __init__(self, nursery: Nursery, home: Path, rng: Random, *, broken: str = "") -> None:
        self.nursery, self.home, self.rng = nursery, home, rng
        self.history = History()
        self.day = 0
        self._broken = broken
        self._lives = 0
        self._attempts = 0
        self._crowd: list[tuple[Victim, Life]] = []
        self._puppets: list[Victim] = []
        self.others: list[Path] = []
        """Further homes that were made and acknowledged."""

    # -- processes ---------------------------------------------------------------------

    def writer(self, me: int, arm: str = "") -> None:
        self._lives += 1
        life = self.history.born(me, self._lives)
        victim = self.nursery.start(
            "writer",
            home=str(self.home),
            me=me,
            life=self._lives,
            seed=self.rng.getrandbits(48),
            mix=_MIX,
            day=max(self.day, newest_day(self.home)),
            arm=arm,
            broken=self._broken,
        )
        self._crowd.append((victim, life))

    def puppet(self) -> Victim:
        self.day = max(self.day, newest_day(self.home))
        victim = self.nursery.start("puppet", home=str(self.home), broken=self._broken)
        self._puppets.append(victim)
        return victim

    def listen(self, seconds: float) -> None:
        """Take in what the writers say."""
        deadline = time.monotonic() + seconds
        while (rest := deadline - time.monotonic()) > 0:
            channels = [victim.channel for victim, _ in self._crowd if not victim.gone]
            select.select(channels, [], [], rest)
            self.drain()

    def drain(self) -> None:
        for victim, life in self._crowd:
            for packet in victim.packets():
                self.history.take(life, packet)

    def end(self) -> None:
        """Kill everybody.  What comes out now is no acknowledgement: it came after the cut."""
        for victim, life in self._crowd:
            for packet in victim.end():
                self.history.take(life, packet, late=True)
        for victim in self._puppets:
            victim.end()
        self._crowd, self._puppets = [], []

    # -- things that puppets do --------------------------------------------------------

    def attempt(self, stream: str) -> Write:
        self._attempts += 1
        write = Write(stream, f"p.{self._attempts}", time.monotonic())
        self.history.writes.setdefault(stream, []).append(write)
        return write

    def acked(self, write: Write, answer: dict[str, Any] | None) -> None:
        """Replace an attempt by what was answered; an error is a complaint."""
        if answer is None:
            return
        if "error" in answer:
            self.history.complaints.append(f"{answer['error']}: {answer['says']}")
            return
        writes = self.history.writes[write.stream]
        done = write._replace(ended=answer["ended"], seq=answer["value"])
        writes[writes.index(write)] = done
        self.history.acks += 1

    def append(self, who: Victim, stream: str) -> None:
        write = self.attempt(stream)
        self.acked(write, who.ask(do="append", log=stream, record={"id": write.id}, day=self.day))

    def tell_append(self, who: Victim, stream: str) -> Write:
        write = self.attempt(stream)
        who.tell(do="append", log=stream, record={"id": write.id}, day=self.day)
        return write

    def ask(self, who: Victim, **command: Any) -> Any:
        answer = who.ask(**command)
        if answer is None or "error" in answer:
            raise NotFired(f"{command} answered {answer}")
        return answer["value"]

    def freeze(self, who: Victim, step: str, **command: Any) -> None:
        """Have a puppet do something and stand still at a step of it."""
        self.ask(who, do="arm", text=f"{step}=stop")
        who.tell(**command)
        if not who.wait_until_stopped():
            raise NotFired(f"nobody stood still at {step}")

    def freeze_append(self, who: Victim, stream: str, step: str) -> None:
        write = self.attempt(stream)
        self.freeze(who, step, do="append", log=stream, record={"id": write.id}, day=self.day)

    def die_appending(self, who: Victim, stream: str, step: str) -> None:
        write = self.attempt(stream)
        self.ask(who, do="arm", text=f"{step}=kill")
        if who.ask(do="append", log=stream, record={"id": write.id}, day=self.day) is not None:
            raise NotFired(f"nobody died at {step}")

    def commit_journal(self, who: Victim) -> None:
        """Something else on the disk is synced, and the journal of the disk with it."""
        self.ask(who, do="fsync", path=str(self.home.parent / "unrelated"))

    def some_appends(self, *who: Victim) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.append(self.rng.choice(who), DAYS)


# --- the scenarios --------------------------------------------------------------------------


def free(stage: Stage) -> None:
    """Everybody writes; some freeze or die at a step of the protocol before the cut."""
    rng = stage.rng
    for me in range(rng.randint(2, 6)):
        arm = ""
        if rng.random() < 0.2:
            arm = f"{rng.choice(_FROZEN)}=stop@{rng.randint(1, 20)}"
        elif rng.random() < 0.2:
            arm = f"{rng.choice(_KILLED)}=kill@{rng.randint(1, 10)}"
        stage.writer(me, arm)
    stage.listen(rng.uniform(0.02, 0.2))
    stage.drain()


def just_acked(stage: Stage) -> None:
    """A line behind others in the same file has just been acknowledged."""
    both = [stage.puppet(), stage.puppet()]
    for _ in range(stage.rng.randint(1, 4)):
        stage.append(stage.rng.choice(both), SHARED)


def new_day(stage: Stage) -> None:
    """The first line of a day has just been acknowledged."""
    one, other = stage.puppet(), stage.puppet()
    stage.some_appends(one, other)
    stage.day += 1
    stage.append(one, DAYS)


def new_day_raced(stage: Stage) -> None:
    """Two writers race for the first line of a day; cut at the first acknowledgement."""
    both = [stage.puppet(), stage.puppet()]
    stage.some_appends(*both)
    stage.day += 1
    writes = [stage.tell_append(who, DAYS) for who in both]
    select.select([who.channel for who in both], [], [], 10)
    for who, write in zip(both, writes, strict=True):
        for packet in who.packets():
            stage.acked(write, json.loads(packet))


def new_day_frozen(stage: Stage) -> None:
    """A second writer stands between write and sync; the first goes on to the next day."""
    one, other = stage.puppet(), stage.puppet()
    stage.some_appends(one, other)
    stage.day += 1
    if stage.rng.random() < 0.5:
        stage.append(one, DAYS)
    stage.append(other, DAYS)
    stage.freeze_append(other, DAYS, "log.append.unlocked")
    stage.day += stage.rng.randint(0, 1)
    stage.append(one, DAYS)


def new_day_orphan(stage: Stage) -> None:
    """The maker of a day's file died before the directory was synced; another one goes on."""
    one, other = stage.puppet(), stage.puppet()
    stage.some_appends(one, other)
    stage.day += 1
    stage.die_appending(one, DAYS, stage.rng.choice(["segment.written", "segment.linked"]))
    stage.append(other, DAYS)


def stamped(stage: Stage) -> None:
    """A view is stamped with a line whose writer stands between write and sync."""
    one, other, third = stage.puppet(), stage.puppet(), stage.puppet()
    log = stage.rng.choice([SHARED, DAYS])
    view = VIEWS[log]
    stage.append(one, log)
    stage.ask(other, do="refresh", log=log, key=view)
    stage.commit_journal(third)
    stage.freeze_append(one, log, "log.append.unlocked")
    stage.freeze(other, "view.stamped", do="refresh", log=log, key=view)
    stage.commit_journal(third)


def stamped_orphan(stage: Stage) -> None:
    """A view is stamped with the first line of a file whose maker died over it."""
    one, other, third = stage.puppet(), stage.puppet(), stage.puppet()
    stage.append(one, DAYS)
    stage.ask(other, do="refresh", log=DAYS, key=VIEWS[DAYS])
    stage.commit_journal(third)
    stage.day += 1
    stage.die_appending(one, DAYS, "segment.linked")
    stage.freeze(other, "view.stamped", do="refresh", log=DAYS, key=VIEWS[DAYS])
    if stage.rng.random() < 0.5:
        stage.commit_journal(third)


def document(stage: Stage) -> None:
    """A document has just been replaced, or the first one of a new directory been made."""
    one, other = stage.puppet(), stage.puppet()
    texts = stage.history.texts
    keys = [NOTE, f"state/new{stage.rng.getrandbits(20)}/deep/er/note.json"]
    for _ in range(stage.rng.randint(1, 4)):
        key = stage.rng.choice(keys)
        text = json.dumps({"n": stage.rng.getrandbits(64), "pad": "z" * stage.rng.randrange(9000)})
        texts.setdefault(key, []).append(text)
        stage.ask(stage.rng.choice([one, other]), do="replace", key=key, text=text)
        texts[key] = [text]
        stage.history.acks += 1
    if stage.rng.random() < 0.3:
        key = stage.rng.choice(list(texts))
        texts[key].append('{"text":"in flight"}')
        stage.freeze(other, "document.renamed", do="replace", key=key, text=texts[key][-1])


def new_log(stage: Stage) -> None:
    """The first line of a log in directories that were not there."""
    one, other = stage.puppet(), stage.puppet()
    stream = f"state/new{stage.rng.getrandbits(20)}/deep/er/log.jsonl"
    if stage.rng.random() < 0.4:
        stage.die_appending(one, stream, stage.rng.choice(["segment.written", "segment.linked"]))
        one = stage.puppet()
    stage.append(stage.rng.choice([one, other]), stream)


def lease(stage: Stage) -> None:
    """A fencing number has just been given out."""
    one, other = stage.puppet(), stage.puppet()
    for who in stage.rng.choices([one, other], k=stage.rng.randint(1, 4)):
        began = time.monotonic()
        fence = stage.ask(who, do="lease", key=LEASE)
        stage.history.fences.append((fence, began, began))
        stage.history.acks += 1
        if who.ask(do="free") is None:
            raise NotFired("nobody gave the lease back")


def new_home(stage: Stage) -> None:
    """A home has just been made."""
    path = stage.home.parent / f"h{stage.rng.getrandbits(32)}" / "home"
    stage.ask(stage.puppet(), do="make", path=str(path))
    stage.others.append(path)
    stage.history.acks += 1


SCENARIOS: dict[str, tuple[int, Callable[[Stage], None]]] = {
    "free": (40, free),
    "just_acked": (4, just_acked),
    "new_day": (8, new_day),
    "new_day_raced": (10, new_day_raced),
    "new_day_frozen": (8, new_day_frozen),
    "new_day_orphan": (8, new_day_orphan),
    "stamped": (10, stamped),
    "stamped_orphan": (5, stamped_orphan),
    "document": (6, document),
    "new_log": (4, new_log),
    "lease": (3, lease),
    "new_home": (2, new_home),
}
"""With how often each is played."""
