"""The newest entries of a ledger are read from its end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.ledger.book import Event, Ledger
from holdfast.store.home import Home
from tests.recorder import recording

MANY = 3000


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """Thousands of entries in a day, some of them large, some damaged."""
    path = tmp_path_factory.mktemp("newest") / "home"
    chance = random.Random(5)
    with Home.open(str(path), create=True, timezone="UTC") as home, Ledger(home, "rio") as made:
        for number in range(MANY):
            size = chance.choice([0, 10, 300, 9000 if number % 50 == 0 else 40])
            size = 30_000 if number == MANY - 1 else size
            kind = "error" if number % 700 == 0 else "info"
            made.write(Event(kind, f"{number} {'ä' * size}", "test"))
        day = path / "ledger" / "rio" / f"{home.day()}.jsonl"
        spoil(day)
        with Ledger(home, "rio") as reader:
            yield reader


def spoil(day: Path) -> None:
    """Bytes lost in the middle, far from the end; and lines near it that are no records."""
    data = bytearray(day.read_bytes())
    at = len(data) // 3
    data[at : at + 5] = b"#####"
    lines = bytes(data).split(b"\n")
    lines.insert(-10, b"not a record")
    day.write_bytes(b"\n".join(lines))


@pytest.mark.parametrize("limit", [1, 2, 9, 30, 200, 2000, MANY, MANY * 2])
def test_they_are_those_that_a_reader_of_everything_finds_last(ledger: Ledger, limit: int) -> None:
    every = list(ledger.read())
    assert ledger.newest(limit, lambda _: True) == every[-limit:]


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_rare_ones_are_found_however_far_back_they_stand(ledger: Ledger, limit: int) -> None:
    errors = [each for each in ledger.read() if each.record["event"] == "error"]
    assert ledger.newest(limit, lambda each: each.record["event"] == "error") == errors[-limit:]


def test_a_line_that_was_cut_by_where_reading_began_is_not_called_damaged(ledger: Ledger) -> None:
    ledger.damaged.clear()
    for limit in (1, 20, 100):
        ledger.newest(limit, lambda _: True)
    found = set(ledger.damaged)
    ledger.damaged.clear()
    list(ledger.read())
    assert found and found <= ledger.damaged


def test_few_of_them_cost_no_look_at_all_the_others(ledger: Ledger) -> None:
    with recording() as every:
        ledger.newest(None, lambda _: True)
    with recording() as few:
        assert len(ledger.newest(20, lambda _: True)) == 20
    assert few.calls < every.calls / 4
