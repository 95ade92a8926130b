"""Group commit: threads that arrive together share one write and one fdatasync.

The first to come leads: it writes everything that is waiting, and while it waits for the
disk the next ones queue up.  When it is done it wakes the next leader before it wakes the
first of those it served, so that the disk is busy again while they return to their callers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

from holdfast.errors import HoldfastError, Indeterminate
from holdfast.store.primitives import Cursor, Decide

Body = tuple[bytes, bool]
"""Encoded record, and whether it brings its own `ts`."""


class Ticket:
    """One caller's lines, and what became of them."""

    __slots__ = ("bodies", "cursors", "decide", "done", "error", "gate", "leads", "left", "next")

    def __init__(self, bodies: list[Body], decide: Decide | None = None) -> None:
        self.bodies = bodies
        self.decide = decide
        self.cursors: list[Cursor] = []
        self.error: Exception | None = None
        self.done = False
        self.leads = False
        self.left = False
        self.gate: threading.Lock | None = None
        self.next: Ticket | None = None
        """Whom to wake when it is woken itself."""

    def fail(self, error: Exception) -> None:
        """Remember the first reason: it is the one worth telling."""
        self.error = self.error or error


class GroupCommit:
    def __init__(self, write: Callable[[list[Ticket]], None]) -> None:
        self._write = write
        self._mutex = threading.Lock()
        self._queue: list[Ticket] = []
        self.is_led = False
        """Whether a thread is writing; without the mutex only a hint."""

    def lead_alone(self, write: Callable[[Body], Cursor | None], body: Body) -> Cursor | None:
        """Have one line written by this thread, unless another leads; None: it was not written."""
        leads = False
        try:
            with self._mutex:
                if not self.is_led:
                    self.is_led = leads = True
            return write(body) if leads else None
        finally:
            if leads:
                with self._mutex:
                    following = self._named_next()
                if following is not None and following.gate is not None:
                    following.gate.release()

    def submit(self, ticket: Ticket) -> list[Cursor]:
        """Have the ticket's lines written, by this thread or by the one that leads."""
        try:
            with self._mutex:
                if self.is_led:
                    ticket.gate = threading.Lock()
                    ticket.gate.acquire()
                    self._queue.append(ticket)
                else:
                    self.is_led = ticket.leads = True
            if ticket.gate is not None:
                ticket.gate.acquire()
                self._pass_on(ticket)
            if not ticket.done:
                self._lead(ticket)
        except BaseException:
            self._abdicate(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.cursors

    def _lead(self, own: Ticket) -> None:
        batch = [own]
        try:
            if own.gate is not None:
                # It waited, so others may have come after it; one that did not wait is alone.
                with self._mutex:
                    batch, self._queue = self._queue, []
            self._write(batch)
        except HoldfastError as error:
            for ticket in batch:
                ticket.fail(_afterwards(error) if ticket.cursors else error)
        except BaseException:
            for ticket in batch:
                ticket.fail(Indeterminate("interrupted while writing", hint="read the log to see"))
            raise
        finally:
            with self._mutex:
                alone = len(batch) == 1 and not self._queue
                if alone:
                    own.done, own.leads = True, False
                    self.is_led = False
            if not alone:
                self._hand_over(own, batch)

    def _hand_over(self, leader: Ticket, served: list[Ticket]) -> None:
        with self._mutex:
            leader.done, leader.leads = True, False
            for ticket in served:
                ticket.done = True
            following = self._named_next()
            # One wakes the next: all at once, they would only fight for the interpreter.
            woken = [ticket for ticket in served if ticket is not leader and not ticket.left]
            for ticket, after in pairwise(woken):
                ticket.next = after
        for ticket in (following, woken[0] if woken else None):
            if ticket is not None and ticket.gate is not None:
                ticket.gate.release()

    def _named_next(self) -> Ticket | None:
        """Who leads from now on, if anybody waits."""
        following = self._queue[0] if self._queue else None
        self.is_led = following is not None
        if following is not None:
            following.leads = True
        return following

    def _pass_on(self, ticket: Ticket) -> None:
        after, ticket.next = ticket.next, None
        if after is not None and after.gate is not None:
            after.gate.release()

    def _abdicate(self, ticket: Ticket) -> None:
        """An interrupted caller must not keep the lead, or the next ones wait for ever."""
        with self._mutex:
            if ticket in self._queue:
                self._queue.remove(ticket)
            ticket.left = True
            leads = ticket.leads
        self._pass_on(ticket)
        if leads:
            self._hand_over(ticket, [])


def _afterwards(error: HoldfastError) -> HoldfastError:
    """What a failure means to a caller whose lines can already be seen."""
    if isinstance(error, Indeterminate):
        return error
    return Indeterminate(
        f"written, but perhaps not durable: {error.message}", hint=error.hint, path=error.path
    )
