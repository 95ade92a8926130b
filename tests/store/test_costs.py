"""What things cost does not grow with the log."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.codec import encode
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import Line
from holdfast.store.view import Shape
from holdfast.testing import Turner
from tests.recorder import recording
from tests.store.faults import FaultyVfs

KEY = "state/a.jsonl"
FEW, MANY = 100, 50_000


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


def grow(log: FileLog, count: int) -> None:
    have = log.head().seq
    log.append_all([{"n": number} for number in range(have, count)])


def warm(log: FileLog) -> None:
    """Let the log see a directory in which nothing has changed for a tick of the clock."""
    time.sleep(0.03)
    log.append({"n": "warm"})


def cost(vfs: FaultyVfs) -> tuple[Counter[str], int]:
    """The calls by kind, and the bytes that were read."""
    calls = Counter(call.op for call in vfs.calls)
    read = sum(call.size for call in vfs.seen("pread"))
    vfs.forget()
    return calls, read


def test_an_append_costs_the_same_in_a_long_log(home: Home, vfs: FaultyVfs) -> None:
    log, costs = home.log(KEY), list[Any]()
    for count in (FEW, MANY):
        grow(log, count)
        warm(log)
        vfs.forget()
        log.append({"n": "one"})
        costs.append(cost(vfs))
    calls, read = costs[0]
    assert costs[0] == costs[1]
    assert calls == {"try_lock": 1, "size": 1, "write": 1, "unlock": 1, "sync": 1}
    assert read == 0
    log.close()


def test_following_another_writer_costs_the_same_in_a_long_log(home: Home, vfs: FaultyVfs) -> None:
    log, other, costs = home.log(KEY), home.log(KEY), list[Any]()
    for count in (FEW, MANY):
        grow(log, count)
        warm(log)
        other.append({"n": "other"})
        vfs.forget()
        log.append({"n": "one"})
        costs.append(cost(vfs))
    assert costs[0][0] == costs[1][0]
    assert costs[0][1] == costs[1][1] < 10_000
    log.close()
    other.close()


def test_following_another_writer_into_its_new_file_lists_none_of_the_old_ones(
    home: Home, vfs: FaultyVfs
) -> None:
    log, other = home.log(KEY, rotate_at=300), home.log(KEY, rotate_at=300)
    costs: list[Any] = []
    for count in (5, 200):
        while len(other.segments()) < count:
            other.append({"n": "x" * 200})
        log.append({"n": "caught up"})
        before = len(other.segments())
        while len(other.segments()) == before:
            other.append({"n": "y" * 200})
        vfs.forget()
        log.append({"n": "one"})
        costs.append(cost(vfs))
    assert [calls["dir.names"] for calls, _ in costs] == [0, 0]
    assert max(read for _, read in costs) < 10_000
    assert log.verify().problems == []
    log.close()
    other.close()


@pytest.mark.parametrize("named", ["a.9.jsonl", "empty", "a.jsonl", "../../etc/passwd", ""])
def test_what_the_lock_file_names_is_a_hint_and_no_more(home: Home, path: str, named: str) -> None:
    """Of a file that is not there, that has no line or that is older, it leads back to a list."""
    log, other = home.log(KEY, rotate_at=300), home.log(KEY, rotate_at=300)
    log.append({"n": "first"})
    for number in range(4):
        other.append({"n": f"{number}" * 300})
    log.append({"n": "as far as the other"})
    assert len(log.segments()) == 5
    if named == "empty":
        named = "a.9.jsonl"
        Path(path, "state", named).touch()
    with open(Path(path, "state", ".a.jsonl.lock"), "r+b") as file:
        file.write(named.encode().ljust(255) + b"\n")
    acked = log.append({"n": "mine"})
    assert (acked.seq, log.contains(acked), log.head()) == (7, True, acked)
    assert {problem.kind for problem in log.verify().problems} <= {"empty"}
    log.close()
    other.close()


def test_opening_costs_the_same_in_a_long_log(home: Home, vfs: FaultyVfs) -> None:
    costs: list[Any] = []
    for count in (FEW, MANY):
        log = home.log(KEY)
        grow(log, count)
        log.close()
        for use in (lambda log: log.append({"n": 1}), FileLog.head, FileLog.settle):
            log = home.log(KEY)
            vfs.forget()
            use(log)
            costs.append(cost(vfs))
            log.close()
    assert costs[:3] == costs[3:]
    assert all(read < 10_000 for _, read in costs)


def test_a_view_reads_only_what_it_has_not_seen(home: Home, vfs: FaultyVfs) -> None:
    folded: list[int] = []

    def fold(state: list[int], line: Line) -> list[int]:
        folded.append(1)
        return [state[0] + 1]

    shape = Shape(version=1, initial=lambda: [0], fold=fold, render=encode)
    log, costs = home.log(KEY), list[Any]()
    for count in (FEW, MANY):
        grow(log, count)
        home.view("state/v.json", log, shape).refresh(log.head())
        log.append({"n": "one"})
        folded.clear()
        vfs.forget()
        assert home.view("state/v.json", log, shape).read() == [log.head().seq]
        costs.append((cost(vfs)[1], len(folded)))
    assert [count for _, count in costs] == [1, 1]
    assert all(read < 10_000 for read, _ in costs)
    log.close()


def test_a_clock_that_went_back_is_looked_up_once(
    home: Home, vfs: FaultyVfs, clock: Turner
) -> None:
    log = home.log("ledger/rio")
    log.append({"n": 0})
    clock.step(-86_400)
    log.append({"n": 1})
    vfs.forget()
    log.append({"n": 2})
    assert cost(vfs)[0].total() < 10
    log.close()


def test_a_crashed_log_of_a_hundred_megabytes_opens_at_once(path: str) -> None:
    with Home.open(path, create=True, timezone="UTC") as home:
        log = home.log(KEY)
        block = "x" * 1_000_000
        for _ in range(4):
            log.append_all([{"n": block}] * 26)
        log.close()
    file = Path(path, KEY)
    assert file.stat().st_size > 100_000_000
    best = float("inf")
    for tail in (b'{"torn', bytes(4_096), b'{"n":"' + bytes(90_000)):
        with open(file, "ab") as tampered:
            tampered.write(tail)
        start = time.perf_counter()
        with Home.open(path) as home:
            log = home.log(KEY, rotate_at=1 << 40)
            log.append({"n": "after the crash"})
            log.close()
        best = min(best, time.perf_counter() - start)
    assert best < 0.2
    os.unlink(file)


@pytest.mark.parametrize("key", [KEY, "ledger/rio"])
def test_a_look_at_a_view_that_has_seen_every_line_opens_no_log(home: Home, key: str) -> None:
    def fold(count: int, _: Line) -> int:
        return count + 1

    shape = Shape(version=1, initial=int, fold=fold, render=encode)
    assert home.peek("state/v.json", key, shape) == (0, False, [])
    log = home.log(key)
    log.append({"n": 0})
    view = home.view("state/v.json", log, shape)
    view.refresh()
    view.close()
    with recording() as found:
        assert home.peek("state/v.json", key, shape) == (1, True, [])
    assert found.files.keys() == {".v.json.view", "v.json"}
    log.append({"n": 1})
    assert home.peek("state/v.json", key, shape).state == 2
    log.close()
