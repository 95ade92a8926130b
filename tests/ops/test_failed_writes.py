"""A disk that takes nothing: every verb that writes fails, says so, and claims nothing.

A verb of the table that writes and has no entry below is red.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.agent import Agent, Start
from holdfast.clock import SystemClock
from holdfast.ledger.book import Event, Ledger
from holdfast.ops.envelope import ATTENTION
from holdfast.ops.table import TABLE
from holdfast.process import this_process
from holdfast.store.home import Home
from holdfast.testing import DAY, Turner
from tests.ledger.shell import Ran, Shell, Verbs, on_its_own

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
HOOKED = {"session_id": "8c35", "hook_event_name": "SessionStart", "source": "startup"}
OF_RIO = ("--agent", "rio")
SEND = ("inbox", "send", "--from", "leo", "--to", "rio", "--subject", "Fees", "Look")

# --- what is written, and what has to be there before ---------------------------------------


def done(shell: Shell, verb: str, **arguments: Any) -> Any:
    """What a verb gives back, done in this process."""
    return Verbs(str(shell.home), SystemClock())(verb, **arguments)


def nothing(shell: Shell) -> tuple[str, ...]:
    return ()


def session(shell: Shell) -> tuple[str, ...]:
    done(shell, "session start", agent="rio")
    return ()


def dead_session(shell: Shell) -> tuple[str, ...]:
    gone = this_process()._replace(started=1)
    with Home.open(str(shell.home)) as home, Agent(home, "rio") as rio:
        rio.start(Start("research"), owner=gone)
    return ()


def message(shell: Shell) -> tuple[str, ...]:
    more = {"from_": "leo", "to": "rio", "subject": "Fees", "body": "Look"}
    return (done(shell, "inbox send", **more).target,)


def taken(shell: Shell) -> tuple[str, ...]:
    id = message(shell)
    done(shell, "inbox take", agent="rio")
    return id


def old_message(shell: Shell) -> tuple[str, ...]:
    (id,) = taken(shell)
    done(shell, "inbox ack", agent="rio", id=id)
    os.utime(shell.home / f"state/rio/inbox/.done/{id}.json", (0, 0))
    return ()


def task(shell: Shell) -> tuple[str, ...]:
    return (done(shell, "task add", agent="rio", text="Look into it").target,)


def finished_task(shell: Shell) -> tuple[str, ...]:
    id = task(shell)
    done(shell, "task done", agent="rio", id=id[0])
    return id


def stale_view(shell: Shell) -> tuple[str, ...]:
    (shell.home / "state/rio/status.json").unlink()
    return ()


def trouble(shell: Shell) -> tuple[str, ...]:
    (shell.home / "state/rio/report.json").write_text("")
    return ()


def alert(shell: Shell) -> tuple[str, ...]:
    trouble(shell)
    done(shell, "alerts check")
    return ("alert-1",)


def foreign_tree(shell: Shell) -> tuple[str, ...]:
    folder = shell.cwd / "tree/g/ledger/rio"
    folder.mkdir(parents=True)
    (folder / "2026-11-14.jsonl").write_text(json.dumps(EVENT) + "\n", encoding="utf-8")
    return ("tree",)


def foreign_file(shell: Shell) -> tuple[str, ...]:
    (shell.cwd / "one.jsonl").write_text(json.dumps(EVENT) + "}\n", encoding="utf-8")
    return ("one.jsonl",)


def past_day(shell: Shell) -> tuple[str, ...]:
    past = Turner(SystemClock().now() - 40 * DAY)
    with Home.open(str(shell.home), clock=past) as home, Ledger(home, "clay") as ledger:
        ledger.write(Event("info", "Then", "user"))
    done(shell, "ledger write", agent="clay", event="info", text="Later")
    return ()


def keys_here(shell: Shell) -> tuple[str, ...]:
    """The user's settings are in the directory that takes nothing."""
    (shell.cwd / "settings").mkdir()
    (shell.user / ".config").symlink_to(shell.cwd / "settings")
    return ()


def a_key(shell: Shell) -> tuple[str, ...]:
    keys_here(shell)
    assert shell("key", "new").code == 0
    return ()


def draft(shell: Shell) -> tuple[str, ...]:
    done(shell, "job new", prompt="Say hello", worker="scripted:echo", id="hello")
    return ()


def other_job(shell: Shell) -> tuple[str, ...]:
    draft(shell)
    done(shell, "job new", prompt="Say hello", worker="scripted:echo", id="other")
    return ()


