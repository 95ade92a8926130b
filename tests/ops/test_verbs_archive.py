"""`ledger archive`: past days take less room, and everything is still found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import NotFound, UsageError
from holdfast.store.vfs import RealVfs
from holdfast.testing import DAY, Turner
from tests.ledger.shell import Verbs, on_its_own

DAYS = [f"2023-11-{day}.jsonl" for day in range(14, 20)]


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    """Two agents, six days."""
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", timezone="UTC")
    for number in range(6):
        for agent in ("rio", "clay"):
            made.write(f"{agent} {number}", agent=agent)
        clock.advance(DAY)
    return made


def seen(verbs: Verbs) -> tuple[Any, ...]:
    return (
        verbs.rows("ledger list", limit=0),
        verbs.rows("ledger list", limit=3),
        verbs.rows("ledger list", since="2023-11-15", until="2023-11-17"),
        verbs("ledger tail", limit=7),
        verbs.rows("ledger verify"),
        verbs.rows("status"),
        verbs.rows("check"),
    )


def files(path: str, agent: str) -> list[str]:
    return sorted(name for name in os.listdir(f"{path}/ledger/{agent}") if name[0] != ".")


def test_every_past_day_is_packed_and_list_tail_and_verify_say_the_same(
    verbs: Verbs, path: str
) -> None:
    before = seen(verbs)
    found = verbs("ledger archive")
    assert [(row["agent"], row["file"], row["state"]) for row in found.rows] == [
        (agent, name, "packed") for agent in ("clay", "rio") for name in DAYS[:-1]
    ]
    assert found.counts["files"] == 10
    assert found.counts["bytes"] == sum(row["bytes"] for row in found.rows)
    assert found.counts["packed_bytes"] == sum(row["packed_bytes"] for row in found.rows) > 0
    for agent in ("clay", "rio"):
        assert files(path, agent) == [*(f"{name}.zst" for name in DAYS[:-1]), DAYS[-1]]
    assert seen(verbs) == before
    assert verbs("ledger archive").rows == []
    verbs.write("after", agent="rio")
    assert verbs.rows("ledger verify", agent="rio")[-1]["state"] == "sound"
    assert [row["file"] for row in verbs.rows("ledger archive")] == DAYS[-1:]


def test_only_older_days_of_one_agent(verbs: Verbs, path: str) -> None:
    rows = verbs.rows("ledger archive", agent="Rio", older_than="4d")
    assert [row["file"] for row in rows] == DAYS[:2]
    assert files(path, "clay") == DAYS
    rows = verbs.rows("ledger archive", agent="rio", older_than="2023-11-17")
    assert [row["file"] for row in rows] == DAYS[2:3]


def test_a_dry_run_says_what_would_be_done(verbs: Verbs, path: str) -> None:
    before = sorted(os.listdir(f"{path}/ledger/rio"))
    rows = verbs.rows("ledger archive", agent="rio", dry_run=True)
    assert {row["state"] for row in rows} == {"would be packed"}
    assert {row["packed_bytes"] for row in rows} == {None}
    assert len(rows) == 5
    assert sorted(os.listdir(f"{path}/ledger/rio")) == before


def test_what_had_to_be_left_is_told(verbs: Verbs, path: str) -> None:
    verbs("ledger archive", agent="rio")
    Path(path, "ledger/rio", DAYS[0]).write_bytes(b'{"other":1}\n')
    [row] = verbs.rows("ledger archive", agent="rio")
    assert (row["file"], row["state"]) == (DAYS[0], "left")


def test_a_session_is_found_in_the_packed_file(verbs: Verbs, path: str) -> None:
    session = verbs.rows("ledger list", agent="rio", limit=0)[0]["session_id"]
    assert verbs("path", id=session).data["path"] == f"{path}/ledger/rio/{DAYS[0]}"
    verbs("ledger archive")
    found = verbs("path", id=session).data["path"]
    assert found == f"{path}/ledger/rio/{DAYS[0]}.zst"
    assert RealVfs().root(os.path.dirname(found)).stat(os.path.basename(found)) is not None


def test_an_agent_or_a_time_that_is_none_is_refused(verbs: Verbs) -> None:
    with pytest.raises(NotFound):
        verbs("ledger archive", agent="nobody")
    with pytest.raises(UsageError):
        verbs("ledger archive", older_than="long")


def test_after_sixty_days_the_older_half_is_packed_and_all_is_still_found(
    path: str, clock: Turner
) -> None:
    verbs = Verbs(path, clock)
    verbs("init", timezone="UTC")
    for number in range(60):
        verbs.write(f"begin {number}", event="task_start", task=f"wo-{number}", session="new")
        verbs.write("done", event="task_result", task=f"wo-{number}")
        clock.advance(DAY)
    before = verbs.rows("ledger list", limit=0)
    sessions = sorted({row["session_id"] for row in before})
    summary = verbs("ledger summary", session=sessions[3], dry_run=True).text

    found = verbs("ledger archive", older_than="30d")
    assert found.counts["files"] == 30
    names = files(path, "rio")
    assert [name.endswith(".zst") for name in names] == [True] * 30 + [False] * 30
    assert verbs.rows("ledger list", limit=0) == before
    assert verbs.rows("ledger list", task="wo-2") == before[4:6]
    assert verbs.rows("ledger list", session=sessions[3]) == before[6:8]
    assert verbs("ledger verify").exit_code == 0
    assert verbs("ledger verify").counts["lines"] == 120
    assert verbs("ledger summary", session=sessions[3], dry_run=True).text == summary


def test_looking_at_the_newest_shortens_nothing(path: str, clock: Turner) -> None:
    verbs = Verbs(path, clock)
    for number in range(250):
        verbs.write(str(number))
    bytes_before = [Path(path, "ledger/rio", name).read_bytes() for name in files(path, "rio")]
    shown = verbs("ledger tail", limit=200)
    assert [row["summary"] for row in shown] == [str(number) for number in range(50, 250)]
    assert bytes_before == [
        Path(path, "ledger/rio", name).read_bytes() for name in files(path, "rio")
    ]
    assert len(verbs.rows("ledger list", limit=0)) == 250
