"""What the calls of a job cost, in the book of money that the whole fleet has.

A call stands there as a session of its own: money is set aside before it where the fleet has a
limit, and what it cost is told behind it, off the history, by whoever comes next if need be.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.codec import Record
from holdfast.errors import OverBudget
from holdfast.ids import SessionId, is_agent_id, session_id
from holdfast.jobs.verdict import many
from holdfast.layout import CACHE
from holdfast.process import this_process
from holdfast.settings import Budget
from holdfast.spend.book import OF_A_JOB, Spend

if TYPE_CHECKING:
    from holdfast.jobs.job import Job
    from holdfast.store.primitives import Cursor, Line
    from holdfast.store.projection import Projection


def told_usd(cost_usd: float | None, unknown: int, most: float | None = None) -> str:
    """Money, as people are told of it: what nobody knows the cost of did not cost 0."""
    limit = "" if most is None else f" of {most:g}"
    known = f"{cost_usd or 0.0:.4f}{limit} USD"
    if not unknown:
        return known
    hidden = f"what {many(unknown, 'call')} cost is not known"
    if cost_usd:
        return f"{known} and {hidden}"
    return hidden if most is None else f"{hidden}, limit {most:g} USD"


def known_usd(state: Record) -> float | None:
    """What was spent; None if nobody knows of anything."""
    return round(state["cost_usd"], 6) or (None if state["unknown"] else 0.0)


class Charges:
    def __init__(self, job: Job) -> None:
        self._home, self._job = job.home, job
        self._name = _name(job.name)
        self._second, self._day = -1, ""

    @cached_property
    def _spend(self) -> Spend:
        return Spend(self._home)

    @cached_property
    def _told(self) -> Projection:
        cell = self._home.cell(f"{CACHE}/charged/{self._name}.json")
        return self._spend.told_by(self._job.log, cell, settled)

    @cached_property
    def limited(self) -> bool:
        """Whether the fleet may spend only so much in a day."""
        return self._home.current_settings().budget().fleet_day is not None

    def reserve(self, sequence: int, aside: float | None, *, known: bool) -> str:
        """Set money of the fleet aside for a call; OverBudget if there is not enough.

        Of a call whose price nobody knows before it is made, as much as the fleet has left.
        """
        charge = SessionId(self._today(), self._name, sequence + 1)
        if self.limited:
            budget = Budget(fleet_day=self._home.current_settings().budget().fleet_day)
            try:
                self._spend.reserve(charge, aside or 0.0, budget, this_process())
            except OverBudget:
                if known:
                    raise
                self._spend.reserve(charge, None, budget, this_process())
        return str(charge)

    def _today(self) -> str:
        now = int(self._home.clock.now())
        if now != self._second:  # a day takes longer to tell than whether it is still the same
            self._second, self._day = now, self._home.day(now)
        return self._day

    def release(self, charge: str) -> None:
        """Give back what was set aside for a call that was not made."""
        if self.limited:
            self._spend.release(session_id(charge), "nobody was asked")

    def settle(self, acked: Cursor | None = None) -> None:
        """Tell the book what the history tells of calls that ended."""
        if self._told.catch_up(acked):
            self._spend.refresh()

    def close(self) -> None:
        for name in ("_told", "_spend"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()


def settled(line: Line) -> Record | None:
    """The line of the book for a line of a history."""
    record = line.record
    charge = record.get("charge")
    if not isinstance(charge, str) or record.get("event") not in ("reply", "move"):
        return None
    tokens = [record.get(name) for name in ("input_tokens", "output_tokens")]
    known = [each for each in tokens if isinstance(each, int)]
    told: Record = {"event": "settle", "session_id": charge, "usd": record.get("cost_usd")}
    return told | {"tokens": sum(known) if known else None}


def _name(job: str) -> str:
    """What a job is called among agents, whose names are shorter and all in small letters."""
    name = f"{OF_A_JOB}{job.lower()}"
    if is_agent_id(name) and job == job.lower():
        return name
    return f"{name[:50]}-{sha256(job.encode()).hexdigest()[:8]}"
