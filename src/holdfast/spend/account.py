"""The account of one log: what its sessions or calls may spend, and what they cost.

Money is reserved in the book before it can be spent, and settled from the log that records the
end.  Nothing is opened before it is needed: most readers of an agent or a job spend nothing.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.process import this_process
from holdfast.settings import Budget
from holdfast.spend.book import Held, Spend
from holdfast.state.spared import telling

if TYPE_CHECKING:
    from holdfast.ids import SessionId
    from holdfast.store.home import Home
    from holdfast.store.primitives import Cursor, Log
    from holdfast.store.projection import Projection, Tell

NO_LIMITS = Budget()


class Account:
    """Used by one thread at a time."""

    def __init__(self, home: Home, log: Log, cell: str, tell: Tell) -> None:
        """`tell` makes the line of the book from a line of `log`; `cell` remembers how far."""
        self._home, self._log, self._cell, self._tell = home, log, cell, tell

    @cached_property
    def _book(self) -> Spend:
        return Spend(self._home)

    @cached_property
    def _told(self) -> Projection:
        return telling(self._home, self._log, self._book.log, self._cell, self._tell)

    def reserve(self, id: SessionId, wanted: float | None, budget: Budget) -> float | None:
        """Reserve for a session or a call that this process begins; OverBudget if refused."""
        if wanted is None and budget == NO_LIMITS:
            return None
        return self._book.reserve(id, wanted, budget, this_process())

    def settle(self, upto: Cursor | None = None) -> None:
        """Settle the ends that the log records, `upto` a line known to be durable."""
        if self._told.catch_up(upto):
            self._book.refresh()

    def release(self, id: SessionId, why: str) -> None:
        """Give back the reservation of a session or a call that did not begin."""
        self._book.release(id, why)

    def abandoned(self) -> list[Held]:
        """Reservations whose process is gone; most belong to sessions under way."""
        alive = self._home.alive
        return [held for held in self._book.open() if not held.owner or alive(held.owner) is False]

    def close(self) -> None:
        for name in ("_told", "_book"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()
