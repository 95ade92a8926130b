"""Group commit: threads that arrive together share one write and one fdatasync.

The first to come leads: it writes everything that is waiting, and while it waits for the
disk the next ones queue up.  When it is done, those it served are woken one by another, and
the next leader in their midst: by then the first of them are back with their next lines, so
that one sync serves more of them, and the disk is busy again while the others return.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from holdfast.errors import BadValue, HoldfastError, Indeterminate
from holdfast.store.primitives import Cursor, Decide

Body = tuple[bytes, bool]
"""Encoded record, and whether it brings its own `ts`."""


class Ticket:
    """One caller's lines, and what became of them."""

    __slots__ = (
        "bodies",
        "cursors",
        "decide",
        "done",
        "error",
        "gate",
        "left",
        "masked",
        "next",
        "thread",
        "value",
        "written",
    )

    def __init__(self, bodies: list[Body], decide: Decide[Any] | None = None) -> None:
        self.bodies = bodies
        self.decide = decide
        self.value: Any = None
        """What the decision returned with its lines."""
        self.masked = False
        """Whether a secret was taken out of those."""
        self.cursors: list[Cursor] = []
        self.written: list[bytes] = []
        """The lines that end at the cursors."""
        self.error: Exception | None = None
        self.done = False
        self.left = False
        self.gate: threading.Lock | None = None
        self.next: Ticket | None = None
        """Whom to wake when it is woken itself."""
        self.thread = 0
        """Which waits for it, and writes it if it leads."""

    def wrote(self, cursor: Cursor, line: bytes) -> None:
        self.cursors.append(cursor)
        self.written.append(line)

    def fail(self, error: Exception) -> None:
        """Remember the first reason: it is the one worth telling."""
        self.error = self.error or error


class GroupCommit:
    """Ctrl-C may break in anywhere: what is then done again harms nobody when it is done twice."""

    def __init__(self, write: Callable[[list[Ticket]], None]) -> None:
        self._write = write
        self._mutex = threading.Lock()
        self._queue: list[Ticket] = []
        self.leader: object = None
        """The ticket or the line of the thread that writes; without the mutex only a hint."""
        self._batch: list[Ticket] = []
        """What it writes."""
        self._gates: list[threading.Lock] = []
        """Of those who are to be woken."""

    def lead_alone(self, write: Callable[[Body], Cursor | None], body: Body) -> Cursor | None:
        """Have one line written by this thread, unless another leads; None: it was not written."""
        try:
            with self._mutex:
                if self.leader is not None:
                    return None
                self.leader = body
            cursor = write(body)
            self._resign(body)
        except BaseException:
            self._resign(body)
            raise
        return cursor

    def submit(self, ticket: Ticket) -> list[Cursor]:
        """Have the ticket's lines written, by this thread or by the one that leads."""
        ticket.thread = threading.get_ident()
        try:
            with self._mutex:
                if self.leader is None:
                    self.leader = ticket
                elif isinstance(self.leader, Ticket) and self.leader.thread == ticket.thread:
                    raise within_decision()
                else:
                    ticket.gate = threading.Lock()
                    ticket.gate.acquire()
                    self._queue.append(ticket)
            if ticket.gate is not None:
                ticket.gate.acquire()
                _pass_on(ticket)
            if not ticket.done:
                self._lead(ticket)
        except BaseException:
            self._abdicate(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.cursors

    def _lead(self, own: Ticket) -> None:
        batch = self._batch = [own]
        try:
            if own.gate is not None:
                # It waited, so others may have come after it; one that did not wait is alone.
                with self._mutex:
                    batch = self._batch = self._queue
                    self._queue = []
            self._write(batch)
        except HoldfastError as error:
            for ticket in batch:
                ticket.fail(_afterwards(error) if ticket.cursors else error)
        except BaseException:
            for ticket in batch:
                ticket.fail(Indeterminate("interrupted while writing", hint="read the log to see"))
            raise
        self._resign(own)

    def _resign(self, me: object) -> None:
        """Let the next one lead, if we still do, and wake the first of those who wait."""
        with self._mutex:
            if self.leader is me:
                if self._batch or self._queue:
                    self._hand_over(me)
                else:
                    self.leader = None
            while self._gates:
                _open(self._gates[-1])
                self._gates.pop()

    def _hand_over(self, me: object) -> None:
        following = self._queue[0] if self._queue else None
        for ticket in self._batch:
            ticket.done = True
        # One wakes the next: all at once, they would only fight for the interpreter.
        woken = [each for each in self._batch if each is not me and not each.left]
        if following is not None:
            woken.insert(len(woken) // 2, following)
        for ticket, after in pairwise(woken):
            ticket.next = after
        gates = [each.gate for each in woken[:1] if each.gate is not None]
        self._gates, self._batch, self.leader = self._gates + gates, [], following

    def _abdicate(self, ticket: Ticket) -> None:
        """An interrupted caller must not keep the lead, or the next ones wait for ever."""
        with self._mutex:
            if ticket in self._queue:
                self._queue.remove(ticket)
            ticket.left = True
        _pass_on(ticket)
        self._resign(ticket)


def _pass_on(ticket: Ticket) -> None:
    if ticket.next is not None and ticket.next.gate is not None:
        _open(ticket.next.gate)
    ticket.next = None


def _open(gate: threading.Lock) -> None:
    if gate.locked():
        gate.release()


def within_decision() -> BadValue:
    """For one who would wait for himself."""
    return BadValue(
        "a decision cannot write to the log that it decides about",
        hint="return the lines, or write after the decision",
    )


def _afterwards(error: HoldfastError) -> HoldfastError:
    """What a failure means to a caller whose lines can already be seen."""
    if isinstance(error, Indeterminate):
        return error
    return Indeterminate(
        f"written, but perhaps not durable: {error.message}", hint=error.hint, path=error.path
    )
