"""Jobs by chance: their phases, what their agents will say, and what their steward will decide.

A plan is the same for the same seed and number.  Everything in it is decided by place, never by
time: the third answer of a phase is the third answer, whoever died meanwhile.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple

from prove import frame

COMPLETED, RETRY, STUCK = "COMPLETED", "RETRY", "STUCK"
ERROR, GARBAGE = "error", "garbage"
MOST_IN_A_ROW = 2
"""Of RETRY and of errors, so that a limit is never met: a steward's decision begins the count
anew, and one more of those is what a death may bring.  Plans in which no call is ever left to a
steward go beyond it."""


class Plan(NamedTuple):
    number: int
    spec: dict[str, Any]
    says: dict[str, list[str]]
    """For each phase what its agent says, in order; afterwards it says COMPLETED."""
    stuck: dict[str, list[str]]
    """For each phase what the steward decides when it is stuck, in order; then he lets it go on."""
    approvals: dict[str, list[str]]
    pause_after: int | None
    """Behind so many verdicts the steward suspends the job, and resumes it."""

    def phases(self) -> list[str]:
        return [str(each["name"]) for each in self.spec["phases"]]

    def phase(self, name: str) -> dict[str, Any]:
        return next(each for each in self.spec["phases"] if each["name"] == name)

    def acts(self, name: str) -> bool:
        return str(self.phase(name)["model"]).startswith(("agent:", "command:"))

    def may_repeat(self, name: str) -> bool:
        """Whether a call of this phase may be made twice."""
        return bool(self.phase(name).get("repeatable")) or not self.acts(name)

    def said(self, name: str, index: int) -> str:
        return nth(self.says.get(name, []), index, COMPLETED)


def nth(some: list[str], index: int, otherwise: str) -> str:
    return some[index] if index < len(some) else otherwise


def answer(plan: Plan, phase: str, index: int, told: str = "") -> str:
    """The words of the agent of a phase when it is asked for the n-th time."""
    kind = plan.said(phase, index)
    if kind == GARBAGE:
        return f"I did {phase} number {index}, and I say so in prose."
    files = [f"{phase}.txt"] if plan.acts(phase) else []
    summary = told or f"This is answer {index} of {phase}."
    said = {"action": kind, "evidence_files": files, "summary_for_supervisor": summary}
    return json.dumps(said)


def plan_of(seed: int, number: int, *, command: str | None = None) -> Plan:
    """A job by chance; with `command` all of its agents are programs that are started so."""
    rng = Random(frame.seed_of(f"{seed} job {number}"))
    careful = rng.random() < 0.75
    """Whether some call must not be made twice."""
    names = [f"p{index}" for index in range(rng.randint(1, 4))]
    phases = [_phase(rng, name, careful=careful, command=command) for name in names]
    spec: dict[str, Any] = {
        "job_id": f"job-{number}",
        "prompt": f"Do the work of job {number}.",
        "phases": phases,
        "budget": {"max_iterations": 1000, "max_cost_usd": 1000.0, "max_seconds": 1e6},
        "isolation": "directory",
    }
    # Programs count by what the one before told them, which these would take from them.
    counted = command is not None
    says = {
        each["name"]: _words(rng, each["role"] == "supervisor", careful=careful, counted=counted)
        for each in phases
    }
    back = [0, 0] if counted else [2, 2]
    stuck = {
        name: rng.choices(["continue", "rewind", "point"], [6, *back], k=rng.randint(0, 2))
        for name in names
    }
    if rng.random() < 0.1:
        stuck[rng.choice(names)].append("halt")
    approvals = {
        each["name"]: ["reject"] * rng.choice([0, 0, 1]) for each in phases if each.get("approval")
    }
    pause = rng.randint(1, 4) if rng.random() < 0.3 else None
    return Plan(number, spec, says, stuck, approvals, pause)


def _phase(rng: Random, name: str, *, careful: bool, command: str | None) -> dict[str, Any]:
    role = rng.choice(["worker", "worker", "supervisor"])
    kinds = ["acts", "repeats", "answers"] if careful else ["repeats", "answers"]
    kind = rng.choice(kinds if command is None else kinds[:-1])
    model = f"{'scripted' if kind == 'answers' else 'agent'}:{name}"
    phase: dict[str, Any] = {
        "name": name,
        "role": role,
        "instructions": f"Do what {name} is for.",
        "model": f"command:{command} {name}" if command else model,
        "max_retries": 3,
    }
    if kind == "repeats":
        phase["repeatable"] = True
    if rng.random() < 0.2:
        phase["approval"] = True
    if kind != "answers" and role == "worker" and rng.random() < 0.12:
        # The file is empty after the first answer, so that is not enough.
        phase["gates"] = [{"run": f"grep -q . {name}.gate"}]
    return phase


def _words(rng: Random, reviews: bool, *, careful: bool, counted: bool) -> list[str]:
    kinds = [COMPLETED, RETRY, STUCK, GARBAGE, ERROR]
    weights = [5, 3, 1, 0, 0] if counted else [5, 3, 1, 0.7, 1.5]
    most = MOST_IN_A_ROW if careful else 5
    says: list[str] = []
    for _ in range(rng.randint(0, 5)):
        kind = rng.choices(kinds, weights)[0]
        in_a_row = says[-most:] == [kind] * most
        if kind == RETRY and reviews and says.count(RETRY) >= most:
            continue  # these are counted together until the review is done with
        if kind in (RETRY, ERROR) and in_a_row:
            continue
        says.append(kind)
    return says
