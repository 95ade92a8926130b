"""Swarms whose process dies at every step, and in the middle of real work.

Runs by chance (`swarm_scene.py`) go to their end undisturbed.  Then each is run again for some of
the places that its process came to: a child of ours kills itself there, in whichever thread that
is, and another one goes on; one in four of those dies too.  Then the same with `holdfast swarm run`
and real programs as agents that edit one note, killed at any time (`swarm_kills.py`).

Whatever happened, each tick is in the run once, no call is made again whose answer was recorded,
none at all that may have had an effect, and no money stays reserved.  Where all agents may be asked
again, the end is that of the run which nobody disturbed, apart from times.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.store.failpoints import armed
from holdfast.swarm.experts import Expert
from holdfast.swarm.runner import Runner
from prove import frame, swarm_kills
from prove.frame import Control, Harness, Result
from prove.job_scene import died
from prove.jobs import broken
from prove.swarm_kills import never, settled_home
from prove.swarm_scene import AGENTS, End, Plan, Scene, complaints, end_of, live, plan_of

POINTS = {"quick": 16, "ci": 120, "full": 1_000}
KILLS = {"quick": 1, "ci": 8, "full": 100}
HARNESS = Harness(
    name="swarm",
    proves="A swarm whose process dies anywhere loses no tick, and pays for no answer twice.",
    targets={tier: POINTS[tier] + KILLS[tier] for tier in POINTS},
    unit="deaths",
    beyond_store=True,
)
STEPS = ("swarm.written", "swarm.asking", "agent.acted", "swarm.answered")
INSIDE = (
    "lease.taken",
    "log.append.written",
    "log.append.unlocked",
    "log.append.synced",
    "segment.written",
    "document.written",
    "document.renamed",
    "sheet.written",
    "sheet.swapped",
    "view.stamped",
)
OF_A_RUN = 8
"""Deaths of one plan."""
TWICE = 0.25
"""How often the next process dies as well."""
MOST_LATER = 40


class Death(NamedTuple):
    """Where a process is to die: at the n-th place that it comes to."""

    place: int
    then: int | None = None
    """And where the next one is."""


class Case(NamedTuple):
    """What it takes to let a run die, and to judge what came of it."""

    plan: Plan
    expected: End
    places: list[str]
    template: Path
    between: Callable[[Scene], None] | None = None
    """What happens to the home while nobody runs it; for a control."""


# --- one death ------------------------------------------------------------------------------


@contextmanager
def watched(act: Callable[[str], None]) -> Generator[None]:
    with ExitStack() as stack:
        for name in (*STEPS, *INSIDE):
            stack.enter_context(armed(name, lambda name=name: act(name)))
        yield


def undisturbed(scene: Scene) -> tuple[End, list[str]]:
    """How the run ends, and the places that its process comes to on the way."""
    places: list[str] = []
    with watched(places.append):
        live(scene)
    return end_of(scene), places


def dies(scene: Scene, place: int) -> bool:
    """Go on in a child that is killed at a place; whether it got there."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            seen = count()  # its threads come to places side by side

            def act(name: str) -> None:
                if next(seen) == place:
                    os.kill(os.getpid(), signal.SIGKILL)

            with watched(act):
                live(scene)
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return died(child) == signal.SIGKILL


def struck(case: Case, death: Death) -> tuple[int, list[str]]:
    """Let the run die and come to its end; how many died, and what is wrong."""
    with frame.scratch("swarm") as place:
        scene = Scene(place, case.plan, case.template)
        fired = 0
        try:
            for where in (death.place, death.then):
                if where is not None and dies(scene, where):
                    fired += 1
                    scene.look()
                    if case.between is not None:
                        case.between(scene)
            live(scene)
            return fired, complaints(scene, case.expected)
        except Exception as error:
            return fired, [f"it cannot go on: {type(error).__name__}: {error}"]


# --- the harness ----------------------------------------------------------------------------


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    counts: Counter[str] = Counter()
    with settled_home(AGENTS) as template:
        if case is None:
            for number in count():
                left = POINTS[tier] - result.tried
                if left <= 0:
                    break
                one_run(result, counts, seed, number, min(left, OF_A_RUN), template)
        elif not case.startswith("kill"):
            number, place, *then = map(int, case.split(":"))
            death = Death(place, then[0] if then else None)
            one_run(result, counts, seed, number, 1, template, death)
        if case is None or case.startswith("kill"):
            swarm_kills.run(result, counts, KILLS[tier], seed, case, template)
    tree = frame.tree_hash(frame.source_in_use() / "holdfast/swarm")
    result.details = dict(sorted(counts.items())) | {"swarm_tree": tree}
    return result


