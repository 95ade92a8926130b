"""Going back: the phase, the files, and where one cannot go."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.jobs import steward
from holdfast.jobs.job import Job
from holdfast.jobs.place import put_back
from holdfast.jobs.runner import Prepared, Runner
from holdfast.ops.jobs import workspace_of
from holdfast.store.home import Home
from tests.jobs.desk import DONE, STUCK, Desk

WRITES = """
import json, sys
with open(sys.argv[1], "w") as file:
    file.write("made by " + sys.argv[1])
print(json.dumps({"action": "COMPLETED", "evidence_files": [sys.argv[1]],
                  "summary_for_supervisor": "It is written."}))
"""


def written(desk: Desk, *names: str, steps: int = 0, **more: Any) -> None:
    """A job of phases each of which makes a file of its name; of `say…` one that only answers."""
    says = desk.script(*[DONE] * 9)
    phases = [
        {"name": each, "model": says if each.startswith("say") else desk.program(WRITES, each)}
        for each in names
    ]
    desk.ok("job", "new", desk.spec(prompt="P", phases=phases, **more), "--id", "demo")
    for _ in range(steps):
        desk.ok("job", "step", "demo")


def files(desk: Desk) -> list[str]:
    return sorted(each.name for each in desk.workspace().iterdir() if each.name != ".git")


@pytest.fixture
def source(desk: Desk) -> Path:
    place = desk.cwd / "source"
    as_ada = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    begin = ["git", *as_ada, "commit", "-qm", "Begin", "--allow-empty"]
    subprocess.run(begin, cwd=place, check=True)
    return place


def test_going_back_to_a_point_puts_the_files_back_at_once(desk: Desk) -> None:
    written(desk, "a", "b", "c", steps=2)
    told = desk.ok("job", "rewind", "demo", "--point", "a-complete-0")
    assert "with the files of then" in told["detail"]
    assert files(desk) == ["a"]
    assert desk.ok("job", "diff", "demo")["data"]["changes"].startswith(" a | 1 +\n 1 file")
    desk.ok("job", "checkpoint", "demo", "here")
    assert desk.ran()["status"] == "SUCCESS"
    assert files(desk) == ["a", "b", "c"]


def test_what_is_merged_after_going_back_has_nothing_of_what_came_later(
    desk: Desk, source: Path
) -> None:
    written(desk, "a", "b", "c", steps=2, source=str(source), isolation="worktree")
    desk.ok("job", "rewind", "demo", "--point", "a-complete-0")
    desk.ok("job", "merge", "demo")
    listed = ["git", "ls-tree", "--name-only", "job-demo"]
    assert subprocess.run(listed, cwd=source, check=True, capture_output=True).stdout == b"a\n"


def test_going_back_to_the_start_puts_the_files_back_at_once(desk: Desk) -> None:
    written(desk, "a", "b", "c", steps=2)
    desk.ok("job", "rewind", "demo", "--start")
    assert files(desk) == []


def test_what_is_changed_after_going_back_stays(desk: Desk) -> None:
    written(desk, "a", "b", "c", steps=2)
    desk.ok("job", "rewind", "demo", "--point", "a-complete-0")
    (desk.workspace() / "mine").write_text("by hand", encoding="utf-8")
    desk.ok("job", "step", "demo")
    assert files(desk) == ["a", "b", "mine"]


def test_who_was_killed_before_he_put_the_files_back_is_followed_by_one_who_does(
    desk: Desk,
) -> None:
    written(desk, "a", "b", "c", steps=2)
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        steward.rewind(job, point="a-complete-0")
    assert files(desk) == ["a", "b"]
    desk.ok("job", "checkpoint", "demo", "here")
    assert files(desk) == ["a"]
    desk.ok("job", "step", "demo")
    desk.ok("job", "rewind", "demo", "--point", "here")
    assert files(desk) == ["a"]


def test_files_are_not_put_back_behind_who_runs_the_job(desk: Desk) -> None:
    written(desk, "a", "b", "c", steps=2)
    with (
        Home.open(str(desk.home)) as home,
        Job(home, "demo") as runner,
        Job(home, "demo") as job,
    ):
        runner.own("a run")
        steward.rewind(job, point="a-complete-0")
        assert not put_back(job, workspace_of(job))
        assert files(desk) == ["a", "b"]
        runner.disown()
        assert put_back(job, workspace_of(job))
        assert files(desk) == ["a"]
        assert job.state()["restore"] is None


def test_who_is_about_to_ask_asks_where_the_job_was_taken_back_to(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(desk, "a", "b", "c", steps=2)
    with (
        Home.open(str(desk.home)) as home,
        Job(home, "demo") as job,
        Job(home, "demo") as other,
    ):
        job.own("a run")
        runner = Runner(job, workspace_of(job))
        prepared, asked = runner._prepared, list[str]()

        def overtaken(state: dict[str, Any]) -> Prepared:
            found = prepared(state)
            if not asked:
                steward.rewind(other, point="a-complete-0")
            asked.append(found.call.phase.name)
            return found

        monkeypatch.setattr(runner, "_prepared", overtaken)
        state = runner.step()
        job.disown()
    assert (asked, state["phase"]) == (["c", "b"], 2)
    assert files(desk) == ["a", "b"]


def test_a_point_of_who_only_answers_has_files_too_where_others_change_them(desk: Desk) -> None:
    written(desk, "a", "say", "c", "d", steps=3)
    assert files(desk) == ["a", "c"]
    desk.ok("job", "rewind", "demo", "--point", "say-complete-1")
    assert (desk.show()["phase"], files(desk)) == ("c", ["a"])


def test_where_nobody_changes_files_going_back_says_that_they_stay(desk: Desk) -> None:
    written(desk, "say", "say2", "say3", steps=2)
    told = desk.ok("job", "rewind", "demo", "--point", "say-complete-0")
    assert "with the files as they are" in told["detail"]


def test_a_point_whose_files_are_with_another_job_is_refused(desk: Desk) -> None:
    written(desk, "a", "b", "c", steps=2)
    again = desk("job", "replay", "demo", "--from", "1", "--model", desk.script(DONE), "--json")
    new = again.json()["data"]["new"]
    assert desk.show(new)["points"][0] == "a-complete-0"
    words = ("job", "rewind", new, "--point", "a-complete-0")
    desk.refused(*words, says="the files of a-complete-0 were not kept")


# --- not ahead ------------------------------------------------------------------------------


def test_a_phase_that_is_ahead_is_nothing_to_go_back_to(desk: Desk) -> None:
    gated = {"name": "a", "gates": [{"run": "false"}], "max_retries": 0}
    spec = desk.spec(
        prompt="P", phases=[gated, {"name": "b"}], models={"worker": desk.script(DONE, DONE)}
    )
    desk.ok("job", "new", spec, "--id", "demo")
    assert desk.ran(code=1)["status"] == "INTERVENTION_REQUIRED"
    desk.refused("job", "rewind", "demo", "--phase", "1", says="b is ahead of a")
    desk.refused("job", "rewind", "demo", "--start", "--phase", "1", says="b is ahead of a")
    desk.ok("job", "rewind", "demo", "--phase", "0")


def approving(desk: Desk) -> None:
    phases = [{"name": "a", "approval": True}, {"name": "b"}]
    models = {"worker": desk.script(DONE, DONE, STUCK)}
    desk.ok("job", "new", desk.spec(prompt="P", phases=phases, models=models), "--id", "demo")
    assert desk.ran(code=1)["hold"] == "approval"


def test_what_was_rejected_is_nothing_to_go_on_from(desk: Desk) -> None:
    approving(desk)
    desk.ok("job", "steward", "demo", "reject", "--guidance", "No")
    words = ("job", "rewind", "demo", "--point", "a-complete-0")
    desk.refused(*words, says="a-complete-0 was not approved")
    (point,) = desk.document("jobHistory.json")["recovery_points"]
    assert point["can_resume_from"] is False


def test_what_was_approved_can_be_gone_back_to_and_what_was_rejected_before_it_cannot(
    desk: Desk,
) -> None:
    approving(desk)
    desk.ok("job", "steward", "demo", "reject", "--guidance", "No")
    desk.ran(code=1)
    desk.ok("job", "steward", "demo", "approve")
    desk.ran(code=1)
    desk.refused("job", "rewind", "demo", "--point", "a-complete-0", says="was not approved")
    desk.ok("job", "rewind", "demo", "--point", "a-complete-1")
    assert (desk.show()["phase"], desk.show()["hold"]) == ("b", None)


def test_a_point_made_by_hand_before_an_approval_leads_to_what_waits_for_it(desk: Desk) -> None:
    approving(desk)
    desk.ok("job", "checkpoint", "demo", "before")
    desk.ok("job", "steward", "demo", "reject", "--guidance", "No")
    desk.ok("job", "rewind", "demo", "--point", "before")
    assert desk.show()["phase"] == "a"
    assert desk.ran(code=1)["hold"] == "approval"


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31mred", "x" * 5000, " a"])
def test_a_recovery_point_has_a_name_that_can_be_read(desk: Desk, name: str) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    words = ("job", "checkpoint", "demo", name)
    desk.refused(*words, code=2, says="not the name of a recovery point")


def test_points_of_a_former_run_can_be_gone_back_to(desk: Desk) -> None:
    written(desk, "a", "b", "c", steps=2)
    desk.ok("job", "rewind", "demo", "--start")
    assert desk.show()["points"] == ["a-complete-0", "b-complete-1"]
    desk.ok("job", "step", "demo")
    desk.ok("job", "rewind", "demo", "--point", "b-complete-1")
    assert (desk.show()["phase"], files(desk)) == ("c", ["a", "b"])
    assert desk.ran()["status"] == "SUCCESS"
