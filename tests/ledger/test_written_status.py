"""The status that a writer keeps by folding what it writes is the one that the lines tell."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.ledger.book import Event, Ledger
from holdfast.ledger.entry import IMPORT, IMPORTER
from holdfast.ledger.status import status_of
from holdfast.store.home import Home
from holdfast.store.primitives import Line
from holdfast.testing import FakeClock

SECRET = "password=hunter2-is-it-really"
FILES = {IMPORT: {"files": [], "sessions": {"2020-01-01": 7}, "status": {}}}
DEEDS = st.sampled_from(
    [
        ("write", Event("info", "a note", "user")),
        ("write", Event("task_start", "begun", "user", "wo-1")),
        ("write", Event("error", "it broke", "user", "wo-1", None, {"reason": "disk"})),
        ("write", Event("error", f"it said {SECRET}", "user", "wo-2", None, {"reason": SECRET})),
        ("write", Event("info", "another session", "user", None, "new")),
        ("write", Event("info", "brought in", IMPORTER, data=FILES)),
        ("tick", 0.01),
        ("tick", 0.3),
        ("tick", 1.0),
        ("second passes while it is written", Event("info", "late", "user")),
        ("other", Event("task_result", "done", "user", "wo-1", None, {"status": "failure"})),
        ("foreign", {"ts": "2023-11-14T22:13:20Z", "agent": "rio", "event": "error"}),
        ("number", None),
        ("look", None),
    ]
)


class TickingClock(FakeClock):
    """Moves on when it is asked the second time, if told to."""

    ticks = -1

    def now(self) -> float:
        self.ticks -= self.ticks >= 0
        if self.ticks == 0:
            self.advance(1)
        return super().now()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    top = tmp_path_factory.mktemp("written")
    return (str(top / str(number)) for number in count())


def act(home: Home, ledger: Ledger, clock: TickingClock, deed: str, value: Any) -> None:
    match deed:
        case "tick":
            clock.advance(value)
        case "second passes while it is written":
            clock.ticks = 3
            ledger.write(value)
            clock.ticks = -1
        case "other":
            with Ledger(home, "rio") as other:
                other.write(value)
        case "foreign":
            (*_, newest) = sorted(Path(home.path, "ledger/rio").glob("*.jsonl"))
            with newest.open("a") as file:
                file.write(json.dumps(value) + "\n")
        case "number":
            ledger.numbered(lambda session: [entry_in(str(session))])
        case "look":
            assert ledger.state() == told(home)
        case _:
            ledger.write(value)


def entry_in(session: str) -> dict[str, Any]:
    return {"agent": "rio", "session_id": session, "event": "info", "source": "test", "data": {}}


def told(home: Home) -> dict[str, Any]:
    shape = status_of("rio")
    state = shape.initial()
    for line in home.log("ledger/rio").read():
        if isinstance(line, Line):
            state = shape.fold(state, line)
    return state


@settings(max_examples=150)
@given(st.lists(DEEDS, max_size=12))
@example([("write", Event("error", SECRET, "user", "x", None, {"reason": SECRET})), ("tick", 1.0)])
def test_what_is_saved_is_what_the_lines_tell(places: Iterator[str], deeds: list[Any]) -> None:
    path, clock = next(places), TickingClock()
    with Home.open(path, create=True, timezone="UTC", clock=clock) as home:
        with Ledger(home, "rio") as ledger:
            ledger.write(Event("info", "the first", "user"))
            for deed, value in deeds:
                act(home, ledger, clock, deed, value)
            ledger.write(Event("info", "the last", "user"))
        stamp = home.cell(ledger.status_key).peek()
        assert stamp is not None
        assert stamp.state == told(home)
        assert SECRET.encode() not in everything_in(path)
    shutil.rmtree(path)


def everything_in(path: str) -> bytes:
    return b"".join(each.read_bytes() for each in Path(path).rglob("*") if each.is_file())


def test_a_writer_does_not_read_back_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, folded = FakeClock(), list[int]()
    monkeypatch.setattr("holdfast.ledger.status.fold", counting(folded))
    with (
        Home.open(str(tmp_path / "home"), create=True, timezone="UTC", clock=clock) as home,
        Ledger(home, "rio") as ledger,
    ):
        ledger.write(Event("info", "a note", "user"))
        time.sleep(0.05)  # a folder that has just changed cannot tell whether it changed again
        folded.clear()
        for _ in range(20):
            ledger.write(Event("info", "a note", "user"))
            clock.advance(0.3)
        ledger.write(Event("error", SECRET, "user", "x", None, {"reason": SECRET}))
        assert len(folded) == len(set(folded)) == 21


def counting(folded: list[int]) -> Callable[..., dict[str, Any]]:
    from holdfast.ledger.status import fold  # noqa: PLC0415  # the real one, before it is replaced

    def counted(state: dict[str, Any], line: Line) -> dict[str, Any]:
        folded.append(line.offset)
        return fold(state, line)

    return counted
