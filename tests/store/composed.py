"""What is made of the primitives has to hold on every backend too: tests to inherit.

A backend passes them when it passes `holdfast.testing.conformance`.
"""

from __future__ import annotations

from typing import Any

from holdfast.codec import Record, encode
from holdfast.errors import BadValue, Busy, LeaseLost
from holdfast.process import Owner, this_process
from holdfast.state.statelog import StateLog
from holdfast.store.backend import Backend
from holdfast.store.fence import LEASES, DetachedLease, Fences, fenced
from holdfast.store.primitives import CLOCKS_DIFFER, START, Cursor, Decision, Line, Stamp
from holdfast.store.projection import Projection, Tell
from holdfast.store.view import Shape, View
from holdfast.testing import (
    DAYS,
    LOG,
    Conformance,
    lines_of,
    numbers_of,
    refused,
    stamp_of,
    together,
)

OWNERS = "state/rio/leases.json"
PROJECTED = "state/rio/projected.json"


class DetachedLeaseConformance(Conformance):
    def detached(self, name: str = "session") -> DetachedLease[Fences]:
        return self._leased(self.open(), name)

    def far(self, name: str = "session") -> DetachedLease[Fences]:
        """The same lease, seen from another machine."""
        return self._leased(self.elsewhere(), name)

    def _leased(self, store: Backend, name: str) -> DetachedLease[Fences]:
        state = self._keep(StateLog(store, LOG, LEASES, {OWNERS: LEASES.render}))
        return DetachedLease(state, store, name, fences=lambda fences: fences)

    def test_a_lease_is_had_by_one_until_its_deadline(self) -> None:
        one, two = self.detached(), self.detached()
        assert (one.holder(), one.is_live()) == (None, False)
        assert one.take("research", seconds=60) == 1
        assert two.is_live()
        with refused(Busy, "research"):
            two.take("extract", seconds=60)
        self.clock.sleep(59.5)
        with refused(Busy):
            two.take("extract", seconds=60)
        self.clock.sleep(0.5)
        assert not two.is_live()
        assert two.take("extract", seconds=60) == 2
        held = one.holder()
        assert held is not None
        assert (held.fence, held.purpose) == (2, "extract")

    def test_lines_of_a_lost_lease_are_refused(self) -> None:
        one, two = self.detached(), self.detached()
        first = one.take("a", seconds=1)
        one.append(first, {"n": 1})
        self.clock.sleep(10)
        one.append(first, {"n": 2})  # over, but nobody has come
        second = two.take("b", seconds=60)
        for lost in (
            lambda: one.append(first, {"n": 3}),
            lambda: one.renew(first, 60),
            lambda: one.release(first),
            lambda: two.append(first, {"n": 3}),
        ):
            with refused(LeaseLost, "number 2 has it: b"):
                lost()
        two.append(second, {"n": 4})
        lines = [(line.record.get("fence"), line.record.get("n")) for line in lines_of(self.log())]
        assert lines == [(1, None), (1, 1), (1, 2), (2, None), (2, 4)]

    def test_a_renewed_lease_lasts_longer_and_a_released_one_is_free(self) -> None:
        one, two = self.detached(), self.detached()
        fence = one.take("a", seconds=10)
        self.clock.sleep(9)
        one.renew(fence, 10)
        self.clock.sleep(9)
        for other in (one, two):
            with refused(Busy):
                other.take("b", seconds=10)
        one.release(fence)
        assert not two.is_live()
        with refused(LeaseLost, "nobody has it"):
            one.append(fence, {"n": 1})
        assert two.take("b", seconds=10) == 2

    def test_a_dead_owner_has_nothing(self) -> None:
        one, two = self.detached(), self.detached()
        me = this_process()
        one.take("a", seconds=60, owner=me._replace(started=me.started + 1))
        assert not two.is_live()
        assert two.take("b", seconds=60, owner=me) == 2
        with refused(Busy, f"process {me.pid}"):
            one.take("c", seconds=60)

    def test_a_lease_of_another_boot_is_over(self) -> None:
        one = self.detached()
        one.take("a", seconds=1e9)
        self.clock.reboot()
        assert not one.is_live()
        assert self.detached().take("b", seconds=60) == 2

    def test_another_machine_leaves_a_lease_to_its_owner(self) -> None:
        here, far = self.detached(), self.far()
        fence = here.take("a", seconds=600, owner=this_process())
        assert far.is_live()
        with refused(Busy):
            far.take("b", seconds=60)
        here.append(fence, {"n": 1})
        for clock in (self.clock, self.far_clock):
            clock.advance(599)
        here.renew(fence, 600)
        for clock in (self.clock, self.far_clock):
            clock.advance(599)
        assert far.is_live() and here.is_live()
        here.release(fence)
        assert far.take("b", seconds=60) == fence + 1

    def test_a_restart_ends_the_leases_of_that_machine_only(self) -> None:
        here, far = self.detached("a"), self.far("b")
        ours, theirs = here.take("x", seconds=600), far.take("y", seconds=600)
        self.clock.reboot()
        assert not self.detached("a").is_live()
        assert self.detached("b").is_live()
        far.append(theirs, {"n": 1})
        self.far_clock.reboot()
        assert not self.far("b").is_live()
        assert self.detached("b").is_live(), "a machine alone knows that it was restarted"
        here.append(ours, {"n": 2})  # over, but nobody has come

    def test_a_machine_that_never_comes_back_has_nothing_after_the_deadline(self) -> None:
        here, far = self.detached(), self.far()
        fence = here.take("a", seconds=600, owner=this_process())
        self.far_clock.advance(600 + 2 * CLOCKS_DIFFER)
        assert far.left() == 0.0
        assert far.take("b", seconds=600) == fence + 1
        assert self.detached().is_live()
        for lost in (lambda: here.append(fence, {"n": 1}), lambda: here.renew(fence, 60)):
            with refused(LeaseLost, "number 2 has it: b"):
                lost()
        with refused(Busy):
            self.detached().take("c", seconds=60)

    def test_leases_of_different_names_do_not_meet(self) -> None:
        research, extract = self.detached("research"), self.detached("extract")
        first, second = research.take("a", seconds=60), extract.take("b", seconds=60)
        assert (first, second) == (1, 2)
        research.append(first, {"n": 1})
        extract.append(second, {"n": 2})
        with refused(LeaseLost):
            research.append(second, {"n": 3})
        extract.release(second)
        research.append(first, {"n": 4})
        assert [n for n in numbers_of(self.log()) if n] == [1, 2, 4]

    def test_only_one_of_many_gets_it_and_no_line_of_a_loser_is_there(self) -> None:
        got: list[int] = []
        self.clock.waits = True

        def contend() -> None:
            mine = self.detached()
            try:
                fence = mine.take("all", seconds=60)
            except Busy:
                return
            got.append(fence)
            mine.append(fence, {"n": fence})

        together(*[contend] * 8)
        assert got == [1]
        assert numbers_of(self.log()) == [None, 1]

    def test_a_view_ignores_lines_whose_writer_had_lost_its_lease(self) -> None:
        log, cell = self.log(), self.cell("state/rio/sum.json")

        def fold(state: int, line: Line) -> int:
            return state + line.record.get("n", 0)

        shape = fenced(Shape(version=1, initial=lambda: 0, fold=fold, render=encode))
        one = self.detached()
        fence = one.take("a", seconds=60)
        one.append(fence, {"n": 1})
        log.append({"n": 10})
        one.release(fence)
        # Nothing of ours writes such lines: they come from a merge, or from another hand.
        log.append({"n": 100, "fence": fence})
        log.append({"lease": "session", "fence": fence, "deadline": 1e9})
        log.append({"n": 1_000, "fence": "7"})
        again = self.detached().take("b", seconds=60)
        log.append({"n": 10_000, "fence": again})
        view: View[list[Any]] = self._keep(View(log, shape, self.clock, [(cell, shape.render)]))
        assert view.read()[1] == 10_011
        view.refresh()
        assert self._keep(View(log, shape, self.clock, [(cell, shape.render)])).read()[1] == 10_011

    def test_what_makes_no_sense_is_refused(self) -> None:
        one = self.detached()
        with refused(BadValue):
            self.detached("")
        for seconds in (0, -1, float("nan")):
            with refused(BadValue):
                one.take("a", seconds=seconds)
        fence = one.take("a", seconds=60)
        for record in ({"fence": 1}, {"lease": "x"}):
            with refused(BadValue):
                one.append(fence, record)
            with refused(BadValue):
                one.append(fence, {"n": 1}, record)
            with refused(BadValue):
                one.release(fence, record)
            with refused(BadValue):
                self.detached("other").take("b", seconds=60, first=lambda bad=record: [bad])
        assert one.is_live()

    def test_first_and_last_lines_are_written_with_the_lease(self) -> None:
        one, two = self.detached(), self.detached()
        fence = one.take("a", seconds=60, first=lambda: [{"n": 1}, {"n": 2}])
        assert self.log().contains(one.acked)
        one.append(fence, {"n": 3}, {"n": 4})
        assert one.acked == self.log().head()
        with refused(Busy):
            two.take("b", seconds=60, first=lambda: [{"n": 5}])
        one.release(fence, {"n": 6})
        assert one.acked == self.log().head()
        with refused(LeaseLost):
            one.append(fence, {"n": 7})
        two.take("c", seconds=60, first=lambda: [{"n": 8}])
        numbers = [
            (line.record["n"], line.record["fence"])
            for line in lines_of(self.log())
            if "n" in line.record
        ]
        assert numbers == [(1, 1), (2, 1), (3, 1), (4, 1), (6, 1), (8, 2)]

    def test_a_lease_line_of_a_strange_form_gives_nobody_the_lease(self) -> None:
        self.log().append({"lease": "session", "fence": 4, "owner": "me"})
        one = self.detached()
        assert one.holder() is None
        assert one.take("a", seconds=60) == 5

    def test_a_lease_of_before_machines_shared_a_store_belongs_to_this_one(self) -> None:
        seconds, boot = self.clock.boottime() + 60.0, self.clock.boot()
        old = {"lease": "session", "fence": 1, "purpose": "a", "since": "s", "owner": None}
        self.log().append({**old, "boot": boot, "deadline": seconds})
        assert self.detached().left() == 60.0
        strange = {"host": "other", "boot": "other", "deadline": seconds, "until": "soon"}
        self.log().append({"lease": "session", "fence": 1, **strange})
        assert not self.detached().is_live()
        assert self.detached().take("b", seconds=60) == 2

    def test_the_file_shows_who_has_what(self) -> None:
        store = self.open()
        with StateLog(store, LOG, LEASES, {OWNERS: LEASES.render}) as log:
            one = DetachedLease(log, store, "session", fences=lambda fences: fences)
            one.take("research", seconds=60, owner=Owner("host", "boot", 1, 2))
        assert "state/rio/leases.json" in self.open().keys()
        assert LOG in self.open().keys()


