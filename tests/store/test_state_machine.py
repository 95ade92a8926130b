"""Anything in any order, against a model of lists."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from holdfast.codec import DecodeError, decode_record, encode
from holdfast.errors import Conflict
from holdfast.mask import by_key_name
from holdfast.store.backend import Backend
from holdfast.store.check import HARMLESS, check
from holdfast.store.home import Home
from holdfast.store.memory import Memory
from holdfast.store.primitives import START, BadLine, Cursor, Decision, Line, Log
from holdfast.store.view import Shape, View
from holdfast.testing import DAY, Turner
from tests.store.logs import FOREIGN

LOG, DAYS, VIEW, DOCUMENT = "state/a.jsonl", "ledger/a", "state/v.json", "state/d.json"
ROTATE_AT = 700
COUNTS = st.integers(1, 4)
DOCUMENTS = st.integers(0, 9).map(lambda number: b'{"n": %d}' % number)


def shown(record: dict[str, Any]) -> Any:
    return record.get("n", "?")


SHAPE = Shape(
    version=1,
    initial=list[Any],
    fold=lambda state, line: [*state, shown(line.record)],
    render=encode,
)


class Model:
    """What one log has to hold: our lines by number, those of others as they were written."""

    def __init__(self) -> None:
        self.lines: list[int | bytes] = []
        self.tail = b""
        self.acked: list[Cursor] = []

    def append(self, count: int, first: int) -> list[dict[str, int]]:
        if self.tail:
            self.lines.append(self.tail)  # whoever appends ends the line
            self.tail = b""
        self.lines += range(first, first + count)
        return [{"n": number} for number in range(first, first + count)]

    def write(self, data: bytes) -> None:
        *lines, self.tail = (self.tail + data).split(b"\n")
        self.lines += lines

    @property
    def ours(self) -> int:
        return sum(isinstance(line, int) for line in self.lines)

    def seen(self) -> list[Any]:
        """What a reader gets: number, or foreign record, or "bad"."""
        return [each if isinstance(each, int) else foreign(each) for each in self.lines]

    def folded(self, *, sealed: bool) -> list[Any]:
        lines = self.lines
        if sealed:
            last = max((at for at, line in enumerate(lines) if isinstance(line, int)), default=-1)
            lines = lines[: last + 1]
        seen = [each if isinstance(each, int) else foreign(each) for each in lines]
        return [
            each if isinstance(each, int) else shown(each)
            for each in seen
            if each != "bad" and not (isinstance(each, dict) and "_log" in each)
        ]


def foreign(line: bytes) -> Any:
    try:
        return decode_record(line)
    except DecodeError:
        return "bad"


class StoreMachine(RuleBasedStateMachine):
    """What can be done to every backend."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Turner()
        self.models = {LOG: Model(), DAYS: Model()}
        self.number = 0
        self.text: bytes | None = None
        self.revision = ""
        self.newest_day = ""
        self.logs: dict[str, Log] = {}
        self.backend: Backend

    def start(self) -> Backend:
        raise NotImplementedError

    def log_of(self, backend: Backend, key: str) -> Log:
        return backend.log(key)

    @initialize()
    def begin(self) -> None:
        self.backend = self.start()
        self.open_all()

    def open_all(self) -> None:
        self.logs = {key: self.log_of(self.backend, key) for key in self.models}
        files = [(self.backend.cell(VIEW), SHAPE.render)]
        self.view: View[list[Any]] = View(self.logs[LOG], SHAPE, self.clock, files)

    def close_all(self) -> None:
        self.view.close()
        for log in self.logs.values():
            log.close()

    def teardown(self) -> None:
        if self.logs:
            self.close_all()

    def given(self, key: str, count: int) -> list[dict[str, int]]:
        records = self.models[key].append(count, self.number)
        self.number += count
        return records

    def acked(self, key: str, cursors: list[Cursor]) -> None:
        model = self.models[key]
        model.acked += cursors
        last = model.ours
        assert [cursor.seq for cursor in cursors] == list(range(last - len(cursors) + 1, last + 1))
        if key == DAYS and cursors:
            day = cursors[-1].segment[:10]
            assert day >= self.newest_day, "a day went back"
            self.newest_day = day

    # -- rules -------------------------------------------------------------------------

    @rule(key=st.sampled_from([LOG, DAYS]))
    def append(self, key: str) -> None:
        (record,) = self.given(key, 1)
        self.acked(key, [self.logs[key].append(record)])

    @rule(key=st.sampled_from([LOG, DAYS]), count=st.integers(0, 4))
    def append_all(self, key: str, count: int) -> None:
        self.acked(key, self.logs[key].append_all(self.given(key, count)))

    @rule(key=st.sampled_from([LOG, DAYS]), count=COUNTS)
    def transact(self, key: str, count: int) -> None:
        before = self.models[key].ours

        def decide(head: Cursor) -> Decision[None]:
            assert head.seq == before
            return self.given(key, count), None

        written = self.logs[key].write(decide)
        self.acked(key, [line.cursor for line in written.lines])

    @rule(key=st.sampled_from([LOG, DAYS]))
    def append_by_a_second_handle(self, key: str) -> None:
        other = self.log_of(self.start(), key)
        (record,) = self.given(key, 1)
        self.acked(key, [other.append(record)])
        other.close()

    @rule()
    def reopen(self) -> None:
        self.close_all()
        self.backend = self.start()
        self.open_all()

    @rule(seconds=st.sampled_from([0.01, 1.0, DAY / 2, DAY, 3 * DAY]))
    def advance_the_clock(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([1.0, DAY, 5 * DAY]))
    def step_the_clock_back(self, seconds: float) -> None:
        self.clock.step(-seconds)

    @rule()
    def settle(self) -> None:
        head = self.logs[LOG].settle()
        assert head == (self.models[LOG].acked or [START])[-1]

    @rule()
    def refresh_the_view(self) -> None:
        self.clock.advance(1)
        self.view.refresh(self.logs[LOG].head())
        self.view_is_written()

    @rule()
    def close_the_view(self) -> None:
        self.view.refresh()
        self.view.close()
        self.view = View(
            self.logs[LOG], SHAPE, self.clock, [(self.backend.cell(VIEW), SHAPE.render)]
        )
        self.view_is_written()

    @rule()
    def rebuild_the_view(self) -> None:
        self.view.rebuild()
        self.view_is_written()

    def view_is_written(self) -> None:
        stamp = self.backend.cell(VIEW).load(1)
        folded = self.models[LOG].folded(sealed=True)
        assert (stamp.state if stamp else []) == folded

    @rule(data=DOCUMENTS)
    def replace(self, data: bytes) -> None:
        self.revision = self.backend.document(DOCUMENT).replace(data)
        self.text = data

    @rule(data=DOCUMENTS, right=st.booleans())
    def replace_if_expected(self, data: bytes, right: bool) -> None:
        document = self.backend.document(DOCUMENT)
        expected = self.revision if right else "stale"
        try:
            self.revision = document.replace(data, expected=expected)
        except Conflict:
            assert not right
            return
        assert right
        self.text = data

    @rule()
    def update(self) -> None:
        def change(old: bytes | None) -> bytes:
            assert old == self.text
            self.text = b'{"n": %d}' % len(old or b"")
            return self.text

        self.revision = self.backend.document(DOCUMENT).update(change)

    # -- invariants --------------------------------------------------------------------

    @invariant()
    def every_acknowledged_line_is_there_once_and_in_order(self) -> None:
        for key, log in self.logs.items():
            model, found = self.models[key], list(log.read())
            assert [each_seen(line) for line in found] == model.seen()
            seqs = [line.seq for line in found if isinstance(line, Line) and line.seq]
            assert seqs == list(range(1, model.ours + 1))
            assert all(map(log.contains, model.acked[-3:]))

    @invariant()
    def the_logs_verify(self) -> None:
        for key, log in self.logs.items():
            model, found = self.models[key], log.verify()
            assert found.problems == []
            assert found.sealed == model.ours
            assert len(found.bad) == model.seen().count("bad")
            assert found.in_progress == len(model.tail)
            assert found.head == log.head()

    @invariant()
    def the_view_is_the_fold_of_the_log(self) -> None:
        if self.logs:
            assert self.view.read() == self.models[LOG].folded(sealed=False)

    @invariant()
    def the_document_is_what_was_put_last(self) -> None:
        if self.logs:
            found = self.backend.document(DOCUMENT).read()
            assert (found.data if found else None) == self.text


