"""A disk that fills up in the middle of a verb: nobody is told to repeat what is recorded."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.store.vfs import RealVfs
from tests.ledger.shell import Ran
from tests.ops.test_failed_writes import call, place, prepared

__all__ = ["place"]
Recorded = Counter[tuple[str, str]]


def full_after(writes: int) -> Callable[[], None]:
    """The disk takes so many writes."""

    def begin() -> None:
        left = writes

        def write(number: int, data: bytes | memoryview) -> int:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.write(number, data)

        RealVfs.write = staticmethod(write)

    return begin


def recorded_in(home: Path) -> Recorded:
    found: Recorded = Counter()
    for log in home.rglob("*.jsonl"):
        for line in log.read_bytes().splitlines():
            event = json.loads(line).get("event")
            if event not in (None, "edited_by_hand"):
                found[str(log.relative_to(home)), event] += 1
    return found


def may_be_repeated(ran: Ran) -> bool:
    return not ran.error()["hint"].startswith("do not repeat it")


@pytest.mark.parametrize(
    "verb",
    [
        "agent edit",
        "agent fork",
        "agent new",
        "agent retire",
        "alerts ack",
        "budget set",
        "job activate",
        "job cancel",
        "job new",
        "job steward",
        "job suspend",
        "ledger write",
        "session end",
        "session start",
        "task add",
        "task done",
    ],
)
def test_who_may_repeat_a_call_that_failed_half_way_has_it_once(verb: str, place: Path) -> None:
    shell, words = prepared(place, verb)
    kept = place.with_name(f"{place.name}-kept")
    shutil.copytree(place, kept, symlinks=True)

    def again_from_the_start() -> None:
        shutil.rmtree(place)
        shutil.copytree(kept, place, symlinks=True)

    assert call(shell, words, None, "--json").code == 0
    once = recorded_in(shell.home)
    for writes in range(100):
        again_from_the_start()
        before = recorded_in(shell.home)
        ran = call(shell, words, full_after(writes), "--json")
        if ran.code == 0:
            break
        half_way = recorded_in(shell.home)
        if may_be_repeated(ran):
            assert call(shell, words, None, "--json").code == 0, (writes, ran.err)
            assert recorded_in(shell.home) <= once, (writes, ran.err)
        else:
            assert half_way > before, (writes, ran.err)
    else:
        pytest.fail("it never succeeded")
