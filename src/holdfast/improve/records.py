"""What a round comes to: history, merge report, rows, counters.  Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from holdfast.codec import Record
from holdfast.improve.acceptance import gain
from holdfast.improve.files import Settings
from holdfast.improve.journal import State, results
from holdfast.improve.roles import is_built_in
from holdfast.improve.tournament import Outcome, Won
from holdfast.text import clip, one_line

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}


def ended(state: State, settings: Settings, outcome: Outcome, tags: Sequence[str]) -> Record:
    """The line that ends the round under way."""
    one, first = state["round"], (outcome.won[0] if outcome.won else None)
    rows = _rows(state, settings, outcome)
    status, reason = _status(state, outcome, rows)
    candidates = {row["executor"]: _candidate(row) for row in rows}
    winners = [candidates[each.entrant.executor] for each in outcome.won]
    merged = [_merged(one["number"], each) for each in outcome.won]
    losers = [row for row in rows if not row["is_winner"]]
    history: Record = {
        "iteration": one["number"],
        "baseline_score": state["best"],
        "winner": winners[0] if winners else None,
        "losers": [
            {**candidates[row["executor"]], "failure_analysis": row["failure"]} for row in losers
        ],
        "research_brief_id": f"round_{one['number']}",
    }
    report: Record = {
        "iteration": one["number"],
        "goal_slug": state["goal_slug"],
        "winner": merged[0] if merged else None,
        "archived": list(tags),
        "regressions_detected": outcome.regressions,
        "re_benchmark_score": first.after if first else None,
        "status": status,
        "reason": reason,
    }
    if winners[1:]:
        history["stacked"], report["stacked"] = winners[1:], merged[1:]
    summary = {
        **history,
        "status": status,
        "reason": reason,
        "best": outcome.best,
        "head": outcome.head,
        "ideas": one["ideas"],
        "rejected": _rejected(state),
        "seconds": round(sum(row["seconds"] for row in rows), 6),
    }
    return {
        "event": "ended",
        **_counted(state, settings, outcome),
        "head": outcome.head,
        "rows": rows,
        "summary": summary,
        "history": history,
        "report": report,
        "population": population(state, settings, rows),
    }


def _counted(state: State, settings: Settings, outcome: Outcome) -> Record:
    """The counters after the round, as documented."""
    number = state["round"]["number"]
    counters: Record = {
        "iterations": number,
        "best": outcome.best,
        "best_subs": dict(outcome.sub_scores),
        "best_round": number if outcome.won else state["best_round"],
        "plateau": state["plateau"],
        "breaker": 0 if outcome.won else state["breaker"] + 1,
    }
    if outcome.won:
        ahead = gain(state["best"], outcome.best, higher=settings.higher)
        bar = settings.plateau_threshold
        if settings.plateau_relative is not None:
            bar = settings.plateau_relative * abs(state["best"])
        counters["plateau"] = 0 if ahead >= bar else state["plateau"] + 1
    return counters


def _rows(state: State, settings: Settings, outcome: Outcome) -> list[Record]:
    """One row for each candidate, with what planners and pages want to know of it."""
    made, judged = results(state, "execute/"), results(state, "evaluate/")
    plans = {p["plan_id"]: p for p in state["round"]["results"]["reviewed"]["plans"].values()}
    won = {each.entrant.executor: each for each in outcome.won}
    rows: list[Record] = []
    for name, one in made.items():
        plan, found, its = plans[one["plan_id"]], judged.get(name), won.get(name)
        score = found["score"] if found else None
        failed = outcome.failures.get(name) or one["failure"] or (found and found["failure"])
        rows.append(
            {
                "iteration": state["round"]["number"],
                "plan_id": one["plan_id"],
                "benchmark_score": its.after if its else score,
                "is_winner": its is not None,
                "approach_family": plan["approach_family"],
                "sub_scores": dict(its.sub_scores) if its else found["sub_scores"] if found else {},
                "executor": name,
                "hypothesis": one.get("hypothesis", plan["hypothesis"]),
                "status": "merged" if its else failed["category"] if failed else "beaten",
                "failed": failed is not None,
                "failure": failed,
                "commit": one["commit"] if one["commit"] != one["parent"] else None,
                "parent": one["parent"],
                # What a built-in planner wants to know of a plan of its own.
                "plan": {name: plan[name] for name in ("hypothesis", "expected_outcome")}
                if is_built_in(settings.planner)
                else None,
                "strayed": one["strayed"],
                "seconds": round(one["seconds"] + (found["seconds"] if found else 0.0), 6),
                "gain": gain(its.before, its.after, higher=settings.higher) if its else None,
            }
        )
    return rows


def _status(state: State, outcome: Outcome, rows: Sequence[Record]) -> tuple[str, str | None]:
    plans = state["round"]["results"]["reviewed"]["plans"]
    if outcome.won:
        return "merged", None
    if not plans:
        planned = results(state, "plan/")
        whys = "; ".join(f"{name}: {each['why']}" for name, each in planned.items())
        return "all_rejected", f"no plans produced ({whys})"
    if not rows:
        reasons = (
            f"{name}: {each['critic_review']['rejection_reason']}" for name, each in plans.items()
        )
        return "all_rejected", "; ".join(reasons)
    tried = outcome.failures
    if not tried:
        whys = (f"{row['executor']}: {row['failure']['what']}" for row in rows if row["failure"])
        return "no_winner", "; ".join(whys) or "no candidate held even"
    tie = all(": tie" in each["what"] for each in tried.values())
    whys = "; ".join(f"{name}: {each['what']}" for name, each in tried.items())
    return "no_improvement", f"tie: {whys}" if tie else whys


def _rejected(state: State) -> list[Record]:
    plans = state["round"]["results"]["reviewed"]["plans"]
    return [
        {
            "plan_id": plan["plan_id"],
            "approach_family": str(plan.get("approach_family")),
            "hypothesis": str(plan.get("hypothesis")),
            "reason": plan["critic_review"]["rejection_reason"],
        }
        for plan in plans.values()
        if not plan["critic_approved"]
    ]


def _candidate(row: Record) -> Record:
    names = ("plan_id", "approach_family", "hypothesis", "sub_scores")
    return {**{name: row[name] for name in names}, "score": row["benchmark_score"]}


def _merged(number: int, won: Won) -> Record:
    return {
        "executor_id": won.entrant.executor,
        "branch": f"experiment/round_{number}_{won.entrant.executor}",
        "hypothesis": won.entrant.plan["hypothesis"],
        "score_before": won.before,
        "score_after": won.after,
        "sub_scores": dict(won.sub_scores),
    }


def population(state: State, settings: Settings, rows: Sequence[Record]) -> list[Record]:
    """The candidates that others may be built on: the best, of each family at most half."""
    if settings.population <= 1:
        return []
    new = [
        {**_candidate(row), "commit": row["commit"]}
        for row in rows
        if row["commit"] and row["benchmark_score"] is not None and row["status"] != "oom"
    ]
    everyone = [*state["population"], *new]
    front = [each for each in everyone if not any(dominates(o, each, settings) for o in everyone)]
    rest = [each for each in everyone if each not in front]
    kept: list[Record] = []
    for each in [*_ranked(front, settings), *_ranked(rest, settings)]:
        alike = sum(one["approach_family"] == each["approach_family"] for one in kept)
        if len(kept) < settings.population and alike < max(1, (settings.population + 1) // 2):
            kept.append(each)
    return kept


def _ranked(found: list[Record], settings: Settings) -> list[Record]:
    return sorted(found, key=itemgetter("score"), reverse=settings.higher)


def dominates(one: Record, other: Record, settings: Settings) -> bool:
    """Whether a candidate is nowhere worse than another, and somewhere better."""
    names = {**one["sub_scores"], **other["sub_scores"]}
    pairs = [(one["score"], other["score"])]
    pairs += [(one["sub_scores"].get(name), other["sub_scores"].get(name)) for name in names]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    ahead = [gain(b, a, higher=settings.higher) for a, b in known]
    return min(ahead) >= 0 and max(ahead) > 0


def meets(value: float | None, target: Any) -> bool:
    return value is not None and _COMPARE[target.comparison](value, target.bound)


def line(state: State) -> str:
    """A round as one line of text."""
    last: Mapping[str, Any] = state["rounds"][-1]
    shown = f"round {last['iteration']}  {last['status']}"
    if last["winner"]:
        before, after = last["baseline_score"], last["best"]
        shown += f"  {before:g} → {after:g}  {one_line(last['winner']['hypothesis'])}"
    else:
        shown += f"  best {state['best']:g}  {one_line(str(last['reason']))}"
    return clip(shown, 160) + "\n"
