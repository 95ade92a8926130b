"""The example of every verb runs as `--help` shows it, and does what the table says of the verb.

One that changes something changes a byte below the home or beside it; a dry run changes none, and
the same words without `--dry-run` do.  One that reads shows something.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from hashlib import sha256
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from holdfast.agents.agent import Agent, End, Start
from holdfast.audit import tell
from holdfast.clock import SystemClock, instant_of
from holdfast.ops.operation import Operation
from holdfast.ops.table import TABLE
from holdfast.process import this_process
from holdfast.store.home import Home
from holdfast.testing import Turner
from tests.forked import forked
from tests.ledger.shell import PATIENCE, PROGRAM, Shell, Verbs, day_files, on_its_own

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

WITHOUT_END = {"up", "ledger tail", "audit tail"}
PRINTS = {"schema", "job step", "job replay", "swarm stop", "improve stop"}
"""They change something only with other options or a run under way, or what no file shows."""
EMPTY = {"ledger list", "ledger orphans", "job list", "validate", "check", "doctor", "audit list"}
"""Lists that rightly have no row for what is there."""
HOOKED = json.dumps({"session_id": "8c35", "hook_event_name": "SessionStart"})
_SWARM = "swarm run --name week --agents rio,leo --goal Plan --ticks 2 --model scripted:echo"
_MEMORY = "memory add --agent rio --topic a --text x"
_SORT = (
    "improve init --topic sort --repo . --benchmark 'cat score' --format number --trust "
    "--planners 1 --executor patches:patches.json"
)
_ROUND = "improve run sort --rounds 1"
BEFORE = {
    **{
        f"improve {verb}": [_SORT]
        for verb in ("run", "status", "stop", "set", "edit", "idea", "list")
    },
    **{
        f"improve {verb}": [_SORT, _ROUND]
        for verb in ("show", "plot", "report", "diff", "replay", "finalize")
    },
    "task done": ["task start --agent rio task-001"],
    "task reopen": ["task start --agent rio task-001", "task done --agent rio task-001"],
    "alerts list": ["alerts check"],
    "alerts ack": ["alerts check"],
    "key list": ["key new"],
    "key rotate": ["key new"],
    "agent turns": ["agent chat rio Hello --model scripted:echo"],
    "session note": ["session start --agent rio"],
    "session set": ["session start --agent rio"],
    "session beat": ["session start --agent rio"],
    "session end": ["session start --agent rio"],
    "inbox ack": ["inbox take --agent rio"],
    "inbox return": ["inbox take --agent rio"],
    "inbox purge": ["inbox take --agent rio", "inbox ack --agent rio msg-abc123"],
    "memory show": ["memory note --agent rio --section 'Dead Ends' 'No page'"],
    "memory search": ["memory add --agent rio --topic api --text 'The API uses port 8080'"],
    "memory tree": ["memory add --agent rio --topic a --text x"],
    "memory forget": ["memory add --agent rio --topic a --text x"],
    "memory accept": [f"{_MEMORY} --proposed"],
    "memory refuse": [f"{_MEMORY} --proposed"],
    "memory compact": [
        "memory add --agent rio --topic a --text x",
        "memory add --agent rio --topic a --text x",
    ],
    "job use": ["job new --id other --prompt 'Say hello' --worker scripted:echo"],
    "job queue": ["job activate hello"],
    "job suspend": ["job activate hello"],
    "job resume": ["job activate hello", "job suspend hello"],
    "job rewind": ["job activate hello"],
    "job checkpoint": ["job activate hello"],
    "job diff": ["job activate hello"],
    "job merge": ["job activate hello"],
    "job archive": ["job run hello"],
    "job replay": ["job run hello"],
    "job history": ["job step hello --response Hello!"],
    "swarm resume": [_SWARM],
    "swarm list": [_SWARM],
    "swarm show": [_SWARM],
    "swarm stop": [_SWARM],
    "job list": ["job step hello --response Hello!"],
    "job steward": ["job step hello --response Hello!"],
}
"""Commands that bring about what an example works on."""


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples speak of: agents with a past, a task, a message, and files beside them."""
    with pytest.MonkeyPatch.context() as patch:
        made = Shell(tmp_path_factory.mktemp("settled"))
        on_its_own(patch, made.place)
        verbs = Verbs(str(made.home), SystemClock())
        verbs("init", agent=["rio", "leo"], timezone="UTC")
        # The session that the examples name has its day; how long ago that is depends on today's.
        settings = made.home / "holdfast.toml"
        text = settings.read_text(encoding="utf-8")
        settings.write_text(f'stale_after = "3649d"\n{text}', encoding="utf-8")
        then = Turner(instant_of("2026-11-15T10:00:00Z"))
        with Home.open(str(made.home), clock=then) as home, Agent(home, "rio") as rio:
            begun = rio.start(Start("research"))
            rio.end("", begun.fence, End("completed"))
            assert begun.id == "2026-11-15_rio_001"
            tell(home, "refusal", "not today", agent="rio")
        verbs("task add", agent="rio", text="Who sets the fees?")
        verbs("inbox send", from_="leo", to="rio", subject="Fees", body="See #12", id="msg-abc123")
    (made.cwd / "copy").mkdir()
    for name in ("2026-11-15.jsonl", "copy/2026-11-15.jsonl"):
        (made.cwd / name).write_text(json.dumps(EVENT) + "\n", encoding="utf-8")
    copytree(made.home / "state/rio", made.cwd / "agent-state/rio")
    (made.home / "logs").mkdir()
    tested = {"agent_id": "rio", "start_ts": 1.8e9, "end_ts": 1.8e9, "events": []}
    log = made.home / "logs/test_run_20261119-064700.json"
    log.write_text(json.dumps(tested), encoding="utf-8")
    (made.cwd / "notes.md").write_text("Look", encoding="utf-8")
    claude = made.user / "claude"
    claude.write_text("#!/bin/sh\necho read\n", encoding="utf-8")
    claude.chmod(0o755)
    return made.place


