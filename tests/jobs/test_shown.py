"""What is shown of a job to who decides: its files too, who runs it, and what to type next."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.codec import encode
from holdfast.jobs import steward
from holdfast.jobs.job import Job
from holdfast.store.home import Home
from tests.jobs.desk import AGAIN, DONE, STUCK, Desk
from tests.jobs.test_every_state import leave_in_flight
from tests.jobs.test_packing import git
from tests.jobs.test_steward import suspended_while_asked, two

WRITES = """\
import json, pathlib, sys
phase = json.load(sys.stdin)["phase"]
letter = pathlib.Path("letter.txt")
said = letter.read_text() if letter.exists() else ""
letter.write_text(said + phase + "\\n")
print(json.dumps({"action": ACTION, "evidence_files": ["letter.txt"],
                  "summary_for_supervisor": "Which jar is it? I wrote " + phase}))
"""


def written(desk: Desk, *words: str, action: str = "COMPLETED", **more: Any) -> Path:
    """A job with a letter that a program wrote, and about which somebody has to decide."""
    program = desk.program(WRITES.replace("ACTION", repr(action)))
    phases = [{"name": "draft", "approval": True}, {"name": "send"}]
    spec = desk.spec(prompt="Write", phases=phases, models={"worker": program}, **more)
    desk.ok("job", "new", spec, "--id", "demo", *words)
    desk.ran(code=1)
    return desk.workspace() / "letter.txt"


def approve(*words: str) -> tuple[str, ...]:
    return ("job", "steward", "demo", "approve", *words)


# --- the files ------------------------------------------------------------------------------


def test_an_approval_of_files_that_were_changed_since_is_refused(desk: Desk) -> None:
    letter = written(desk)
    seen = desk.show()
    assert (seen["changed_files"], seen["files_note"]) == ([], None)
    letter.write_text("tampered\n", encoding="utf-8")
    error = desk.refused(*approve("--shown", seen["shown"]), says="letter.txt changed")
    assert error["code"] == "stale_approval"
    assert [kind for kind, _ in desk.audit()].count("stale_approval") == 1
    now = desk.show()
    assert now["changed_files"] == ["letter.txt"]
    assert now["shown"] != seen["shown"]
    assert (
        "changed since the agent ended, by somebody else:\n    letter.txt"
        in desk("job", "show", "demo").out
    )
    letter.write_text("tampered again\n", encoding="utf-8")
    desk.refused(*approve("--shown", now["shown"]), says="has changed since")
    desk.ok(*approve("--shown", desk.show()["shown"]))
    assert desk.status() == "PENDING"
    assert desk("job", "replay", "demo").code == 0


def test_files_that_were_changed_since_are_not_approved_unseen(desk: Desk) -> None:
    letter = written(desk)
    kept = letter.read_bytes()
    letter.write_text("tampered\n", encoding="utf-8")
    error = desk.refused(*approve(), says="is not what the agent left: letter.txt")
    assert error["code"] == "stale_approval"
    assert "approve --shown" in error["hint"]
    desk.ok("job", "checkpoint", "demo", "mine")
    desk.refused(*approve(), says="letter.txt")
    letter.write_bytes(kept)
    desk.ok(*approve())


@pytest.mark.parametrize("change", ["added", "removed", "made executable", "linked"])
def test_every_kind_of_change_to_a_file_is_seen(desk: Desk, change: str) -> None:
    letter = written(desk)
    seen = desk.show()["shown"]
    match change:
        case "added":
            (letter.parent / "more.txt").write_text("x", encoding="utf-8")
        case "removed":
            letter.unlink()
        case "made executable":
            letter.chmod(0o755)
        case _:
            letter.unlink()
            letter.symlink_to("/etc/hostname")
    desk.refused(*approve("--shown", seen), says="has changed since")
    desk.refused(*approve(), says="is not what the agent left")


def test_who_rejects_needs_not_have_seen_the_files(desk: Desk) -> None:
    letter = written(desk)
    letter.write_text("tampered\n", encoding="utf-8")
    desk.ok("job", "steward", "demo", "reject", "--guidance", "Shorter")
    assert desk.status() == "PENDING"


def test_what_is_shown_of_a_stuck_job_covers_its_files(desk: Desk) -> None:
    letter = written(desk, action="STUCK")
    seen = desk.show()["shown"]
    assert desk.show()["shown"] == seen
    letter.write_text("tampered\n", encoding="utf-8")
    words = ("job", "steward", "demo", "continue")
    desk.refused(*words, "--shown", seen, says="has changed since")
    desk.ok(*words)


def test_a_workspace_that_is_gone_is_told_and_looking_does_not_make_it(desk: Desk) -> None:
    letter = written(desk)
    seen, real = desk.show()["shown"], Path(os.path.realpath(letter.parent))
    shutil.rmtree(real)
    assert "the workspace is gone" in desk("job", "show", "demo").out
    assert not real.exists()
    desk.refused(*approve("--shown", seen), says="the workspace is gone")
    desk.refused(*approve(), says="the workspace is gone")
    desk.ok(*approve("--shown", desk.show()["shown"]))


def test_files_that_cannot_be_compared_are_told_and_can_be_approved_by_who_saw_that(
    desk: Desk,
) -> None:
    letter = written(desk)
    repository = Path(os.path.realpath(letter.parent)).parent / "repository.git"
    repository.rename(repository.with_name("elsewhere"))
    shown = desk.show()
    assert shown["files_note"].startswith("the files could not be compared")
    desk.refused(*approve(), says="could not be compared")
    desk.ok(*approve("--shown", shown["shown"]))


def test_of_a_folder_of_the_users_own_nothing_is_compared(desk: Desk) -> None:
    mine = desk.cwd / "mine"
    mine.mkdir()
    written(desk, isolation="none", source=str(mine))
    seen = desk.show()["shown"]
    (mine / "letter.txt").write_text("mine\n", encoding="utf-8")
    assert desk.show()["shown"] == seen
    desk.ok(*approve())


def test_where_a_decision_is_not_about_files_they_are_not_looked_at(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(desk)
    desk.ok(*approve())
    monkeypatch.setattr("holdfast.workspace.workspace.Workspace.since", None)
    assert desk.show()["changed_files"] == []


# --- who runs it ----------------------------------------------------------------------------


def test_a_job_whose_runner_is_gone_says_so_and_how_it_goes_on(desk: Desk) -> None:
    two(desk)
    leave_in_flight(desk)
    shown = desk.show()
    assert (shown["status"], shown["runner_gone"]) == ("RUNNING", True)
    assert shown["next"] == ["holdfast job run demo"]
    goes_on = "its runner is gone; `holdfast job run demo` goes on"
    assert goes_on in desk("job", "show", "demo").out
    assert goes_on in desk("job", "list", "--waiting").out
    assert [row["job"] for row in desk.ok("job", "list", "--waiting")["rows"]] == ["demo"]


def test_a_job_that_somebody_runs_is_not_left(desk: Desk) -> None:
    two(desk)
    leave_in_flight(desk)
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        job.own("a run")
        assert desk.show()["runner_gone"] is False
        assert desk.ok("job", "list", "--waiting")["rows"] == []
        job.disown()


def test_a_suspension_during_a_call_says_when_it_holds(desk: Desk) -> None:
    two(desk)
    leave_in_flight(desk)
    told = "it is suspended when the call has ended"
    assert told in desk("job", "suspend", "demo").out
    assert told in desk("job", "show", "demo").out
    assert desk.show()["suspending"] is True


def test_what_waits_for_approval_is_not_said_to_wait_for_a_call(desk: Desk) -> None:
    suspended_while_asked(desk, DONE, approval=True)
    assert "when the call has ended" not in desk("job", "show", "demo").out


# --- what it asks ---------------------------------------------------------------------------


def test_the_list_of_what_waits_has_the_question_and_the_hash(desk: Desk) -> None:
    desk.new("--worker", desk.script(STUCK))
    desk.ran(code=1)
    (row,) = desk.ok("job", "list", "--waiting")["rows"]
    assert (row["why"], row["shown"]) == ("Which port is meant?", desk.show()["shown"])
    text = desk("job", "list", "--waiting").out
    assert "Which port is meant?" in text
    assert row["shown"] in text


def test_what_can_be_typed_next_is_shown_and_can_be_copied(desk: Desk) -> None:
    desk.new("--worker", desk.script(STUCK, DONE), "--activate")
    assert "next: holdfast job run demo\n" in desk("job", "show", "demo").out
    desk.ran(code=1)
    told = 'next: holdfast job steward demo answer --guidance "…"\n'
    assert told in desk("job", "show", "demo").out
    desk.ok("job", "suspend", "demo")
    desk.ok("job", "steward", "demo", "continue")
    assert "next: holdfast job resume demo\n" in desk("job", "show", "demo").out
    desk.ok("job", "cancel", "demo")
    assert desk.show()["next"] == []


@pytest.mark.parametrize("limit", ["--max-iterations", "--max-cost"])
def test_a_run_that_has_used_up_what_it_may_ends_with_commands(desk: Desk, limit: str) -> None:
    dear = {"reply": json.dumps(AGAIN), "cost_usd": 1.0}
    desk.new("--worker", desk.script(dear, dear), limit, "1")
    ran = desk("job", "run", "demo")
    commands = desk.show()["next"]
    assert commands[0].startswith(f"holdfast job resume demo {limit} ")
    assert ran.out.splitlines()[-2:] == [f"next: {commands[0]}", f"or: {commands[1]}"]


def test_a_run_that_waits_for_approval_ends_with_what_was_shown(desk: Desk) -> None:
    phases = [{"name": "w", "approval": True}, {"name": "v"}]
    spec = desk.spec(prompt="P", models={"worker": desk.script(DONE)}, phases=phases)
    desk.ok("job", "new", spec, "--id", "demo")
    ran = desk("job", "run", "demo")
    shown = desk.show()["shown"]
    assert f"or: holdfast job steward demo approve --shown {shown}\n" in ran.out


def test_what_is_approved_next_is_what_was_shown(desk: Desk) -> None:
    written(desk)
    (_, command, _) = desk.show()["next"]
    assert command == f"holdfast job steward demo approve --shown {desk.show()['shown']}"
    desk.ok(*command.split()[1:])
    assert desk.status() == "PENDING"


def test_a_draft_of_which_nobody_said_what_is_to_be_done_says_how_to(desk: Desk) -> None:
    spec = desk.spec(models={"worker": "scripted:echo"})
    desk.ok("job", "new", spec, "--id", "demo")
    error = desk.refused("job", "activate", "demo", says="nobody said what is to be done")
    assert error["hint"] == 'holdfast job set demo --prompt "…"'
    assert desk.show()["next"] == [error["hint"]]


# --- limits ---------------------------------------------------------------------------------


def dear(desk: Desk, most: float) -> None:
    reply = {"reply": json.dumps(DONE), "cost_usd": 0.05}
    phases = [{"name": "one"}, {"name": "two"}]
    models = {"worker": desk.script(reply, reply)}
    told = desk.spec(prompt="P", phases=phases, models=models, budget={"max_cost": most})
    desk.ok("job", "new", told, "--id", "demo")


def test_a_limit_that_was_raised_by_too_little_can_be_raised_again(desk: Desk) -> None:
    dear(desk, 0.03)
    assert desk.ran(code=1)["next"][0] == "holdfast job resume demo --max-cost USD"
    desk.ok("job", "resume", "demo", "--max-cost", "0.04")
    desk.ok("job", "resume", "demo", "--max-cost", "1")
    assert desk.ran()["status"] == "SUCCESS"


def test_a_limit_that_is_reached_already_is_refused_also_of_a_suspended_job(desk: Desk) -> None:
    dear(desk, 1)
    desk.ok("job", "activate", "demo")
    desk.ok("job", "step", "demo")
    desk.ok("job", "suspend", "demo")
    words = ("job", "resume", "demo", "--max-cost")
    desk.refused(*words, "0.04", says="above what is used (0.05)")
    assert desk.show()["hold"] == "suspended"
    desk.ok(*words, "1")
    assert desk.ran()["status"] == "SUCCESS"


# --- back and out ---------------------------------------------------------------------------


def test_that_there_are_older_recovery_points_is_told(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE), "--activate")
    for name in ("one", "two", "three"):
        desk.ok("job", "checkpoint", "demo", name)
    assert "recovery points: one, two, three;" in desk("job", "show", "demo").out
    desk.ok("job", "checkpoint", "demo", "four")
    assert "recovery points: 1 older, two, three, four;" in desk("job", "show", "demo").out


def test_recovery_points_are_shown_with_the_way_back(desk: Desk) -> None:
    two(desk)
    desk.ok("job", "step", "demo")
    told = "recovery points: work-complete-0; `holdfast job rewind demo --point ID` goes back"
    assert told in desk("job", "show", "demo").out


def test_a_phase_is_gone_back_to_by_its_name(desk: Desk) -> None:
    two(desk)
    desk.ok("job", "step", "demo")
    assert desk.show()["phase"] == "rest"
    error = desk.refused("job", "rewind", "demo", "--phase", "nap", code=2, says="'nap'")
    assert "work, rest" in error["hint"]
    desk.ok("job", "rewind", "demo", "--phase", "work")
    assert desk.show()["phase"] == "work"


def test_what_is_not_finished_is_merged_with_a_warning(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("a\n", encoding="utf-8")
    git(source, "init", "-q")
    git(source, "add", "a.txt")
    git(source, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "first")
    written(desk, isolation="worktree", source=str(source))
    assert (
        "demo is REVIEWING (held: approval), it is not finished" in desk("job", "merge", "demo").err
    )
    desk.ok("job", "steward", "demo", "reject", "--guidance", "No")
    assert "its last work was sent back" in desk("job", "merge", "demo").err
    desk.ran(code=1)
    desk.ok(*approve())
    desk.ran()
    assert "finished" not in desk("job", "merge", "demo").err


def test_the_hash_of_an_untouched_job_is_what_it_was_before_files_counted(desk: Desk) -> None:
    written(desk)
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        state = job.state()
        names = ("job_id", "sequence", "status", "hold", "why", "former")
        about = [*(state[name] for name in names), state["points"][-1:]]
        assert steward.shown_now(job).hash == sha256(encode(about)).hexdigest()


def test_a_sensitive_job_is_shown_under_the_hash_that_its_decision_needs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_KEYS", str(desk.cwd / "keys.json"))
    assert desk("key", "new").code == 0
    letter = written(desk, sensitive=True)
    seen = desk.show()["shown"]
    letter.write_text("tampered\n", encoding="utf-8")
    desk.refused(*approve("--shown", seen), says="letter.txt changed")
    desk.ok(*approve("--shown", desk.show()["shown"]))


def test_one_call_is_not_said_to_be_calls(desk: Desk) -> None:
    spec = desk.spec(
        prompt="P",
        models={"worker": desk.script(DONE)},
        budget={"max_iterations": 1},
        phases=[{"name": "w", "evidence": {"at_least": 1}}],
    )
    desk.ok("job", "new", spec, "--id", "demo")
    prompt = desk("job", "step", "demo", "--dry-run").out
    assert "at least 1 evidence file\n" in prompt
    desk.step({**DONE, "evidence_files": ["a"]})
    assert " 1 of 1 call\n" in desk("job", "show", "demo").out
    assert "demo: 1 call replayed, " in desk("job", "replay", "demo").out
    desk.refused("job", "replay", "demo", "--from", "2", code=2, says="has 1 call that ended")
    told = desk("job", "replay", "demo", "--until", "0").out
    assert "demo: 0 calls replayed, " in told
