"""What every store backend has to do, as tests to inherit.

A backend is conformant when a subclass of `StoreConformance` passes.  It says how to open the
backend; `open` called again means that the same data is opened again:

    class TestMine(StoreConformance):
        def open(self) -> Backend:
            if not hasattr(self, "path"):
                self.path = tempfile.mkdtemp()
            return Mine(self.path, clock=self.clock, masker=self.masker)

pytest collects such a class as it is.  With unittest, inherit from `unittest.TestCase` as well.
Every test gets a new instance, and so a new `clock`; the backend must keep time by that clock,
have its days in UTC, and mask its records.  Nothing but the standard library is needed here.

The parts can be taken alone (`LogConformance`, `DocumentConformance`, …) while a backend grows.
"""

from __future__ import annotations

import math
import os

from holdfast.codec import MAX_DEPTH, MAX_DOCUMENT, MAX_LINE, Record, encode
from holdfast.errors import BadValue, Busy, Conflict
from holdfast.process import Owner
from holdfast.store.primitives import CONTROL, START, Cursor, Decision, Line, Log, Stamp
from holdfast.store.view import Shape, View
from holdfast.testing import (
    BAD_VALUES,
    DAY,
    DAYS,
    JSON_VALUES,
    LOG,
    Conformance,
    all_refused,
    data_of,
    lines_of,
    nested,
    numbers_of,
    passing_on,
    raising,
    refused,
    stamp_of,
    together,
)
from holdfast.testing.backends import BackendConformance, KeyConformance, MachineConformance
from holdfast.testing.logs import ArchiveConformance, DecisionConformance
from holdfast.testing.looks import LookConformance
from holdfast.testing.mailboxes import MailboxConformance
from holdfast.testing.sheets import SheetConformance


