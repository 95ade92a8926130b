"""What the calls of a campaign may cost: limits of the campaign and the fleet, and the book.

A call that was cut off may have been answered and paid: it counts with all that was reserved.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.codec import Record
from holdfast.ids import SessionId, session_id
from holdfast.improve.journal import Journal
from holdfast.improve.roles import Call
from holdfast.layout import CACHE
from holdfast.settings import Budget
from holdfast.spend.account import NO_LIMITS, Account
from holdfast.spend.gate import Bound, grant

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.primitives import Line

_HINT = "raise it: `holdfast improve run --max-cost`, or take a cheaper model"


class Money:
    """Used by one thread."""

    def __init__(self, home: Home, journal: Journal) -> None:
        self._home, self._journal = home, journal
        name = journal.place.name.replace("@", "-")
        self._agent = f"improve-{name}"[:64]
        cell = f"{CACHE}/charged/improve-{name}.json"
        self._account = Account(home, journal.lines.log, cell, settled)

    def reserved(self, calls: Mapping[str, Call], most: float | None) -> dict[str, Record]:
        """What stands in the intents of calls by step; OverBudget if one of them is too much."""
        state, found = self._journal.known(), dict[str, Record]()
        aside, began = 0.0, state["round"]["open"]
        budget = self._home.current_settings().budget(self._agent)
        limits = Budget(None, budget.agent_day, budget.fleet_day)
        try:
            for number, (step, call) in enumerate(calls.items()):
                spent = (state["cost_usd"], aside, state["unknown"], state["assumed_usd"])
                bound = Bound(f"campaign {self._journal.place.name}", most, *spent)
                wanted = call.most_usd
                if wanted is None and most is not None:
                    grant([bound], None, hint=_HINT)  # something has to be left
                    wanted = bound.left / (len(calls) - number)
                grant([bound], wanted or 0.0, hint=_HINT)
                attempt = began.get(step, {}).get("attempt", 0) + 1
                charge = self._charge(f"{state['round']['number']}/{step}/{attempt}")
                if limits != NO_LIMITS:
                    self._account.reserve(charge, wanted or 0.0, limits)
                aside += wanted or 0.0
                found[step] = {"reserved_usd": wanted, "charge": str(charge), "attempt": attempt}
        except BaseException:
            for step in found:
                with suppress(KeyError):
                    self._account.release(session_id(found[step]["charge"]), "not asked")
            raise
        return found

    def _charge(self, name: str) -> SessionId:
        """The name of a call in the book of money, which no session has."""
        digest = sha256(f"{self._journal.place.root}/{name}".encode()).digest()
        number = 10**17 + int.from_bytes(digest[:8]) % (9 * 10**17)
        return SessionId(self._home.day(), self._agent, number)

    def settle(self) -> None:
        self._account.settle()

    def close(self) -> None:
        self._account.close()


def settled(line: Line) -> Record | None:
    """The line of the book for a line of the journal."""
    record = line.record
    event = record.get("event")
    paid: Record = record.get("paid") or {}
    charge = record.get("charge") if event == "lost" else paid.get("charge")
    if event not in ("lost", "done") or not isinstance(charge, str):
        return None
    cost, tokens = paid.get("cost_usd"), paid.get("tokens")
    return {"event": "settle", "session_id": charge, "usd": cost, "tokens": tokens}
