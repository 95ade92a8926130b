"""What a log promises to who decides by its newest line, and to who packs its old parts."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.codec import Record
from holdfast.errors import BadValue
from holdfast.store.primitives import START, Cursor, Decision, Line, Log, Question
from holdfast.testing import (
    DAY,
    DAYS,
    LOG,
    Conformance,
    lines_of,
    numbers_of,
    passing_on,
    raising,
    refused,
    together,
)


def _is_even(line: Line) -> bool:
    return line.record["n"] % 2 == 0


def _as_text(line: Line) -> Record:
    return {"n": str(line.record["n"])}


class DecisionConformance(Conformance):
    def test_a_decision_sees_the_newest_line(self) -> None:
        log, other = self.log(), self.log()

        def decide(head: Cursor) -> Decision[Cursor]:
            return [{"n": head.seq + 1}] * 2, head

        first = log.write(decide)
        between = other.append({"n": 3})
        second = log.write(decide)
        assert [first.value, second.value] == [START, between]
        assert [line.seq for line in first.lines + second.lines] == [1, 2, 4, 5]
        assert log.write(lambda head: ([], "none")) == ([], "none", False)
        assert numbers_of(log) == [1, 1, 3, 4, 4]

    def test_what_was_written_is_what_is_read(self) -> None:
        for key in (LOG, DAYS):
            log = self.log(key)
            log.append({"n": 0})
            for value in ("plain", {"apiKey": "hunter2-hunter2"}):
                records: list[Record] = [{"n": number, "value": value} for number in range(3)]
                written = log.write(lambda head: (records, None))  # noqa: B023 - called at once
                assert written.lines == lines_of(log)[-3:]
                assert written.masked == (value != "plain")
                assert log.head() == written.lines[-1].cursor

    def test_the_newest_lines_with_certain_values_are_found(self) -> None:
        for key in (LOG, DAYS):
            log, other = self.log(key), self.log(key)
            kinds = ["a", "b", "c"]
            for n in range(12):
                log.append({"kind": kinds[n % 3], "n": n, "deep": {"kind": "a"}})
                self.clock.advance(DAY / 3)
            found = other.find(Question({"kind": "b"}, 2))
            assert [line.record["n"] for line in found.lines] == [7, 10]
            assert found.lines == [line for line in lines_of(log) if line in found.lines]
            assert other.find(Question({"kind": "b"}, 0)).lines == []
            assert len(other.find(Question({"kind": "b"})).lines) == 4
            assert other.find(Question({"kind": "d"})) == ([], [])
            assert len(other.find(Question({}, wanted=_is_even)).lines) == 6
            read = Question({"n": "3"}, reads=_as_text)
            assert [line.record["n"] for line in other.find(read).lines] == [3]
        since = Question({}, since=lines_of(self.log(DAYS))[-1].segment.removesuffix(".jsonl"))
        assert [line.record["n"] for line in self.log(DAYS).find(since).lines][-1] == 11
        assert len(self.log(DAYS).find(since).lines) < 12

    def test_only_the_last_run_of_a_decision_counts(self) -> None:
        log, runs = self.log(), list[int]()

        def decide(head: Cursor) -> Decision[int]:
            runs.append(head.seq)
            return [{"n": len(runs)}], len(runs)

        def again(head: Cursor) -> Decision[int]:
            decide(head)
            return decide(head)

        written = log.write(again)
        assert (written.value, numbers_of(log), log.head().seq) == (2, [2], 1)

    def test_an_error_in_a_decision_reaches_its_caller_and_nothing_is_written(self) -> None:
        log = self.log()

        for error in (ZeroDivisionError, FileNotFoundError, ZeroDivisionError):
            with passing_on(error):
                log.write(raising(error))
        assert list(log.read()) == []
        assert log.append({"n": 0}).seq == 1

    def test_a_decision_that_writes_to_its_own_log_is_refused_instead_of_waiting(self) -> None:
        log = self.log()
        writes: list[Callable[[], object]] = [
            lambda: log.append({"n": 9}),
            lambda: log.append_all([{"n": 9}, {"n": 9}]),
            lambda: log.write(lambda head: ([{"n": 9}], None)),
        ]
        for n, write in enumerate(writes):

            def decide(head: Cursor, write: Callable[[], object] = write) -> Decision[None]:
                write()
                return [{"n": 9}], None

            with refused(BadValue):
                log.write(decide)
            assert log.append({"n": n}).seq == n + 1
        assert numbers_of(log) == [0, 1, 2]

    def test_nobody_writes_between_a_decision_and_its_lines(self) -> None:
        logs = [self.log() for _ in range(4)]
        self.clock.waits = True

        def work(log: Log) -> None:
            for _ in range(8):
                log.write(lambda head: ([{"n": head.seq}, {"n": head.seq + 1}], None))

        together(*(lambda log=log: work(log) for log in logs))
        assert numbers_of(logs[0]) == list(range(64))


class ArchiveConformance(Conformance):
    def test_a_log_that_is_archived_is_the_same_log(self) -> None:
        for log in (self.log(), self.log(DAYS)):
            cursors = [START]
            for n in range(6):
                cursors.append(log.append({"n": n}))
                self.clock.advance(DAY / 2)
            segments, lines, proof = log.segments(), list(log.read()), log.verify()
            log.archive(dry_run=True)
            for done in log.archive():
                assert done.segment in segments[:-1]
                assert done.left == ""
            assert (log.segments(), list(log.read()), log.verify()) == (segments, lines, proof)
            assert log.head() == log.settle() == cursors[-1]
            for seen, cursor in enumerate(cursors):
                assert log.contains(cursor)
                assert numbers_of(log, cursor) == list(range(seen, 6))
            assert log.archive() == []
            assert log.append({"n": 6}).seq == 7
            assert log.verify().problems == []

    def test_only_days_before_the_given_one_are_archived(self) -> None:
        log = self.log(DAYS)
        for n in range(4):
            log.append({"n": n})
            self.clock.advance(DAY)
        names = {done.segment for done in log.archive(before="2023-11-16")}
        assert names <= {"2023-11-14.jsonl", "2023-11-15.jsonl"}
        assert numbers_of(log) == [0, 1, 2, 3]
        with refused(BadValue):
            self.log(LOG).archive(before="2023-11-16")

    def test_a_log_that_nobody_wrote_has_nothing_to_archive(self) -> None:
        assert self.log().archive() == self.log(DAYS).archive() == []
