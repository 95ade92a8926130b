"""Nothing that is said, given or looked at keeps a job from going on for good."""

from __future__ import annotations

import errno
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from holdfast.jobs.job import Job
from holdfast.store.home import Home
from holdfast.store.lock import Lock
from tests.jobs.desk import AGAIN, DONE, STUCK, Desk


def context(desk: Desk) -> list[str]:
    """The files that the next agent would be told of."""
    return desk.ok("job", "step", "demo", "--dry-run")["data"]["request"]["context_files"]


# --- looking --------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["directory", "worktree"])
@pytest.mark.parametrize(
    "look", [("diff",), ("diff", "--patch"), ("merge",), ("merge", "--dry-run"), ("export",)]
)
def test_a_draft_that_was_looked_at_can_be_run(
    desk: Desk, look: tuple[str, ...], isolation: str, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    assert desk.shell.run(["git", "init", "-q", str(repository)]).code == 0
    worker = ("--worker", desk.script(DONE))
    desk.new("--isolation", isolation, "--source", str(repository), *worker)
    out = ("--out", str(tmp_path / "page.html")) if look == ("export",) else ()
    ran = desk("job", look[0], "demo", *look[1:], *out)
    assert "the workspace is not made yet" in ran.err
    assert not (desk.home / "jobs/demo/.files/workspace").exists()
    assert desk.ran()["status"] == "SUCCESS"


def test_an_empty_workspace_of_a_draft_is_no_loss_of_files(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE))
    (desk.home / "jobs/demo/.files/workspace").mkdir(parents=True)
    assert desk.ran()["status"] == "SUCCESS"


def test_a_job_does_not_go_on_without_the_files_that_it_kept(desk: Desk, tmp_path: Path) -> None:
    told = json.dumps(DONE)
    worker = desk.program(f"open('made', 'w').close(); print({told!r})")
    phases = [{"name": "one", "model": worker}, {"name": "two", "model": worker}]
    desk.ok("job", "new", desk.spec(prompt="P", phases=phases), "--id", "demo")
    desk.ok("job", "step", "demo")
    kept = tmp_path / "kept"
    shutil.move(desk.home / "jobs/demo/.files", kept)
    note = tmp_path / "note.txt"
    note.write_text("a note")
    for verb in (("run", "demo"), ("step", "demo"), ("checkpoint", "demo", "here")):
        desk.refused("job", *verb, code=6, says="kept of its files is gone")
    desk.refused("job", "attach", str(note), "--job", "demo", code=6, says="is gone")
    shutil.rmtree(desk.home / "jobs/demo/.files", ignore_errors=True)
    shutil.move(kept, desk.home / "jobs/demo/.files")
    assert desk.ran()["status"] == "SUCCESS"


def test_a_page_is_made_of_a_job_in_a_home_that_cannot_be_written_to(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.new("--worker", desk.script(DONE))
    desk.ran()

    def refuse(lock: Lock, patience: float) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Lock, "acquire", refuse)
    page = tmp_path / "page.html"
    ran = desk("job", "export", "demo", "--out", str(page))
    assert (ran.code, "without the files of demo" in ran.err) == (0, True), ran.err
    assert "It is done." in page.read_text()


# --- what agents are told of ----------------------------------------------------------------


def test_evidence_with_a_name_that_no_file_can_have_is_not_told_on(desk: Desk) -> None:
    desk.new("--worker", desk.script(*[DONE] * 4))
    for number in range(3):
        long = {**STUCK, "evidence_files": [f"{number}{'🦀' * 800_000}"]}
        desk.step(json.dumps(long, ensure_ascii=False))
        desk.ok("job", "steward", "demo", "continue")
    assert context(desk) == []
    assert len((desk.home / "jobs/demo/manifest.json").read_bytes()) < 100_000
    assert desk.ran()["status"] == "SUCCESS"


def test_files_that_people_gave_are_told_whatever_else_is_named(desk: Desk, tmp_path: Path) -> None:
    desk.new("--worker", desk.script(DONE), "--files", "plan.md")
    note = tmp_path / "note.txt"
    note.write_text("a note")
    desk.ok("job", "attach", str(note), "--job", "demo")
    desk.step({**AGAIN, "evidence_files": [f"file-{number}" for number in range(250)]})
    told = context(desk)
    assert told[:2] == ["plan.md", "attachments/note.txt"]
    assert told[2:] == [f"file-{number}" for number in range(150, 250)]


