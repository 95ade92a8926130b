"""What holds when machines share a store; a part of `holdfast.testing.conformance`."""

from __future__ import annotations

from holdfast.errors import Busy
from holdfast.process import this_process
from holdfast.store.primitives import CLOCKS_DIFFER
from holdfast.testing import LEASE, LOG, Conformance, numbers_of, refused


class MachineConformance(Conformance):
    """What a store knows of time and of processes, here and on another machine."""

    def test_a_process_is_known_to_live_or_to_be_gone_only_where_it_can_be_seen(self) -> None:
        here, far, me = self.open(), self.elsewhere(), this_process()
        assert here.alive(me) is True
        assert here.alive(me._replace(started=me.started + 1)) is False
        assert here.alive(me._replace(boot="before")) is False
        for stranger in (me._replace(host="other/1", boot="b"), me._replace(host="other/1")):
            assert here.alive(stranger) is far.alive(stranger) is None
        assert far.alive(me) is far.alive(me._replace(started=me.started + 1)) is None

    def test_deadlines_are_measured_by_the_clock_of_the_store(self) -> None:
        here, far = self.open(), self.elsewhere()
        deadline = here.now().later(60.0)
        self.clock.step(3_600)
        assert here.now().left(deadline) == 60.0
        assert 60.0 <= far.now().left(deadline) + 30.0 <= 60.0 + 2 * CLOCKS_DIFFER
        self.clock.advance(61)
        self.far_clock.advance(61 + 2 * CLOCKS_DIFFER)
        assert here.now().left(deadline) < 0
        assert far.now().left(deadline) < 0

    def test_another_machine_is_told_who_has_a_lease(self) -> None:
        here, far = self.lease(), self._keep(self.elsewhere().lease(LEASE))
        fence = here.acquire("index")
        held = far.holder()
        assert held is not None
        assert (held.alive, held.fence, held.owner) == (True, fence, this_process())
        with refused(Busy, "index"):
            far.acquire("x")
        self.clock.reboot()
        self.far_clock.reboot()
        with refused(Busy, "index"):
            far.acquire("x")
        here.release()
        assert far.acquire("x") == fence + 1

    def test_lines_of_two_machines_have_one_order(self) -> None:
        here, far = self.log(), self._keep(self.elsewhere().log(LOG))
        acked = [here.append({"n": 0}), far.append({"n": 1}), here.append({"n": 2})]
        assert [cursor.seq for cursor in acked] == [1, 2, 3]
        assert numbers_of(far) == numbers_of(here) == [0, 1, 2]
        assert far.verify().problems == []
