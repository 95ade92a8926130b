"""The documented files of a campaign: made from the state, and made again when they are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.codec import Record, pretty
from holdfast.contracts.improve import Plan
from holdfast.contracts.kind import read
from holdfast.improve.journal import RUNNING, SHAPE, Place, State, initial, results
from holdfast.store.backend import Backend
from holdfast.store.primitives import Line, Log

_ROW = ("iteration", "plan_id", "benchmark_score", "is_winner", "approach_family", "sub_scores")
_STEPS = (
    *("research", "planning", "critic_review", "execution", "tournament", "recording"),
    "stop_check",
)


class Views:
    """Writes what changed; used by the process that runs the campaign."""

    def __init__(self, home: Backend, place: Place) -> None:
        self._home, self._place = home, place
        self._written: dict[str, bytes] = {}

    def show(self, state: State) -> None:
        """Bring the documents of the campaign and of its last round up to date."""
        for path, value in documents(self._place, state):
            data = pretty(value)
            if self._written.get(path) == data:
                continue
            document = self._home.document(self._place.key(path))
            if path in self._written or (found := document.read()) is None or found.data != data:
                document.replace(data)
            document.close()
            self._written[path] = data

    def rebuild(self, log: Log) -> None:
        """Write the documents of every round again."""
        state = initial()
        for line in log.read():
            if isinstance(line, Line):
                if line.record.get("event") == "round":
                    self.show(state)
                state = SHAPE.fold(state, line)
        self.show(state)


def documents(place: Place, state: State) -> Iterator[tuple[str, Any]]:
    if (baseline := state["baseline"]) is not None:
        shown = {"baseline_score": "score", "noise_sd": "sd"}
        shown |= {"recorded_at": "recorded_at", "runs": "runs"}
        yield "tracking/baseline.json", {name: baseline[of] for name, of in shown.items()}
    yield "tracking/raw_data.json", [{name: row[name] for name in _ROW} for row in state["rows"]]
    yield "tracking/events.json", state["events"]
    if (one := state["round"]) is None:
        return
    number = one["number"]
    yield "state/iteration_state.json", iteration_state(place, state)
    if (brief := one["results"].get("research")) is not None:
        yield f"state/research_briefs/round_{number}.json", brief["brief"]
    for planner, plan in plans_of(state).items():
        yield f"plans/round_{number}/plan_{planner}.json", plan
        if one["ended"]:
            yield f"state/plan_archive/round_{number}/plan_{planner}.json", plan
    for executor, result in benchmark_results(state).items():
        yield f"state/benchmark_results/round_{number}/{executor}.json", result
    if one["ended"]:
        yield f"state/iteration_history/round_{number}.json", one["ended"]["history"]
        yield f"state/merge_reports/round_{number}.json", one["ended"]["report"]


def plans_of(state: State) -> dict[str, Record]:
    """The plans of the round by planner, with their reviews as soon as these are in.

    A planner whose reply is no plan at all has no document.
    """
    reviewed: dict[str, Record] = state["round"]["results"].get("reviewed", {}).get("plans", {})
    planned = results(state, "plan/")
    plans: dict[str, Record] = {name: each["plan"] for name, each in planned.items()}
    return {name: reviewed.get(name, plan) for name, plan in plans.items() if _is_plan(plan)}


def _is_plan(plan: Record | None) -> bool:
    return plan is not None and read(Plan, plan, strict=True).record is not None


def benchmark_results(state: State) -> dict[str, Record]:
    """What became of each executor of the round."""
    measured, found = results(state, "evaluate/"), dict[str, Record]()
    none: Record = {"score": None, "sub_scores": {}, "raw": "", "status": "error", "failure": None}
    for executor, one in results(state, "execute/").items():
        if executor not in measured and one["failure"] is None:
            continue
        judged: Record = measured.get(executor) or {**none, "at": one["at"]}
        found[executor] = {
            "executor_id": executor,
            "plan_id": one["plan_id"],
            "benchmark_score": judged["score"],
            "benchmark_raw": judged["raw"],
            "status": judged["status"],
            "sub_scores": judged["sub_scores"],
            "failure_analysis": judged["failure"] or one["failure"],
            "timestamp": judged["at"],
        }
    return found


def _executors(place: Place, state: State) -> dict[str, Record]:
    """Where each executor of the round is."""
    one, judged = state["round"], benchmark_results(state)
    blank: Record = {"status": "running", "output_path": None, "benchmark_score": None}
    executors: dict[str, Record] = {
        name: {**blank, "plan_id": args["plan_id"]}
        for step, args in one["open"].items()
        if (name := step.removeprefix("execute/")) != step
    }
    for name, made in results(state, "execute/").items():
        executors[name] = {**blank, "plan_id": made["plan_id"]}
        if name in judged:
            score = judged[name]["benchmark_score"]
            path = f"state/benchmark_results/round_{one['number']}/{name}.json"
            executors[name] |= {"output_path": place.key(path), "benchmark_score": score}
            executors[name]["status"] = "failed" if score is None else "completed"
    return executors


def iteration_state(place: Place, state: State) -> Record:
    one = state["round"]
    number, step, ended = one["number"], _STEPS.index(one["step"]), one["ended"]
    brief = one["results"].get("research")
    reviewed = one["results"].get("reviewed", {}).get("plans", {})
    winner: Record = (ended["report"]["winner"] if ended else None) or {}
    halted = state["status"] != RUNNING and not ended

    def reached(which: int) -> str:
        if step > which or ended:
            return "completed"
        return "in_progress" if step == which else "pending"

    def at(which: int) -> str | None:
        return one["updated"] if reached(which) == "completed" else None

    def key(path: str) -> str:
        return place.key(path.format(number))

    return {
        "iteration": number,
        "status": "completed" if ended else "interrupted" if halted else "in_progress",
        "current_step": one["step"],
        "started_at": one["started"],
        "updated_at": one["updated"],
        "research": {
            "status": "failed" if brief and brief["why"] else reached(0),
            "output_path": key("state/research_briefs/round_{}.json") if brief else None,
            "completed_at": at(0),
        },
        "planning": {
            "status": reached(1),
            "plans": {
                name: {
                    "status": "completed",
                    "output_path": key(f"plans/round_{{}}/plan_{name}.json"),
                    "critic_approved": plan["critic_approved"] if name in reviewed else None,
                }
                for name, plan in plans_of(state).items()
            },
            "approved_count": sum(plan["critic_approved"] for plan in reviewed.values()),
            "completed_at": at(1),
        },
        "execution": {
            "status": reached(3),
            "executors": _executors(place, state),
            "completed_at": at(3),
        },
        "tournament": {
            "status": reached(4),
            "winner": winner.get("executor_id"),
            "winner_score": winner.get("score_after"),
            "completed_at": at(4),
        },
        "recording": {
            "status": "completed" if ended else "pending",
            "history_path": key("state/iteration_history/round_{}.json") if ended else None,
            "visualization_updated": bool(ended),
            "cleanup_done": bool(ended),
        },
        "user_ideas_consumed": one["ideas"],
    }