@pytest.fixture
def shell(tmp_path: Path, settled: Path) -> Shell:
    copytree(settled, tmp_path, symlinks=True, dirs_exist_ok=True)
    return Shell(tmp_path)


FILES = {
    "memory ingest": {"docs/fees.md": "The fees are 2 %.\n", "notes.txt": "Ask Ada.\n"},
}
"""What stands in the working directory before a verb."""


def repository(shell: Shell) -> None:
    """The working directory as a repository with a benchmark, and patches for it."""
    (shell.cwd / "bench").mkdir()
    (shell.cwd / "score").write_text("1\n", encoding="utf-8")
    score = "import json\nprint(json.dumps({'primary': 1}))\n"
    (shell.cwd / "bench/run.py").write_text(score, encoding="utf-8")
    edit = {"file": "score", "replace": "1", "by": "2"}
    patches = json.dumps([{"hypothesis": "Two", "edits": [edit]}])
    (shell.cwd / "patches.json").write_text(patches, encoding="utf-8")
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-C"]
    for words in (["init", "-qb", "main"], ["add", "-A"], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, str(shell.cwd), *words], check=True)


def job(shell: Shell) -> None:
    source = shell.cwd / "repository"
    git = ["git", "-C", str(source), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    subprocess.run([*git, "commit", "-qm", "Begin", "--allow-empty"], check=True)
    worker = "--worker scripted:echo --source repository"
    ran(shell, f"job new --id hello --prompt 'Say hello' {worker}")


def prepare(shell: Shell, verb: str) -> None:
    if verb.startswith("job ") and verb != "job new":
        job(shell)
    if verb.startswith("improve "):
        repository(shell)
    match verb:
        case "alerts check" | "alerts list" | "alerts ack":
            (shell.home / "state/leo/report.json").write_text("", encoding="utf-8")
        case "rebuild" | "doctor":
            (shell.home / "state/rio/status.json").unlink()
        case "session sweep":
            gone = this_process()._replace(started=1)
            with Home.open(str(shell.home)) as home, Agent(home, "leo") as leo:
                leo.start(Start("research"), owner=gone)
        case "ledger repair":
            with (shell.cwd / "2026-11-15.jsonl").open("a", encoding="utf-8") as file:
                file.write("}\n")
        case "ledger summary":
            yesterday = Turner(time.time() - 24 * 3600)
            with Home.open(str(shell.home), clock=yesterday) as home, Agent(home, "leo") as leo:
                leo.end("", leo.start(Start("research")).fence, End("completed"))
        case "ledger archive":
            (file,) = day_files(shell.home, "rio")
            file.rename(file.with_name("2026-01-01.jsonl"))
            ran(shell, "ledger write --agent rio --event info Later")
        case _:
            pass
    for name, text in FILES.get(verb, {}).items():
        (shell.cwd / name).parent.mkdir(exist_ok=True)
        (shell.cwd / name).write_text(text, encoding="utf-8")
    for words in BEFORE.get(verb, ()):
        ran(shell, words)
    touch(shell, verb)


def touch(shell: Shell, verb: str) -> None:
    """Change what those before made."""
    if verb == "inbox purge":
        os.utime(shell.home / "state/rio/inbox/.done/msg-abc123.json", (0, 0))
    if verb in ("job merge", "job diff"):
        workspace = ran(shell, "job show hello")["data"]["workspace"]
        Path(workspace, "made.md").write_text("Hello\n", encoding="utf-8")


def words_of(command: str) -> list[str]:
    words = shlex.split(command.replace("/opt/agents/", ""))
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], "--json", *words[at:]]