def queued(shell: Shell) -> tuple[str, ...]:
    draft(shell)
    done(shell, "job activate", id="hello")
    return ()


def suspended(shell: Shell) -> tuple[str, ...]:
    queued(shell)
    done(shell, "job suspend", id="hello")
    return ()


def stuck(shell: Shell) -> tuple[str, ...]:
    draft(shell)
    done(shell, "job step", id="hello", response="Hello!")
    return ()


def attachment(shell: Shell) -> tuple[str, ...]:
    draft(shell)
    (shell.cwd / "note.md").write_text("Look", encoding="utf-8")
    return ()


def finished_job(shell: Shell) -> tuple[str, ...]:
    draft(shell)
    done(shell, "job run", id="hello")
    return ()


def worked_on(shell: Shell) -> tuple[str, ...]:
    """A job that has changed a file of a repository."""
    repository = shell.cwd / "repository"
    as_ada = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for words in (("init", "-q"), (*as_ada, "commit", "-qm", "Begin", "--allow-empty")):
        repository.mkdir(exist_ok=True)
        subprocess.run(["git", *words], cwd=repository, check=True)
    told = {"prompt": "Say hello", "worker": "scripted:echo", "source": str(repository)}
    done(shell, "job new", **told, id="hello", activate=True)
    workspace = done(shell, "job show", id="hello").data["workspace"]
    Path(workspace, "made.md").write_text("Hello", encoding="utf-8")
    return ()


def datum(shell: Shell) -> tuple[str, ...]:
    done(shell, "memory add", agent="rio", topic="fees", text="2 %")
    done(shell, "memory add", agent="rio", topic="fees", text="2 %")
    return ()


def proposal(shell: Shell) -> tuple[str, ...]:
    made = done(shell, "memory add", agent="rio", topic="fees", text="2 %", proposed=True)
    return (str(made.data["id"]),)


def run_of_a_swarm(shell: Shell) -> tuple[str, ...]:
    ran = shell(*SWARM, "--ticks", "1")
    assert ran.code == 0, ran
    return ()


def killed_swarm(shell: Shell) -> tuple[str, ...]:
    ran = shell(*SWARM, env={"HOLDFAST_FAILPOINTS": "swarm.answered=kill@2"})
    assert ran.code == -signal.SIGKILL, ran
    return ()


def repository(shell: Shell) -> tuple[str, ...]:
    made = shell.cwd / "repository"
    made.mkdir()
    (made / "score.py").write_text("SCORE = 1\nprint(SCORE)\n", encoding="utf-8")
    as_ada = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for words in (("init", "-qb", "main"), ("add", "."), (*as_ada, "commit", "-qm", "Begin")):
        subprocess.run(["git", *words], cwd=made, check=True)
    return ()


def campaign(shell: Shell) -> tuple[str, ...]:
    repository(shell)
    ran = shell(*CAMPAIGN)
    assert ran.code == 0, ran
    return ()


def round_of_a_campaign(shell: Shell) -> tuple[str, ...]:
    campaign(shell)
    ran = shell("improve", "run", "score", "--rounds", "1")
    assert ran.code in (0, 1), ran
    return ()


SWARM = (
    *("swarm", "run", "--name", "week", "--agents", "rio", "--goal", "Find the fees"),
    *("--model", "scripted:echo"),
)
CAMPAIGN = (
    *("improve", "init", "--repo", "repository", "--benchmark", f"{sys.executable} -S score.py"),
    *("--topic", "score", "--format", "number", "--trust", "--seed", "7"),
    *("--planner", "search:random", "--executor", "search:random"),
)

