"""A campaign as status, lists, reports, charts and pages show it.  Light: no contracts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.codec import Record
from holdfast.improve.journal import RUNNING, State
from holdfast.text import plural

_SAME = (
    *("campaign", "created", "updated", "branch", "base", "head", "best", "best_round", "phase"),
    *("iterations", "plateau", "breaker", "evaluations", "calls", "tokens", "control"),
    *("rounds", "rows", "population", "finalized"),
)
"""What an overview has as the state has it."""


class Point(NamedTuple):
    """A candidate and its score."""

    round: int
    score: float | None
    won: bool
    family: str
    hypothesis: str = ""
    lesson: str = ""
    gain: float | None = None
    """What merging it brought, where that is recorded."""


class Curve(NamedTuple):
    """What a score chart needs."""

    points: list[Point]
    higher: bool
    metric: str
    baseline: float | None
    target: float | None
    sd: float | None

    def better(self, one: float, other: float) -> bool:
        return one > other if self.higher else one < other

    @property
    def best(self) -> float | None:
        """The best merged score; the baseline before the first."""
        best = self.baseline
        for each in self.points:
            if each.won and each.score is not None:
                best = each.score if best is None or self.better(each.score, best) else best
        return best

    @property
    def lessons(self) -> list[Point]:
        return [each for each in self.points if each.lesson and not each.won]


def overview(state: State, *, alive: bool | None = None) -> Record:
    """`alive` is whether a process runs it now: a run without one is `interrupted`."""
    settings, rows = state["settings"], state["rows"]
    baseline: Record = state["baseline"] or {}
    higher = settings.get("benchmark_direction", "higher_is_better") == "higher_is_better"
    start, best = baseline.get("score"), state["best"]
    gain = None if start is None or best is None else (best - start) * (1 if higher else -1) + 0.0
    status = "interrupted" if state["status"] == RUNNING and alive is False else state["status"]
    one: Record = {"ended": True} if state["finalized"] or not state["round"] else state["round"]
    facts: Record = {
        **{name: state[name] for name in _SAME},
        "status": "finalized" if state["finalized"] else status,
        "why": "" if state["finalized"] else state["why"],
        "next": _next(state, status),
        "objective": settings.get("objective", ""),
        "metric": settings.get("primary_metric", ""),
        "higher_is_better": higher,
        "target": settings.get("target_value"),
        "baseline": start,
        "noise_sd": baseline.get("sd"),
        "benchmark_seconds": baseline.get("seconds"),
        "gain": gain,
        "gain_percent": None if gain is None or not start else 100 * gain / abs(start),
        "max_iterations": settings.get("max_iterations"),
        "round": None if one["ended"] else one["number"],
        "step": None if one["ended"] else one["step"],
        "cost_usd": round(state["cost_usd"], 6),
        "unknown_costs": state["unknown"],
        "elapsed_sec": round(state["elapsed"], 3),
        "repository": settings.get("repo_path", ""),
        "merged": sum(each["status"] == "merged" for each in state["rounds"]),
        "best_of_n": _best_of_base(rows, state["base"], higher=higher),
    }
    return {**facts, "families": families(curve_of(facts))}


def _next(state: State, status: str) -> str:
    """What a person can do now."""
    name = state["campaign"]
    if state["finalized"]:
        return f"git log -p {state['finalized']['branch']}"
    if status == "target_reached" and state["head"] == state["base"]:
        return f"holdfast improve set {name} target_value VALUE"
    if status == "error":
        return f"repair what is named above, then holdfast improve run {name} --resume"
    if status in ("interrupted", "idle", "running"):
        return f"holdfast improve {'status' if status == 'running' else 'run'} {name}"
    if status in ("budget", "user_stopped") or state["head"] == state["base"]:
        return f"holdfast improve run {name} --resume"
    return f"holdfast improve finalize {name}"


def _best_of_base(rows: Sequence[Record], base: str | None, *, higher: bool) -> Record | None:
    """The best of the candidates that were made from the unchanged repository."""
    scores = [
        row["benchmark_score"]
        for row in rows
        if row["parent"] == base and row["benchmark_score"] is not None
    ]
    if not scores:
        return None
    return {"n": len(scores), "score": (max if higher else min)(scores)}


def curve_of(facts: Record) -> Curve:
    """The curve of a campaign's overview."""
    points = [
        Point(
            row["iteration"],
            row["benchmark_score"],
            row["is_winner"],
            row["approach_family"],
            row["hypothesis"],
            row["failure"]["lesson"] if row["failure"] else "",
            row["gain"],
        )
        for row in facts["rows"]
    ]
    names = ("higher_is_better", "metric", "baseline", "target", "noise_sd")
    return Curve(points, *(facts[name] for name in names))


def families(curve: Curve) -> list[Record]:
    """Each family with how often it was tried and won, and what it brought; the best first."""
    found: dict[str, Record] = {}
    best = curve.baseline
    for each in curve.points:
        blank: Record = {"family": each.family, "tried": 0, "won": 0, "gain": 0.0}
        one = found.setdefault(each.family, blank)
        one["tried"] += 1
        one["won"] += each.won
        ahead = 0.0
        if each.won and each.score is not None:
            if best is not None and curve.better(each.score, best):
                ahead = abs(each.score - best)
            best = each.score if ahead or best is None else best
        one["gain"] += ahead if each.gain is None else each.gain
    return sorted(found.values(), key=lambda each: (-each["gain"], -each["won"], each["family"]))


# --- in words -------------------------------------------------------------------------------


def blocks(facts: Record) -> str:
    """What stands in the way, in a line."""
    why = f": {facts['why']}" if facts["why"] else ""
    return f"{facts['campaign']} is {facts['status']}{why}"


def control(facts: Record) -> str:
    """What random search came to."""
    known = facts["control"]
    if known["best"] is None:
        return known["why"] or "not measured; `improve report --control` does"
    return f"{known['best']:.6g} in {plural(known['n'], 'evaluation')}"
