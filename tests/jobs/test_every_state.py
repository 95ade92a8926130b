"""Every state of a job against everything that people and agents can do to it."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest

from holdfast.contracts.job_states import FINAL, STATES
from holdfast.jobs.job import Job
from holdfast.jobs.runner import Runner
from holdfast.jobs.spec import Options, settled, spec_from
from holdfast.models.scripted import Scripted
from holdfast.ops.jobs import workspace_of
from holdfast.store.home import Home
from tests.jobs.desk import AGAIN, DONE, STUCK, Desk
from tests.ledger.shell import on_its_own

ACTIONS: dict[str, tuple[str, ...]] = {
    "activate": ("activate", "demo"),
    "COMPLETED": ("step", "demo", "--response", json.dumps(DONE)),
    "RETRY": ("step", "demo", "--response", json.dumps(AGAIN)),
    "STUCK": ("step", "demo", "--response", json.dumps(STUCK)),
    "no reply": ("step", "demo", "--response", "I am done!"),
    "set": ("set", "demo", "--description", "Other"),
    "continue": ("steward", "demo", "continue", "--guidance", "Go on"),
    "answer": ("steward", "demo", "answer", "--guidance", "The second"),
    "halt": ("steward", "demo", "halt"),
    "approve": ("steward", "demo", "approve"),
    "reject": ("steward", "demo", "reject", "--guidance", "Too long"),
    "suspend": ("suspend", "demo"),
    "resume": ("resume", "demo"),
    "resume --max-cost": ("resume", "demo", "--max-cost", "5"),
    "resume --max-time": ("resume", "demo", "--max-time", "2h"),
    "resume --max-iterations": ("resume", "demo", "--max-iterations", "9"),
    "rewind": ("rewind", "demo", "--phase", "0"),
    "rewind --start": ("rewind", "demo", "--start"),
    "checkpoint": ("checkpoint", "demo", "here"),
    "cancel": ("cancel", "demo"),
}
_CALLS = {
    "RETRY": "PENDING",
    "STUCK": "INTERVENTION_REQUIRED",
    "no reply": "INTERVENTION_REQUIRED",
}
_BACK = {"rewind": "PENDING", "rewind --start": "PENDING", "cancel": "CANCELED"}
_ANY_RESUME = ("resume", "resume --max-cost", "resume --max-time", "resume --max-iterations")

TABLE: dict[str, dict[str, str]] = {
    "DRAFT": {
        "activate": "PENDING",
        "COMPLETED": "REVIEWING",
        **_CALLS,
        "set": "DRAFT",
        "cancel": "CANCELED",
    },
    "PENDING": {
        "COMPLETED": "REVIEWING",
        **_CALLS,
        **_BACK,
        "suspend": "PENDING, suspended",
        "checkpoint": "PENDING",
    },
    "RUNNING": {
        "COMPLETED": "REVIEWING",
        **_CALLS,
        "suspend": "RUNNING",
        "cancel": "CANCELED",
    },
    "REVIEWING": {
        "COMPLETED": "SUCCESS",
        **_CALLS,
        **_BACK,
        "suspend": "REVIEWING, suspended",
        "checkpoint": "REVIEWING",
    },
    "SUCCESS": {},
    "CANCELED": {},
    "INTERVENTION_REQUIRED": {
        "continue": "PENDING",
        "answer": "PENDING",
        "halt": "CANCELED",
        **_BACK,
        "suspend": "INTERVENTION_REQUIRED, suspended",
        "checkpoint": "INTERVENTION_REQUIRED",
    },
    "HALTED_COST": {
        "resume --max-cost": "PENDING",
        "checkpoint": "HALTED_COST",
        "cancel": "CANCELED",
    },
    "HALTED_TIME": {
        "resume --max-time": "PENDING",
        "checkpoint": "HALTED_TIME",
        "cancel": "CANCELED",
    },
    "suspended": {
        **dict.fromkeys(_ANY_RESUME, "PENDING"),
        "rewind": "PENDING, suspended",
        "rewind --start": "PENDING, suspended",
        "checkpoint": "PENDING, suspended",
        "cancel": "CANCELED",
    },
    "suspended, stuck": {
        **dict.fromkeys(_ANY_RESUME, "INTERVENTION_REQUIRED"),
        "continue": "PENDING, suspended",
        "answer": "PENDING, suspended",
        "halt": "CANCELED",
        "rewind": "PENDING, suspended",
        "rewind --start": "PENDING, suspended",
        "checkpoint": "INTERVENTION_REQUIRED, suspended",
        "cancel": "CANCELED",
    },
    "approval": {
        "approve": "REVIEWING",
        "reject": "PENDING",
        "checkpoint": "REVIEWING, approval",
        "cancel": "CANCELED",
    },
    "iterations": {
        "resume --max-iterations": "REVIEWING",
        **_BACK,
        "checkpoint": "REVIEWING, iterations",
    },
}
"""For each state what may be done, and where it leads; all else is refused."""


def test_no_state_is_left_out() -> None:
    assert set(STATES) <= set(TABLE)


def reach(desk: Desk, state: str) -> None:
    """A job of two phases in this state."""
    phases = [{"name": "work", "approval": state == "approval"}, {"name": "review"}]
    phases[1]["role"] = "supervisor"
    budget: dict[str, float] = {
        "HALTED_COST": {"max_cost": 0},
        "HALTED_TIME": {"max_time": 0},
        "iterations": {"max_iterations": 1},
    }.get(state, {})
    models = {"worker": desk.script(DONE), "supervisor": desk.script(DONE)}
    told = desk.spec(prompt="P", phases=phases, models=models, budget=budget)
    desk.ok("job", "new", told, "--id", "demo")
    if state == "DRAFT":
        return
    desk.ok("job", "activate", "demo")
    match state:
        case "RUNNING":
            leave_in_flight(desk)
        case "REVIEWING" | "approval":
            desk.step(DONE)
        case "iterations":
            desk.step(DONE)
            desk.step(DONE)
        case "SUCCESS":
            desk.ok("job", "run", "demo")
        case "CANCELED":
            desk.ok("job", "cancel", "demo")
        case "INTERVENTION_REQUIRED":
            desk.step(STUCK)
        case "suspended":
            desk.ok("job", "suspend", "demo")
        case "suspended, stuck":
            desk.step(STUCK)
            desk.ok("job", "suspend", "demo")
        case "HALTED_COST" | "HALTED_TIME":
            desk.step(DONE)
        case _:
            assert state == "PENDING"


def leave_in_flight(desk: Desk, id: str = "demo") -> None:
    """End whoever runs the job while a model is being asked."""

    def die(request: object) -> str:
        raise KeyboardInterrupt

    with Home.open(str(desk.home)) as home, Job(home, id) as job:
        job.own("a runner that dies")
        ref = job.spec.models["worker"]
        runner = Runner(job, workspace_of(job), given={ref: Scripted(die, ref=ref)})
        with pytest.raises(KeyboardInterrupt):
            runner.step()
        job.disown()


@pytest.mark.parametrize("state", TABLE)
def test_each_action_leads_where_the_table_says_or_is_refused(
    state: str, tmp_path: Path, settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_own(monkeypatch, tmp_path)
    desk = Desk(tmp_path)
    copytree(settled, desk.home)
    monkeypatch.chdir(desk.cwd)
    reach(desk, state)
    assert at(desk) == state or at(desk).endswith(state) or state == "suspended, stuck"
    kept = tmp_path / "kept"
    copytree(desk.home, kept)
    for name, words in ACTIONS.items():
        after = TABLE[state].get(name)
        if after is None:
            error = desk.refused("job", *words, says=" is refused")
            assert ("it is over" in error["hint"]) == (state in FINAL), (name, error)
            continue
        other = Desk(tmp_path / name.replace(" ", "-"))
        copytree(kept, other.home)
        done = other("job", *words, "--json")
        assert done.code in (0, 1) and done.out, (name, done)
        assert at(other) == after, name
        queued = "demo" in other.queue()
        assert queued == (after in ("PENDING", "REVIEWING", "RUNNING")), (name, after)
        assert other("job", "replay", "demo").code == 0, name


def at(desk: Desk) -> str:
    shown = desk.show()
    return f"{shown['status']}, {shown['hold']}" if shown["hold"] else shown["status"]


def test_a_refusal_names_what_can_be_done_instead(desk: Desk) -> None:
    reach(desk, "INTERVENTION_REQUIRED")
    hint = desk.refused("job", "step", "demo")["hint"]
    for each in ("steward answer", "steward continue", "steward halt", "rewind", "cancel"):
        assert each in hint


@pytest.mark.parametrize("state", [each for each in TABLE if each not in FINAL])
def test_a_refusal_names_suspend_and_set_where_they_are_possible(desk: Desk, state: str) -> None:
    reach(desk, state)
    hint = desk.refused("job", *ACTIONS["reject" if state == "DRAFT" else "set"])["hint"]
    could = hint.split(": ")[1].split(", ")
    assert ("suspend" in TABLE[state]) == ("suspend" in could)
    assert ("set" in could) == ("activate" in could) == (state == "DRAFT")


@pytest.mark.parametrize("state", ["INTERVENTION_REQUIRED", "HALTED_COST", "approval", "suspended"])
@pytest.mark.parametrize("words", [(), ("--response", json.dumps(DONE)), ("--dry-run",)])
def test_what_is_refused_is_what_was_typed(desk: Desk, state: str, words: tuple[str, ...]) -> None:
    reach(desk, state)
    desk.refused("job", "step", "demo", *words, says="step is refused")
    desk.refused("job", "run", "demo", says="run is refused")


DOES: dict[str, tuple[str, ...]] = {
    "activate": ACTIONS["activate"],
    "run": ("run", "demo"),
    "cancel": ACTIONS["cancel"],
    "suspend": ACTIONS["suspend"],
    "set": ACTIONS["set"],
    "rewind": ACTIONS["rewind"],
    "resume": ("resume", "demo", "--max-cost", "5", "--max-time", "2h"),
    "resume --max-iterations": ACTIONS["resume --max-iterations"],
    "steward answer": ACTIONS["answer"],
    "steward continue": ACTIONS["continue"],
    "steward halt": ACTIONS["halt"],
    "steward approve": ACTIONS["approve"],
    "steward reject": ACTIONS["reject"],
}


@pytest.mark.parametrize("state", [each for each in TABLE if each not in FINAL])
def test_what_a_refusal_says_can_be_done_can_be_done(
    state: str, tmp_path: Path, settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_own(monkeypatch, tmp_path)
    desk = Desk(tmp_path)
    copytree(settled, desk.home)
    monkeypatch.chdir(desk.cwd)
    reach(desk, state)
    hint = desk.refused("job", *ACTIONS["reject" if state == "DRAFT" else "set"])["hint"]
    kept = tmp_path / "kept"
    copytree(desk.home, kept)
    for name in hint.removeprefix("what can be done now: ").split(", "):
        other = Desk(tmp_path / name.replace(" ", "-"))
        copytree(kept, other.home)
        done = other("job", *DOES[name], "--json")
        assert done.code in (0, 1) and done.out, (name, done)


def test_a_job_of_elsewhere_that_is_held_for_nothing_can_be_let_go(desk: Desk) -> None:
    """As an earlier version took it in."""
    phases = [{"name": "work"}, {"name": "rest"}]
    made = spec_from({"prompt": "x", "phases": phases, "models": {"worker": "scripted:echo"}})
    held = {"event": "imported", "status": "PENDING", "hold": "approval", "imported": {}}
    with Home.open(str(desk.home), create=True) as home, Job(home, "demo") as job:
        job.create(settled(made.spec, Options()), {"imported": "elsewhere"})
        job.decide(lambda _: [held])
    assert at(desk) == "PENDING, approval"
    assert desk.show()["waits_for"] == "rewind or cancel"
    assert desk.show()["could"] == ["rewind", "cancel"]
    for name in ("approve", "reject"):
        error = desk.refused("job", *ACTIONS[name], says=f"{name} is refused")
        assert "rewind" in error["hint"] and "steward" not in error["hint"]
    desk.ok("job", *ACTIONS["rewind"])
    assert at(desk) == "PENDING"


def test_a_job_suspended_while_an_agent_is_asked_waits_when_that_has_ended(desk: Desk) -> None:
    reach(desk, "RUNNING")
    desk.ok("job", "suspend", "demo")
    ran = desk("job", "run", "demo", "--json")
    assert ran.code == 1
    assert at(desk) == "PENDING, suspended"
    assert desk.queue() == []
    desk.ok("job", "resume", "demo")
    assert desk.ran()["status"] == "SUCCESS"