Before = Callable[[Shell], tuple[str, ...]]
WRITING: dict[str, tuple[Before, tuple[str, ...]]] = {
    "init": (nothing, ("clay",)),
    "doctor": (stale_view, ("--fix",)),
    "rebuild": (stale_view, ()),
    "schema": (nothing, ("--all", "schemas")),
    "run": (nothing, (*OF_RIO, "--", "true")),
    "session start": (nothing, OF_RIO),
    "session note": (session, (*OF_RIO, "--event", "finding", "Something")),
    "session set": (session, (*OF_RIO, "--pr", "7")),
    "session beat": (session, OF_RIO),
    "session end": (session, (*OF_RIO, "--outcome", "completed")),
    "session sweep": (dead_session, ()),
    "inbox send": (nothing, SEND[2:]),
    "inbox take": (message, OF_RIO),
    "inbox ack": (taken, OF_RIO),
    "inbox return": (taken, OF_RIO),
    "inbox purge": (old_message, ()),
    "task add": (nothing, (*OF_RIO, "Look into it")),
    "task start": (task, OF_RIO),
    "task done": (task, OF_RIO),
    "task drop": (task, OF_RIO),
    "task reopen": (finished_task, OF_RIO),
    "task board": (task, ("--out", "queue.md")),
    "memory note": (nothing, (*OF_RIO, "--section", "dead ends", "Nothing there")),
    "agent new": (nothing, ("ada", "--role", "reviewer")),
    "agent edit": (nothing, ("rio", "--role", "reviewer")),
    "agent fork": (nothing, ("rio", "ada")),
    "agent swap": (nothing, ("rio", "--persona", "critic")),
    "agent retire": (nothing, ("rio",)),
    "budget set": (nothing, ("--session", "2")),
    "agent chat": (nothing, ("rio", "Hello", "--model", "scripted:echo")),
    "key new": (keys_here, ()),
    "key rotate": (a_key, ()),
    "agent count": (nothing, (*OF_RIO, "--source", "ci", "claims_accepted=1")),
    "alerts check": (trouble, ()),
    "alerts ack": (alert, ()),
    "hook claude-code": (nothing, (*OF_RIO, "--strict")),
    "import": (foreign_tree, ()),
    "ledger write": (nothing, (*OF_RIO, "--event", "info", "Again")),
    "ledger summary": (nothing, ("--day", "today")),
    "ledger merge": (foreign_file, ("--out", "all.jsonl")),
    "ledger repair": (foreign_file, ()),
    "ledger archive": (past_day, ()),
    "job new": (nothing, ("--prompt", "Say hello", "--worker", "scripted:echo", "--id", "new")),
    "job archive": (finished_job, ("hello",)),
    "job merge": (worked_on, ("hello",)),
    "job set": (draft, ("hello", "--max-cost", "2")),
    "job attach": (attachment, ("note.md", "--job", "hello")),
    "job activate": (draft, ("hello",)),
    "job use": (other_job, ("hello",)),
    "job run": (queued, ("hello",)),
    "job step": (queued, ("hello",)),
    "job replay": (draft, ("hello", "--from", "0")),
    "job steward": (stuck, ("hello", "halt")),
    "job suspend": (queued, ("hello",)),
    "job resume": (suspended, ("hello",)),
    "job cancel": (queued, ("hello",)),
    "job rewind": (queued, ("hello", "--phase", "0")),
    "job checkpoint": (queued, ("hello", "here")),
    "ledger checkpoint": (nothing, ("--out", "here.checkpoint")),
    "memory add": (nothing, (*OF_RIO, "--topic", "fees", "--text", "2 %")),
    "memory forget": (datum, (*OF_RIO, "--topic", "fees")),
    "memory compact": (datum, OF_RIO),
    "memory ingest": (attachment, ("note.md", *OF_RIO)),
    "memory reindex": (datum, ()),
    "memory accept": (proposal, OF_RIO),
    "memory refuse": (proposal, OF_RIO),
    "swarm run": (nothing, (*SWARM[2:], "--ticks", "1")),
    "swarm resume": (run_of_a_swarm, ("week", "--ticks", "2")),
    "swarm stop": (killed_swarm, ("week",)),
    "swarm test": (nothing, (*OF_RIO, "--iterations", "1", "--model", "scripted:echo")),
    "improve init": (repository, CAMPAIGN[2:]),
    "improve run": (campaign, ("score", "--rounds", "1")),
    "improve set": (campaign, ("score", "max_iterations", "7")),
    "improve edit": (campaign, ("score", "idea", "--text", "Count in steps")),
    "improve idea": (campaign, ("score", "Count in steps")),
    "improve finalize": (round_of_a_campaign, ("score",)),
}
"""Of each verb that writes, what is done before, and its words; what that gives goes behind."""
NOT_HERE = {
    "improve stop": "writes only where a campaign runs",
}
NOT_TOLD_WHICH = {"inbox take", "task board"}
ONLY_RENAMES = {"inbox take", "inbox return"}
"""They need no byte, and so succeed where there is none left."""


# --- disks that take nothing ----------------------------------------------------------------


def no_byte() -> None:
    """As on a disk that is full to the last byte: files can be made, but nothing put into them."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def heed_modes() -> None:
    """Let the mode bits stop the program to be run, even as root."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert libc.prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP


def lock_up(place: Path) -> None:
    for path in sorted(place.rglob("*"), reverse=True):
        if not path.is_symlink():
            path.chmod(0o500 if path.is_dir() else 0o400)
    place.chmod(0o500)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    on_its_own(monkeypatch, tmp_path)
    yield tmp_path
    subprocess.run(["chmod", "-R", "u+rwX", str(tmp_path)], check=True)


