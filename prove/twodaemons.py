"""twodaemons: of any number of processes that want to lead, exactly one does.

Three kinds of cases.  *Starts*: many processes want one held lease at the same instant; one
gets it, and when it is killed or gives it back, exactly one of those who wait.  *Reuse*: an
owner is killed and the next process gets its number; it is never taken for the owner.
*Steps*: the wall clock jumps by seconds to years; that neither ends nor extends a lease, nor
anybody's patience.

A start fired if the process answered; a reuse if the new process has the old number; a step if
the clock of the processes shows it.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.store.home import Home
from prove import frame
from prove.contenders import Contender
from prove.frame import Control, Harness, Result
from prove.victims import Nursery, Victim


class Plan(NamedTuple):
    rounds: int
    starts: int
    reuses: int
    steps: int


_PLANS = {
    "quick": Plan(3, 20, 20, 20),
    "ci": Plan(10, 50, 100, 100),
    "full": Plan(20, 100, 100, 200),
}
_ALONE = ("unshare", "-f", "-p", "--mount-proc")


def _no_namespace(tier: str) -> str | None:
    tried = subprocess.run([*_ALONE, "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "needs pid namespaces"


HARNESS = Harness(
    name="twodaemons",
    proves="Exactly one process leads: at 100 starts at once, with reused numbers, with any clock.",
    targets={tier: p.rounds * p.starts + p.reuses + p.steps for tier, p in _PLANS.items()},
    unit="starts, reused numbers and clock steps",
    tools=("unshare",),
    root=True,
    missing=_no_namespace,
)
_ROLES = "prove.contenders"
_MEMORY = Path("/dev/shm")
_PATIENCE = 60.0
_SHORT = 0.05
_LATE = 5.0
"""How far behind its patience a process may be on a busy machine."""
_JUMPS = (1.0, 3_600.0, 86_400.0, 86_400.0 * 400)


class Case(NamedTuple):
    """What a case showed; `count` of them alike."""

    name: str
    fired: int
    broken: list[str]
    count: int = 1


# --- many starts at once --------------------------------------------------------------------


def starts(nursery: Nursery, home: str, number: int, seed: int, plan: Plan, kind: str) -> Case:
    """One round: all start, one leads; twice the leader goes, and one of the others follows."""
    rng = Random(frame.seed_of(f"{seed} start {number}"))
    barrier = Path(home).parent / "barrier"
    barrier.touch()
    gate = os.open(barrier, os.O_RDONLY)
    fcntl.flock(gate, fcntl.LOCK_EX)
    crowd = [nursery.start("contender", home=home, kind=kind) for _ in range(plan.starts)]
    waits = number % 2 == 1
    try:
        for victim in crowd:
            victim.tell(do="start", barrier=str(barrier), patience=_PATIENCE if waits else 0.0)
        _all_wait(barrier, plan.starts)
        os.close(gate)
        if waits:
            answered, broken = _succession(crowd, rng)
        else:
            answered, broken = _election(crowd)
    finally:
        for victim in crowd:
            victim.end()
    return Case(f"start:{number}", answered, broken, plan.starts)


def _all_wait(barrier: Path, count: int) -> None:
    """Until the kernel has all of them in the queue for the lock."""
    inode, deadline = f":{barrier.stat().st_ino} ", time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        rows = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        if sum(inode in row and "->" in row for row in rows) >= count:
            return
        time.sleep(0.005)
    raise TimeoutError("not all contenders came to the start")


def _election(crowd: list[Victim]) -> tuple[int, list[str]]:
    answers = [json.loads(victim.hear(_PATIENCE)) for victim in crowd]
    leaders = [answer for answer in answers if "fence" in answer]
    odd = [answer for answer in answers if "fence" not in answer and "busy" not in answer]
    broken = [f"{len(leaders)} of {len(crowd)} lead"] if len(leaders) != 1 else []
    return len(answers), broken + [str(answer) for answer in odd]


def _succession(crowd: list[Victim], rng: Random) -> tuple[int, list[str]]:
    """One after another leads; a leader is killed, or gives the lease back."""
    waiting, fences, broken = list(crowd), list[int](), list[str]()
    for _ in range(3):
        leader, answer = _next_leader(waiting)
        waiting.remove(leader)
        if "fence" not in answer:
            return len(crowd) - len(waiting), [f"one that waits was told {answer}"]
        fences.append(answer["fence"])
        if _anybody(waiting, 0.03):
            broken.append("a second one leads while the first has the lease")
        if rng.random() < 0.5:
            leader.kill()
        else:
            leader.ask(do="release")
    if fences != sorted(set(fences)):
        broken.append(f"the fencing numbers were {fences}")
    # The others still want it: that they are alive and wait is their answer.
    return len(crowd), broken


def _next_leader(waiting: list[Victim]) -> tuple[Victim, dict[str, Any]]:
    ready = _anybody(waiting, _PATIENCE)
    if not ready:
        raise TimeoutError("nobody leads")
    return ready[0], json.loads(ready[0].hear())


def _anybody(crowd: list[Victim], patience: float) -> list[Victim]:
    found, _, _ = select.select([victim.channel for victim in crowd], [], [], patience)
    return [victim for victim in crowd if victim.channel in found]


# --- the number of a dead owner -------------------------------------------------------------


def reuses(home: str, numbers: list[int], kind: str) -> Iterator[Case]:
    """In a process that is number 1 of a namespace of its own; cases as lines of JSON."""
    command = [*_ALONE, sys.executable, "-m", "prove.twodaemons"]
    order = json.dumps({"home": home, "numbers": numbers, "kind": kind})
    done = subprocess.run(
        [*command, order],
        capture_output=True,
        text=True,
        check=False,
        env=frame.child_environment(),
    )
    if done.returncode != 0:
        raise RuntimeError(f"the namespace ended with {done.returncode}: {done.stderr[-500:]}")
    for row in done.stdout.splitlines():
        yield Case(*json.loads(row))


def in_namespace(home: str, numbers: list[int], kind: str) -> None:
    for number in numbers:
        old, first = _forked(home, kind, _take_it)
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(old - 1), encoding="ascii")
        new, answer = _forked(home, kind, _look_and_take)
        broken: list[str] = []
        if answer["holder"]["alive"]:
            broken.append(f"process {new}, new with the number of the owner, is taken for it")
        if "fence" not in answer:
            broken.append(f"the lease of a dead process was refused: {answer}")
        elif answer["fence"] <= first["fence"]:
            broken.append(f"{answer['fence']} was given out after {first['fence']}")
        print(json.dumps(Case(f"reuse:{number}", int(new == old), broken)), flush=True)


def _take_it(hand: Contender) -> dict[str, Any]:
    return hand.acquire()


def _look_and_take(hand: Contender) -> dict[str, Any]:
    return {"holder": hand.holder(), **hand.acquire()}


def _forked(home: str, kind: str, act: Any) -> tuple[int, dict[str, Any]]:
    """A child that does something, says what came of it and is killed."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, json.dumps(act(Contender(home, kind))).encode())
        os.close(theirs)
        time.sleep(_PATIENCE)
    os.close(theirs)
    said = os.read(ours, 1 << 16)
    os.close(ours)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return pid, json.loads(said)


