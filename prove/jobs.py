"""Jobs whose runner dies at every transition, and in the middle of real work.

Jobs by chance (`job_plans.py`) are run to their end undisturbed.  Then each is run again once for
each transition: the process dies there, and another one goes on.  It dies for good: it is a child
of ours that kills itself at a named place, so nothing of it is closed, flushed or tidied up.  Some
of the second processes die as well.  Then the same with `holdfast job run` and real programs as
agents (`job_kills.py`), ended by SIGKILL.

Whatever happened, the end has to be that of the job which nobody disturbed: state, trail, every
question and answer, files, and the effects that the agents had on a world outside of the home.  An
effect that is there twice has to be one that may be repeated.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.jobs import runner as engine
from holdfast.jobs.runner import Runner
from holdfast.store.failpoints import armed
from holdfast.store.home import Home
from prove import frame, job_kills
from prove.frame import Control, Harness, Result
from prove.job_plans import Plan, plan_of
from prove.job_scene import End, Scene, complaints, died, end_of, live, new_scene

JOBS = {"quick": 3, "ci": 16, "full": 1_000}
KILLS = {"quick": 2, "ci": 12, "full": 500}
HARNESS = Harness(
    name="jobs",
    proves="A job whose runner dies anywhere ends as if it had not, and nothing is done twice.",
    # Of a job there are some thirty transitions, of which a quick run takes a few; the kills are
    # counted among them.
    targets={"quick": 20, "ci": 300, "full": 20_500},
    unit="deaths",
    beyond_store=True,
)
TRANSITIONS = ("job.written", "job.claimed", "job.answered")
INSIDE = (
    "lease.taken",
    "log.append.written",
    "log.append.unlocked",
    "log.append.synced",
    "segment.written",
    "segment.linked",
    "segment.durable",
    "document.written",
    "document.renamed",
    "sheet.written",
    "sheet.swapped",
    "view.stamped",
)
"""Within a transition."""
MOST_OF_A_JOB = {"quick": 6, "ci": 1_000, "full": 1_000}
SOME_INSIDE = {"quick": 1, "ci": 4, "full": 6}
SHARE = 10
"""Jobs that one process of a large run takes at a time."""
TWICE = 0.25
"""How often the next process dies as well."""
MOST_LATER = 40


class Death(NamedTuple):
    """Where a process is to die: at the n-th place that it comes to."""

    place: int
    then: int | None = None
    """And where the next one is."""


# --- one death ------------------------------------------------------------------------------


@contextmanager
def watched(act: Callable[[str], None]) -> Generator[None]:
    with ExitStack() as stack:
        for name in (*TRANSITIONS, *INSIDE):
            stack.enter_context(armed(name, lambda name=name: act(name)))
        yield


def undisturbed(scene: Scene) -> tuple[End, list[str]]:
    """How the job ends, and the places that its process comes to on the way."""
    places: list[str] = []
    with watched(places.append):
        live(scene)
    return end_of(scene), places


def dies(scene: Scene, place: int) -> bool:
    """Run the job in a child that is killed at a place; whether it got there."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            seen = 0

            def act(name: str) -> None:
                nonlocal seen
                seen += 1
                if seen == place + 1:
                    os.kill(os.getpid(), signal.SIGKILL)

            with watched(act):
                live(scene)
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return died(child) == signal.SIGKILL


def deaths(places: list[str], tier: str, rng: Random) -> Iterator[Death]:
    """Every transition of a job, and some of the places within."""
    at = [n for n, name in enumerate(places) if name in TRANSITIONS]
    inside = [n for n, name in enumerate(places) if name not in TRANSITIONS]
    at = rng.sample(at, min(MOST_OF_A_JOB[tier], len(at)))
    for place in sorted(at + rng.sample(inside, min(SOME_INSIDE[tier], len(inside)))):
        yield Death(place, rng.randrange(MOST_LATER) if rng.random() < TWICE else None)


class Case(NamedTuple):
    """What it takes to let a job die, and to judge what came of it."""

    plan: Plan
    expected: End
    places: list[str]
    template: Path
    between: Callable[[Scene], None] | None = None
    """What happens to the home while nobody runs the job; for a control."""


class Found(NamedTuple):
    fired: int
    says: list[str]


def struck(case: Case, death: Death) -> Found:
    """Let the job die and come to its end; how many died, and what is wrong."""
    with frame.scratch("jobs") as place:
        scene = new_scene(place, case.plan, case.template)
        fired = 0
        for where in (death.place, death.then):
            if where is not None and dies(scene, where):
                fired += 1
                if case.between is not None:
                    case.between(scene)
        try:
            live(scene)
            return Found(fired, complaints(case.plan, case.expected, end_of(scene)))
        except Exception as error:
            return Found(fired, [f"it cannot go on: {type(error).__name__}: {error}"])


# --- the harness ----------------------------------------------------------------------------


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    counts: Counter[str] = Counter()
    for part, counted in _parts(tier, seed, case):
        result.add(part)
        counts += counted
    if case is None or case.startswith("kill"):
        job_kills.run(result, counts, KILLS[tier], seed, case)
    if case is None and counts["jobs"] != JOBS[tier]:
        result.add_failure("-", f"{counts['jobs']} of {JOBS[tier]} jobs were made")
    trees = {f"{name}_tree": frame.tree_hash(_source(name)) for name in ("jobs", "models", "ops")}
    result.details = dict(sorted(counts.items())) | trees
    return result


def _source(name: str) -> Path:
    return frame.source_in_use() / f"holdfast/{name}"


