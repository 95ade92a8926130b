"""A state is what a fold from the start gives, whoever wrote and whatever failed."""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from holdfast.codec import Record, encode
from holdfast.errors import Conflict, HoldfastError
from holdfast.mask import by_key_name
from holdfast.state.statelog import StateLog
from holdfast.store.backend import Backend
from holdfast.store.home import Home
from holdfast.store.memory import Memory
from holdfast.store.primitives import START, Cursor, Decide, Decision, Line, Written
from holdfast.store.view import Shape
from holdfast.testing import Turner
from tests.store.faults import FaultyVfs, failing

KEY, SHOWN, ALSO = "state/rio/log.jsonl", "state/rio/sum.json", "state/rio/last.md"
State = dict[str, Any]
SECRET = "hunter2-hunter2"


def fold(state: State, line: Line) -> State:
    state["lines"] += 1
    state["seen"] = [*state["seen"], [line.record.get(name) for name in ("ts", "n", "apiKey")]]
    return state


def last(state: State) -> bytes:
    return f"{state['seen'][-1:]}\n".encode()


SHAPE: Shape[State] = Shape(version=1, initial=lambda: {"lines": 0, "seen": []}, fold=fold)
VIEWS = {SHOWN: encode, ALSO: last}


def opened(home: Backend) -> StateLog[State]:
    return StateLog(home, KEY, SHAPE, VIEWS)


def from_the_start(home: Backend) -> State:
    state = SHAPE.initial()
    log = home.log(KEY)
    for line in log.read():
        if isinstance(line, Line) and "_log" not in line.record:
            state = SHAPE.fold(state, line)
    log.close()
    return state


class Everybody(RuleBasedStateMachine):
    """One that decides, among others, on a disk that fails and by a clock that jumps."""

    home: Backend

    def begin(self, home: Backend) -> None:
        self.home, self.n = home, 0
        self.one, self.other = opened(home), opened(home)

    def lines(self, count: int, *, secret: bool = False) -> list[Record]:
        self.n += count
        more = {"apiKey": SECRET} if secret else {}
        return [{"n": self.n - number, **more} for number in range(count)]

    def agrees(self, state: State) -> None:
        assert state == from_the_start(self.home)

    @rule(count=st.integers(0, 3), secret=st.booleans())
    def decide(self, count: int, secret: bool) -> None:
        def decision(state: State) -> Decision[int]:
            self.agrees(state)
            return self.lines(count, secret=secret), state["lines"]

        with suppress(HoldfastError):
            written = self.one.decide(decision)
            assert written.masked == (secret and count > 0)
            assert [line.record["n"] for line in written.lines] == sorted(
                range(self.n - count + 1, self.n + 1), reverse=True
            )
        self.agrees(self.one.known())

    @rule(count=st.integers(0, 2), more=st.integers(0, 2), kept=st.booleans())
    def decide_by_a_preview(self, count: int, more: int, kept: bool) -> None:
        given = self.lines(count) + self.lines(more, secret=True)

        def decision(state: State) -> Decision[None]:
            before = state["lines"]
            assert self.one.preview(given[:count])["lines"] == before + count
            after = self.one.preview(given)
            assert after["lines"] == before + len(given)
            assert all(seen[2] != SECRET for seen in after["seen"])
            return given if kept else given[:1], None

        with suppress(HoldfastError):
            self.one.decide(decision)
        self.agrees(self.one.known())

    @rule()
    def decide_twice(self) -> None:
        def decision(state: State) -> Decision[int]:
            self.one.preview([{"n": "not to be"}])
            return self.lines(1), state["lines"]

        log, write = self.one.log.log, self.one.log.log.write

        def twice(decide: Decide[int]) -> Written[int]:
            return write(lambda head: (decide(head), decide(head))[1])

        try:
            log.write = twice  # type: ignore[method-assign,assignment]
            with suppress(HoldfastError):
                self.one.decide(decision)
        finally:
            del log.write  # type: ignore[attr-defined]
        self.agrees(self.one.known())

    @rule()
    def refuse(self) -> None:
        def decision(state: State) -> Decision[None]:
            self.one.preview(self.lines(1))
            raise Conflict("no", hint="later")

        with pytest.raises(HoldfastError):
            self.one.decide(decision)
        self.agrees(self.one.known())

    @rule(count=st.integers(1, 3))
    def another_writes(self, count: int) -> None:
        with suppress(HoldfastError):
            self.other.decide(lambda _: (self.lines(count), None))

    @rule()
    def look(self) -> None:
        self.agrees(self.one.state())
        self.agrees(self.one.known())

    @rule(keeps=st.booleans())
    def keep(self, keeps: bool) -> None:
        self.one.log.keeps = keeps

    @rule(skipped=st.integers(0, 12))
    def read(self, skipped: int) -> None:
        with closing(self.home.log(KEY)) as log:
            sealed = [each for each in log.read() if isinstance(each, Line) and each.seq]
            after = sealed[min(skipped, len(sealed)) - 1].cursor if skipped and sealed else START
            assert [*self.one.log.read(after)] == [*log.read(after)]
            assert self.one.log.contains(after) and log.contains(after)

    @rule()
    def begin_again(self) -> None:
        self.one.close()
        self.one = opened(self.home)
        self.agrees(self.one.known())


