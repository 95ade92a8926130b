"""The money of a job: how it is shown, and its account in the fleet's book.

A call stands in the book as a session of its own: money is reserved before it where the fleet has
a limit, and its cost is settled from the history, by the next process if this one dies.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.codec import Record
from holdfast.ids import is_agent_id
from holdfast.jobs.verdict import many
from holdfast.layout import CACHE
from holdfast.spend.account import Account
from holdfast.spend.book import OF_A_JOB

if TYPE_CHECKING:
    from holdfast.jobs.job import Job
    from holdfast.store.primitives import Line


def account_of(job: Job) -> Account:
    return Account(job.home, job.log, f"{CACHE}/charged/{name_in_book(job.name)}.json", settled)


def shown_usd(cost_usd: float | None, unknown: int, most: float | None = None) -> str:
    """Money as people read it: an unknown cost is named, and never shown as 0."""
    limit = "" if most is None else f" of {most:g}"
    known = f"{cost_usd or 0.0:.4f}{limit} USD"
    if not unknown:
        return known
    hidden = f"cost unknown for {many(unknown, 'call')}"
    if cost_usd:
        return f"{known}, {hidden}"
    return hidden if most is None else f"{hidden} (limit {most:g} USD)"


def known_usd(state: Record) -> float | None:
    """What was spent; None if no cost is known."""
    return round(state["cost_usd"], 6) or (None if state["unknown"] else 0.0)


def settled(line: Line) -> Record | None:
    """The line of the book for a line of a history."""
    record = line.record
    charge = record.get("charge")
    if not isinstance(charge, str) or record.get("event") not in ("reply", "move"):
        return None
    tokens = [record.get(name) for name in ("input_tokens", "output_tokens")]
    known = [each for each in tokens if isinstance(each, int)]
    settle: Record = {"event": "settle", "session_id": charge, "usd": record.get("cost_usd")}
    return settle | {"tokens": sum(known) if known else None}


def name_in_book(job: str) -> str:
    """The job's name among agents, whose names are shorter and in lower case."""
    name = f"{OF_A_JOB}{job.lower()}"
    if is_agent_id(name) and job == job.lower():
        return name
    return f"{name[:50]}-{sha256(job.encode()).hexdigest()[:8]}"