class LogConformance(DecisionConformance, ArchiveConformance):
    def test_a_log_that_nobody_wrote_is_empty(self) -> None:
        for log in (self.log(), self.log(DAYS)):
            assert list(log.read()) == []
            assert log.segments() == []
            assert log.head() == log.settle() == START
            assert log.contains(START)
            found = log.verify()
            assert (found.sealed, found.problems, found.head) == (0, [], START)

    def test_every_line_gets_the_next_number_and_comes_back_in_order(self) -> None:
        for log in (self.log(), self.log(DAYS)):
            cursors: list[Cursor] = []
            for n in range(5):
                cursors.append(log.append({"n": n}))
                assert log.head() == log.settle() == log.verify().head == cursors[-1]
            assert [cursor.seq for cursor in cursors] == [1, 2, 3, 4, 5]
            lines = lines_of(log)
            assert [line.record["n"] for line in lines] == [0, 1, 2, 3, 4]
            seen = [(line.seq, line.hash, line.segment, line.end) for line in lines]
            assert seen == [tuple(cursor) for cursor in cursors]

    def test_every_json_value_comes_back_as_it_was(self) -> None:
        log = self.log()
        for value in JSON_VALUES:
            given: Record = {"value": value, "deep": [{"again": value}]}
            kept = encode(given)
            cursor = log.append(given)
            assert encode(given) == kept, "the caller's record was changed"
            *_, line = lines_of(log)
            ts = line.record.pop("ts")
            assert encode(line.record) == kept
            assert (line.seq, ts) == (cursor.seq, "2023-11-14T12:00:00Z")

    def test_reading_goes_on_behind_any_cursor(self) -> None:
        for log in (self.log(), self.log(DAYS)):
            cursors = [START]
            for n in range(6):
                self.clock.advance(DAY / 3)
                cursors.append(log.append({"n": n}))
            for seen, cursor in enumerate(cursors):
                assert numbers_of(log, cursor) == list(range(seen, 6))

    def test_another_handle_sees_the_lines_and_numbers_on(self) -> None:
        for key in (LOG, DAYS):
            one, two = self.log(key), self.log(key)
            acked = [one.append({"n": 0}), two.append({"n": 1}), one.append({"n": 2})]
            assert [cursor.seq for cursor in acked] == [1, 2, 3]
            assert numbers_of(two) == numbers_of(self.log(key)) == [0, 1, 2]
            assert one.verify().problems == []

    def test_a_reopened_log_goes_on_where_it_was(self) -> None:
        for key in (LOG, DAYS):
            first = self.log(key)
            acked = first.append({"n": 0})
            first.close()
            first.close()
            assert self.log(key).head() == acked
            assert [log.append({"n": 1}).seq for log in (self.log(key), first)] == [2, 3]
            assert numbers_of(first) == [0, 1, 1]

    def test_append_all_writes_all_records_in_order(self) -> None:
        log = self.log()
        log.append({"n": 0})
        cursors = log.append_all([{"n": n} for n in range(1, 40)])
        assert [cursor.seq for cursor in cursors] == list(range(2, 41))
        assert all(map(log.contains, cursors))
        assert numbers_of(log) == list(range(40))
        assert log.append_all([]) == []
        assert log.head() == cursors[-1]

    def test_a_bad_record_among_good_ones_keeps_all_of_them_out(self) -> None:
        log = self.log()
        with refused(BadValue):
            log.append_all([{"n": 0}, {"n": math.nan}, {"n": 2}])
        with refused(BadValue):
            log.write(lambda head: ([{"n": 0}, {}], None))
        assert list(log.read()) == []
        assert log.append({"n": 3}).seq == 1

    def test_threads_on_one_handle_get_a_line_each(self) -> None:
        log, acked = self.log(), list[Cursor]()
        self.clock.waits = True
        calls = [lambda n=n: acked.append(log.append({"n": n})) for n in range(32)]
        together(*calls)
        assert sorted(cursor.seq for cursor in acked) == list(range(1, 33))
        assert sorted(numbers_of(log)) == list(range(32))
        assert log.verify().problems == []

    def test_an_acknowledged_line_is_contained_and_no_other(self) -> None:
        log = self.log()
        one, two = log.append({"n": 1}), log.append({"n": 2})
        assert log.contains(one)
        assert log.contains(two)
        for wrong in (
            one._replace(seq=2),
            one._replace(hash=two.hash),
            one._replace(hash="0" * 64),
            *(one._replace(offset=other) for other in (two.offset, 0, -1)),
            *(two._replace(offset=two.offset + more) for more in (1, 9, 1_000, 1 << 80)),
            *(two._replace(segment=name) for name in ("b.jsonl", "", "../a.jsonl", "a\0.jsonl")),
            two._replace(hash="\ud800"),
        ):
            assert not log.contains(wrong), wrong

    def test_a_line_carries_the_time_unless_it_brings_its_own(self) -> None:
        log = self.log()
        log.append({"n": 0})
        self.clock.advance(61)
        log.append({"n": 1})
        log.append({"n": 2, "ts": "then"})
        stamps = [line.record["ts"] for line in lines_of(log)]
        assert stamps == ["2023-11-14T12:00:00Z", "2023-11-14T12:01:01Z", "then"]

    def test_a_log_by_days_has_one_part_for_each_day(self) -> None:
        log = self.log(DAYS)
        assert log.append({"n": 0}).segment == "2023-11-14.jsonl"
        self.clock.advance(DAY / 2 - 1)
        assert log.append({"n": 1}).segment == "2023-11-14.jsonl"
        self.clock.advance(1)
        assert log.append({"n": 2}).segment == "2023-11-15.jsonl"
        self.clock.advance(3 * DAY)
        assert log.append({"n": 3}).segment == "2023-11-18.jsonl"
        assert log.segments() == [f"2023-11-{day}.jsonl" for day in (14, 15, 18)]
        assert lines_of(log)[2].record["ts"] == "2023-11-15T00:00:00+00:00"
        assert [line.seq for line in lines_of(log)] == [1, 2, 3, 4]
        found = log.verify()
        assert (found.sealed, found.unchained, found.bad, found.problems) == (4, 0, [], [])
        assert (found.loose, found.in_progress, found.head) == (0, 0, log.head())

    def test_a_clock_that_goes_back_never_opens_an_older_day(self) -> None:
        log = self.log(DAYS)
        log.append({"n": 0})
        self.clock.step(-5 * DAY)
        for each in (log, self.log(DAYS)):
            assert each.append({"n": 1}).segment == "2023-11-14.jsonl"
        self.clock.step(6 * DAY)
        assert log.append({"n": 3}).segment == "2023-11-15.jsonl"
        assert [line.seq for line in lines_of(log)] == [1, 2, 3, 4]
        assert log.verify().problems == []

    def test_secrets_are_masked_before_they_are_written(self) -> None:
        log = self.log()
        deep = {"headers": [{"Authorization": "Bearer hunter2-hunter2"}]}
        log.append({"api_key": "hunter2-hunter2", "note": "password", **deep})
        log.write(lambda head: ([{"apiKey": "hunter2-hunter2"}], None))
        one, two = (line.record for line in lines_of(log))
        assert "hunter2" not in repr((one, two))
        assert one["api_key"].startswith("[SECRET:api-key:")
        assert one["api_key"] == two["apiKey"], "the same secret has the same tag"
        assert one["note"] == "password"

    def test_a_store_masks_a_text_as_its_logs_would(self) -> None:
        log, store = self.log(), self.open()
        secret = {"api_key": "hunter2-hunter2"}
        log.append(secret)
        (line,) = lines_of(log)
        assert store.mask(secret) == {"api_key": line.record["api_key"]}
        assert "hunter2" not in store.mask("curl -H 'Authorization: Bearer hunter2-hunter2'")
        assert store.mask("a plain text") == "a plain text"

    def test_what_cannot_be_written_is_refused_and_leaves_no_trace(self) -> None:
        log, days = self.log(), self.log(DAYS)
        for name in ("seq", "hash", CONTROL):
            with refused(BadValue, name):
                log.append({"n": 0, name: 1})
        values = (*BAD_VALUES, nested(MAX_DEPTH))
        all_refused(BadValue, log.append, [{}, *({"value": value} for value in values)])
        with refused(BadValue):
            days.append({"n": 0, "ts": "2023-11-14T12:00:00Z"})
        assert list(log.read()) == list(days.read()) == []
        assert log.head() == days.head() == START
        log.append({"n": nested(MAX_DEPTH - 1), "deep": {"seq": 1, "hash": 2, CONTROL: 3}})
        assert log.verify().sealed == 1

    def test_a_line_of_any_size_is_refused_or_can_be_read(self) -> None:
        log = self.log()
        accepted = 0
        for size in (MAX_LINE - 1_000, MAX_LINE - 99, MAX_LINE - 30, MAX_LINE - 8, MAX_LINE + 1):
            try:
                log.append({"n": "x" * size})
            except BadValue as error:
                assert error.hint, error
            else:
                accepted += 1
        assert 0 < accepted < 5
        assert len(lines_of(log)) == log.verify().sealed == accepted

    def test_a_cut_that_is_told_stays_on_record(self) -> None:
        log = self.log()
        log.append({"n": 0})
        told = log.tell_of_cut(Cursor(7, "ab" * 32, "a.jsonl", 700))
        assert told.seq == 2
        (problem,) = self.log().verify().problems
        assert (problem.kind, problem.line) == ("cut", 2)
        assert "7" in problem.detail


