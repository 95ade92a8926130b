"""No verb is a promise: each is run once here, and has to change a byte or show a row.

A verb of the table without a deed below is red.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from holdfast.agents.agent import Agent, Start
from holdfast.audit import tell
from holdfast.ops.table import TABLE
from holdfast.process import this_process
from holdfast.store.home import Home
from tests.forked import forked
from tests.ledger.shell import PATIENCE, PROGRAM

EVENT: dict[str, Any] = {
    "ts": "2026-11-15T10:00:00Z",
    "agent": "rio",
    "session_id": "2026-11-15_rio_001",
    "event": "info",
    "task_id": "system",
    "source": "user",
    "summary": "Hello",
    "data": {},
}


class Place:
    """A home with an agent and an event in it, and the files beside it."""

    def __init__(self, path: Path) -> None:
        self.path, self.home = path, path / "home"
        self.environment = {
            **os.environ,
            "HOLDFAST_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(path / "settings"),
        }

    def settle(self) -> None:
        self.run("init", "rio", "--timezone", "UTC")
        self.run("ledger", "write", "--agent", "rio", "--event", "info", "Hello")

    def run(self, *words: str, code: int = 0, said: str | None = None) -> Any:
        """What the verb answers in JSON."""
        at = words.index("--") if "--" in words else len(words)
        words = (*words[:at], "--json", *words[at:])
        given = (said or "").encode()
        came, out, err = forked(words, self.environment, self.path, given, PATIENCE)
        assert came == code, (out + err).decode()
        return json.loads(out.splitlines()[0])

    def bytes(self) -> str:
        """A digest of every file there is."""
        found = sha256()
        for file in sorted(self.path.rglob("*")):
            if file.is_file() and not file.is_symlink():
                found.update(f"{file.relative_to(self.path)}\n".encode() + file.read_bytes())
        return found.hexdigest()


Deed = Callable[[Place], None]
DEEDS: dict[str, Deed] = {}


def deed(verb: str) -> Callable[[Deed], Deed]:
    def keep(function: Deed) -> Deed:
        assert verb not in DEEDS
        DEEDS[verb] = function
        return function

    return keep


def shows(verb: str, *words: str) -> None:
    """A deed whose answer has rows, or data."""

    @deed(verb)
    def look(place: Place) -> None:
        answer = place.run(*verb.split(), *words)
        assert answer.get("rows") or answer.get("data") or answer.get("summary")


def changes(verb: str, *words: str) -> None:
    """A deed that changes a byte."""

    @deed(verb)
    def act(place: Place) -> None:
        before = place.bytes()
        assert place.run(*verb.split(), *words)["applied"]
        assert place.bytes() != before


changes("init", "clay")
shows("status")
shows("doctor")
shows("path", "rio")
shows("agent list", "--by", "health")
shows("agent show", "rio")
changes("agent new", "ada", "--role", "reviewer")
changes("agent edit", "rio", "--role", "reviewer")
changes("agent fork", "rio", "rio-2")
changes("agent retire", "rio")
changes("budget set", "--session", "2")
shows("schema")
changes("ledger write", "--agent", "rio", "--event", "info", "Again")
shows("ledger list")
shows("ledger tail")
shows("ledger verify")


ECHO = ("--prompt", "Say hello", "--worker", "scripted:echo")
DONE = '{"action": "COMPLETED", "evidence_files": [], "summary_for_supervisor": "It is done."}'
STUCK = DONE.replace("COMPLETED", "STUCK")


def of_a_job(
    verb: str, *words: str, before: tuple[tuple[str, ...], ...] = (), shows: str = ""
) -> None:
    """A deed on a job `hello`, after others; it changes a byte, or shows something."""

    @deed(verb)
    def act(place: Place) -> None:
        place.run("job", "new", "--id", "hello", *ECHO)
        for each in before:
            place.run("job", each[0], "hello", *each[1:], code=1 if STUCK in each else 0)
        found = place.bytes()
        answer = place.run(*verb.split(), "hello", *words)
        if shows:
            assert shows in json.dumps(answer)
            assert place.bytes() == found
        else:
            assert answer.get("applied") or answer["data"]["job"] == "hello"
            assert place.bytes() != found


changes("job new", *ECHO)
of_a_job("job set", "--max-cost", "2")
of_a_job("job activate")
of_a_job("job run")
of_a_job("job step", "--response", DONE)
of_a_job("job show", shows="Say hello")
of_a_job("job replay", before=(("run",),), shows="SUCCESS")
of_a_job("job steward", "halt", before=(("step", "--response", STUCK),))
of_a_job("job suspend", before=(("activate",),))
of_a_job("job resume", before=(("activate",), ("suspend",)))
of_a_job("job cancel")
of_a_job("job rewind", "--phase", "0", before=(("activate",),))
of_a_job("job checkpoint", "here", before=(("activate",),))


@deed("job attach")
def job_attach(place: Place) -> None:
    place.run("job", "new", "--id", "hello", *ECHO)
    (place.path / "note.md").write_text("Look", encoding="utf-8")
    answer = place.run("job", "attach", "note.md", "--job", "hello")
    assert answer["data"]["attachments"] == ["attachments/note.md"]


@deed("job use")
def job_use(place: Place) -> None:
    for id in ("hello", "other"):
        place.run("job", "new", "--id", id, *ECHO)
    assert place.run("job", "use", "hello")["applied"]
    assert place.run("job", "show")["data"]["job"] == "hello"


of_a_job("job archive", before=(("run",),))


@deed("job diff")
@deed("job merge")
def job_merge(place: Place) -> None:
    repository = place.path / "repository"
    for words in (
        ("init", "-q", "-b", "trunk", str(repository)),
        ("-C", str(repository), *AS_ADA, "commit", "-qm", "Begin", "--allow-empty"),
    ):
        subprocess.run(["git", *words], check=True)
    place.run("job", "new", "--id", "hello", "--source", "repository", "--activate", *ECHO)
    workspace = place.run("job", "show", "hello")["data"]["workspace"]
    Path(workspace, "made.md").write_text("Hello\n", encoding="utf-8")
    assert "+Hello" in place.run("job", "diff", "hello", "--patch")["data"]["patch"]
    assert place.run("job", "merge", "hello")["applied"]
    words = ["git", "-C", str(repository), "show", "job-hello:made.md"]
    assert subprocess.run(words, check=True, capture_output=True).stdout == b"Hello\n"


AS_ADA = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


@deed("job list")
@deed("job queue")
def job_list(place: Place) -> None:
    place.run("job", "new", "--id", "hello", "--activate", *ECHO)
    for verb in ("list", "queue"):
        assert [row["job"] for row in place.run("job", verb)["rows"]] == ["hello"]


def begin(place: Place) -> str:
    """A session under way."""
    return str(place.run("session", "start", "--agent", "rio")["target"])


def in_a_session(verb: str, *words: str) -> None:
    """A deed that adds to the journal of a session under way."""

    @deed(verb)
    def act(place: Place) -> None:
        begin(place)
        before = place.bytes()
        assert place.run(*verb.split(), "--agent", "rio", *words)["applied"]
        assert place.bytes() != before


changes("session start", "--agent", "rio")
in_a_session("session note", "--event", "finding", "Something")
in_a_session("session set", "--pr", "7")
in_a_session("session beat")
in_a_session("session end", "--outcome", "completed")
in_a_session("agent count", "--source", "ci", "claims_accepted=1")
shows("prime", "--agent", "rio")
shows("session context", "--agent", "rio")
shows("ledger checkpoint")
shows("budget show")


@deed("alerts check")
@deed("alerts list")
@deed("alerts ack")
def _alerts(place: Place) -> None:
    (place.home / "state/rio/report.json").write_text("")
    before = place.bytes()
    (told,) = place.run("alerts", "check", code=1)["data"]["told"]
    assert place.bytes() != before
    (listed,) = place.run("alerts", "list")["rows"]
    assert listed["id"] == told["id"]
    assert place.run("alerts", "ack", told["id"])["applied"]


@deed("audit list")
@deed("audit tail")
@deed("audit show")
def _audit(place: Place) -> None:
    with Home.open(str(place.home)) as home:
        tell(home, "refusal", "not today", agent="rio")
    (row,) = place.run("audit", "list")["rows"]
    assert place.run("audit", "tail")["detail"] == "not today"
    assert place.run("audit", "show", str(row["seq"]))["data"]["kind"] == "refusal"


@deed("agent chat")
def _chat(place: Place) -> None:
    before = place.bytes()
    said = place.run("agent", "chat", "rio", "Hello", "--model", "scripted:echo")
    assert said["data"]["text"] == "You said: Hello"
    assert place.bytes() != before


@deed("agent turns")
def _turns(place: Place) -> None:
    place.run("agent", "chat", "rio", "Hello", "--model", "scripted:echo")
    before = place.bytes()
    (row,) = place.run("agent", "turns", "rio")["rows"]
    assert (row["question"], row["answer"]) == ("Hello", "You said: Hello")
    assert place.bytes() == before


changes("key new")


@deed("key list")
def _keys(place: Place) -> None:
    made = place.run("key", "new")["target"]
    (row,) = place.run("key", "list")["rows"]
    assert (row["id"], row["seals"]) == (made, True)
    assert "key" not in row


@deed("key rotate")
def _rotate(place: Place) -> None:
    place.run("key", "new")
    before = place.bytes()
    assert place.run("key", "rotate")["data"]["keys"] == 2
    assert place.bytes() != before


shows("model list")
shows("model test", "scripted:echo")


def with_a_task(verb: str, *before: str) -> None:
    """A deed on a task, after other verbs on it."""

    @deed(verb)
    def act(place: Place) -> None:
        of_rio = ("--agent", "rio")
        id = place.run("task", "add", *of_rio, "Look into it")["target"]
        for each in before:
            place.run("task", each, *of_rio, id)
        answer = place.run(*verb.split(), *of_rio, id)
        assert answer["applied"] if "applied" in answer else answer["data"]["id"] == id


changes("task add", "--agent", "rio", "Look into it")
with_a_task("task show")
with_a_task("task start")
with_a_task("task done", "start")
with_a_task("task drop")
with_a_task("task reopen", "done")


SEND = ("inbox", "send", "--from", "leo", "--to", "rio", "--subject", "Fees", "Look")


def with_a_message(verb: str, *more: str, taken: bool = True) -> None:
    """A deed on a message, perhaps after somebody has taken it."""

    @deed(verb)
    def act(place: Place) -> None:
        id = place.run(*SEND)["target"]
        if taken:
            place.run("inbox", "take", "--agent", "rio")
        answer = place.run(*verb.split(), "--agent", "rio", *more, id)
        assert answer["applied"] if "applied" in answer else answer["data"]["subject"] == "Fees"


changes(*("inbox send", *SEND[2:]))
with_a_message("inbox show", taken=False)
with_a_message("inbox ack", "--as-task")
with_a_message("inbox return")


def about_a_message(verb: str, *words: str) -> None:
    """A deed whose answer has a row for a message."""

    @deed(verb)
    def look(place: Place) -> None:
        id = place.run(*SEND)["target"]
        assert [row["id"] for row in place.run(*verb.split(), *words)["rows"]] == [id]


about_a_message("inbox list", "--agent", "rio")
about_a_message("inbox take", "--agent", "rio")


@deed("inbox purge")
def inbox_purge(place: Place) -> None:
    id = place.run(*SEND)["target"]
    place.run("inbox", "take", "--agent", "rio")
    place.run("inbox", "ack", "--agent", "rio", id)
    os.utime(place.home / f"state/rio/inbox/.done/{id}.json", (0, 0))
    assert place.run("inbox", "purge")["counts"]["messages"] == 1
    assert list((place.home / "state/rio/purged").iterdir())


changes("memory note", "--agent", "rio", "--section", "dead ends", "Nothing there")


@deed("memory show")
def memory_show(place: Place) -> None:
    place.run("memory", "note", "--agent", "rio", "--section", "dead ends", "Nothing there")
    assert "Nothing there" in place.run("memory", "show", "--agent", "rio")["data"]["text"]


def a_job(place: Place) -> None:
    """One that has been answered once, with what is no answer."""
    words = ("job", "new", "--id", "hello", "--prompt", "Say hello", "--worker", "scripted:echo")
    place.run(*words)
    place.run("job", "step", "hello", "--response", "Hello!", code=1)


@deed("job history")
def job_history(place: Place) -> None:
    a_job(place)
    (row,) = place.run("job", "history", "hello")["rows"]
    assert (row["action"], row["status_after"]) == ("STUCK", "INTERVENTION_REQUIRED")


@deed("job export")
def job_export(place: Place) -> None:
    a_job(place)
    assert place.run("job", "export", "hello", "--out", "hello.html")["applied"]
    assert "Say hello" in (place.path / "hello.html").read_text("utf-8")


@deed("task list")
def task_list(place: Place) -> None:
    place.run("task", "add", "--agent", "rio", "Look into it")
    assert [row["id"] for row in place.run("task", "list")["rows"]] == ["task-001"]


@deed("task board")
def task_board(place: Place) -> None:
    place.run("task", "add", "--agent", "rio", "Look into it")
    assert "Look into it" in place.run("task", "board")["data"]["board"]


@deed("task import")
def task_import(place: Place) -> None:
    (place.path / "queue.md").write_text("## rio\n- [ ] Look into it\n", encoding="utf-8")
    assert place.run("task", "import", "queue.md")["counts"] == {"added": 1}


@deed("up")
def up(place: Place) -> None:
    command = [PROGRAM, "up"]
    process = subprocess.Popen(
        command, env=place.environment, cwd=place.path, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "http://localhost:" in process.stderr.readline()
        assert place.run("up")["data"]["attached"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


@deed("run")
def run(place: Place) -> None:
    answer = place.run("run", "--agent", "rio", "--quiet", "--", "true")
    assert answer["data"]["outcome"] == "completed"
    assert (place.home / "state/rio/journal.jsonl").stat().st_size


@deed("hook claude-code")
def hook_claude_code(place: Place) -> None:
    told = {"session_id": "8c35", "hook_event_name": "SessionStart", "source": "startup"}
    answer = place.run("hook", "claude-code", "--agent", "rio", said=json.dumps(told))
    assert answer["data"]["did"] == "began"
    assert [row["status"] for row in place.run("session", "list")["rows"]] == ["running"]


@deed("session list")
def session_list(place: Place) -> None:
    begun = begin(place)
    assert [row["session_id"] for row in place.run("session", "list")["rows"]] == [begun]


@deed("session show")
def session_show(place: Place) -> None:
    begun = begin(place)
    assert place.run("session", "show", begun)["data"]["status"] == "running"


@deed("session sweep")
def session_sweep(place: Place) -> None:
    gone = this_process()._replace(started=1)
    with Home.open(str(place.home)) as home, Agent(home, "rio") as rio:
        dead = rio.start(Start("research"), owner=gone).id
    assert [row["session_id"] for row in place.run("session", "sweep")["rows"]] == [dead]


@deed("ledger orphans")
def orphans(place: Place) -> None:
    write = ("ledger", "write", "--agent", "rio", "--event", "task_start", "--session", "new")
    for task in ("wo-1", "wo-2"):
        place.run(*write, "--task", task, "Begin")
    assert [row["task_id"] for row in place.run("ledger", "orphans", code=1)["rows"]] == ["wo-1"]


@deed("validate")
def validate(place: Place) -> None:
    file = place.path / "2026-11-15.jsonl"
    file.write_text(json.dumps(EVENT | {"event": "nonsense"}) + "\n", encoding="utf-8")
    rows = place.run("validate", "--kind", "ledger", "--strict", str(file), code=1)["rows"]
    assert [row["field"] for row in rows] == ["event"]


@deed("import")
def import_(place: Place) -> None:
    folder = place.path / "tree/g/ledger/rio"
    folder.mkdir(parents=True)
    (folder / "2026-11-15.jsonl").write_text(json.dumps(EVENT) + "\n", encoding="utf-8")
    before = place.bytes()
    assert place.run("import", str(place.path / "tree"))["rows"]
    assert place.bytes() != before


@deed("ledger summary")
def summary(place: Place) -> None:
    (row,) = place.run("ledger", "summary", "--day", "today")["rows"]
    assert "Hello" in (place.home / row["file"]).read_text("utf-8")


@deed("ledger merge")
def merge(place: Place) -> None:
    file, out = place.path / "one.jsonl", place.path / "all.jsonl"
    file.write_text(2 * (json.dumps(EVENT) + "\n"), encoding="utf-8")
    place.run("ledger", "merge", str(file), "--out", str(out))
    assert len(out.read_bytes().splitlines()) == 1


@deed("ledger repair")
def repair(place: Place) -> None:
    file = place.path / "torn.jsonl"
    file.write_text(json.dumps(EVENT) + "}\n", encoding="utf-8")
    before = set(place.path.iterdir())
    place.run("ledger", "repair", str(file))
    made = set(place.path.iterdir()) - before
    assert any(EVENT["summary"] in each.read_text("utf-8") for each in made)


@deed("check")
def check(place: Place) -> None:
    place.run("check")
    (file,) = (place.home / "ledger/rio").glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"Hello", b"Jello"))
    with pytest.raises(AssertionError):
        place.run("check")


@deed("rebuild")
def rebuild(place: Place) -> None:
    status = place.home / "state/rio/status.json"
    place.run("status")
    before = status.read_bytes()
    status.unlink()
    place.run("rebuild")
    assert status.read_bytes() == before


@deed("ledger archive")
def archive(place: Place) -> None:
    (file,) = (place.home / "ledger/rio").glob("*.jsonl")
    file.rename(file.with_name("2026-01-01.jsonl"))
    place.run("ledger", "write", "--agent", "rio", "--event", "info", "Later")
    place.run("ledger", "archive")
    assert list((place.home / "ledger/rio").glob("*.zst"))


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: every verb begins with a copy."""
    place = Place(tmp_path_factory.mktemp("settled"))
    place.settle()
    return place.path


@pytest.mark.parametrize("verb", TABLE.names())
def test_every_verb_does_something(verb: str, tmp_path: Path, settled: Path) -> None:
    assert verb in DEEDS, f"write a deed for `holdfast {verb}`"
    copytree(settled, tmp_path, symlinks=True, dirs_exist_ok=True)
    DEEDS[verb](Place(tmp_path))


def test_no_deed_is_for_a_verb_that_is_gone() -> None:
    assert DEEDS.keys() <= set(TABLE.names())