class ProjectionConformance(Conformance):
    def projection(self, tell: Tell = lambda line: {"n": line.record["n"]}) -> Projection:
        source, target = self.log(), self.log(DAYS)
        return self._keep(Projection(source, target, self.cell(PROJECTED), tell))

    def told(self) -> list[tuple[Any, Any]]:
        return [(line.record.get("n"), line.record.get("ref")) for line in lines_of(self.log(DAYS))]

    def test_every_line_is_told_once_with_its_origin(self) -> None:
        log, one = self.log(), self.projection()
        assert one.catch_up() == 0
        log.append_all([{"n": 1}, {"n": 2}])
        assert one.catch_up() == 2
        assert one.catch_up() == 0
        log.append({"n": 3})
        assert self.projection().catch_up() == 1
        assert one.catch_up() == 0
        assert self.told() == [(n, f"{LOG}#{n}") for n in (1, 2, 3)]

    def test_only_what_is_known_to_be_durable_is_told_without_a_sync(self) -> None:
        log, one = self.log(), self.projection()
        first, _ = log.append_all([{"n": 1}, {"n": 2}])
        assert one.catch_up(first) == 1
        assert one.catch_up(first) == 0
        assert one.catch_up() == 1
        assert [n for n, _ in self.told()] == [1, 2]

    def test_a_line_and_its_projection_can_be_made_under_one_lock(self) -> None:
        log, target, one = self.log(), self.log(DAYS), self.projection()
        log.append_all([{"n": 1}, {"n": 2}])
        one.catch_up(log.head()._replace(seq=1))

        def decide(head: Cursor) -> Decision[None]:
            return one.untold(log.append({"n": 3})), None

        assert len(target.write(decide).lines) == 2
        assert one.catch_up() == 0
        assert self.projection().catch_up() == 0
        log.append({"n": 4})
        assert target.write(lambda head: (one.untold(log.settle()), None)).lines
        assert self.projection().catch_up() == 0
        assert target.write(lambda head: (one.untold(log.settle()), None)).lines == []
        log.append({"n": 5})
        self.projection().catch_up()
        assert target.write(lambda head: (one.untold(log.settle()), None)).lines == []
        assert self.told() == [(n, f"{LOG}#{n}") for n in (1, 2, 3, 4, 5)]

    def test_what_a_dead_process_left_undone_is_caught_up_at_the_next_opening(self) -> None:
        log = self.log()
        log.append_all([{"n": n} for n in range(1, 1_201)])
        # It died after its first lines and before it could remember.
        self.log(DAYS).append_all([{"n": n, "ref": f"{LOG}#{n}"} for n in range(1, 301)])
        assert self.projection().catch_up() == 900
        assert self.told() == [(n, f"{LOG}#{n}") for n in range(1, 1_201)]

    def test_what_it_remembers_may_be_lost_or_wrong(self) -> None:
        log = self.log()
        log.append_all([{"n": 1}, {"n": 2}])
        assert self.projection().catch_up() == 2
        nowhere = Cursor(9, "f" * 64, LOG, 999)
        for cursor, searched in ((nowhere, START), (log.head(), nowhere)):
            state = {"searched": list(searched), "told": 7}
            stamp = Stamp(LOG, cursor, state)
            self.cell(PROJECTED).save(1, stamp, b"{}", over=self.stamped())
            log.append({"n": log.head().seq + 1})
            assert self.projection().catch_up() == 1
        other = Stamp("state/other.jsonl", log.head(), {"searched": list(START), "told": 99})
        self.cell(PROJECTED).save(1, other, b"{}", over=self.stamped())
        assert self.projection().catch_up() == 0
        assert [n for n, _ in self.told()] == [1, 2, 3, 4]

    def stamped(self) -> Cursor:
        return stamp_of(self.cell(PROJECTED)).cursor

    def test_lines_that_say_nothing_and_lines_of_others_are_left_out(self) -> None:
        log, other = self.log(), self.log("state/other.jsonl")
        log.append_all([{"n": 1}, {"n": 2}, {"n": 3}])
        other.append({"n": 9})
        self.log(DAYS).append({"n": 0, "ref": "state/other.jsonl#77"})
        self.log(DAYS).append({"n": 0, "ref": f"{LOG}#x"})

        def odd(line: Line) -> Record | None:
            return {"n": line.record["n"]} if line.record["n"] % 2 else None

        one = self.projection(odd)
        assert one.catch_up() == 2
        log.append({"n": 4})
        assert one.catch_up() == 0
        assert self.told()[2:] == [(1, f"{LOG}#1"), (3, f"{LOG}#3")]
        log.tell_of_cut(Cursor(99, "0" * 64, LOG, 1))
        assert one.catch_up() == 0

    def test_the_origin_is_not_the_callers_to_say(self) -> None:
        self.log().append({"n": 1})
        with refused(BadValue):
            self.projection(lambda line: {"ref": "mine"}).catch_up()
        assert self.told() == []

    def test_many_who_catch_up_at_once_tell_it_once(self) -> None:
        self.clock.waits = True
        log = self.log()
        log.append_all([{"n": n} for n in range(1, 41)])
        each = [self.projection() for _ in range(6)]
        together(*[one.catch_up for one in each])
        assert self.told() == [(n, f"{LOG}#{n}") for n in range(1, 41)]


class ComposedConformance(DetachedLeaseConformance, ProjectionConformance):
    """Everything that is made of the primitives."""
