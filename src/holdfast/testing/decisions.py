"""What a log promises to whoever decides by its newest line what comes next."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.codec import Record
from holdfast.errors import BadValue
from holdfast.store.primitives import START, Cursor, Log
from holdfast.testing import (
    Conformance,
    numbers_of,
    passing_on,
    raising,
    refused,
    together,
)


class DecisionConformance(Conformance):
    def test_transact_decides_by_the_newest_line(self) -> None:
        log, other = self.log(), self.log()
        seen: list[Cursor] = []

        def decide(head: Cursor) -> list[Record]:
            seen.append(head)
            return [{"n": head.seq + 1}] * 2

        first = log.transact(decide)
        between = other.append({"n": 3})
        second = log.transact(decide)
        assert seen == [START, between]
        assert [cursor.seq for cursor in first + second] == [1, 2, 4, 5]
        assert log.transact(lambda head: []) == []
        assert numbers_of(log) == [1, 1, 3, 4, 4]

    def test_an_error_in_a_decision_reaches_its_caller_and_nothing_is_written(self) -> None:
        log = self.log()

        for error in (ZeroDivisionError, FileNotFoundError, ZeroDivisionError):
            with passing_on(error):
                log.transact(raising(error))
        assert list(log.read()) == []
        assert log.append({"n": 0}).seq == 1

    def test_a_decision_that_writes_to_its_own_log_is_refused_instead_of_waiting(self) -> None:
        log = self.log()
        writes: list[Callable[[], object]] = [
            lambda: log.append({"n": 9}),
            lambda: log.append_all([{"n": 9}, {"n": 9}]),
            lambda: log.transact(lambda head: [{"n": 9}]),
        ]
        for n, write in enumerate(writes):

            def decide(head: Cursor, write: Callable[[], object] = write) -> list[Record]:
                write()
                return [{"n": 9}]

            with refused(BadValue):
                log.transact(decide)
            assert log.append({"n": n}).seq == n + 1
        assert numbers_of(log) == [0, 1, 2]

    def test_nobody_writes_between_a_decision_and_its_lines(self) -> None:
        logs = [self.log() for _ in range(4)]
        self.clock.waits = True

        def work(log: Log) -> None:
            for _ in range(8):
                log.transact(lambda head: [{"n": head.seq}, {"n": head.seq + 1}])

        together(*(lambda log=log: work(log) for log in logs))
        assert numbers_of(logs[0]) == list(range(64))
