"""What people decide, and what they cannot."""

from __future__ import annotations

import json
import signal
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from holdfast.jobs import steward
from holdfast.jobs.job import Job
from holdfast.jobs.runner import Runner
from holdfast.jobs.state import fold
from holdfast.models.scripted import Scripted
from holdfast.ops.jobs import workspace_of
from holdfast.store.home import Home
from holdfast.store.primitives import Line
from holdfast.testing import unmarked
from tests.jobs.desk import DONE, STUCK, Desk
from tests.jobs.test_every_state import at, leave_in_flight


def folded(desk: Desk, id: str = "demo") -> dict[str, Any]:
    """The state of a job, all of it."""
    with Home.open(str(desk.home)) as home, Job(home, id) as job:
        return job.state()


# --- decisions ------------------------------------------------------------------------------


def stuck(desk: Desk, *replies: object) -> None:
    desk.new("--worker", desk.script(STUCK, *replies))
    desk.ran(code=1)


def test_a_job_goes_on_behind_evidence_that_led_out_of_its_workspace(desk: Desk) -> None:
    named = ["../x", "/etc/passwd", "a/../../x", "C:\\x", "nul\0", "fine.txt"]
    desk.new("--worker", desk.script({**DONE, "evidence_files": named}, DONE))
    desk.ran(code=1)
    desk.ok("job", "steward", "demo", "continue", "--guidance", "Look again.")
    desk.ran()
    assert desk.status() == "SUCCESS"
    assert folded(desk)["context"] == ["fine.txt"]


def test_a_halt_holds_for_what_was_shown_too(desk: Desk) -> None:
    stuck(desk)
    words = ("job", "steward", "demo", "halt", "--shown")
    desk.refused(*words, "deadbeefdeadbeef", says="has changed since")
    assert desk.status() == "INTERVENTION_REQUIRED"
    desk.ok(*words, desk.show()["shown"])
    assert desk.status() == "CANCELED"


@pytest.mark.parametrize(
    ("named", "done"),
    [
        (["a.txt", "a.txt", "./a.txt"], False),
        (["a.txt", "b.txt", "c.txt"], True),
        (["./a.txt", "b.txt", ".//c.txt"], True),
    ],
)
def test_the_same_file_under_two_names_is_one_piece_of_evidence(
    desk: Desk, named: list[str], done: bool
) -> None:
    phase = {"name": "work", "evidence": {"at_least": 3, "required": ["a.txt"]}}
    models = {"worker": desk.script({**DONE, "evidence_files": named})}
    desk.ok("job", "new", desk.spec(prompt="P", phases=[phase], models=models), "--id", "demo")
    desk.ok("job", "activate", "demo")
    for name in "abc":
        (desk.workspace() / f"{name}.txt").write_text(name, encoding="utf-8")
    desk("job", "step", "demo")
    assert desk.status() == ("SUCCESS" if done else "PENDING")


# --- suspending -----------------------------------------------------------------------------


def two(desk: Desk, *, approval: bool = False) -> None:
    phases = [{"name": "work", "approval": approval}, {"name": "rest"}]
    models = {"worker": "scripted:echo"}
    desk.ok("job", "new", desk.spec(prompt="P", phases=phases, models=models), "--id", "demo")
    desk.ok("job", "activate", "demo")


def suspended_while_asked(desk: Desk, reply: object, *, approval: bool = False) -> None:
    """A job that was suspended while an agent was being asked, who then answered."""
    two(desk, approval=approval)

    def answer(request: object) -> str:
        desk.ok("job", "suspend", "demo")
        return json.dumps(reply)

    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        job.own("a run")
        given = {"scripted:echo": Scripted(answer, ref="scripted:echo")}
        Runner(job, workspace_of(job), given=given).step()
        job.disown()


def test_who_was_suspended_while_asked_and_is_stuck_stays_suspended(desk: Desk) -> None:
    suspended_while_asked(desk, STUCK)
    assert at(desk) == "INTERVENTION_REQUIRED, suspended"
    assert desk.show()["why"] == "Which port is meant?"
    desk.ok("job", "steward", "demo", "continue", "--guidance", "8080")
    assert at(desk) == "PENDING, suspended"
    desk.refused("job", "run", "demo", says="run is refused")
    desk.ok("job", "resume", "demo")
    assert at(desk) == "PENDING"


@pytest.mark.parametrize("decision", [("approve",), ("reject", "--guidance", "No")])
def test_who_was_suspended_while_asked_and_is_decided_on_stays_suspended(
    desk: Desk, decision: tuple[str, ...]
) -> None:
    suspended_while_asked(desk, DONE, approval=True)
    assert at(desk) == "REVIEWING, approval"
    desk.refused("job", "suspend", "demo", says="suspended already")
    desk.ok("job", "steward", "demo", *decision)
    assert at(desk) == "PENDING, suspended"
    assert desk("job", "replay", "demo").code == 0


