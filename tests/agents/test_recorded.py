"""What failed behind a line that is recorded says so: whoever obeyed its hint would do it twice."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.agents.agent import Agent, End, Start
from holdfast.errors import Indeterminate
from holdfast.store.home import Home
from holdfast.testing import Turner, refused
from tests.ledger.shell import Shell
from tests.store.faults import FaultyVfs, failing

COMPLETED = End("completed")
FULL = failing(errno.ENOSPC)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made("init", "rio", "leo", "--timezone", "UTC")
    return made


def block(shell: Shell, agent: str, file: str) -> Path:
    """A folder stands where a file is written."""
    stands = shell.home / "state" / agent / file
    stands.unlink()
    (stands / "x").mkdir(parents=True)
    return stands


FIELDS = {"summary": "Once"}


@pytest.mark.parametrize("later", [0, 60])
@pytest.mark.parametrize(
    ("event", "act"),
    [
        ("finding", lambda rio, _: rio.note("finding", "Once", {})),
        ("session_set", lambda rio, session: rio.set(session, FIELDS)),
        ("count", lambda rio, _: rio.append("the count", {"event": "count", "counters": {}})),
        ("x", lambda rio, _: rio.tell(lambda _: [{"event": "x"}])),
        ("session_end", lambda rio, _: rio.end("", rio.open_session("")["fence"], COMPLETED)),
    ],
)
def test_a_line_that_is_recorded_is_not_to_be_repeated(
    path: str, clock: Turner, event: str, act: Callable[[Agent, str], object], later: int
) -> None:
    vfs = FaultyVfs()
    with Home.open(path, create=True, vfs=vfs, clock=clock) as home:
        with refused(Indeterminate, "recorded, but not everywhere"), Agent(home, "rio") as rio:
            session = rio.start(Start("research")).id
            full = vfs.fault("write", FULL, "*report.json*", times=None)
            clock.advance(later)  # a file is written at once, or when the agent is let go
            act(rio, session)
        assert full.fired
        vfs.heal()
        assert [line.record.get("event") for line in rio.lines()].count(event) == 1


def test_a_message_that_was_sent_is_not_to_be_repeated(shell: Shell) -> None:
    block(shell, "leo", "report.json")
    send = ("inbox", "send", "--from", "leo", "--to", "rio", "--subject", "s", "b", "--json")
    error = shell(*send).error()
    assert error["code"] == "indeterminate"
    assert error["hint"].startswith("do not repeat it")
    assert len(shell("inbox", "list", "--agent", "rio", "--json").rows()) == 1


def test_a_command_that_was_run_is_not_to_be_repeated(shell: Shell) -> None:
    journal = shell.home / "state/rio/journal.jsonl"
    code = f"mv {journal} {journal}.kept; mkdir {journal}"
    error = shell("run", "--agent", "rio", "--json", "--", "sh", "-c", code).error()
    assert error["message"].startswith("the command ended with code 0, but")
    assert error["hint"].startswith("do not repeat it: it was run")


def test_a_journal_that_is_older_than_the_ledger_stops_no_session(shell: Shell) -> None:
    run = ("run", "--agent", "rio", "--", "echo")
    assert [shell(*run, each).code for each in "12"] == [0, 0]
    journal = shell.home / "state/rio/journal.jsonl"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    ran = shell(*run, "3")
    assert (ran.code, ran.out) == (0, "3\n"), ran.err
    assert shell(*run, "4").code == 0
    rows = shell("session", "list", "--agent", "rio", "--json").rows()
    assert [row["status"] for row in rows] == ["completed", "completed"]