def each_seen(line: Line | BadLine) -> Any:
    if isinstance(line, BadLine):
        return "bad"
    return line.record if line.seq is None else line.record["n"]


class MemoryMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory(self.clock, by_key_name(lambda: b"k"))

    def start(self) -> Memory:
        return self.memory


class HomeMachine(StoreMachine):
    """What can happen to files besides."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.mkdtemp(prefix="holdfast-machine-")
        self.homes: list[Home] = []

    def start(self) -> Home:
        home = Home.open(self.place, create=True, timezone="UTC", clock=self.clock)
        self.homes.append(home)
        return home

    def log_of(self, backend: Backend, key: str) -> Log:
        assert isinstance(backend, Home)
        return backend.log(key, rotate_at=ROTATE_AT)

    def teardown(self) -> None:
        super().teardown()
        for home in self.homes:
            home.close()
        shutil.rmtree(self.place)

    @property
    def home(self) -> Home:
        assert isinstance(self.backend, Home)
        return self.backend

    def newest(self, key: str) -> Path | None:
        names = self.logs[key].segments()
        folder = Path(self.place, "state" if key == LOG else key)
        return folder / names[-1] if names else None

    def write(self, key: str, data: bytes) -> None:
        file = self.newest(key)
        if file is not None:
            with open(file, "ab") as opened:
                opened.write(data)
            self.models[key].write(data)

    @rule(key=st.sampled_from([LOG, DAYS]), line=FOREIGN)
    def somebody_writes_a_line(self, key: str, line: bytes) -> None:
        self.write(key, line + b"\n")

    @rule(
        key=st.sampled_from([LOG, DAYS]),
        data=st.sampled_from([b"\0" * 300, b"\0", b'{"n":', b'{"n":1}', b"\xff", b"x" * 5_000]),
    )
    def a_crash_leaves_a_fragment(self, key: str, data: bytes) -> None:
        self.write(key, data)

    @precondition(lambda self: not self.models[LOG].tail and self.models[LOG].lines)
    @rule()
    def a_crash_takes_the_last_line_end(self) -> None:
        model, file = self.models[LOG], self.newest(LOG)
        if isinstance(model.lines[-1], int) and file is not None:
            os.truncate(file, file.stat().st_size - 1)
            self.append(LOG)

    @rule()
    def somebody_edits_the_view(self) -> None:
        file = Path(self.place, VIEW)
        self.number += 1
        data = b'{"edit": %d}' % self.number
        self.view.refresh()
        self.view.close()
        if not file.exists():
            return
        file.write_bytes(data)
        self.view = self.home.view(VIEW, self.logs[LOG], SHAPE)
        self.view.refresh()
        assert len(self.view.kept_aside) == 1
        assert (file.parent / self.view.kept_aside[0]).read_bytes() == data
        self.the_file_shows_the_sealed_lines()

    @rule(data=st.sampled_from([None, b"", b"\0" * 40, b'["cut']), stamp=st.booleans())
    def a_crash_damages_the_view(self, data: bytes | None, stamp: bool) -> None:
        self.view.refresh()
        self.view.close()
        folder = Path(self.place, VIEW).parent
        file = folder / (".v.json.view" if stamp else "v.json")
        if data is None or not file.exists():
            file.unlink(missing_ok=True)
        else:
            file.write_bytes(data)
        self.view = self.home.view(VIEW, self.logs[LOG], SHAPE)
        self.view.refresh()
        assert self.view.kept_aside == []
        self.the_file_shows_the_sealed_lines()

    def the_file_shows_the_sealed_lines(self) -> None:
        folded = self.models[LOG].folded(sealed=True)
        file = Path(self.place, VIEW)
        if file.exists() or folded:
            assert file.read_bytes() == encode(folded)

    @rule()
    def check_everything(self) -> None:
        self.view.refresh()
        self.view.close()
        self.view = self.home.view(VIEW, self.logs[LOG], SHAPE)
        assert {finding.kind for finding in check(self.home)} <= HARMLESS


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestHome = HomeMachine.TestCase
TestHome.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