class DocumentConformance(Conformance):
    def test_a_document_that_nobody_wrote_is_absent(self) -> None:
        assert self.document().read() is None
        assert self.document("deep/er/still.json").read() is None

    def test_a_document_is_replaced_whole(self) -> None:
        one, two = self.document(), self.document()
        revisions = set[str]()
        for data in (b"a long text\n" * 100, b"short", b"", b"\xff\0\r\n", b"short"):
            revision = one.replace(data)
            for reader in (one, two, self.document()):
                assert reader.read() == (data, revision)
            revisions.add(revision)
        assert len(revisions) == 4

    def test_a_document_is_replaced_only_if_it_is_as_expected(self) -> None:
        one = self.document()
        with refused(Conflict):
            one.replace(b"x", expected="0" * 64)
        assert one.read() is None
        first = one.replace(b"first", expected="")
        with refused(Conflict):
            self.document().replace(b"x", expected="")
        second = self.document().replace(b"second", expected=first)
        with refused(Conflict):
            one.replace(b"x", expected=first)
        assert one.read() == (b"second", second)

    def test_an_update_sees_the_newest_content(self) -> None:
        one, two = self.document(), self.document()
        seen: list[bytes | None] = []

        def change(old: bytes | None) -> bytes:
            seen.append(old)
            return (old or b"") + b"+"

        revisions = [one.update(change), two.update(change), one.update(change)]
        assert seen == [None, b"+", b"++"]
        assert two.read() == (b"+++", revisions[-1])

    def test_an_error_in_an_update_reaches_its_caller_and_nothing_changes(self) -> None:
        one = self.document()
        one.replace(b"kept")

        for error in (ZeroDivisionError, FileNotFoundError):
            with passing_on(error):
                one.update(raising(error))
        one.update(lambda old: (old or b"") + b"!")
        assert data_of(self.document()) == b"kept!"

    def test_updates_at_the_same_time_lose_nothing(self) -> None:
        self.clock.waits = True

        def work() -> None:
            for _ in range(6):
                self.document().update(lambda old: str(int(old or 0) + 1).encode())

        together(*[work] * 4)
        assert data_of(self.document()) == b"24"

    def test_a_document_that_is_too_large_is_refused(self) -> None:
        one = self.document()
        revision = one.replace(b"kept")
        with refused(BadValue):
            one.replace(bytes(MAX_DOCUMENT + 1))
        assert one.read() == (b"kept", revision)