def test_what_was_attached_to_a_draft_is_told_after_it_was_set(desk: Desk, tmp_path: Path) -> None:
    desk.new("--worker", desk.script(DONE))
    note = tmp_path / "note.txt"
    note.write_text("a note")
    desk.ok("job", "attach", str(note), "--job", "demo")
    desk.ok("job", "set", "demo", "--files", "plan.md")
    assert context(desk) == ["plan.md", "attachments/note.txt"]
    assert "a note" in desk.ok("job", "step", "demo", "--dry-run")["data"]["prompt"]


def test_an_attachment_whose_name_would_lead_out_elsewhere_is_refused(
    desk: Desk, tmp_path: Path
) -> None:
    desk.new("--worker", desk.script(DONE))
    odd = tmp_path / r"a\..\b.txt"
    odd.write_text("a note")
    ran = desk("job", "attach", str(odd), "--job", "demo", "--json")
    assert (ran.code, ran.error()["code"]) == (2, "bad_name")
    spec = desk.spec(prompt="P", models={"worker": "scripted:echo"}, attachments=[str(odd)])
    assert desk("job", "new", spec, "--id", "other").code == 2
    plain = tmp_path / r"a\b.txt"
    plain.write_text("a note")
    desk.ok("job", "attach", str(plain), "--job", "demo")
    assert desk.ran()["status"] == "SUCCESS"


def test_guidance_is_refused_before_there_is_more_than_a_request_can_hold(
    desk: Desk, tmp_path: Path
) -> None:
    told = json.dumps(DONE)
    desk.new("--worker", desk.program(f"import sys; sys.stdin.read(); print({told!r})"))
    long = tmp_path / "long.txt"
    long.write_text("é" * 1_000_000)
    desk.step(STUCK)
    desk.ok("job", "steward", "demo", "continue", "--guidance", f"@{long}")
    desk.step(STUCK)
    words = ("job", "steward", "demo", "continue", "--guidance", f"@{long}")
    error = desk.refused(*words, code=2, says="1,000,000 before it")
    assert "job attach" in error["hint"]
    desk.ok("job", "steward", "demo", "continue", "--guidance", "Use the other port")
    assert desk.ran()["status"] == "SUCCESS"


def given(desk: Desk, times: int) -> list[str]:
    """Guidance so often, as if the steward had been asked each time."""
    told = [f"Guidance number {number}" for number in range(times)]
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        job.decide(lambda _: [{"event": "note", "guidance": each} for each in told])
    return told


def test_the_next_request_has_all_guidance_however_often_it_was_given(desk: Desk) -> None:
    desk.new("--worker", desk.script(STUCK, DONE))
    before = given(desk, 300)
    desk.ran(code=1)
    desk.ok("job", "steward", "demo", "continue", "--guidance", "And the last")
    assert desk.ran()["status"] == "SUCCESS"
    prompt = desk.calls()[-1]["request"]["prompt"]
    heading = re.search("# Guidance of the steward [0-9a-f]{16}\n\n", prompt)
    assert heading is not None
    places = [prompt.index(f"{heading[0]}{each}") for each in before]
    assert places == sorted(places)
    assert prompt.index("And the last") > places[-1]
    # What the second request has in common with the first is on record once.
    parts = [each["part"] for each in desk.lines(event="part")]
    assert len(parts) == len(set(parts))


def test_guidance_is_refused_when_it_was_given_a_thousand_times(desk: Desk) -> None:
    desk.new("--worker", desk.script(STUCK, DONE))
    desk.ran(code=1)
    given(desk, 1000)
    words = ("job", "steward", "demo", "continue", "--guidance", "One more")
    error = desk.refused(*words, code=2, says="given 1,000 times: 1,000 are kept at most")
    assert "job attach" in error["hint"]
    desk.ok("job", "steward", "demo", "continue")
    assert desk.ran()["status"] == "SUCCESS"


def test_a_request_may_be_longer_than_a_line_of_the_history(desk: Desk, tmp_path: Path) -> None:
    told = json.dumps(DONE)
    worker = desk.program(f"import sys; sys.stdin.read(); print({told!r})")
    long = tmp_path / "long.txt"
    long.write_text("a" * 8_000_000)
    desk.ok("job", "new", "--prompt", f"@{long}", "--worker", worker, "--id", "demo")
    desk.step(STUCK)
    long.write_text("b" * 1_000_000)
    desk.ok("job", "steward", "demo", "continue", "--guidance", f"@{long}")
    assert desk.ran()["status"] == "SUCCESS"
    assert len(desk.calls()[-1]["request"]["prompt"]) > 9_000_000