def environment(shell: Shell) -> dict[str, str]:
    path = f"{shell.user}{os.pathsep}{os.environ['PATH']}"
    return shell.environment({"HOLDFAST_HOME": str(shell.home), "PATH": path})


def ran(shell: Shell, command: str, folder: Path | None = None, said: str = "") -> Any:
    """The answer of a command; one that looks for trouble ends with 1 when it finds some."""
    cwd = folder or shell.cwd
    code, out, err = forked(words_of(command), environment(shell), cwd, said.encode(), PATIENCE)
    assert code in (0, 1), (out + err).decode()
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert answer.keys() in (LIST, SHOW, CHANGE), answer
    assert answer["schema"] == 1
    return answer


def digest(shell: Shell) -> str:
    """Of every file there is, but for the repositories in which jobs keep snapshots."""
    found = sha256()
    for file in sorted(shell.place.rglob("*")):
        if file.is_file() and not file.is_symlink() and ".files" not in file.parts:
            found.update(f"{file.relative_to(shell.place)}\n".encode() + file.read_bytes())
    return found.hexdigest()


def judge_endless(shell: Shell, operation: Operation) -> None:
    """It shows something at once, and ends when it is interrupted."""
    process = subprocess.Popen(
        [PROGRAM, *words_of(operation.example)[1:]],
        cwd=shell.cwd,
        env=environment(shell),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        pipe = process.stderr if operation.name == "up" else process.stdout
        assert pipe is not None
        line = pipe.readline()
        assert "http://" in line or json.loads(line)["agent"] == "rio", line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()


@pytest.mark.parametrize("verb", TABLE.names())
def test_the_example_of_a_verb_runs_as_it_stands_and_does_something(
    verb: str, shell: Shell
) -> None:
    (operation,) = [each for each in TABLE.operations if each.name == verb]
    prepare(shell, verb)
    if verb in WITHOUT_END:
        judge_endless(shell, operation)
        return
    example = operation.example.partition(" ")[2]
    folder = shell.home if verb == "validate" else shell.cwd
    said = HOOKED if verb.startswith("hook ") else ""
    before = digest(shell)
    answer = ran(shell, example, folder, said)
    if operation.effect == "read":
        assert verb in EMPTY or answer.get("rows") or answer.get("data"), answer
        return
    if "--dry-run" in example:
        assert digest(shell) == before
        answer = ran(shell, example.replace(" --dry-run", ""), folder)
    assert verb in PRINTS or digest(shell) != before, answer
