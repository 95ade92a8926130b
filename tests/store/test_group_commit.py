"""Threads share one write and one fdatasync, and nothing else."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from holdfast.errors import BadValue, StorageError
from holdfast.store.commit import Body, GroupCommit, Ticket, _pass_on
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import Cursor, Decision
from holdfast.testing import Turner, lines_of, numbers_of, together
from tests.store.batches import Leader, as_one_batch, waiting
from tests.store.children import SECONDS, in_fork, wait_until
from tests.store.faults import FaultyVfs, first

KEY = "state/a.jsonl"


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def log(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[FileLog]:
    clock.waits = True
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as home:
        made = home.log(KEY)
        made.append({"n": "first"})
        vfs.forget()
        yield made
        made.close()


def test_one_sync_serves_all_who_waited(log: FileLog, vfs: FaultyVfs) -> None:
    acked = as_one_batch(log, *(lambda n=n: log.append({"n": n}) for n in range(63)))
    assert sorted(cursor.seq for cursor in acked) == list(range(3, 66))
    assert all(map(log.contains, acked))
    assert vfs.count("sync") == vfs.count("write") == 2, "one for the leader, one for the rest"
    assert sorted(numbers_of(log)[2:]) == list(range(63))


def test_threads_that_come_as_they_like_get_a_line_each(log: FileLog, vfs: FaultyVfs) -> None:
    acked: dict[int, list[Cursor]] = {}
    slow = threading.Event()
    vfs.fault("sync", first(lambda: slow.wait(0.002)), times=None)

    def work(thread: int) -> None:
        mine = acked.setdefault(thread, [])
        for number in range(5):
            mine.append(log.append({"n": [thread, number]}))

    together(*(lambda thread=thread: work(thread) for thread in range(64)))
    seqs = [cursor.seq for cursors in acked.values() for cursor in cursors]
    assert sorted(seqs) == list(range(2, 322))
    for thread, cursors in acked.items():
        assert [cursor.seq for cursor in cursors] == sorted(cursor.seq for cursor in cursors)
        mine = [line for line in lines_of(log)[1:] if line.record["n"][0] == thread]
        assert [line.seq for line in mine] == [cursor.seq for cursor in cursors]
    assert vfs.count("sync") < 160, "most of the threads shared a sync"
    assert log.verify().problems == []


def test_who_is_served_does_not_wait_for_the_next_ones_sync(log: FileLog, vfs: FaultyVfs) -> None:
    """The next to lead is woken in the midst of those who were served."""
    late = threading.Thread(target=lambda: log.append({"n": "late"}), daemon=True)
    slow = threading.Event()

    def come_late() -> None:
        late.start()
        wait_until(lambda: waiting(log) == 1)

    def stall() -> None:
        assert slow.wait(SECONDS)

    stalled = vfs.fault("sync", first(stall), after=1)
    vfs.fault("sync", first(come_late), after=1)
    try:
        acked = as_one_batch(log, *(lambda n=n: log.append({"n": n}) for n in range(5)))
        assert sorted(cursor.seq for cursor in acked) == list(range(3, 8))
        wait_until(lambda: stalled.fired == 1)
        assert late.is_alive(), "whose sync is still under way"
    finally:
        slow.set()
        late.join(SECONDS)
    assert numbers_of(log)[-1] == "late"


def test_an_acknowledgement_comes_after_the_sync_that_covers_it(
    log: FileLog, vfs: FaultyVfs
) -> None:
    synced, acked = threading.Event(), threading.Event()
    vfs.fault("sync", first(lambda: synced.wait(SECONDS)))
    thread = threading.Thread(target=lambda: log.append({"n": 1}) and acked.set(), daemon=True)
    thread.start()
    wait_until(lambda: vfs.count("unlock") == 1)
    assert numbers_of(log)[-1] == 1, "visible, and not yet durable"
    assert not acked.is_set()
    synced.set()
    thread.join(SECONDS)
    assert acked.is_set()


def test_an_error_in_a_decision_is_its_callers_alone(log: FileLog) -> None:
    def broken(head: Cursor) -> Decision[None]:
        raise ValueError(head.seq)

    def odd(head: Cursor) -> Decision[None]:
        return [{"n": 1}, {"seq": head.seq}], None

    one, two, three, four, five = as_one_batch(
        log,
        lambda: log.append({"n": 1}),
        lambda: log.write(broken),
        lambda: log.write(lambda head: ([{"n": head.seq}], None)),
        lambda: log.write(odd),
        lambda: log.append({"n": 5}),
    )
    assert one.seq == 3
    assert isinstance(two, ValueError)
    assert [line.seq for line in three.lines] == [4]
    assert isinstance(four, BadValue)
    assert five.seq == 5
    assert numbers_of(log) == ["first", "leader", 1, 3, 5]


def test_a_decision_sees_the_lines_of_those_before_it_in_the_batch(log: FileLog) -> None:
    heads: list[int] = []
    as_one_batch(
        log,
        lambda: log.append_all([{"n": 1}, {"n": 2}]),
        lambda: log.write(lambda head: (heads.append(head.seq) or [{"n": 3}], None)),
        lambda: log.write(lambda head: (heads.append(head.seq) or [], None)),
    )
    assert heads == [4, 5]


@contextmanager
def interrupted(act: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """A function that interrupts the main thread, after `act` was done there."""

    def handler(*_: object) -> None:
        act()
        raise KeyboardInterrupt

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupted_waiter_does_not_stop_the_others(log: FileLog) -> None:
    """Ctrl-C reaches the main thread, here, while another one writes."""
    with interrupted(int) as interrupt, Leader(log):

        def poke() -> None:
            wait_until(lambda: waiting(log) == 1)
            interrupt()

        poker = threading.Thread(target=poke, daemon=True)
        poker.start()
        with pytest.raises(KeyboardInterrupt):
            log.append({"n": "interrupted"})
        poker.join(SECONDS)
        assert waiting(log) == 0
    together(lambda: log.append({"n": 1}), lambda: log.append({"n": 2}), seconds=20)
    assert set(numbers_of(log)[-2:]) == {1, 2}
    assert "interrupted" not in numbers_of(log)
    assert log.verify().problems == []


def test_an_interrupted_waiter_who_was_to_lead_next_passes_it_on(log: FileLog) -> None:
    done: list[Cursor] = []
    second = threading.Thread(target=lambda: done.append(log.append({"n": 2})), daemon=True)
    with Leader(log) as leader, interrupted(leader.finish) as interrupt:

        def poke() -> None:
            wait_until(lambda: waiting(log) == 1)
            second.start()
            wait_until(lambda: waiting(log) == 2)
            interrupt()

        poker = threading.Thread(target=poke, daemon=True)
        poker.start()
        with pytest.raises(KeyboardInterrupt):
            log.append({"n": 1})
        poker.join(SECONDS)
        second.join(20)
    assert len(done) == 1, "the one behind it hangs"
    together(lambda: log.append({"n": 3}), seconds=20)
    assert numbers_of(log) == ["first", "leader", 2, 3]
    assert log.verify().problems == []


def test_who_comes_second_does_not_lead_although_nobody_seemed_to() -> None:
    commit = GroupCommit(lambda _: None)

    class Slower:
        """A mutex in front of which another thread was faster."""

        def __enter__(self) -> None:
            commit.leader = "another"

        def __exit__(self, *_: object) -> None: ...

    written: list[Body] = []
    commit._mutex = Slower()  # type: ignore[assignment]
    assert commit.lead_alone(written.append, (b"{}", False)) is None
    assert written == []


@pytest.mark.parametrize("end", [None, KeyboardInterrupt, StorageError("no", hint="")])
def test_who_led_alone_hands_over_however_it_ends(end: Any) -> None:
    served: list[list[Ticket]] = []
    commit = GroupCommit(served.append)
    ticket = Ticket([(b"{}", False)])
    waiter = threading.Thread(target=lambda: commit.submit(ticket), daemon=True)

    def write(_: Body) -> None:
        waiter.start()
        wait_until(lambda: len(commit._queue) == 1)
        if end is not None:
            raise end

    with (
        nullcontext()
        if end is None
        else pytest.raises(type(end) if isinstance(end, Exception) else end)
    ):
        commit.lead_alone(write, (b"{}", False))
    waiter.join(SECONDS)
    assert not waiter.is_alive(), "it waits for ever"
    assert served == [[ticket]]
    assert commit.lead_alone(lambda _: Cursor(1, "", "", 0), (b"{}", False)) is not None


def test_a_forked_child_writes_through_the_handle_of_its_parent(log: FileLog) -> None:
    log.append({"n": "parent"})
    in_fork(lambda: [log.append({"n": number}) for number in range(3)])
    log.append({"n": "again"})
    assert numbers_of(log) == ["first", "parent", 0, 1, 2, "again"]
    assert log.verify().problems == []


def test_a_handle_that_finds_itself_in_another_process_opens_its_own_files(
    log: FileLog, vfs: FaultyVfs
) -> None:
    """As a forked child does, but where its lines are counted."""
    log._pid += 1
    vfs.forget()
    assert log.append({"n": 1}).seq == 2
    assert vfs.count("dir.open", ".a.jsonl.lock") == 1
    vfs.forget()
    assert log.append({"n": 2}).seq == 3
    assert vfs.count("dir.open") == 0


def test_a_child_forked_in_the_middle_of_a_write_is_not_stuck(log: FileLog) -> None:
    with Leader(log) as leader:

        def act() -> None:
            leader.let_go()  # in the child's memory only
            log.append({"n": "child"})

        in_fork(act)
        assert numbers_of(log)[-1] == "child"
    log.append({"n": "parent"})
    assert numbers_of(log) == ["first", "leader", "child", "parent"]
    assert log.verify().problems == []


def test_a_child_forked_while_the_lock_is_held_waits_for_it(log: FileLog) -> None:
    inside, go = threading.Event(), threading.Event()

    def decide(_: Cursor) -> Decision[None]:
        inside.set()
        assert go.wait(SECONDS)
        return [{"n": "parent"}], None

    parent = threading.Thread(target=lambda: log.write(decide), daemon=True)
    parent.start()
    assert inside.wait(SECONDS)

    def late() -> None:
        time.sleep(0.3)
        go.set()

    threading.Thread(target=late, daemon=True).start()
    in_fork(lambda: log.append({"n": "child"}))
    parent.join(SECONDS)
    assert numbers_of(log) == ["first", "parent", "child"]
    assert log.verify().problems == []


def test_parent_and_child_write_at_the_same_time(path: str) -> None:
    with Home.open(path, create=True, timezone="UTC") as home:
        log = home.log(KEY)
        log.append({"n": "first"})
        together(
            lambda: in_fork(lambda: [log.append({"n": number}) for number in range(50)]),
            lambda: [log.append({"n": number}) for number in range(50, 100)],
        )
        assert sorted(numbers_of(log)[1:]) == list(range(100))
        assert log.verify().problems == []
        log.close()


def test_who_is_woken_twice_is_woken(log: FileLog) -> None:
    """After Ctrl-C what was done may be done again."""
    one, two = Ticket([]), Ticket([])
    two.gate = threading.Lock()
    two.gate.acquire()
    for _ in range(2):
        one.next = two
        _pass_on(one)
        assert (one.next, two.gate.locked()) == (None, False)