def one_run(
    result: Result,
    counts: Counter[str],
    seed: int,
    number: int,
    most: int,
    template: Path,
    only: Death | None = None,
) -> None:
    plan = plan_of(seed, number)
    with frame.scratch("swarm") as place:
        scene = Scene(place, plan, template)
        expected, places = undisturbed(scene)
        if says := complaints(scene, None):
            result.add_failure(f"{number}:0", f"without a death: {says[0]}", tuple(says[1:10]))
    counts["runs"] += 1
    counts[f"runs of {plan.spec.topology}"] += 1
    counts["calls"] += len(expected.calls)
    rng = Random(frame.seed_of(f"{seed} deaths {number}"))
    one = Case(plan, expected, places, template)
    for death in [only] if only is not None else deaths(places, most, rng):
        fired, says = struck(one, death)
        while not fired and not says and death.place:
            # Documents go by the clock, so there may be fewer places than before.
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


def deaths(places: list[str], most: int, rng: Random) -> list[Death]:
    """Mostly at the steps of a swarm, one in three within what they do."""
    at = [n for n, name in enumerate(places) if name in STEPS]
    inside = [n for n, name in enumerate(places) if name not in STEPS]
    within = min(most // 3, len(inside))
    chosen = rng.sample(at, min(most - within, len(at))) + rng.sample(inside, within)
    later = [rng.randrange(MOST_LATER) if rng.random() < TWICE else None for _ in chosen]
    return [Death(*each) for each in zip(sorted(chosen), later, strict=True)]


# --- controls -------------------------------------------------------------------------------

_write = Runner._write


def line_by_line(self: Runner, lines: list[Any]) -> None:
    """A tick that is not one write, so that part of it can be there."""
    for line in lines[:-1]:
        self.run.write(line)
    _write(self, lines[-1:])


def forget_answers(scene: Scene) -> None:
    """As if the last line of a conversation had been written and never kept."""
    for agent in scene.plan.spec.agents:
        path = scene.home / f"state/{agent}/memory.jsonl"
        data = path.read_bytes() if path.exists() else b""
        if b'"role":"assistant"' in data.rstrip(b"\n").rpartition(b"\n")[2]:
            path.write_bytes(data[: data.rstrip(b"\n").rfind(b"\n") + 1])


def control(seed: int) -> list[Control]:
    """Runners that do what ours must never do."""
    with settled_home(AGENTS) as template:
        return [
            caught(
                "asks again although it was answered", seed, template, "P3", "swarm.answered",
                (Expert, "recorded", never),
            ),
            caught(
                "asks a program again", seed, template, "P3", "agent.acted",
                (Expert, "acts", never), acts=True,
            ),
            caught(
                "writes a tick line by line", seed, template, "P2", "swarm.written",
                (Runner, "_write", line_by_line),
            ),
            caught(
                "a conversation keeps no last line", seed, template, "P3", "swarm.answered",
                between=forget_answers,
            ),
            *swarm_kills.control(seed, template),
        ]  # fmt: skip


def caught(
    name: str,
    seed: int,
    template: Path,
    says: str,
    at: str,
    change: tuple[object, str, Any] | None = None,
    *,
    acts: bool = False,
    between: Callable[[Scene], None] | None = None,
) -> Control:
    """Let runs die at a place in a broken runner until somebody notices."""
    rng = Random(frame.seed_of(f"{seed} {name}"))
    plans = (plan_of(seed, number) for number in range(200))
    fit = [plan for plan in plans if bool(plan.acts and not plan.spec.repeatable) == acts]
    with ExitStack() as stack:
        if change is not None:
            stack.enter_context(broken(*change))
        for plan in fit[:4]:
            with frame.scratch("swarm") as place:
                expected, places = undisturbed(Scene(place, plan, template))
            one = Case(plan, expected, places, template, between)
            found = [n for n, each in enumerate(places) if each == at]
            for where in rng.sample(found, len(found)):
                fired, told = struck(one, Death(where))
                told = [each for each in told if each.startswith(says)]
                if fired and told:
                    return Control(name, True, told[0][:200])
    return Control(name, False, "nothing noticed")