class ViewConformance(Conformance):
    """Cells, and views over them, whose fold changes its state in place."""

    def view(self, *, version: int = 1, log: Log | None = None) -> View[list[int]]:
        self.folded = 0

        def fold(state: list[int], line: Line) -> list[int]:
            self.folded += 1
            state.append(line.record["n"] * version)
            return state

        shape = Shape(version=version, initial=list[int], fold=fold, render=encode)
        return View(log or self.log(), shape, self.clock, [(self.cell(), shape.render)])

    def test_a_view_is_always_current(self) -> None:
        log, view = self.log(), self.view()
        assert view.read() == []
        for n in range(4):
            self.log().append({"n": n})
            assert view.read() == list(range(n + 1))
            assert self.view(log=log).read() == list(range(n + 1))

    def test_a_stamp_names_the_newest_line_and_the_state_it_made(self) -> None:
        log, view = self.log(), self.view()
        acked = log.append_all([{"n": 1}, {"n": 2}])[-1]
        view.refresh(acked)
        stamp = stamp_of(self.cell())
        assert (stamp.log, stamp.cursor, stamp.state) == (LOG, acked, [1, 2])
        assert self.cell().load(2) is None

    def test_a_reopened_view_folds_only_what_is_new(self) -> None:
        log, view = self.log(), self.view()
        log.append_all([{"n": 1}, {"n": 2}])
        view.refresh()
        view.close()
        log.append({"n": 3})
        again = self.view()
        assert again.read() == [1, 2, 3]
        assert self.folded == 1

    def test_what_is_folded_after_a_stamp_is_not_in_it(self) -> None:
        log, view = self.log(), self.view()
        log.append({"n": 1})
        view.refresh()
        log.append({"n": 2})
        assert view.read() == [1, 2]
        assert self.view().read() == [1, 2]

    def test_another_version_is_folded_anew(self) -> None:
        self.log().append_all([{"n": 1}, {"n": 2}])
        self.view().refresh()
        second = self.view(version=2)
        assert second.read() == [2, 4]
        second.refresh()
        assert stamp_of(self.cell(), 2).state == [2, 4]
        assert self.cell().load(1) is None

    def test_a_stamp_only_goes_forward(self) -> None:
        log, slow, fast = self.log(), self.view(), self.view()
        log.append({"n": 1})
        assert slow.read() == [1]
        newest = log.append({"n": 2})
        fast.refresh(newest)
        slow.close()
        stamp = stamp_of(self.cell())
        assert (stamp.cursor, stamp.state) == (newest, [1, 2])

    def test_a_cell_takes_an_older_stamp_only_in_place_of_the_named_one(self) -> None:
        cell, log = self.cell(), self.log()
        old, new = log.append_all([{"n": 1}, {"n": 2}])
        assert cell.load(1) is None
        cell.save(1, Stamp(LOG, new, [2]), b"[2]")
        cell.save(1, Stamp(LOG, old, [1]), b"[1]")
        cell.save(1, Stamp(LOG, old, [1]), b"[1]", over=old)
        assert cell.load(1) == Stamp(LOG, new, [2])
        cell.save(1, Stamp(LOG, old, [1]), b"[1]", over=new)
        assert self.cell().load(1) == Stamp(LOG, old, [1])

    def test_a_view_is_written_twenty_times_a_second_at_most(self) -> None:
        log, view, written = self.log(), self.view(), set[int]()
        for n in range(100):
            view.refresh(log.append({"n": n}))
            stamp = stamp_of(self.cell())
            written.add(stamp.cursor.seq)
            self.clock.advance(0.01)
        assert 15 <= len(written) <= 21

    def test_lines_that_were_written_here_are_not_read_back(self) -> None:
        log, view = self.log(), self.view()

        def decide(head: Cursor) -> Decision[Cursor]:
            return [{"n": len(view.known_at(head)) + 1}], head

        for n in range(1, 5):
            self.clock.advance(1)
            if n == 3:
                log.append({"n": 3})
                continue
            written = log.write(decide)
            view.took(written.value, written.lines)
            view.refresh(written.lines[-1].cursor, read=False)
            assert (view.known(), self.folded) == (list(range(1, n + 1)), n)
            assert stamp_of(self.cell()).state == view.read()

    def test_closing_writes_what_was_put_off(self) -> None:
        log, view = self.log(), self.view()
        view.refresh(log.append({"n": 1}))
        newest = log.append({"n": 2})
        view.refresh(newest)
        before = stamp_of(self.cell())
        view.close()
        after = stamp_of(self.cell())
        assert (before.state, after.state, after.cursor) == ([1], [1, 2], newest)

    def test_a_view_that_nobody_used_writes_nothing_when_it_is_closed(self) -> None:
        self.log().append({"n": 1})
        self.view().close()
        assert self.cell().load(1) is None

    def test_rebuilding_folds_every_line_again(self) -> None:
        log = self.log()
        newest = log.append_all([{"n": 1}, {"n": 2}])[-1]
        self.cell().save(1, Stamp(LOG, newest, [7]), b"[7]")
        view = self.view()
        assert view.read() == [7]
        view.rebuild()
        assert view.read() == [1, 2]
        assert self.folded == 2
        assert self.cell().load(1) == Stamp(LOG, newest, [1, 2])

    def test_a_stamp_that_the_log_does_not_hold_is_told_as_a_cut_once(self) -> None:
        log = self.log()
        newest = log.append({"n": 1})
        lost = Cursor(9, "ab" * 32, newest.segment, newest.offset + 900)
        for start in (View[list[int]].refresh, View[list[int]].rebuild):
            self.cell().save(1, Stamp(LOG, lost, [7, 8, 9]), b"[7,8,9]", over=log.head())
            before = len(log.verify().problems)
            view = self.view()
            assert view.read() == [1]
            assert len(log.verify().problems) == before, "reading does not write"
            start(view)
            view.close()
            self.view().refresh()
            problems = log.verify().problems
            assert [problem.kind for problem in problems] == ["cut"] * (before + 1)
            stamp = stamp_of(self.cell())
            assert (stamp.cursor, stamp.state) == (log.head(), [1])


