"""Entries as others wrote them, in the columns of ours."""

from __future__ import annotations

from holdfast.clock import instant_of
from holdfast.codec import Record
from holdfast.contracts.moment import read_moment


def as_entry(record: Record) -> Record:
    """The same entry with our names for what it says; what has no name here is kept as it is."""
    if isinstance(record.get("event"), str) and isinstance(record.get("ts"), str):
        return record
    entry = _upgraded(record) if "protocol" in record or "timestamp" in record else record
    stamp = entry.get("ts", entry.get("timestamp"))
    if stamp is None or isinstance(stamp, str):
        return entry
    try:
        return {**entry, "ts": read_moment(stamp).text}
    except ValueError:
        return entry


def _upgraded(record: Record) -> Record:
    # Loads pydantic, which nobody needs who meets only entries of today's form.
    from holdfast.contracts.ledger import LEDGER  # noqa: PLC0415

    return LEDGER.upgraded(record)


def instant_in(entry: Record) -> float | None:
    """When it happened; a time without a zone counts as UTC, what is no time is None."""
    stamp = entry.get("ts", entry.get("timestamp"))
    try:
        return instant_of(stamp) if isinstance(stamp, str) else read_moment(stamp).instant
    except ValueError:
        pass
    try:
        return read_moment(stamp).instant
    except ValueError:
        return None
