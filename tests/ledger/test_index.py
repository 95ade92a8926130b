"""The index of a ledger: the same answers as without one, whatever happened to either."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from holdfast.ledger.entry import entry
from holdfast.store.home import Home
from holdfast.store.primitives import Question
from holdfast.testing import Turner
from tests.ledger.shell import Ran, Shell, Verbs

TASKS = [f"wo-{number}" for number in range(6)]
EVENTS = ["task_start", "task_result", "info"]


def fill(home: Home, chosen: list[int], agent: str = "rio") -> None:
    """An entry for each number, written with one sync."""
    log = home.log(f"ledger/{agent}")
    log.append_all(
        [
            entry(
                agent=agent,
                session=f"{home.day()}_{agent}_{1 + each % 3:03d}",
                event=EVENTS[each % len(EVENTS)],
                task=TASKS[each % len(TASKS)],
                source="test",
                summary=f"number {each}",
                data={},
            )
            for each in chosen
        ]
    )
    log.close()


def files(path: str | Path) -> list[Path]:
    return sorted(Path(path, "cache/ledger/rio").glob("*.index"))


def test_a_small_ledger_has_none(verbs: Verbs) -> None:
    verbs.write("a", task="wo-1")
    assert len(verbs.rows("ledger list", task="wo-1")) == 1
    assert not Path(verbs.path, "cache/ledger").exists()


def test_the_verb_makes_one_for_a_large_ledger_and_writing_never_does(
    home: Home, path: str, clock: Turner
) -> None:
    verbs = Verbs(path, clock)
    fill(home, list(range(6000)))
    assert os.path.getsize(f"{path}/ledger/rio/2023-11-14.jsonl") > Question({}).worth
    verbs.write("one more", task="wo-3")
    assert not files(path)
    assert len(verbs.rows("ledger list", task="wo-3", limit=0)) == 1001
    made = files(path)
    assert len(made) == 1
    bytes_before = made[0].read_bytes()
    verbs.write("and one", task="wo-3")
    assert made[0].read_bytes() == bytes_before
    assert verbs.texts(task="wo-3", limit=2) == ["one more", "and one"]
    session = verbs.rows("ledger list", limit=1)[0]["session_id"]
    plain = [row["seq"] for row in verbs.rows("ledger list", limit=0)
             if row["session_id"] == session]  # fmt: skip
    assert [row["seq"] for row in verbs.rows("ledger list", session=session, limit=0)] == plain


def test_a_builder_that_is_killed_leaves_the_old_index_or_none(shell: Shell) -> None:
    def ask(**env: str) -> Ran:
        return shell("ledger", "list", "--task", "wo-1", "--limit", "0", "--json", env=env)

    kill = {"HOLDFAST_FAILPOINTS": "index.written=kill"}
    with Home.open(str(shell.home), create=True, timezone="UTC") as home:
        fill(home, list(range(6000)))
        assert ask(**kill).code == -9
        assert not files(shell.home)
        assert len(ask().rows()) == 1000
        (made,) = files(shell.home)
        before = made.read_bytes()
        fill(home, list(range(6000)))
        assert ask(**kill).code == -9
        assert made.read_bytes() == before
        assert len(ask().rows()) == 2000
        assert len(made.read_bytes()) > len(before)
    assert not [each for each in made.parent.iterdir() if each.name.endswith(".tmp")]


def test_at_a_terminal_one_sees_that_it_is_made(shell: Shell) -> None:
    with Home.open(str(shell.home), create=True, timezone="UTC") as home:
        fill(home, list(range(12000)))
    command = shell.command(["ledger", "list", "--task", "wo-1", "--limit", "1"])
    master, slave = pty.openpty()
    try:
        for seen in (True, False):
            subprocess.run(
                command,
                stderr=slave,
                stdout=subprocess.DEVNULL,
                env=shell.environment(),
                check=True,
            )
            os.write(slave, b"END")
            said = b""
            while not said.endswith(b"END"):
                said += os.read(master, 4096)
            assert (b"making an index of the ledger of rio: " in said) is seen
    finally:
        os.close(master)
        os.close(slave)


def test_damaged_lines_are_still_told_of(home: Home, path: str, clock: Turner) -> None:
    fill(home, list(range(6000)))
    with open(f"{path}/ledger/rio/2023-11-14.jsonl", "ab") as file:
        file.write(b"no record\n")
    fill(home, list(range(6000)))
    verbs = Verbs(path, clock)
    for _ in range(2):
        verbs.rows("ledger list", task="wo-1")
        assert verbs.warnings == [
            "rio: left out 1 damaged line; `holdfast ledger verify` tells where"
        ]