class LeaseConformance(Conformance):
    def test_a_lease_has_one_owner(self) -> None:
        one, two = self.lease(), self.lease()
        one.acquire("index the library")
        for other in (two, self.lease(), one):
            with refused(Busy, "index the library"):
                other.acquire("x")
        self.lease("jobs/b").acquire("another lease")
        two.release()
        with refused(Busy):
            two.acquire("x")
        one.release()
        two.acquire("now")

    def test_the_fencing_number_grows_with_every_owner(self) -> None:
        fences: list[int] = []
        long, control, odd = "x" * 100_000, "\x01" * 5_000, '"\\\U0001f980' * 2_000
        for purpose in ("a", "", long, control, odd, "z"):
            lease = self.lease()
            fences.append(lease.acquire(purpose))
            lease.release()
            lease.release()
        assert fences == sorted(set(fences))
        assert fences[0] > 0

    def test_the_holder_is_shown_as_long_as_there_is_one(self) -> None:
        lease, other = self.lease(), self.lease()
        assert other.holder() is None
        fence = lease.acquire("index")
        for each in (lease, other):
            held = each.holder()
            assert held is not None
            shown = (held.purpose, held.since, held.alive, held.fence, held.owner.pid)
            assert shown == ("index", "2023-11-14T12:00:00Z", True, fence, os.getpid())
        lease.close()
        assert lease.holder() is None
        assert other.holder() is None
        other.acquire("after close")

    def test_patience_ends_in_the_lease_or_in_a_refusal(self) -> None:
        one, two = self.lease(), self.lease()
        fence = one.acquire("a")
        start = self.clock.boottime()
        with refused(Busy):
            two.acquire("b", patience=3.0)
        assert 3.0 <= self.clock.boottime() - start < 4.0
        self.clock.meanwhile = one.release
        assert two.acquire("b", patience=3.0) > fence

    def test_stealing_asks_for_the_end_of_the_owner_first(self) -> None:
        one, two = self.lease(), self.lease()
        fence = one.acquire("a")
        held, ended = one.holder(), list[Owner]()

        def end(owner: Owner) -> None:
            ended.append(owner)
            one.release()

        assert two.acquire("b", steal=end) > fence
        assert held is not None
        assert ended == [held.owner]
        two.release()
        one.acquire("nobody has it", steal=end)
        assert len(ended) == 1

    def test_an_owner_that_does_not_end_keeps_the_lease(self) -> None:
        ended: list[Owner] = []
        one = self.lease()
        one.acquire("a")
        with refused(Busy):
            self.lease().acquire("b", patience=1.0, steal=ended.append)
        assert len(ended) == 1
        assert one.holder() is not None


class StoreConformance(
    LogConformance,
    DocumentConformance,
    ViewConformance,
    LeaseConformance,
    MailboxConformance,
    LookConformance,
    MachineConformance,
    BackendConformance,
    SheetConformance,
    KeyConformance,
):
    """Everything that a backend has to do."""
