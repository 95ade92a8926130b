"""What packing the old parts of a log must not change: anything."""

from __future__ import annotations

from holdfast.errors import BadValue
from holdfast.store.primitives import START
from holdfast.testing import DAY, DAYS, LOG, Conformance, numbers_of, refused


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