def test_resuming_what_waits_for_approval_leaves_it_waiting(desk: Desk) -> None:
    suspended_while_asked(desk, DONE, approval=True)
    assert "resume" in desk.show()["could"]
    desk.ok("job", "resume", "demo")
    assert at(desk) == "REVIEWING, approval"
    assert "resume" not in desk.show()["could"]
    desk.ok("job", "steward", "demo", "approve")
    assert at(desk) == "PENDING"


def test_limits_that_a_resume_names_hold_also_while_an_agent_is_asked(desk: Desk) -> None:
    two(desk)
    leave_in_flight(desk)
    desk.ok("job", "suspend", "demo")
    desk.ok("job", "resume", "demo", "--max-cost", "99", "--max-iterations", "7")
    limits = desk.show()["limits"]
    assert (limits["max_cost_usd"], limits["max_iterations"]) == (99, 7)


@pytest.mark.parametrize("number", ["0", "-3"])
def test_a_number_of_calls_is_one_at_least(desk: Desk, number: str) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    desk.ok("job", "suspend", "demo")
    words = ("job", "resume", "demo", "--max-iterations", number)
    desk.refused(*words, code=2, says="--max-iterations")


def test_what_was_asked_is_still_shown_after_a_suspension(desk: Desk) -> None:
    stuck(desk)
    shown = desk.show()["shown"]
    desk.ok("job", "suspend", "demo", "--reason", "Lunch")
    assert desk.show()["why"] == "Which port is meant?"
    desk.ok("job", "resume", "demo")
    assert desk.show()["why"] == "Which port is meant?"
    assert desk.show()["shown"] == shown


def test_what_was_approved_before_suspensions_were_kept_goes_on(desk: Desk) -> None:
    """Lines of before: a job was suspended while asked, approved, and asked again."""
    suspended_while_asked(desk, DONE, approval=True)
    state = deepcopy(folded(desk))
    approved = {"event": "move", "cause": "approve", "status": "PENDING", "phase": 1}
    state = fold(state, Line(None, None, approved, "", 0, 0))
    assert (state["hold"], state["suspending"]) == (None, False)


# --- cancelling while somebody is asked -----------------------------------------------------

HANGS = "import time; print('here', flush=True); time.sleep(600)"


def is_over(desk: Desk) -> None:
    """Nobody is being asked any more, and the call is on record as one of unknown cost."""
    shown = desk.show()
    assert (shown["status"], shown["call"], shown["calls"]) == ("CANCELED", None, 1)
    assert shown["unknown_costs"] == 1
    told = json.loads(desk("job", "history", "demo", "--format", "json").out)
    assert (told["asking"], told["calls"]) == (None, 1)
    (row,) = desk.ok("job", "history", "demo")["rows"]
    assert (row["outcome"], row["action"], row["status_after"]) == ("ERROR", "STUCK", "CANCELED")
    assert row["summary"] == "cancelled"
    assert [each["sequence"] for each in desk.calls()] == [0]
    assert "being asked" not in desk("job", "history", "demo", "--format", "html").out
    assert desk("job", "replay", "demo").code == 0
    assert desk("check").code == 0
    assert desk("job", "run", "demo").code == 1


def test_a_run_that_is_cancelled_ends_in_good_order(desk: Desk) -> None:
    desk.new("--worker", desk.program(HANGS))
    process = desk.shell.start("job", "run", "demo")
    end = time.monotonic() + 60
    while desk.status() != "RUNNING":
        assert time.monotonic() < end
        time.sleep(0.05)
    desk.ok("job", "cancel", "demo")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"demo is CANCELED" in out
    is_over(desk)


def test_a_run_that_is_ended_by_anybody_else_is_ended_as_before(desk: Desk) -> None:
    desk.new("--worker", desk.program(HANGS))
    process = desk.shell.start("job", "run", "demo")
    end = time.monotonic() + 60
    while desk.status() != "RUNNING":
        assert time.monotonic() < end
        time.sleep(0.05)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert desk.status() == "RUNNING"


