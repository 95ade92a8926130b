"""The money of one agent's sessions: set aside at the start, settled by what the journal says.

Nothing is opened before it is needed: most of those who look at an agent spend nothing.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.agents.history import State, open_sessions
from holdfast.audit import refused
from holdfast.errors import OverBudget
from holdfast.ids import SessionId, session_id
from holdfast.layout import charged
from holdfast.process import may_live, this_process
from holdfast.spend.book import Held, Spend
from holdfast.store.primitives import Cursor, Log

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.projection import Projection


class Purse:
    def __init__(self, home: Home, agent: str, journal: Log) -> None:
        self._home, self._agent, self._journal = home, agent, journal

    @cached_property
    def _spend(self) -> Spend:
        return Spend(self._home)

    @cached_property
    def _charged(self) -> Projection:
        return self._spend.charged_by(self._journal, self._home.cell(charged(self._agent)))

    def reserve(self, session: SessionId, asked: float | None) -> float | None:
        """Set money aside for a session; OverBudget if there is not enough."""
        budget = self._home.current_settings().budget(self._agent)
        try:
            return self._spend.reserve(session, asked, budget, this_process())
        except OverBudget as error:
            refused(self._home, f"session {session}", error, agent=self._agent)
            raise

    def settle(self, acked: Cursor | None = None) -> None:
        """Settle what the journal tells of sessions that ended."""
        if self._charged.catch_up(acked):
            self._spend.refresh()

    def abandoned(self) -> list[Held]:
        """Reservations whose maker is gone; most of them belong to sessions under way."""
        return [each for each in self._spend.open() if not (each.owner and may_live(each.owner))]

    def release(self, session: str) -> None:
        """Give back what was set aside for a session that could not be begun."""
        if session:
            self._spend.release(session_id(session), "it could not be begun")

    def release_unless(self, held: Held, state: State) -> None:
        """Give it back, unless its session is under way, or has ended."""
        if str(held.session) in {each["session_id"] for each in open_sessions(state)}:
            return
        # Whoever wrote its end may have died before he settled: what was spent never comes back.
        # After the look at the state, so that no end can come between the two.
        self.settle()
        self._spend.release(held.session, "nothing was begun with it")

    def close(self) -> None:
        for name in ("_charged", "_spend"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()
