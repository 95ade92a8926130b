"""Every example that `--help` shows is run as it stands, and answers in one of the envelopes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.agent import Agent, End, Start
from holdfast.audit import tell
from holdfast.clock import SystemClock, instant_of
from holdfast.ops.operation import Operation
from holdfast.ops.table import TABLE
from holdfast.store.home import Home
from holdfast.testing import Turner
from tests.ledger.shell import PATIENCE, PROGRAM, Shell, Verbs, on_its_own

EVENT = {
    "ts": "2026-11-15T10:00:00Z",
    "agent": "rio",
    "session_id": "2026-11-15_rio_001",
    "event": "info",
    "task_id": "system",
    "source": "user",
    "summary": "Hello",
    "data": {},
}
LIST = {"schema", "as_of", "counts", "rows", "truncated", "next"}
SHOW = {"schema", "as_of", "data"}
CHANGE = {"schema", "target", "applied", "dry_run", "detail", "data"}

IN_A_SESSION = {"session note", "session beat", "session end"}
OF_A_TAKEN_MESSAGE = {"inbox ack", "inbox return"}
OF_A_STARTED_TASK = {"task done"}
OF_A_DONE_TASK = {"task reopen"}
WITHOUT_END = {"up", "ledger tail", "audit tail"}
SAID = {
    "hook claude-code": json.dumps({"session_id": "8c35", "hook_event_name": "SessionStart"}),
}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """What the examples speak of: an agent with a past, a task, a message, and files beside it."""
    on_its_own(monkeypatch, tmp_path)
    made = Shell(tmp_path)
    verbs = Verbs(str(made.home), SystemClock())
    verbs("init", agent=["rio", "leo", "clay"], timezone="UTC")
    # The session that the examples name has its day; how long ago that is depends on today's.
    settings = made.home / "holdfast.toml"
    told = settings.read_text(encoding="utf-8")
    settings.write_text(f'stale_after = "36500d"\n{told}', encoding="utf-8")
    then = Turner(instant_of("2026-11-15T10:00:00Z"))
    with Home.open(str(made.home), clock=then) as home, Agent(home, "rio") as rio:
        begun = rio.start(Start("research"))
        rio.end("", begun.fence, End("completed"))
        assert begun.id == "2026-11-15_rio_001"
    verbs("task add", agent="rio", text="Who sets the fees?")
    text = {"subject": "Fees", "body": "See #12", "id": "msg-abc123"}
    verbs("inbox send", from_="leo", to="rio", **text)
    (made.cwd / "copy").mkdir()
    for name in ("2026-11-15.jsonl", "copy/2026-11-15.jsonl"):
        (made.cwd / name).write_text(json.dumps(EVENT) + "\n", encoding="utf-8")
    (made.cwd / "agent-state/rio").mkdir(parents=True)
    report = (made.home / "state/rio/report.json").read_text(encoding="utf-8")
    (made.cwd / "agent-state/rio/report.json").write_text(report, encoding="utf-8")
    claude = made.user / "claude"
    claude.write_text("#!/bin/sh\necho read\n", encoding="utf-8")
    claude.chmod(0o755)
    return made


def prepare(shell: Shell, verb: str) -> None:
    verbs = Verbs(str(shell.home), SystemClock())
    if verb == "task import":
        (shell.cwd / "queue.md").write_text("## rio\n- [ ] Look into it\n", encoding="utf-8")
    if verb == "alerts ack":
        (shell.home / "state/leo/report.json").write_text("", encoding="utf-8")
        assert shell("alerts", "check").code == 1
    if verb.startswith("audit "):
        with Home.open(str(shell.home)) as home:
            tell(home, "refusal", "not today", agent="rio")
    if verb == "key rotate":
        assert shell("key", "new").code == 0
    if verb in IN_A_SESSION:
        verbs("session start", agent="rio")
    if verb in OF_A_TAKEN_MESSAGE:
        verbs("inbox take", agent="rio")
    if verb in OF_A_STARTED_TASK | OF_A_DONE_TASK:
        verbs("task start", agent="rio", id="task-001")
    if verb in OF_A_DONE_TASK:
        verbs("task done", agent="rio", id="task-001")

    if verb.startswith("job ") and verb not in ("job new", "job list", "job queue"):
        prepare_job(shell, verb, verbs)


def prepare_job(shell: Shell, verb: str, verbs: Verbs) -> None:
    source = shell.cwd / "repository"
    git = ["git", "-C", str(source), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    subprocess.run([*git, "commit", "-qm", "Begin", "--allow-empty"], check=True)
    (shell.cwd / "notes.md").write_text("Look", encoding="utf-8")
    verbs("job new", prompt="Say hello", worker="scripted:echo", id="hello", source=str(source))
    before = {
        "job suspend": ("activate",),
        "job rewind": ("activate",),
        "job checkpoint": ("activate",),
        "job diff": ("activate",),
        "job merge": ("activate",),
        "job resume": ("activate", "suspend"),
        "job archive": ("run",),
    }
    for each in before.get(verb, ()):
        verbs(f"job {each}", id="hello")
    if verb == "job steward":
        verbs("job step", id="hello", response="Hello!")


def started(shell: Shell, operation: Operation) -> subprocess.Popen[str]:
    words = shlex.split(operation.example.replace("/opt/agents/", ""))[1:]
    at = words.index("--") if "--" in words else len(words)
    words = [*words[:at], "--json", *words[at:]]
    path = f"{shell.user}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        [PROGRAM, *words],
        cwd=shell.home if operation.name == "validate" else shell.cwd,
        env=shell.environment({"HOLDFAST_HOME": str(shell.home), "PATH": path}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("verb", TABLE.names())
def test_the_example_of_a_verb_runs_as_it_stands(verb: str, shell: Shell) -> None:
    (operation,) = [each for each in TABLE.operations if each.name == verb]
    prepare(shell, verb)
    process = started(shell, operation)
    try:
        if verb in WITHOUT_END:
            pipe = process.stderr if verb == "up" else process.stdout
            assert pipe is not None
            line = pipe.readline()
            assert ("http://" in line) if verb == "up" else json.loads(line)["agent"] == "rio", line
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)
            return
        out, err = process.communicate(SAID.get(verb, ""), timeout=PATIENCE)
    finally:
        process.kill()
    # Whoever looks for trouble may have found some.
    assert process.returncode == 0 or (operation.effect == "read" and process.returncode == 1), (
        out + err
    )
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert answer.keys() in (LIST, SHOW, CHANGE)
    assert answer["schema"] == 1
