"""The rest of a job once more, in a job of its own."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from holdfast.workspace.workspace import Workspace
from tests.jobs.desk import AGAIN, DONE, STUCK, Desk

COUNTS = """
import json, pathlib
file = pathlib.Path("count.txt")
file.write_text(file.read_text() + "x" if file.exists() else "x")
print(json.dumps({"action": "COMPLETED", "evidence_files": ["count.txt"],
                  "summary_for_supervisor": "It is counted."}))
"""


def jobs(desk: Desk) -> list[str]:
    return sorted(each.name for each in (desk.home / "jobs").iterdir() if each.is_dir())


def counted(desk: Desk, *more: str) -> None:
    """Two phases, each of which adds a letter to a file."""
    phases = [{"name": "one"}, {"name": "two"}]
    spec = desk.spec(prompt="Count", phases=phases, models={"worker": desk.program(COUNTS)})
    desk.ok("job", "new", spec, "--id", "demo", *more)
    desk.ran()


def again(desk: Desk, behind: int, *more: str) -> Any:
    return desk.ok("job", "replay", "demo", "--from", str(behind), *more)["data"]


# --- who is asked ---------------------------------------------------------------------------


def test_another_model_is_asked_also_if_the_draft_was_changed(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE))
    desk.ok("job", "set", "demo", "--description", "hi")
    desk.ran()
    other = desk.script({**DONE, "summary_for_supervisor": "It was the other."})
    found = again(desk, 0, "--model", other)
    new = str(found["new"])
    assert [call["model"] for call in desk.lines(new, "call")] == [other]
    assert desk.show(new)["description"] == "hi"
    assert desk.lines(new, "set") == []


def test_what_was_paid_for_is_not_paid_again(desk: Desk) -> None:
    desk.new("--worker", desk.script(AGAIN, DONE))
    desk.ran()
    new = str(again(desk, 1)["new"])
    copied = [each for each in desk.lines(new) if "copied_from" in each]
    assert copied and not any("charge" in each for each in copied)


# --- upon which files -----------------------------------------------------------------------


def test_a_job_whose_maker_is_killed_over_its_files_is_not_there(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(desk)

    def killed() -> None:
        def kill(self: Workspace, tree: str, folder: str) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(Workspace, "export", kill)

    assert desk.shell("job", "replay", "demo", "--from", "1", begin=killed).code == -signal.SIGKILL
    assert [row["job"] for row in desk.ok("job", "list")["rows"]] == ["demo"]
    assert desk("check").code == 0
    assert desk("doctor").code == 0


def test_files_are_those_of_the_moment(desk: Desk) -> None:
    counted(desk)
    new = str(again(desk, 1)["new"])
    assert (desk.workspace(new) / "count.txt").read_text() == "xx"


def test_behind_the_last_call_the_files_are_as_they_stand(desk: Desk) -> None:
    gate = "test -e never.txt"
    desk.new("--worker", desk.program(COUNTS), "--gate", gate, "--max-iterations", "2")
    desk.ok("job", "step", "demo")
    assert (desk.workspace() / "count.txt").read_text() == "x"
    new = str(again(desk, 1)["new"])
    assert (desk.workspace(new) / "count.txt").read_text() == "xx"


@pytest.mark.parametrize("acts", [False, True])
def test_what_was_attached_is_there_and_no_change_of_the_new_job(desk: Desk, acts: bool) -> None:
    note = desk.cwd / "note.md"
    note.write_text("Mind the gap")
    worker = desk.program(COUNTS) if acts else desk.script(DONE)
    desk.new("--worker", worker, "--attach", str(note))
    desk.ran()
    new = str(again(desk, 0)["new"])
    assert (desk.workspace(new) / "attachments/note.md").read_text() == "Mind the gap"
    assert "note.md" not in desk("job", "diff", new).out


def test_recovery_points_without_files_say_that_nobody_can_go_back_there(desk: Desk) -> None:
    counted(desk)
    new = str(again(desk, 1)["new"])
    for job, can in (("demo", True), (new, False)):
        first, *_ = desk.document("jobHistory.json", job)["recovery_points"]
        assert first["can_resume_from"] is can


# --- where nothing can go on ----------------------------------------------------------------


@pytest.mark.parametrize(("reply", "status"), [(DONE, "SUCCESS"), (STUCK, "INTERVENTION_REQUIRED")])
def test_where_nobody_is_left_to_be_asked_no_job_is_made(
    desk: Desk, reply: object, status: str
) -> None:
    desk.new("--worker", desk.script(reply))
    desk("job", "run", "demo")
    before = desk.digest()
    found = again(desk, 1)
    assert (found["new"], found["same"], found["now"]["status"]) == (None, True, status)
    assert desk.digest() == before and jobs(desk) == ["demo"]


def test_a_model_that_is_not_there_is_told_before_anything_is_made(desk: Desk) -> None:
    counted(desk)
    for model in ("scripted:gone.yaml", "nobody:x", "command:not-there-at-all"):
        desk.refused("job", "replay", "demo", "--from", "1", "--model", model, code=3)
        assert jobs(desk) == ["demo"]


def test_a_draft_of_which_nobody_said_what_to_do_is_refused(desk: Desk) -> None:
    desk.ok("job", "new", desk.spec(phases=[{"name": "one"}]), "--id", "demo")
    desk.refused("job", "replay", "demo", "--from", "0", says="nobody said what is to be done")
    assert jobs(desk) == ["demo"]