# --- what a spec says -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"budget": {"max_cost": 1e308}}, "1e+308 is not an amount"),
        ({"cost_threshold": 1e308}, "is not an amount"),
        ({"phases": [{"name": "w", "gates": ["  "]}]}, "is no command"),
        ({"phases": [{"name": "w", "gate": "''"}]}, "is no command"),
        ({"phases": [{"name": "w", "gate": "true \0"}]}, "is no command"),
        ({"phases": [{"name": "w", "accepts": []}]}, "does not accept COMPLETED"),
        ({"models": {"worker": "scripted:echo", "Worker": "scripted:x"}}, "worker is said twice"),
    ],
)
def test_a_spec_of_a_job_that_could_never_end_is_refused(
    desk: Desk, told: dict[str, Any], says: str
) -> None:
    spec = desk.spec(**{"prompt": "P", "models": {"worker": "scripted:echo"}, **told})
    desk.refused("job", "new", spec, "--id", "demo", code=2, says=says)
    assert desk.ok("job", "list")["rows"] == []


def test_a_worktree_of_no_repository_is_refused_before_there_is_a_job(desk: Desk) -> None:
    plain = desk.cwd / "plain"
    plain.mkdir()
    words = ("--prompt", "P", "--worker", "scripted:echo", "--isolation", "worktree")
    error = desk.refused(
        "job", "new", *words, "--source", str(plain), code=3, says="not in a git repository"
    )
    assert "git init" in error["hint"]
    assert desk.ok("job", "list")["rows"] == []


@pytest.mark.parametrize("isolation", ["sandbox", "directory"])
def test_a_program_that_a_sandbox_hides_is_told_when_the_job_is_made(
    desk: Desk, isolation: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        script = Path(folder, "work.py")
        script.write_text("print()", encoding="utf-8")
        ran = desk("job", "new", "--prompt", "P", "--isolation", isolation, "--worker",
                   f"command:python3 {script}", "--gate", f"sh {script}")  # fmt: skip
    assert ran.code == 0
    assert ran.err.count(f"{script} is not there in the sandbox") == (isolation == "sandbox")


def test_a_phase_with_a_very_long_name_is_listed_and_shown(desk: Desk) -> None:
    name = "x" * 2_000_000
    spec = desk.spec(prompt="P", models={"worker": desk.script(DONE)}, phases=[{"name": name}])
    desk.ok("job", "new", spec, "--id", "demo")
    desk("job", "run", "demo")
    assert desk.ok("job", "list")["rows"][0]["status"] == "SUCCESS"
    assert desk.show()["phase"] == name


# --- back, and again ------------------------------------------------------------------------


def test_a_job_begun_in_the_middle_of_another_has_no_start_to_go_back_to(desk: Desk) -> None:
    told = {action: json.dumps({**DONE, "action": action}) for action in ("COMPLETED", "STUCK")}
    worker = desk.program(f"open('made', 'w').close(); print({told['COMPLETED']!r})")
    stuck = desk.program(f"print({told['STUCK']!r})")
    phases = [{"name": "one", "model": worker}, {"name": "two", "model": worker}]
    desk.ok("job", "new", desk.spec(prompt="P", phases=phases), "--id", "demo")
    desk.ran()
    new = desk.ok("job", "replay", "demo", "--from", "1", "--model", stuck)["data"]["new"]
    assert desk.status(new) == "INTERVENTION_REQUIRED"
    desk.refused("job", "rewind", new, "--start", says="the start stayed with demo")
    desk.ok("job", "rewind", new, "--phase", "0")
    begun = desk.ok("job", "replay", "demo", "--from", "0", "--model", stuck)["data"]["new"]
    desk.ok("job", "rewind", begun, "--start")


@pytest.mark.parametrize("action", ["COMPLETED", "RETRY"])
def test_an_answer_that_a_secret_was_cut_out_of_is_replayed(desk: Desk, action: str) -> None:
    secret = "-----BEGIN RSA PRIVATE KEY-----"
    reply = {**DONE, "action": action, "evidence_files": [secret], "note": secret}
    desk.new("--worker", desk.script(reply, DONE))
    assert desk.ran()["status"] == "SUCCESS"
    raw = desk.lines(event="reply")[0]["raw_response"]
    with pytest.raises(ValueError, match=r"Expecting|Extra|Unterminated"):
        json.loads(raw)
    assert desk.ok("job", "replay", "demo")["data"]["status"] == "SUCCESS"


def test_more_calls_may_be_asked_for_than_a_machine_can_count(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE))
    desk.ran()
    assert len(desk.ok("job", "history", "demo", "--limit", str(10**25))["rows"]) == 1
