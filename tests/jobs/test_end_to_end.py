"""Programs mend a small repository, whoever runs the job is killed twice, and all is as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

from tests.jobs.desk import Desk
from tests.ledger.shell import PATIENCE, ended

WORKER = """
import json, os, sys, time
request = json.load(sys.stdin)
log = os.environ["EFFECTS"]
with open(log, "a") as file:
    file.write("worker began\\n")
tries = open(log).read().count("worker began")
if tries == 1:
    with open("half.tmp", "w") as file:
        file.write("half of it")
    with open(log, "a") as file:
        file.write("worker hangs\\n")
    time.sleep(600)
with open("total.py", "w") as file:
    file.write("def total(numbers):\\n    return sum(numbers)\\n")
with open("NOTES.md", "w") as file:
    file.write("Mended: the first number was left out.\\n")
if "NOTES.md says too little" in request["task_description"]:
    with open("NOTES.md", "a") as file:
        file.write("Tested with an empty list too.\\n")
with open(log, "a") as file:
    file.write("worker ended\\n")
print(json.dumps({"action": "COMPLETED", "evidence_files": ["total.py", "NOTES.md"],
                  "summary_for_supervisor": "total adds all numbers."}))
"""

SUPERVISOR = """
import json, os, sys, time
request = json.load(sys.stdin)
log = os.environ["EFFECTS"]
with open(log, "a") as file:
    file.write("supervisor began\\n")
tries = open(log).read().count("supervisor began")
assert "total.py" in request["context_files"], request["context_files"]
if tries == 1:
    time.sleep(600)
fine = "empty list" in open("NOTES.md").read()
with open(log, "a") as file:
    file.write(f"supervisor {'accepts' if fine else 'rejects'}\\n")
print(json.dumps({
    "action": "COMPLETED" if fine else "RETRY",
    "evidence_files": ["NOTES.md"],
    "summary_for_supervisor": "It is good." if fine else "NOTES.md says too little.",
}))
"""

BROKEN = "def total(numbers):\n    return sum(numbers[1:])\n"
TEST = "from total import total\n\n\ndef test_total():\n    assert total([1, 2, 3]) == 6\n"
MENDED = "def total(numbers):\n    return sum(numbers)\n"


def git(folder: Path, *words: str, **more: str) -> str:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        **{
            f"GIT_{who}_{what}": "ada@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
        **more,
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=environment, capture_output=True, check=True
    )
    return done.stdout.decode()


def repository(folder: Path) -> Path:
    """A repository with a bug, a stash, a remote, and a file that is not committed."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "total.py").write_text(BROKEN, encoding="utf-8")
    (folder / "test_total.py").write_text(TEST, encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Add total")
    git(folder, "remote", "add", "origin", "https://example.org/nowhere.git")
    (folder / "total.py").write_text("# put off\n", encoding="utf-8")
    git(folder, "stash", "-q")
    (folder / "later.md").write_text("Not committed\n", encoding="utf-8")
    return folder


def every_byte(folder: Path) -> dict[str, str]:
    found = {str(each.relative_to(folder)): each for each in folder.rglob("*")}
    return {
        name: sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for name, path in sorted(found.items())
    }


def gate(folder: Path) -> int:
    """The exit code of the test, as the gate runs it."""
    done = subprocess.run(GATE, cwd=folder, capture_output=True, check=False)
    return done.returncode


GATE = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_total.py"]


def told(effects: Path) -> list[str]:
    return effects.read_text("utf-8").splitlines() if effects.exists() else []


def until(effects: Path, line: str) -> None:
    """Wait until a program has told that it is there."""
    end = time.monotonic() + PATIENCE
    while line not in told(effects):
        assert time.monotonic() < end, f"{line} never came"
        time.sleep(0.01)


def killed(desk: Desk, effects: Path, line: str) -> None:
    """Run the job, and kill whoever runs it as soon as a program says so."""
    with ended(desk.shell.start("job", "run", "mend")) as process:
        until(effects, line)
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL


def test_a_bug_is_mended_by_programs_though_their_runner_is_killed_twice(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = tmp_path / "effects.log"
    monkeypatch.setenv("EFFECTS", str(effects))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    source = repository(tmp_path / "source")
    before = every_byte(source)
    assert gate(source) == 1
    assert every_byte(source) == before
    phases = [
        {"name": "mend", "gate": " ".join(GATE), "instructions": "Mend total()."},
        # A supervisor looks only: asking it again does no harm.
        {"name": "review", "role": "supervisor", "repeatable": True},
    ]
    spec = desk.spec(
        job_id="mend",
        prompt="The test fails. Mend it.",
        phases=phases,
        models={"worker": desk.program(WORKER), "supervisor": desk.program(SUPERVISOR)},
        isolation="worktree",
        source=str(source),
    )
    desk.ok("job", "new", spec)

    killed(desk, effects, "worker hangs")
    asked = desk.shell("job", "run", "mend")
    assert asked.code == 1 and "may have had an effect" in asked.out
    assert told(effects) == ["worker began", "worker hangs"]
    assert desk.shell("job", "run", "mend").code == 1  # not before somebody decides
    said = desk.shell("job", "steward", "mend", "continue", "--guidance", "Nothing was done yet")
    assert said.code == 0

    killed(desk, effects, "supervisor began")
    assert desk.shell("job", "run", "mend").code == 0
    assert told(effects) == [
        "worker began",
        "worker hangs",
        "worker began",
        "worker ended",
        "supervisor began",
        "supervisor began",
        "supervisor rejects",
        "worker began",
        "worker ended",
        "supervisor began",
        "supervisor accepts",
    ]

    workspace = desk.workspace("mend")
    assert (workspace / "total.py").read_text() == MENDED
    assert "empty list" in (workspace / "NOTES.md").read_text()
    assert gate(workspace) == 0
    assert git(workspace, "symbolic-ref", "HEAD").strip() == "refs/heads/job-mend"
    git(workspace, "add", "-A")
    changed = git(workspace, "diff", "--cached", "--numstat").split("\n")
    assert "1\t1\ttotal.py" in changed and "2\t0\tNOTES.md" in changed
    assert every_byte(source) == before
    assert git(source, "stash", "list").count("\n") == 1

    (first, *_) = desk.calls("mend")
    assert first["response"]["status"] == "ERROR"
    assert json.loads(first["request"]["prompt"])["phase"] == "mend"
    assert desk("job", "replay", "mend").code == 0
