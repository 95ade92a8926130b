"""Which candidate of a round is merged, and which of the others upon it.

The best first: what would be merged is measured against what is there, in pairs where there is
noise.  Only when that is decided does the branch move, so nothing has to be taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import fmean
from typing import NamedTuple

from holdfast.codec import Record
from holdfast.errors import Conflict
from holdfast.improve.acceptance import Decision, contest, regressed
from holdfast.improve.candidates import Workshop
from holdfast.improve.evaluator import failure
from holdfast.improve.executed import changed_statements, executed_lines, never_ran
from holdfast.improve.roles import seed_of
from holdfast.improve.steps import Steps
from holdfast.text import one_line, plural
from holdfast.workspace.repo import Conflicts

_PHASE = "tournament"


class Entrant(NamedTuple):
    """A candidate that ran and held even."""

    executor: str
    plan: Record
    commit: str
    score: float


class Won(NamedTuple):
    entrant: Entrant
    commit: str
    """What the branch was moved to."""
    before: float
    after: float
    sub_scores: Mapping[str, float | None]


class Outcome(NamedTuple):
    won: list[Won]
    """The winner, and those that were stacked on it."""
    failures: dict[str, Record]
    """Why executors that were tried did not make it."""
    regressions: bool
    head: str
    best: float
    sub_scores: Mapping[str, float | None]


class _Unfit(Exception):
    def __init__(
        self, what: str, why: str, category: str = "logic_error", lesson: str = ""
    ) -> None:
        super().__init__(what)
        self.failed = failure(what, why, category, lesson)


def hold(steps: Steps, workshop: Workshop, entrants: list[Entrant]) -> Outcome:
    """Try the entrants, best first; the winner and what could be stacked on it."""
    higher, state, one = steps.settings.higher, steps.state, steps.state["round"]
    ranked = sorted(
        entrants, key=lambda each: ((-each.score if higher else each.score), each.executor)
    )
    at = Outcome([], {}, False, one["head"], state["best"], state["best_subs"])
    for entrant in ranked:
        try:
            won = _tried(steps, workshop, one, entrant, at)
        except _Unfit as unfit:
            at.failures[entrant.executor] = unfit.failed
            lost = unfit.failed["category"] == "regression"
            at = at._replace(regressions=at.regressions or lost)
            continue
        at = at._replace(
            won=[*at.won, won], head=won.commit, best=won.after, sub_scores=won.sub_scores
        )
    return at


def _tried(steps: Steps, workshop: Workshop, one: Record, entrant: Entrant, at: Outcome) -> Won:
    name = entrant.executor
    trial = steps.once(f"trial/{name}", _PHASE, partial(_trial, workshop, entrant, at))
    if trial["conflicts"]:
        paths = ", ".join(trial["conflicts"][:5])
        lesson = "build on what was merged, or change other lines"
        what = f"it conflicts with what was merged before it: {paths}"
        raise _Unfit(what, "both change the same lines", lesson=lesson)
    if trial["commit"] == at.head:
        what = "it brings nothing that is not merged already"
        raise _Unfit(what, "the same change", lesson="try something else")
    found, before, after = _contest(steps, one, entrant, trial["commit"], at)
    if not found.accepted:
        pairs = plural(found.pairs, "pair")
        compared = f"{found.candidate:g} against {found.base:g} in {pairs}: {found.why}"
        raise _Unfit(compared, "not better than what it is built on", "regression")
    # Only sub-scores of the documented JSON are known to go the same way as the score.
    s = steps.settings
    kept = before if s.benchmark_format == "json" else {}
    if fell := regressed(kept, after, threshold=s.regression_threshold, higher=s.higher):
        drops = ", ".join(f"{each} {before[each]:g} → {after.get(each)}" for each in fell[:5])
        raise _Unfit(f"sub-scores fell: {drops}", "a part was paid for with others", "regression")
    traced = steps.once(f"traced/{name}", _PHASE, partial(_traced, steps, workshop, trial, at))
    if traced["dead"]:
        what = "the lines that it changed never ran under the benchmark"
        lesson = "change lines that the benchmark runs"
        raise _Unfit(what, "the score cannot come from them", lesson=lesson)
    made = steps.once(
        f"commit/{name}", _PHASE, partial(_commit, workshop, one, entrant, trial, found, at)
    )
    given = steps.once(f"publish/{name}", _PHASE, partial(_publish, steps, workshop, made, at))
    if given["moved"]:
        what = f"{steps.state['branch']} was moved by another process in between"
        raise _Unfit(what, "the branch is not what was measured", "infrastructure")
    return Won(entrant, made["commit"], at.best, found.candidate, after)


def _trial(workshop: Workshop, entrant: Entrant, at: Outcome) -> Record:
    """The commit that would be merged; its message is made later."""
    if not at.won:
        # Also one that is made from an older candidate: as it is it has to beat what is there.
        return {"commit": entrant.commit, "conflicts": []}
    found = workshop.repo.merge(at.head, entrant.commit)
    if isinstance(found, Conflicts):
        return {"commit": None, "conflicts": found.paths}
    same = workshop.git.root(found) == workshop.git.root(at.head)
    return {"commit": at.head if same else found, "conflicts": []}


def _contest(
    steps: Steps, one: Record, entrant: Entrant, commit: str, at: Outcome
) -> tuple[Decision, dict[str, float | None], dict[str, float | None]]:
    """Measure what is there and what would be; with the sub-scores of both."""
    exact = steps.state["baseline"]["sd"] == 0.0
    subs: list[list[Mapping[str, float | None]]] = [[], []]

    def side(number: int, which: int, of: str) -> float:
        seed = 0 if exact else seed_of(one["seed"], one["number"], f"pair/{number}")
        label = "candidate" if which else "base"
        step = f"pair/{entrant.executor}/{number:02}/{label}"
        found = steps.evaluate(step, _PHASE, of, seed=seed, fresh=True)
        if found["score"] is None and which:
            raise _Unfit(**found["failure"])
        if found["score"] is None:
            what = "what it is built on could not be measured"
            raise _Unfit(what, found["failure"]["what"], "infrastructure")
        subs[which].append(found["sub_scores"])
        return found["score"]

    def pair(number: int) -> tuple[float, float]:
        if exact:
            subs[0].append(at.sub_scores)
            return at.best, side(number, 1, commit)
        # In turn: what changes over time does not favour one of them.
        first, second = ((0, at.head), (1, commit))[:: 1 if number % 2 == 0 else -1]
        scores = {which: side(number, which, of) for which, of in (first, second)}
        return scores[0], scores[1]

    decided = contest(pair, higher=steps.settings.higher, exact=exact)
    return decided, _means(subs[0]), _means(subs[1])


def _means(found: list[Mapping[str, float | None]]) -> dict[str, float | None]:
    names = dict.fromkeys(name for each in found for name in each)
    means: dict[str, float | None] = {}
    for name in names:
        known = [value for each in found if (value := each.get(name)) is not None]
        means[name] = fmean(known) if known else None
    return means


def _traced(steps: Steps, workshop: Workshop, trial: Record, at: Outcome) -> Record:
    """Whether none of the changed Python lines ran under the benchmark."""
    changed = changed_statements(workshop.git, at.head, trial["commit"])
    if changed is None:
        return {"dead": False, "watched": False}
    ran = executed_lines(steps.evaluator.lines_run(trial["commit"]))
    return {"dead": never_ran(changed, ran), "watched": bool(ran)}


def _commit(
    workshop: Workshop, one: Record, entrant: Entrant, trial: Record, found: Decision, at: Outcome
) -> Record:
    hypothesis = one_line(str(entrant.plan["hypothesis"]))
    scores = f"(score: {at.best:g} → {found.candidate:g})"
    message = f"Iteration {one['number']}: {hypothesis[:300]} {scores}"
    tree = workshop.git.root(trial["commit"])
    return {"commit": workshop.repo.commit(tree, (at.head, entrant.commit), message)}


def _publish(steps: Steps, workshop: Workshop, made: Record, at: Outcome) -> Record:
    """Move the branch, if it still is what was measured; moved already is moved."""
    branch, commit = steps.state["branch"], made["commit"]
    try:
        workshop.repo.publish(commit, branch, expected=at.head)
    except Conflict:
        there = workshop.repo.adopt(branch)
        if there == at.head:
            raise  # it is checked out
        return {"moved": there != commit}
    return {"moved": False}
