"""The store in memory, where it is more than the conformance suite shows."""

from __future__ import annotations

from holdfast.clock import SystemClock
from holdfast.errors import Busy
from holdfast.store.memory import Memory
from holdfast.testing import Turner, lines_of, refused


def test_a_store_needs_neither_clock_nor_masker() -> None:
    memory = Memory()
    log = memory.log("a.jsonl")
    log.append({"password": "kept as it is"})
    assert lines_of(log)[0].record["password"] == "kept as it is"
    assert isinstance(memory.clock, SystemClock)


def test_two_stores_share_nothing() -> None:
    one, two = Memory(), Memory()
    one.log("a.jsonl").append({"n": 1})
    one.document("a.md").replace(b"x")
    assert list(two.log("a.jsonl").read()) == []
    assert two.document("a.md").read() is None
    assert two.keys() == []


def test_a_lease_that_is_being_taken_has_no_holder_to_show(clock: Turner) -> None:
    memory = Memory(clock)
    lease = memory.lease("a")
    lease.acquire("x")
    lease.slot.held = None  # as it is between the lock and the name
    with refused(Busy):
        memory.lease("a").acquire("y")