def test_a_job_whose_runner_died_can_be_cancelled_with_its_call(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    leave_in_flight(desk)
    desk.ok("job", "cancel", "demo")
    is_over(desk)


def test_what_was_set_aside_for_a_cancelled_call_counts_as_spent(desk: Desk) -> None:
    two(desk)
    state = deepcopy(folded(desk))
    call = {"event": "call", "sequence": 0, "phase": "work", "model": "m", "reserved_usd": 0.5}
    ends = {"event": "move", "cause": "cancel", "status": "CANCELED", "sequence": 0}
    for record in (call, ends):
        state = fold(state, Line(None, None, record, "", 0, 0))
    assert (state["assumed_usd"], state["unknown"], state["call"]) == (0.5, 1, None)


def test_what_was_answered_behind_a_cancel_of_before_still_counts(desk: Desk) -> None:
    two(desk)
    state = deepcopy(folded(desk))
    call = {"event": "call", "sequence": 0, "phase": "work", "model": "m", "reserved_usd": 0.5}
    ends = {"event": "move", "cause": "cancel", "status": "CANCELED"}
    reply = {"event": "reply", "sequence": 0, "outcome": "SUCCESS", "cost_usd": 0.25}
    for record in (call, ends, reply):
        state = fold(state, Line(None, None, record, "", 0, 0))
    assert (state["cost_usd"], state["assumed_usd"], state["unknown"]) == (0.25, 0, 0)


def test_an_answer_that_comes_when_its_job_is_cancelled_changes_nothing(desk: Desk) -> None:
    two(desk)

    def answer(request: object) -> str:
        with Home.open(str(desk.home)) as home, Job(home, "demo") as other:
            steward.cancel(other)
        return json.dumps(DONE)

    told: list[str] = []
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        job.own("a run")
        given = {"scripted:echo": Scripted(answer, ref="scripted:echo")}
        runner = Runner(
            job, workspace_of(job), given=given, watch=lambda word, state: told.append(word)
        )
        state = runner.run()
        job.disown()
    assert (state["status"], told) == ("CANCELED", ["asked", "overtaken"])
    desk("job", "run", "demo")
    is_over(desk)


# --- what is refused before anything is done ------------------------------------------------


def test_an_answer_that_is_too_long_is_refused_before_it_is_claimed(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    file = desk.cwd / "reply.txt"
    file.write_text("x" * 9_000_000, encoding="utf-8")
    words = ("job", "step", "demo", "--response", f"@{file}")
    desk.refused(*words, code=2, says="9,000,000 characters")
    assert (desk.status(), desk.show()["calls"]) == ("PENDING", 0)
    assert desk.ran()["status"] == "SUCCESS"


# --- what is run, and what is shown of it ---------------------------------------------------


def test_a_job_that_cannot_be_run_does_not_keep_those_behind_it(desk: Desk) -> None:
    script = desk.script(DONE)
    for id, worker in (("a", script), ("b", "scripted:echo")):
        desk.new("--worker", worker, "--activate", id=id)
    Path(script.removeprefix("scripted:")).unlink()
    ran = desk("job", "run")
    assert ran.code == 0, ran.err
    assert "a could not be run" in ran.err
    assert (desk.status("a"), desk.status("b"), desk.queue()) == ("PENDING", "SUCCESS", ["a"])
    again = desk("job", "run", "--json")
    assert again.code == 4 and "script" in again.error()["message"]


def test_what_would_be_asked_is_what_is_asked(desk: Desk) -> None:
    folder = desk.cwd / "given"
    folder.mkdir()
    (folder / "notes.md").write_text("The port is 4711.", encoding="utf-8")
    script = desk.script(DONE)
    desk.new("--worker", script, "--files", "notes.md", "--source", str(folder), "--activate")
    told = desk.ok("job", "step", "demo", "--dry-run")["data"]["prompt"]
    assert "The port is 4711." in told
    desk.ok("job", "step", "demo")
    assert unmarked(desk.calls()[0]["request"]["prompt"]) == unmarked(told)


@pytest.mark.parametrize("words", [(), ("--response", json.dumps(DONE))])
def test_what_a_step_would_do_is_refused_where_the_step_is(
    desk: Desk, words: tuple[str, ...]
) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    desk.ok("job", "suspend", "demo")
    desk.refused("job", "step", "demo", *words, "--dry-run", says="is refused")


SECRET = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"


@pytest.mark.parametrize("length", [480, 500, 501])
def test_an_answer_with_a_secret_comes_to_the_same_when_it_is_read_again(
    desk: Desk, length: int
) -> None:
    secrets = " ".join(f"pwd={number:03}x" for number in range(9))
    long = f"{SECRET} {secrets} ".ljust(length, "x")
    desk.new("--worker", desk.script({**DONE, "summary_for_supervisor": long}))
    desk("job", "run", "demo")
    (call,) = desk.calls()
    assert len(call["response"]["raw_response"]) > length + 100, "nothing was masked"
    assert call["response"]["action"] == ("COMPLETED" if length <= 500 else "STUCK")
    assert desk("job", "replay", "demo").code == 0


def test_a_crash_makes_no_other_answer_of_one_with_a_secret(desk: Desk) -> None:
    gate = {"run": "true"}
    secrets = " ".join([*(f"pwd={number:03}x" for number in range(9)), "x" * 400])
    models = {"worker": desk.script({**DONE, "summary_for_supervisor": secrets})}
    phases = [{"name": "work", "gates": [gate]}]
    desk.ok("job", "new", desk.spec(prompt="P", phases=phases, models=models), "--id", "demo")
    desk.ok("job", "activate", "demo")
    with (
        Home.open(str(desk.home)) as home,
        Job(home, "demo") as job,
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(KeyboardInterrupt),
    ):
        job.own("a run")
        patch.setattr("holdfast.jobs.runner.verdict_on", _dies)
        Runner(job, workspace_of(job)).run()
    assert desk.ran()["status"] == "SUCCESS"


def _dies(*told: object) -> None:
    raise KeyboardInterrupt
