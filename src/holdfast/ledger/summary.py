"""The summary of a session, told from its entries.

A summary is made again whenever somebody asks and says itself how far it reads: by its number of
events.  So one that we wrote can be told from one that a person edited without anything beside
it: it is what its first so many entries come to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.codec import Record
from holdfast.contracts.formats import read_moment
from holdfast.contracts.summary import (
    GENERATED,
    CompletedTask,
    SessionSummary,
    SummaryError,
    TimelineItem,
    parse,
    render,
)
from holdfast.ids import SessionId

if TYPE_CHECKING:
    from holdfast.ledger.book import Found

_UNFIT = re.compile(r"[\s\[\]]+")


class _Happened(NamedTuple):
    """An entry that can be put on a line of time."""

    ts: str
    instant: float
    event: str
    task: str | None
    summary: str
    data: Record


def summary_of(session: SessionId, found: Sequence[Found]) -> SessionSummary:
    """What the entries of a session come to, in the order given."""
    timed = [each for each in map(_happened, found) if each is not None]
    notes = GENERATED
    if missing := len(found) - len(timed):
        them = "1 entry" if missing == 1 else f"{missing} entries"
        notes += f" Left out: {them} without a time that can be read."
    return SessionSummary(
        session_id=str(session),
        date=session.day,
        total_events=len(timed),
        timeline=[
            TimelineItem(ts=each.ts, event=each.event, summary=each.summary, task_id=each.task)
            for each in timed
        ],
        tasks_completed=_completed(timed),
        errors=[
            SummaryError(ts=each.ts, summary=_message(each), task_id=each.task)
            for each in timed
            if each.event == "error"
        ],
        notes=notes,
    )


def is_untouched(text: str, session: SessionId, found: Sequence[Found]) -> bool:
    """Whether a text is what we wrote, now or when there were fewer entries."""
    record = parse(text).record
    if not isinstance(record, SessionSummary):
        return False
    count = record.total_events
    return any(
        render(summary_of(session, some)) == text
        for some in (found[:count], found)
        if len(some) >= count
    )


def _happened(found: Found) -> _Happened | None:
    entry = found.entry
    stamp = entry.get("ts", entry.get("timestamp"))
    if found.line.seq is None or not isinstance(stamp, str):
        try:
            stamp = read_moment(stamp).text
        except ValueError:
            return None
    task, data = entry.get("task_id"), entry.get("data")
    return _Happened(
        stamp,
        found.instant,
        _UNFIT.sub("_", str(entry.get("event") or "")).strip("_") or "unknown",
        task if isinstance(task, str) and task else None,
        _text(entry.get("summary")),
        cast("Record", data) if isinstance(data, dict) else {},
    )


def _completed(timed: Sequence[_Happened]) -> list[CompletedTask]:
    began: dict[str | None, float] = {}
    done: list[CompletedTask] = []
    for each in timed:
        if each.event == "task_start":
            began[each.task] = each.instant
        elif each.event == "task_result" and each.task is not None:
            done.append(
                CompletedTask(
                    task_id=each.task,
                    summary=each.summary,
                    status=_text(each.data.get("status")) or None,
                    duration_sec=_duration(each, began.pop(each.task, None)),
                )
            )
    return done


def _duration(result: _Happened, began: float | None) -> float | None:
    """As the result says, else as the ledger shows."""
    said: Any = result.data.get("duration_sec")
    if type(said) in (int, float) and 0 <= said < 1e15:
        return float(said)
    return None if began is None else round(max(0.0, result.instant - began), 3)


def _message(error: _Happened) -> str:
    told = _text(error.data.get("error"))
    if not told or told in error.summary:
        return error.summary
    return f"{error.summary}: {told}" if error.summary else told


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
