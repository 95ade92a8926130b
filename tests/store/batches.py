"""Several callers whose lines are written as one batch, for certain."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from holdfast.store.failpoints import armed
from holdfast.store.log import FileLog
from tests.store.children import SECONDS, wait_until


def waiting(log: FileLog) -> int:
    """How many callers queue behind the one that writes."""
    # Only the queue itself tells when a thread has joined it.
    return len(log._commit._queue)


class Leader:
    """A thread that writes one line and then holds the lead until it is told to go on."""

    def __init__(self, log: FileLog) -> None:
        self._log = log
        self._inside, self._go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        with armed("log.append.unlocked", self._pause):
            self._log.append({"n": "leader"})

    def _pause(self) -> None:
        self._inside.set()
        assert self._go.wait(SECONDS)

    def __enter__(self) -> Leader:
        self._thread.start()
        assert self._inside.wait(SECONDS)
        return self

    def let_go(self) -> None:
        self._go.set()

    def finish(self) -> None:
        """Let it go, and come back when it has handed over the lead."""
        self.let_go()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def __exit__(self, *exc: object) -> None:
        self.finish()


def as_one_batch(
    log: FileLog, *calls: Callable[[], Any], before: Callable[[], Any] = int
) -> list[Any]:
    """What each call returned or raised; `before` is called when all of them wait."""
    outcomes: list[Any] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            outcomes[number] = calls[number]()
        except BaseException as error:
            outcomes[number] = error

    threads = [
        threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))
    ]
    with Leader(log):
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: waiting(log) == number + 1)
        before()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a caller hangs"
    return outcomes
