"""`examples/job-fix-test`, run as it is: from a failing test to a branch that passes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.desk import Desk
from tests.ledger.shell import PATIENCE, PROGRAM, REPO, on_its_own

EXAMPLE = REPO / "examples" / "job-fix-test"
ANSWER = {
    "action": "COMPLETED",
    "evidence_files": ["tally.py"],
    "summary_for_supervisor": "It multiplies now.",
}
STAND_IN = """#!{python}
# Does what a CLI agent does: reads the prompt, edits a file, answers in its own form.
import json, pathlib, sys
prompt = sys.stdin.read()
assert "check_tally.py says what is expected" in prompt, prompt
tally = pathlib.Path("tally.py")
tally.write_text(tally.read_text().replace("int(count) + int", "int(count) * int"))
answer = "Here it is:\\n```json\\n" + json.dumps({answer}) + "\\n```"
{form}
"""
CLAUDE = """
words = ["-p", "--permission-mode", "acceptEdits", "--output-format", "json"]
assert sys.argv[1:] == words, sys.argv
print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": answer,
                  "total_cost_usd": 0.02, "usage": {"input_tokens": 9, "output_tokens": 7}}))
"""
CODEX = """
assert sys.argv[1:] == ["exec", "--sandbox", "workspace-write", "--json", "-"], sys.argv
for event in ({"type": "thread.started", "thread_id": "t"},
              {"type": "item.completed", "item": {"type": "agent_message", "text": answer}},
              {"type": "turn.completed", "usage": {"input_tokens": 9, "output_tokens": 7}}):
    print(json.dumps(event))
"""
RECIPES = {
    "claude": ("command:claude -p --permission-mode acceptEdits", CLAUDE),
    "codex": ("command:codex exec --sandbox workspace-write", CODEX),
}


def passes(repository: Path, revision: str) -> bool:
    """Whether the tests of a revision pass, in a checkout of its own."""
    place = repository.parent / f"checkout-{revision}"
    words = ["git", "-C", str(repository), "worktree", "add", "-q", "--detach", str(place)]
    subprocess.run([*words, revision], check=True)
    tests = [sys.executable, "-m", "unittest", "-q", "check_tally"]
    return subprocess.run(tests, cwd=place, capture_output=True, check=False).returncode == 0


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    on_its_own(monkeypatch, tmp_path)
    made = Desk(tmp_path)
    monkeypatch.chdir(made.cwd)
    return made


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "tally"
    shutil.copytree(EXAMPLE / "repository", made)
    git = ["git", "-C", str(made), "-c", "user.name=you", "-c", "user.email=you@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "A tally"]):
        subprocess.run([*git, *words], check=True)
    return made


def mended(desk: Desk, repository: Path, spec: str, worker: str, supervisor: str) -> None:
    """The steps of the script, in this process."""
    words = ["--id", "fix-test", "--source", str(repository), "--isolation", "worktree"]
    models = ["--tolerant", "--worker", worker, "--supervisor", supervisor]
    desk.ok("job", "new", str(EXAMPLE / spec), *words, *models)
    assert desk.ran("fix-test")["status"] == "SUCCESS"
    desk.ok("job", "merge", "fix-test")
    assert passes(repository, "job-fix-test")


def ours(name: str) -> str:
    return f"command:{sys.executable} '{EXAMPLE / name}'"


def test_a_careless_try_is_refused_by_the_gate_and_the_second_becomes_a_branch(
    desk: Desk, tmp_path: Path
) -> None:
    repository = tmp_path / "tally"
    found = os.pathsep.join([str(Path(PROGRAM).parent), os.environ["PATH"]])
    ran = subprocess.run(
        ["sh", str(EXAMPLE / "run.sh"), str(repository)],
        cwd=desk.cwd,
        env=desk.shell.environment({"HOLDFAST_HOME": str(desk.home), "PATH": found}),
        capture_output=True,
        timeout=4 * PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran
    assert not passes(repository, "main") and passes(repository, "job-fix-test")
    calls = [
        (each["request"]["metadata"]["phase"], each["response"]) for each in desk.calls("fix-test")
    ]
    assert [(phase, each["action"]) for phase, each in calls] == [
        ("mend", "RETRY"),
        ("mend", "COMPLETED"),
        ("review", "COMPLETED"),
    ]
    assert calls[0][1]["gate"]["ok"] is False and calls[1][1]["gate"]["ok"] is True


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_of_a_cli_agent_works_with_a_program_that_speaks_as_it_does(
    desk: Desk, repository: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, form = RECIPES[name]
    assert worker in (EXAMPLE / "run.sh").read_text("utf-8")
    assert worker in (REPO / "docs/jobs.md").read_text("utf-8")
    programs = desk.cwd / "programs"
    programs.mkdir()
    text = STAND_IN.format(python=sys.executable, answer=ANSWER, form=form)
    (programs / name).write_text(text, "utf-8")
    (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    mended(desk, repository, "job.yaml", worker, ours("supervisor.py"))
    call = desk.calls("fix-test")[0]["response"]
    assert call["metrics"]["token_output"] == 7
    assert call["cost_usd"] == (0.02 if name == "claude" else None)


def test_who_only_comments_decides_nothing(desk: Desk, repository: Path) -> None:
    mended(desk, repository, "job-comment.yaml", ours("worker.py"), "scripted:echo")
    comment = desk.calls("fix-test")[-1]
    assert comment["request"]["metadata"]["accepted_formats"] == ["COMPLETED"]
    assert comment["response"]["summary_for_supervisor"]
