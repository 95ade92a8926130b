"""The one record of a campaign that status, lists, reports and pages read.  Light: no contracts."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.codec import Record
from holdfast.improve.journal import RUNNING, State


def overview(state: State, *, alive: bool | None = None) -> Record:
    """A campaign in one record, for status, lists, pages and reports.

    `alive` is whether a process runs it now: a run without one is `interrupted`.
    """
    settings, rows = state["settings"], state["rows"]
    baseline: Record = state["baseline"] or {}
    higher = settings.get("benchmark_direction", "higher_is_better") == "higher_is_better"
    start, best = baseline.get("score"), state["best"]
    gain = None if start is None or best is None else (best - start) * (1 if higher else -1) + 0.0
    status = "interrupted" if state["status"] == RUNNING and alive is False else state["status"]
    one: Record = {"ended": True} if state["finalized"] or not state["round"] else state["round"]
    return {
        "campaign": state["campaign"],
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
        "best": best,
        "best_round": state["best_round"],
        "gain": gain,
        "gain_percent": None if gain is None or not start else 100 * gain / abs(start),
        "iterations": state["iterations"],
        "max_iterations": settings.get("max_iterations"),
        "round": None if one["ended"] else one["number"],
        "step": None if one["ended"] else one["step"],
        "plateau": state["plateau"],
        "breaker": state["breaker"],
        "phase": state["phase"],
        "evaluations": state["evaluations"],
        "calls": state["calls"],
        "tokens": state["tokens"],
        "cost_usd": round(state["cost_usd"], 6),
        "unknown_costs": state["unknown"],
        "elapsed_sec": round(state["elapsed"], 3),
        "branch": state["branch"],
        "base": state["base"],
        "head": state["head"],
        "repository": settings.get("repo_path", ""),
        "created": state["created"],
        "updated": state["updated"],
        "merged": sum(each["status"] == "merged" for each in state["rounds"]),
        "best_of_n": _best_of_base(rows, state["base"], higher=higher),
        "control": state["control"],
        "families": family_statistics(state),
        "rounds": state["rounds"],
        "rows": rows,
        "population": state["population"],
        "finalized": state["finalized"],
    }


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


def family_statistics(state: State) -> list[Record]:
    """Each family with how often it was tried and won, and what it brought."""
    found: dict[str, Record] = {}
    for row in state["rows"]:
        blank: Record = {"family": row["approach_family"], "tried": 0, "won": 0, "gain": 0.0}
        blank["seconds"] = 0.0
        one = found.setdefault(row["approach_family"], blank)
        one["tried"] += 1
        one["won"] += row["is_winner"]
        one["gain"] += row["gain"] or 0.0
        one["seconds"] += row["seconds"]
    return sorted(found.values(), key=lambda each: (-each["gain"], each["family"]))
