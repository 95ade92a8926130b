"""Ctrl-C wherever Python lets it in: the log goes on, for us and for everybody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.commit import Body, GroupCommit, Ticket
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import Cursor, Line
from holdfast.testing import Turner, numbers_of, together
from tests.store.children import wait_until
from tests.store.signals import interrupted

KEY = "state/a.jsonl"
DEEDS: dict[str, Callable[[FileLog], Any]] = {
    "append": lambda log: log.append({"n": 1}),
    "append_all": lambda log: log.append_all([{"n": 1}, {"n": 2}]),
    "transact": lambda log: log.write(lambda head: ([{"n": 1}], None)),
    "close": lambda log: log.close(),
}


@pytest.mark.parametrize("rotate_at", [1, 1_000_000], ids=["next file", "same file"])
@pytest.mark.parametrize("deed", DEEDS)
def test_a_log_goes_on_wherever_it_was_interrupted(
    deed: str, rotate_at: int, tmp_path: Path, clock: Turner
) -> None:
    places = 0
    while goes_on(DEEDS[deed], rotate_at, places, str(tmp_path / str(places)), clock):
        places += 1
    assert places > 3


def goes_on(
    deed: Callable[[FileLog], Any], rotate_at: int, nth: int, path: str, clock: Turner
) -> str | None:
    """A log of its own, interrupted at the nth place; None if there is no such place."""
    with (
        Home.open(path, create=True, timezone="UTC", clock=clock) as home,
        Home.open(path, timezone="UTC", clock=clock) as another,
    ):
        log, others = home.log(KEY, rotate_at=rotate_at), another.log(KEY)
        log.append({"n": 0})
        place = interrupted(lambda: deed(log), nth, "holdfast/store/")
        others.append({"n": "other"})
        heads: list[Cursor] = []
        together(lambda: log.write(lambda head: (heads.append(head) or [], None)), seconds=20)
        assert heads == [log.head()], place
        together(lambda: log.append({"n": "ours"}), seconds=20)
        assert log.verify().problems == [], place
        assert all(isinstance(line, Line) and "ts" in line.record for line in log.read()), place
        first, *between = numbers_of(log)[:-2]
        assert (first, *numbers_of(log)[-2:]) == (0, "other", "ours"), place
        assert between in ([], [1], [1, 2]), place
        log.close()
        others.close()
    return place


@pytest.mark.parametrize("waits", [False, True], ids=["alone", "another waits"])
@pytest.mark.parametrize("way", ["lead_alone", "submit"])
def test_whoever_waits_is_served_wherever_the_one_before_was_interrupted(
    way: str, waits: bool
) -> None:
    places = 0
    while is_served(way, waits, places):
        places += 1
    assert places > 3


def is_served(way: str, waits: bool, nth: int) -> str | None:
    """Another thread comes while we write, or afterwards."""
    served: list[Ticket] = []
    other = Ticket([(b"{}", False)])

    def write(batch: list[Ticket] | Body) -> Cursor:
        if waits and not waiter.ident and threading.current_thread() is not waiter:
            waiter.start()
            wait_until(lambda: commit._queue == [other])
        if isinstance(batch, list):
            served.extend(batch)
        return Cursor(1, "", "", 0)

    def act() -> None:
        if way == "submit":
            commit.submit(Ticket([(b"{}", False)]))
        else:
            commit.lead_alone(write, (b"{}", False))

    commit = GroupCommit(write)  # type: ignore[arg-type]
    waiter = threading.Thread(target=lambda: commit.submit(other), daemon=True)
    place = interrupted(act, nth, "store/commit.py")
    if not waiter.ident:
        waiter.start()
    waiter.join(20)
    assert not waiter.is_alive(), f"it waits for ever: {place}"
    assert served.count(other) == 1, place
    assert (commit.leader, commit._queue, commit._gates) == (None, [], []), place
    return place
