"""Events that say the same again and again: counted for a while, not written again.

The counts are a document beside the state of the agent, on disk before a repetition is
acknowledged.  The next event that is written puts what was counted into the ledger first, as an
`info` with `repeated` in its data; whoever dies in between has counted twice, never lost a count.
What begins or ends a task is never held back, nor is an error unless the agent is in error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.codec import DecodeError, decode, encode, pretty
from holdfast.ledger.book import NEW, Event, Ledger, WrittenEvent
from holdfast.store.document import revision_of

if TYPE_CHECKING:
    from holdfast.store.home import Home

NAME = "repeats.json"
ALWAYS = ("task_start", "task_result")
_MANY = 256
"""So many different events are remembered."""

Repeats = dict[str, dict[str, Any]]


class Counted(NamedTuple):
    """A repetition that was not written."""

    times: int
    seq: int
    """The entry that it repeats."""


def write(
    home: Home,
    key: str,
    ledger: Ledger,
    event: Event,
    seconds: float,
    put: Callable[[Event], WrittenEvent],
) -> WrittenEvent | Counted:
    """Write an event with `put`, unless the same was written in the last `seconds`.

    The counts are in the document called `key`, whose lock is held over it all.
    """
    result: list[WrittenEvent | Counted] = []
    now = home.clock.now()

    def change(old: bytes | None) -> bytes:
        repeats, name = _read(old), _name(event)
        known = repeats.pop(name, None)
        if known is not None and now - seconds < known["at"] <= now and _may_wait(ledger, event):
            count: int = known["count"] + 1
            result.append(Counted(count, known["seq"]))
            return pretty({**repeats, name: {**known, "count": count, "until": now}})
        for each in (known, *repeats.values()):
            if each is not None and each["count"]:
                ledger.write(_told(each))
        written = put(event)
        result.append(written)
        fresh = {at: {**each, "count": 0} for at, each in repeats.items()}
        kept = list(fresh.items())[1 - _MANY :]
        return pretty({**dict(kept), name: _said(written, now)})

    home.document(key).update(change)
    return result[0]


def _may_wait(ledger: Ledger, event: Event) -> bool:
    if event.event in ALWAYS or event.session == NEW:
        return False
    return event.event != "error" or ledger.state()["state"] == "error"


def _name(event: Event) -> str:
    same = [event.event, event.task, event.session, event.summary]
    return revision_of(encode(same))[:16]


def _said(written: WrittenEvent, now: float) -> dict[str, Any]:
    """An entry as it stands in the ledger: there its secrets are masked."""
    fields = ("event", "task_id", "session_id", "source", "summary")
    said = {name: written.record[name] for name in fields}
    return {**said, "seq": written.cursor.seq, "at": now, "until": now, "count": 0}


def _told(counted: dict[str, Any]) -> Event:
    times, event = counted["count"], counted["event"]
    return Event(
        "info",
        f"{times} more of {event} #{counted['seq']}: {counted['summary']}",
        counted["source"],
        counted["task_id"],
        counted["session_id"],
        {"repeated": times, "event": event, "seq": counted["seq"]},
    )


def _read(old: bytes | None) -> Repeats:
    """What was counted; nothing if somebody else wrote the file."""
    try:
        found = decode((old or b"{}").strip())
    except DecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: each for name, each in found.items() if _is_one(each)}


def _is_one(value: object) -> bool:
    match value:
        case {
            "event": str(),
            "summary": str(),
            "source": str(),
            "task_id": str(),
            "session_id": str(),
            "seq": int(),
            "at": int() | float(),
            "until": int() | float(),
            "count": int(),
        }:
            return True
        case _:
            return False
