"""Entries as others wrote them, in the columns of ours.

What it needs of the contracts is loaded when such an entry is met: most ledgers have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.clock import instant_of
from holdfast.codec import Record

if TYPE_CHECKING:
    from holdfast.contracts.formats import Moment


def as_entry(record: Record) -> Record:
    """The same entry with our names for what it says; what has no name here is kept as it is."""
    if isinstance(record.get("event"), str) and isinstance(record.get("ts"), str):
        return record
    entry = _upgraded(record) if "protocol" in record or "timestamp" in record else record
    stamp = entry.get("ts", entry.get("timestamp"))
    if stamp is None or isinstance(stamp, str):
        return entry
    moment = _moment(stamp)
    return entry if moment is None else {**entry, "ts": moment.text}


def instant_in(entry: Record) -> float | None:
    """When it happened; a time without a zone counts as UTC, what is no time is None."""
    stamp: Any = entry.get("ts", entry.get("timestamp"))
    try:
        return instant_of(stamp)
    except (ValueError, TypeError):
        moment = _moment(stamp)
        return None if moment is None else moment.instant


def _upgraded(record: Record) -> Record:
    from holdfast.contracts.ledger import LEDGER  # noqa: PLC0415

    return LEDGER.upgraded(record)


def _moment(stamp: object) -> Moment | None:
    from holdfast.contracts.formats import read_moment  # noqa: PLC0415

    try:
        return read_moment(stamp)
    except ValueError:
        return None
