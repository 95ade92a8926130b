"""`ledger tail`: the newest events, and those that come."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from holdfast.testing import DAY, Turner
from tests.ledger.shell import PATIENCE, Shell, Verbs, day_files, ended, next_line, on_its_own


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made("init", "--timezone", "UTC")
    return made


@pytest.fixture
def verbs(shell: Shell, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    """The same home, written to by a clock that we turn."""
    on_its_own(monkeypatch, tmp_path)
    return Verbs(str(shell.home), clock)


@contextmanager
def following(shell: Shell, *more: str) -> Iterator[Popen[bytes]]:
    with ended(shell.start("ledger", "tail", "--follow", "--json", *more)) as process:
        yield process


def shown(process: Popen[bytes]) -> dict[str, Any]:
    return json.loads(next_line(process))


def test_the_newest_events_come_in_their_order_and_that_is_all(verbs: Verbs, clock: Turner) -> None:
    for number in range(15):
        verbs.write(str(number), agent=("rio", "clay")[number % 2])
        clock.advance(DAY / 5)
    assert [row["summary"] for row in verbs("ledger tail")] == [str(n) for n in range(5, 15)]
    assert [row["summary"] for row in verbs("ledger tail", limit=2)] == ["13", "14"]
    assert [row["summary"] for row in verbs("ledger tail", limit=2, agent="Rio")] == ["12", "14"]
    assert verbs("ledger tail", limit=0) == []


def test_rows_of_tail_and_list_are_the_same(verbs: Verbs) -> None:
    verbs.write("text", event="error", data='{"error": "x"}')
    assert verbs("ledger tail") == verbs.rows("ledger list")


def test_following_shows_what_is_there_and_then_every_event_once_as_it_comes(
    shell: Shell, verbs: Verbs, clock: Turner
) -> None:
    for text in ("a", "b", "c"):
        verbs.write(text)
    with following(shell, "--limit", "2") as process:
        assert [shown(process)["summary"] for _ in range(2)] == ["b", "c"]
        for number in range(5):
            verbs.write(str(number))
        assert [shown(process)["summary"] for _ in range(5)] == ["0", "1", "2", "3", "4"]
        clock.advance(DAY)
        verbs.write("on the next day")
        row = shown(process)
        assert (row["summary"], row["seq"]) == ("on the next day", 9)


def test_following_shows_an_agent_that_was_not_there_before(shell: Shell, verbs: Verbs) -> None:
    verbs.write("first", agent="rio")
    with following(shell) as process:
        assert shown(process)["agent"] == "rio"
        verbs.write("hello", agent="clay")
        row = shown(process)
        assert (row["agent"], row["summary"], row["seq"]) == ("clay", "hello", 1)
        verbs.write("second", agent="rio")
        assert shown(process)["summary"] == "second"


def test_following_one_agent_shows_no_other(shell: Shell, verbs: Verbs) -> None:
    verbs.write("first", agent="rio")
    with following(shell, "--agent", "RIO") as process:
        assert shown(process)["summary"] == "first"
        verbs.write("of another", agent="clay")
        verbs.write("second", agent="rio")
        assert shown(process)["summary"] == "second"


def test_following_begins_in_a_home_where_nothing_has_happened(shell: Shell, verbs: Verbs) -> None:
    verbs("init", agent=["rio"])
    with following(shell, "--agent", "rio") as process:
        verbs.write("first", agent="rio")
        assert shown(process)["summary"] == "first"


def test_following_shows_foreign_lines_once_and_waits_for_the_end_of_a_line(
    shell: Shell, verbs: Verbs
) -> None:
    verbs.write("ours")
    [file] = day_files(shell.home, "rio")
    by_hand = b'{"ts":"2023-11-14T12:00:00Z","agent":"rio","event":"info","summary":"by hand"}'
    with file.open("ab", buffering=0) as appended:
        appended.write(by_hand + b"\n")
        with following(shell) as process:
            assert [shown(process)["summary"] for _ in range(2)] == ["ours", "by hand"]
            appended.write(by_hand[:30])
            verbs.write("clay speaks", agent="clay")
            assert shown(process)["summary"] == "clay speaks"
            appended.write(by_hand[30:].replace(b"by hand", b"slowly") + b"\n")
            assert shown(process)["summary"] == "slowly"
            verbs.write("ours again")
            assert shown(process)["summary"] == "ours again"


def test_people_who_follow_see_lines_under_a_header(shell: Shell, verbs: Verbs) -> None:
    verbs.write("first")
    with ended(shell.start("ledger", "tail", "--follow")) as process:
        assert next_line(process).split() == ["SEQ", "TS", "AGENT", "EVENT", "TASK_ID", "SUMMARY"]
        assert next_line(process).split()[-1] == "first"
        verbs.write("second")
        assert next_line(process).split()[-1] == "second"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_quietly_when_asked_to(
    shell: Shell, verbs: Verbs, how: signal.Signals
) -> None:
    verbs.write("first")
    with following(shell) as process:
        shown(process)
        process.send_signal(how)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGTERM)
        assert b"Traceback" not in said


def test_following_ends_when_its_reader_goes_away(shell: Shell, verbs: Verbs) -> None:
    verbs.write("first")
    with following(shell) as process:
        shown(process)
        assert process.stdout is not None
        process.stdout.close()
        verbs.write("second")
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stdout = None