def _parts(tier: str, seed: int, case: str | None) -> Iterator[tuple[Result, Counter[str]]]:
    """Jobs that die in our own process; a large run has one for each processor."""
    if case is not None:
        if not case.startswith("kill"):
            number, place, *then = map(int, case.split(":"))
            death = Death(place, then[0] if then else None)
            yield some_jobs(tier, seed, range(number, number + 1), death)
        return
    shares = [range(JOBS[tier])[at : at + SHARE] for at in range(0, JOBS[tier], SHARE)]
    if len(shares) == 1:
        yield some_jobs(tier, seed, shares[0])
        return
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        waiting = [pool.submit(some_jobs, tier, seed, share) for share in shares]
        for each in waiting:
            yield each.result()


def some_jobs(
    tier: str, seed: int, numbers: range, only: Death | None = None
) -> tuple[Result, Counter[str]]:
    result, counts = Result(HARNESS.name, tier), Counter[str]()
    with empty_home() as template:
        for number in numbers:
            one_job(result, counts, tier, seed, number, only, template)
    return result, counts


def one_job(
    result: Result,
    counts: Counter[str],
    tier: str,
    seed: int,
    number: int,
    only: Death | None,
    template: Path,
) -> None:
    plan = plan_of(seed, number)
    with frame.scratch("jobs") as place:
        expected, places = undisturbed(new_scene(place, plan, template))
    counts["jobs"] += 1
    counts[f"ended {expected.state['status']}"] += 1
    counts["calls"] += len(expected.calls)
    counts["effects"] += len(expected.effects)
    rng = Random(frame.seed_of(f"{seed} deaths {number}"))
    one = Case(plan, expected, places, template)
    for death in [only] if only is not None else deaths(places, tier, rng):
        fired, says = struck(one, death)
        while not fired and not says and death.place:
            # Views and some syncs go by the clock, so there may be fewer places than before.
            death = death._replace(place=death.place - 1)
            fired, says = struck(one, death)
        result.tried += 1
        result.fired += fired > 0
        counts[f"died at {places[death.place]}"] += 1
        counts["died twice"] += fired > 1
        if says:
            where = ":".join(str(each) for each in (number, *death) if each is not None)
            result.lost += sum(each.startswith("P1") for each in says)
            result.add_failure(where, f"{places[death.place]}: {says[0]}", tuple(says[1:10]))
        else:
            result.survived += 1


@contextmanager
def empty_home() -> Generator[Path]:
    with frame.scratch("jobs") as place:
        Home.open(str(place / "home"), create=True, timezone="UTC").close()
        yield place / "home"


# --- controls -------------------------------------------------------------------------------


@contextmanager
def broken(what: object, name: str, instead: Any) -> Generator[None]:
    real = getattr(what, name)
    setattr(what, name, instead)
    try:
        yield
    finally:
        setattr(what, name, real)


def asks_first(self: Runner, *, on: bool = False) -> dict[str, Any]:
    """A call that is made before it is put on record that it will be."""
    state = self.job.state()
    if state["status"] == "RUNNING":
        self.recover()
        return self.job.state()
    phase = engine.phase_of(state)
    ref = engine.spec_of(state).model_of(phase) or ""
    asked = engine.asking(state, sent="json" if engine.acts(ref) else "chat")
    self._request = engine.model_request(
        asked, phase, timeout=1.0, ordinal=state["asked"].get(ref, 0)
    )
    early = engine.Call(state["sequence"], phase, ref, state["status"], None, "")
    answer = self._ask(early)
    call = self._claim()
    if call is not None:
        self._finish(call, answer)
    return self.job.state()


def forgets_replies(self: Runner) -> None:
    """A recovery that asks again although the reply is on record."""
    state = self.job.state()
    call = state["call"]
    if state["status"] == "RUNNING" and call is not None:
        self.job.decide(lambda now: [self._lost(now, again=True)])


def drop_last_line(scene: Scene) -> None:
    """As if the last line had been written and never kept."""
    data = scene.history.read_bytes() if scene.history.exists() else b""
    kept = data[: data.rstrip(b"\n").rfind(b"\n") + 1]
    scene.history.write_bytes(kept)


def control(seed: int) -> list[Control]:
    """Engines that do what ours must never do."""
    return [
        caught("asks before it says so", seed, "P3", (Runner, "_call", asks_first)),
        caught("asks again whoever it was", seed, "P3", (engine, "acts", lambda ref: False)),
        caught("asks again although it was told", seed, "P3", (Runner, "recover", forgets_replies)),
        caught("keeps no last line", seed, "", None, drop_last_line),
        *job_kills.control(seed),
    ]


def caught(
    name: str,
    seed: int,
    says: str,
    change: tuple[object, str, Any] | None,
    between: Callable[[Scene], None] | None = None,
) -> Control:
    """Let jobs die in a broken engine until somebody notices."""
    rng = Random(frame.seed_of(f"{seed} {name}"))
    plans = (plan_of(seed, number) for number in count())
    careful = (plan for plan in plans if not any(map(plan.may_repeat, plan.phases())))
    with empty_home() as template:
        for plan in islice(careful, 4):
            with frame.scratch("jobs") as place:
                expected, _ = undisturbed(new_scene(place, plan, template))
            with ExitStack() as stack:
                if change is not None:
                    stack.enter_context(broken(*change))
                with frame.scratch("jobs") as place:
                    _, places = undisturbed(new_scene(place, plan, template))
                case = Case(plan, expected, places, template, between)
                at = [n for n, each in enumerate(places) if each in TRANSITIONS]
                for where in rng.sample(at, len(at)):
                    found = struck(case, Death(where))
                    told = [each for each in found.says if each.startswith(says)]
                    if found.fired and told:
                        return Control(name, True, told[0][:200])
    return Control(name, False, "nothing noticed")