class InMemory(Everybody):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Turner()
        self.begin(Memory(self.clock, by_key_name(lambda: b"k" * 32)))

    @rule(seconds=st.sampled_from([0.5, 90.0, 86_400.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)


class OnFiles(Everybody):
    def __init__(self) -> None:
        super().__init__()
        self.clock, self.vfs = Turner(), FaultyVfs()
        self.place = tempfile.TemporaryDirectory()
        path = f"{self.place.name}/home"
        self.file = Path(path, KEY)
        self.files = Home.open(path, create=True, timezone="UTC", clock=self.clock, vfs=self.vfs)
        self.begin(self.files)

    @rule(seconds=st.sampled_from([0.5, 90.0, 86_400.0, -3_600.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.file.exists())
    @rule(line=st.sampled_from(['{"n": "foreign"}\n', '{"n": "to', "no line\n"]))
    def a_stranger_writes(self, line: str) -> None:
        newest = max(self.file.parent.glob("log*.jsonl"), key=lambda file: file.stat().st_ino)
        with newest.open("a") as file:
            file.write(line)

    @rule(call=st.sampled_from(["sync", "write", "truncate"]), code=st.sampled_from([5, 28]))
    def the_disk_will_fail(self, call: str, code: int) -> None:
        self.vfs.fault(call, failing(code), "*log*.jsonl", times=1)

    def teardown(self) -> None:
        self.vfs.heal()
        self.one.close()
        self.other.close()
        self.files.close()
        self.place.cleanup()


TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestOnFiles = OnFiles.TestCase
TestOnFiles.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


# --- one by one -----------------------------------------------------------------------------


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(tmp_path: Path, vfs: FaultyVfs) -> Iterator[Home]:
    path = str(tmp_path / "home")
    with Home.open(path, create=True, timezone="UTC", clock=Turner(), vfs=vfs) as made:
        yield made


def put(log: StateLog[State], *numbers: int) -> None:
    lines: list[Record] = [{"n": number} for number in numbers]
    log.decide(lambda _: (lines, None))


def test_what_was_written_is_not_read_back(home: Home, vfs: FaultyVfs) -> None:
    log = opened(home)
    put(log, 1)
    put(log, 2)
    vfs.forget()
    put(log, 3)
    assert log.known()["lines"] == 3
    assert vfs.count("dir.open") == 0
    log.close()


def test_what_was_written_is_read_from_memory_until_another_writes(
    home: Home, vfs: FaultyVfs
) -> None:
    log, other = opened(home), opened(home)
    log.log.keeps = True
    put(log, 1, 2)
    first = lines_of(log)[0]
    vfs.forget()
    assert [line.record["n"] for line in lines_of(log, first.cursor)] == [2]
    assert log.log.settle() == lines_of(log)[-1].cursor
    assert vfs.count("dir.open") == 0
    put(other, 3)
    assert [line.record["n"] for line in lines_of(log, first.cursor)] == [2, 3]
    assert log.state()["lines"] == 3
    log.close()
    other.close()


def lines_of(log: StateLog[State], after: Cursor = START) -> list[Line]:
    return [line for line in log.log.read(after) if isinstance(line, Line)]


def test_a_state_that_changes_what_it_kept_of_a_line_does_not_change_the_line(home: Home) -> None:
    def keep(state: State, line: Line) -> State:
        state["all"].append(line.record["n"])
        state["seen"] = [*state["seen"], line.record["parts"]]
        for parts in state["seen"]:
            parts.append("changed")
        return state

    log = StateLog(home, KEY, Shape(version=1, initial=lambda: {"all": [], "seen": []}, fold=keep))
    log.log.keeps = True
    log.decide(lambda _: ([{"n": 1, "parts": []}, {"n": 2, "parts": [{"of": ["it"]}]}], None))
    log.decide(lambda _: ([{"n": 3, "parts": []}], None))
    for _ in range(2):
        found = lines_of(log)
        assert [line.record["parts"] for line in found] == [[], [{"of": ["it"]}], []]
        found[1].record["parts"].clear()
    log.close()


def test_a_projection_writes_its_place_only_when_it_lags(home: Home) -> None:
    log, to = opened(home), home.log("state/rio/other.jsonl")
    put(log, 0)
    assert log.project(to, "cache/told", lambda line: {"copy": line.record["n"]}) == 1
    for number in range(1, 60):
        put(log, number)
        assert log.project(to, "cache/told", lambda line: {"copy": line.record["n"]}) == 1
        stamp = home.cell("cache/told").peek()
        assert (None if stamp is None else stamp.cursor.seq) == (None if number < 49 else 50)
        if number % 20 == 0:  # the next one reads again what the place does not tell
            log.close()
            log = opened(home)
    told = [line.record["copy"] for line in to.read() if isinstance(line, Line)]
    assert told == [*range(60)]
    log.close()
    to.close()


def test_all_documents_show_one_fold(home: Home) -> None:
    log = opened(home)
    put(log, 1, 2)
    assert log.flush() == []
    assert json.loads(Path(home.path, SHOWN).read_bytes())["lines"] == 2
    assert "2, None" in Path(home.path, ALSO).read_text(encoding="utf-8")
    log.close()


def test_a_document_that_was_edited_is_kept_aside_and_the_other_one_written(home: Home) -> None:
    log = opened(home)
    put(log, 1)
    log.flush()
    Path(home.path, ALSO).write_text("by hand\n", encoding="utf-8")
    log = opened(home)
    put(log, 2)
    (kept,) = log.flush()
    assert Path(home.path, "state/rio", kept).read_text(encoding="utf-8") == "by hand\n"
    assert log.rebuild() == [kept]
    log.close()


def test_a_document_that_is_lost_is_made_again(home: Home) -> None:
    log = opened(home)
    put(log, 1, 2)
    log.flush()
    for name in (SHOWN, ALSO):
        shown = Path(home.path, name)
        before = shown.read_bytes()
        shown.unlink()
        again = opened(home)
        again.flush()
        assert shown.read_bytes() == before
        again.close()
    log.close()


def test_a_decision_stands_when_its_documents_cannot_be_written(home: Home, vfs: FaultyVfs) -> None:
    log = opened(home)
    vfs.fault("dir.rename", failing(errno.ENOSPC), times=None)
    put(log, 1)
    assert log.stale is not None
    with pytest.raises(HoldfastError):
        log.flush()
    log.close()
    vfs.heal()
    log = opened(home)
    put(log, 2)
    assert log.stale is None
    assert log.known()["lines"] == 2
    log.close()


def test_a_cut_that_only_one_of_the_documents_saw_is_told(home: Home) -> None:
    log = opened(home)
    put(log, 1)
    log.close()
    kept = Path(home.path, KEY).read_bytes()
    log = opened(home)
    put(log, 2)
    log.close()
    Path(home.path, KEY).write_bytes(kept)
    Path(home.path, f"state/rio/.{SHOWN.rpartition('/')[2]}.view").unlink()
    log = opened(home)
    assert log.known()["lines"] == 1
    log.flush()
    told = [line.record for line in log.log.read() if isinstance(line, Line)]
    assert told[-1]["_log"] == "cut_tail"
    assert told[-1]["lost"] == 2
    log.close()


@pytest.mark.parametrize("files", [True, False])
def test_lines_are_told_in_another_log_once(home: Home, files: bool) -> None:
    store: Backend = home if files else Memory(Turner())
    log, to = opened(store), store.log("state/rio/other.jsonl")
    put(log, 1, 2)

    def tell(line: Line) -> Record | None:
        return {"copy": line.record["n"]} if line.record["n"] != 2 else None

    assert log.project(to, "cache/told", tell) == 1
    put(log, 3)
    assert log.project(to, "cache/told", tell) == 1
    assert log.project(to, "cache/told", tell) == 0
    assert [line.record["copy"] for line in to.read() if isinstance(line, Line)] == [1, 3]
    log.close()
    to.close()


def test_a_log_without_documents_is_folded_from_the_start(home: Home) -> None:
    first = StateLog(home, KEY, SHAPE)
    put(first, 1)
    assert first.flush() == []
    first.close()
    again = StateLog(home, KEY, SHAPE, log=home.log(KEY))
    assert again.known()["lines"] == 1
    again.close()


def test_a_state_may_be_asked_for_in_its_own_decision(home: Home) -> None:
    log = opened(home)
    put(log, 1)

    def decision(state: State) -> Decision[Cursor]:
        log.preview([{"n": 7}])
        assert log.state()["lines"] == 1
        return [{"n": 2}], log.log.head()

    log.decide(decision)
    assert log.known()["lines"] == 2
    log.close()


# --- effects --------------------------------------------------------------------------------


class World:
    """Something outside that can be changed once."""

    def __init__(self, *, dies: str = "") -> None:
        self.done, self.dies = list[str](), dies

    def act(self, args: Record) -> Record:
        if self.dies == "before":
            raise KeyboardInterrupt
        self.done.append(args["branch"])
        if self.dies == "after":
            raise KeyboardInterrupt
        return {"commit": "c1", "apiKey": SECRET}

    def look(self, args: Record) -> Record | None:
        return {"commit": "seen"} if args["branch"] in self.done else None


@pytest.mark.parametrize("dies", ["", "before", "after"])
@pytest.mark.parametrize("files", [True, False])
def test_an_effect_happens_once_whenever_its_process_dies(
    home: Home, dies: str, files: bool
) -> None:
    store: Backend = home if files else Memory(Turner(), by_key_name(lambda: b"k" * 32))
    world, args = World(dies=dies), {"branch": "b1"}
    log = opened(store)
    if dies:
        with pytest.raises(KeyboardInterrupt):
            log.effect("merge 1", args, world.act, world.look)
        world.dies = ""
        log.close()
        log = opened(store)
    results = [log.effect("merge 1", args, world.act, world.look) for _ in range(3)]
    assert world.done == ["b1"]
    assert results == results[:1] * 3
    assert results[0]["commit"] == ("seen" if dies == "after" else "c1")
    assert SECRET not in str(results[0])
    assert log.effect("merge 2", {"branch": "b2"}, world.act, world.look)["commit"] == "c1"
    assert [line.record["event"] for line in log.log.read() if isinstance(line, Line)] == [
        "effect",
        "effect_done",
    ] * 2
    log.close()


def test_a_line_that_is_appended_to_the_log_of_a_state_counts_and_is_durable(home: Home) -> None:
    with opened(home) as log:
        put(log, 1)
        cursor = log.log.append({"n": 2})
        assert log.log.write(lambda head: ([], head)).value == cursor
        assert log.log.settle() == cursor
        log.log.write(lambda _: ([{"n": 3}], None))
        assert log.state() == from_the_start(home)


def test_a_decision_by_a_preview_knows_a_foreign_line_before_its_own(home: Home) -> None:
    with opened(home) as log:
        put(log, 1)
        with Path(home.path, KEY).open("a", encoding="utf-8") as file:
            file.write('{"n": "foreign"}\n')

        def decision(_: State) -> Decision[int]:
            return [{"n": 2}], log.preview([{"n": 2}])["lines"]

        assert log.decide(decision).value == 3
        assert log.known() == from_the_start(home)


def test_a_foreign_line_before_ours_is_known(home: Home) -> None:
    log = opened(home)
    put(log, 1)
    with Path(home.path, KEY).open("a", encoding="utf-8") as file:
        file.write('{"n": "foreign"}\n')
    seen = log.decide(lambda state: ([{"n": 2}], state["lines"])).value
    assert (seen, log.known()) == (2, from_the_start(home))
    log.close()


def test_a_document_can_join_later_and_follows_what_others_wrote(tmp_path: Path) -> None:
    with Home.open(str(tmp_path / "home"), create=True) as home:
        log = StateLog(home, KEY, SHAPE, {SHOWN: encode})
        log.decide(lambda _: ([{"n": 1}], None))
        log.add(ALSO, last)
        other = opened(home)
        other.decide(lambda _: ([{"n": 2}], None))
        log.refresh()
        assert log.known()["lines"] == 2
        log.flush(read=False)
        assert json.loads((tmp_path / "home" / SHOWN).read_text())["lines"] == 2
        assert ", 2, None]" in (tmp_path / "home" / ALSO).read_text()
        log.close()
        other.close()