def prepared(place: Path, verb: str) -> tuple[Shell, list[str]]:
    """An agent with an event, what the verb needs, and the words of the verb."""
    shell = Shell(place)
    done(shell, "init", agent=["rio"], timezone="UTC")
    done(shell, "ledger write", agent="rio", event="info", text="Hello")
    before, words = WRITING[verb]
    named = before(shell)
    return shell, [*verb.split(), *words, *(() if verb in NOT_TOLD_WHICH else named)]


def call(shell: Shell, words: list[str], before: Callable[[], None] | None, *more: str) -> Ran:
    at = words.index("--") if "--" in words else len(words)
    said = json.dumps(HOOKED).encode() if words[0] == "hook" else b""
    # The kernel takes capabilities away when a program is begun, and limits at once.
    how = {"before": before} if before is heed_modes else {"begin": before}
    return shell(*words[:at], *more, *words[at:], said=said, **how)


def assert_told(ran: Ran, *, code: str | None = None) -> None:
    assert ran.code not in (0, 130), (ran.out, ran.err)
    assert ran.code < 128, ran.err
    assert "Traceback" not in ran.err
    assert not any(tick in ran.out + ran.err for tick in "✅✓✔")
    assert '"applied":true' not in ran.out.replace(" ", "")
    if code is not None:
        error = ran.error()
        assert error["code"] == code, error
        assert error["hint"]


@pytest.mark.parametrize("verb", TABLE.names())
def test_every_verb_that_writes_is_tried_here(verb: str) -> None:
    (operation,) = [each for each in TABLE.operations if each.name == verb]
    assert operation.effect == "read" or verb in WRITING or verb in NOT_HERE


@pytest.mark.parametrize("verb", sorted(WRITING.keys() - ONLY_RENAMES))
def test_on_a_full_disk_nothing_is_claimed_and_the_same_call_works_later(
    verb: str, place: Path
) -> None:
    shell, words = prepared(place, verb)
    to_a_person = call(shell, words, no_byte)
    assert_told(to_a_person)
    assert "error: " in to_a_person.err
    assert "hint: " in to_a_person.err
    assert_told(call(shell, words, no_byte, "--json"), code="disk_full")
    later = call(shell, words, None, "--json")
    assert later.code == (ATTENTION if verb == "alerts check" else 0), later.err


@pytest.mark.parametrize("verb", sorted(ONLY_RENAMES))
def test_what_only_renames_is_done_on_a_full_disk_too(verb: str, place: Path) -> None:
    shell, words = prepared(place, verb)
    assert call(shell, words, no_byte, "--json").code == 0
    (row,) = shell("inbox", "list", *OF_RIO, "--json").rows()
    assert row["state"] == ("claimed" if verb == "inbox take" else "waiting")


# Every verb meets a full disk above; these are other ways to the same refusal.
@pytest.mark.parametrize(
    "verb", ["agent new", "inbox send", "job new", "ledger write", "memory note", "task add"]
)
def test_in_a_directory_that_may_not_be_changed_nothing_is_claimed(verb: str, place: Path) -> None:
    shell, words = prepared(place, verb)
    lock_up(shell.home)
    lock_up(shell.cwd)
    assert_told(call(shell, words, heed_modes, "--json"), code="not_ours")


@pytest.fixture
def tiny(place: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root to mount a small disk")
    made = place / "disk"
    made.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(made)]
    if subprocess.run(words, check=False).returncode != 0:
        pytest.skip("cannot mount here")
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made)], check=True)


def fill(disk: Path) -> None:
    number, size = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT), 1 << 16
    while size:
        try:
            os.write(number, b"x" * size)
        except OSError:
            size //= 2
    os.close(number)


@pytest.mark.parametrize("verb", sorted(WRITING)[1::6])
def test_a_disk_without_a_free_block_loses_nothing_that_was_acknowledged(
    verb: str, tiny: Path
) -> None:
    """The last block of a file has room left, so some of it can be written, and some cannot."""
    shell, words = prepared(tiny, verb)
    fill(tiny)
    ran = call(shell, words, None, "--json")
    if ran.code != 0:
        assert_told(ran)
    (tiny / "filler").unlink()
    checked = shell("check", "--json")
    if ran.code != 0 and checked.code != 0:
        shell("session", "sweep")
        shell("rebuild")
        checked = shell("check", "--json")
    assert checked.code == 0, checked.out