# --- clock steps ----------------------------------------------------------------------------


def steps(nursery: Nursery, home: str, numbers: list[int], seed: int, kind: str) -> Iterator[Case]:
    owner = nursery.start("contender", home=home, kind=kind)
    other = nursery.start("contender", home=home, kind=kind)
    try:
        for number in numbers:
            rng = Random(frame.seed_of(f"{seed} step {number}"))
            jump = rng.choice(_JUMPS) * rng.uniform(0.5, 1.0) * rng.choice((-1, 1))
            yield _step(number, owner, other, jump, waits=rng.random() < 0.5)
    finally:
        owner.end()
        other.end()


def _step(number: int, owner: Victim, other: Victim, jump: float, *, waits: bool) -> Case:
    """The owner leads, the clock jumps, the other one must wait; then it must not."""
    broken: list[str] = []
    first = _asked(owner, do="acquire", patience=_LATE)
    if waits:
        other.tell(do="acquire", patience=_SHORT)
        moved = _asked(owner, do="step", seconds=jump)
        refused = json.loads(other.hear())
        if "busy" in refused and not _SHORT <= refused["took"] < _SHORT + _LATE:
            broken.append(f"patience of {_SHORT} s took {refused['took']:.2f} s, step {jump:.0f} s")
    else:
        moved = _asked(owner, do="step", seconds=jump)
        refused = _asked(other, do="acquire")
    if "busy" not in refused:
        broken.append(f"a step of {jump:.0f} s ended the lease: {refused}")
    _asked(owner, do="release")
    if "busy" in refused:
        follows = _asked(other, do="acquire")
        if "fence" not in follows or follows["fence"] <= first.get("fence", 0):
            broken.append(f"a step of {jump:.0f} s kept a free lease: {follows}")
    _asked(other, do="release")
    seen = abs(moved["after"] - moved["before"] - jump) < 1.0
    return Case(f"step:{number}", int(seen), broken)


def _asked(who: Victim, **command: Any) -> dict[str, Any]:
    answer = who.ask(**command)
    if answer is None:
        raise RuntimeError(f"a contender died over {command}")
    return answer


# --- the harness ----------------------------------------------------------------------------


def cases(plan: Plan, seed: int, only: str | None = None, kind: str = "lease") -> Iterator[Case]:
    """All that are planned, those of a kind (`step`), or the one that is named (`step:7`)."""
    wanted, _, chosen = (only or "").partition(":")

    def numbers(what: str, count: int) -> list[int]:
        if wanted not in ("", what):
            return []
        return [int(chosen)] if chosen else list(range(count))

    with frame.scratch("twodaemons", _MEMORY) as place, Nursery(roles=_ROLES) as nursery:
        home = str(place / "home")
        Home.open(home, create=True, timezone="UTC").close()
        for number in numbers("start", plan.rounds):
            yield starts(nursery, home, number, seed, plan, kind)
        if mine := numbers("reuse", plan.reuses):
            yield from reuses(home, mine, kind)
        yield from steps(nursery, home, numbers("step", plan.steps), seed, kind)


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    kinds: Counter[str] = Counter()
    for one in cases(_PLANS[tier], seed, case):
        kinds[one.name.partition(":")[0]] += one.count
        result.tried += one.count
        result.fired += one.fired
        if one.broken:
            result.add_failure(one.name, one.broken[0], tuple(one.broken[1:]))
            result.failed += one.count - 1
        else:
            result.survived += one.count
    result.details = {"starts_at_once": _PLANS[tier].starts, **kinds}
    return result


def control(seed: int) -> list[Control]:
    """A file with the number of its owner; and a lease that ends by the wall clock."""
    found: list[Control] = []
    for kind, what, plan in (
        ("pidfile", "start", Plan(8, 20, 0, 0)),
        ("pidfile", "reuse", Plan(0, 0, 3, 0)),
        ("expiring", "step", Plan(0, 0, 0, 8)),
    ):
        says = [case.broken[0] for case in cases(plan, seed, kind=kind) if case.broken]
        detail = says[0] if says else "nothing noticed"
        found.append(Control(f"{kind}, {what}", bool(says), detail))
    return found


if __name__ == "__main__":
    in_namespace(**json.loads(sys.argv[1]))
