"""Events kept for later: taken in by the next write, each exactly once, whatever dies."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.clock import utc_stamp
from holdfast.errors import Busy, Indeterminate, UsageError
from holdfast.ledger.book import Event
from holdfast.ledger.spool import Spool
from holdfast.store.failpoints import armed
from holdfast.testing import Turner, together
from tests.ledger.shell import PATIENCE, Shell, Verbs, entries_in, is_entry


@contextmanager
def blocked(home: str | Path, agent: str = "rio") -> Iterator[None]:
    """The ledger of an agent is out of reach: a file stands in its place."""
    directory, away = Path(home, "ledger", agent), Path(home, "ledger.away")
    directory.parent.mkdir(parents=True, exist_ok=True)
    if directory.exists():
        os.rename(directory, away)
    directory.write_text("in the way", encoding="utf-8")
    try:
        yield
    finally:
        directory.unlink()
        if away.exists():
            os.rename(away, directory)


@pytest.fixture
def verbs(path: str, clock: Turner) -> Verbs:
    made = Verbs(path, clock)
    made("init", timezone="UTC")
    return made


def keep(verbs: Verbs, text: str, **more: str) -> None:
    """Write an event that cannot be written."""
    done = verbs.write(text, best_effort=True, **more)
    assert not done.applied
    assert verbs.warnings


def test_kept_events_come_before_the_next_one_in_their_order(verbs: Verbs) -> None:
    verbs.write("1")
    with blocked(verbs.path):
        for text in "234":
            keep(verbs, text)
    verbs.write("5")
    assert verbs.texts() == ["1", "2", "3", "4", "5"]
    verbs.write("6")
    assert verbs.texts() == ["1", "2", "3", "4", "5", "6"]


def test_a_kept_event_says_where_it_comes_from_and_when_it_happened(
    verbs: Verbs, clock: Turner
) -> None:
    with blocked(verbs.path):
        keep(verbs, "kept", event="task_start", task="wo-1", source="user", data='{"a": [1]}')
        happened = utc_stamp(clock.now())
    clock.advance(3600)
    verbs.write("later")

    kept, later = entries_in(verbs.path, "rio")
    assert is_entry(kept)
    assert [kept[name] for name in ("event", "task_id", "source", "summary", "data")] == [
        "task_start",
        "wo-1",
        "user",
        "kept",
        {"a": [1]},
    ]
    assert kept["occurred_at"] == happened
    assert "spool" in kept["ref"]
    assert "ref" not in later
    assert kept["ts"] > happened


def test_the_writer_is_told_where_its_event_is_kept(verbs: Verbs) -> None:
    with blocked(verbs.path):
        done = verbs.write("kept", best_effort=True)
    assert not done.applied
    assert Path(done.target).is_file()
    assert done.target in done.detail
    assert json.loads(Path(done.target).read_text(encoding="utf-8"))["summary"] == "kept"


def test_secrets_are_masked_in_the_spool_too(verbs: Verbs, tmp_path: Path) -> None:
    with blocked(verbs.path):
        keep(verbs, "kept", data='{"password": "hunter2"}')
    verbs.write("later")
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"hunter2" not in file.read_bytes(), file
    assert entries_in(verbs.path, "rio")[0]["data"]["password"].startswith("[SECRET:")


def test_homes_and_agents_have_spools_of_their_own(
    verbs: Verbs, tmp_path: Path, clock: Turner
) -> None:
    other = Verbs(str(tmp_path / "other"), clock)
    with blocked(verbs.path, "rio"), blocked(verbs.path, "clay"):
        keep(verbs, "of rio", agent="rio")
        keep(verbs, "of clay", agent="clay")
    other.write("other home", agent="rio")
    verbs.write("after", agent="clay")

    assert other.texts() == ["other home"]
    assert verbs.texts() == ["of clay", "after"]
    verbs.write("after", agent="RIO")
    assert verbs.texts(agent="rio") == ["of rio", "after"]


@pytest.mark.parametrize(
    "point",
    ["log.append.written", "log.append.unlocked", "log.append.synced", "view.stamped"],
)
def test_a_kept_event_arrives_once_even_if_its_taker_is_killed(shell: Shell, point: str) -> None:
    shell.write("1")
    with blocked(shell.home, "cls"):
        assert shell.write("2", "--best-effort").code == 0
        assert shell.write("3", "--best-effort").code == 0

    words = ("ledger", "write", "--agent", "cls", "--event", "info", "4")
    assert shell(*words, env={"HOLDFAST_FAILPOINTS": f"{point}=kill"}).code == -9
    assert shell.write("5").code == 0

    assert [each["summary"] for each in entries_in(shell.home, "cls")] == ["1", "2", "3", "4", "5"]
    assert shell("ledger", "verify").code == 0


def test_a_kept_event_arrives_once_even_if_many_take_it_at_the_same_time(shell: Shell) -> None:
    with blocked(shell.home, "cls"):
        assert shell.write("kept", "--best-effort").code == 0
    words = ("ledger", "write", "--agent", "cls", "--event", "info")
    running = [shell.start(*words, str(number)) for number in range(4)]
    assert [process.wait(PATIENCE) for process in running] == [0] * 4
    for process in running:
        process.communicate()

    texts = [each["summary"] for each in entries_in(shell.home, "cls")]
    assert texts[0] == "kept"
    assert sorted(texts[1:]) == ["0", "1", "2", "3"]


def test_no_event_is_lost_that_is_kept_while_others_are_taken_in(verbs: Verbs) -> None:
    """One process cannot reach the ledger and keeps events; another writes all the time."""
    spool, done = Spool(verbs.path, "rio", verbs.clock), threading.Event()

    def keep_many() -> None:
        try:
            for number in range(400):
                spool.put(Event("info", f"kept {number}", "test"))
        finally:
            done.set()

    def write_on() -> None:
        while not done.is_set():
            verbs.write("written")

    together(keep_many, write_on)
    verbs.write("last")
    kept = [text for text in verbs.texts(limit=0) if text.startswith("kept")]
    assert kept == [f"kept {number}" for number in range(400)]


def test_a_damaged_spool_is_a_warning_and_the_event_is_written(verbs: Verbs) -> None:
    with blocked(verbs.path):
        place = Path(verbs.write("kept", best_effort=True).target)
    with place.open("ab") as file:
        file.write(b"\xff\xfe not a line\n{}\n")
    done = verbs.write("later")
    assert done.applied
    assert verbs.texts()[-1] == "later"
    assert "kept" in verbs.texts()


def test_a_spool_that_cannot_be_read_is_a_warning_and_the_event_is_written(verbs: Verbs) -> None:
    with blocked(verbs.path):
        place = Path(verbs.write("kept", best_effort=True).target)
    away = place.with_suffix(".away")
    os.rename(place, away)
    place.mkdir()
    assert verbs.write("later").applied
    assert "spool" in verbs.warnings[0]
    assert verbs.texts() == ["later"]
    place.rmdir()
    os.rename(away, place)
    verbs.write("last")
    assert verbs.texts() == ["later", "kept", "last"]


def test_kept_starts_of_sessions_become_sessions_of_their_own(verbs: Verbs) -> None:
    with blocked(verbs.path):
        for text in ("a", "b", "c"):
            keep(verbs, text, session="new")
    verbs.write("d")
    numbers = [each["session_id"][-3:] for each in entries_in(verbs.path, "rio")]
    assert numbers == ["001", "002", "003", "003"]


@pytest.mark.parametrize(
    "wrong",
    [{"event": "task_start"}, {"session": "2023-11-14_clay_001"}, {"session": "today"}],
)
def test_a_wrong_call_is_never_kept_so_it_cannot_block_those_after_it(
    verbs: Verbs, wrong: dict[str, str]
) -> None:
    """Also when the home is out of reach, and only the call itself can be looked at."""
    away = f"{verbs.path}.away"
    os.rename(verbs.path, away)
    Path(verbs.path).write_text("in the way", encoding="utf-8")
    with suppress(UsageError):
        verbs.write("wrong", best_effort=True, **wrong)
    os.unlink(verbs.path)
    os.rename(away, verbs.path)

    assert verbs.write("right").applied
    assert verbs.texts() == ["right"]


def test_events_named_in_the_settings_are_kept_as_well(verbs: Verbs) -> None:
    with Path(verbs.path, "holdfast.toml").open("a", encoding="utf-8") as settings:
        settings.write('\n[ledger]\nextra_events = ["deploy"]\n')
    with blocked(verbs.path):
        keep(verbs, "out it goes", event="deploy")
    verbs.write("later")
    assert verbs.texts() == ["out it goes", "later"]


def test_events_kept_after_the_spool_was_cleared_away_are_not_taken_for_old_ones(
    verbs: Verbs, tmp_path: Path
) -> None:
    with blocked(verbs.path):
        keep(verbs, "1")
        keep(verbs, "2")
    verbs.write("3")
    shutil.rmtree(tmp_path / "spools")
    with blocked(verbs.path):
        keep(verbs, "4")
    verbs.write("5")
    assert verbs.texts() == ["1", "2", "3", "4", "5"]


def test_the_spools_of_two_users_of_one_home_are_told_apart(
    verbs: Verbs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("ann", "bob"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / user))
        with blocked(verbs.path):
            keep(verbs, f"kept by {user}")
        verbs.write(f"written by {user}")
    assert verbs.texts() == ["kept by ann", "written by ann", "kept by bob", "written by bob"]


@pytest.mark.parametrize("best_effort", [True, False])
def test_an_event_that_is_in_the_ledger_is_never_reported_as_not_written(
    verbs: Verbs, best_effort: bool
) -> None:
    """The status is a convenience: that it cannot be refreshed must not double the event."""
    verbs.write("1")
    with Path(verbs.path, "state/rio/.status.json.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            told = verbs.write("2", best_effort=best_effort).applied
        except Busy:
            told = False
        warned = verbs.warnings
    assert verbs.texts() == (["1", "2"] if told else ["1"])
    assert any("status" in warning for warning in warned), "somebody may wonder at the old status"
    verbs.write("3")
    assert verbs.texts() == (["1", "2", "3"] if told or best_effort else ["1", "3"])


def test_an_event_that_may_be_there_is_not_kept_since_it_could_come_twice(verbs: Verbs) -> None:
    verbs.write("1")

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with armed("log.append.unlocked", fail):
        done = verbs.write("2", best_effort=True)
        assert not done.applied
        assert "perhaps" in done.detail
        assert verbs.warnings
    with armed("log.append.unlocked", fail), pytest.raises(Indeterminate):
        verbs.write("3")
    verbs.write("4")
    assert verbs.texts() == ["1", "2", "3", "4"]
