"""A ledger entry: its eight fields, and what may stand in them.  No I/O.

`ts` is set by the log at the moment of writing; the other seven are made here.
"""

from __future__ import annotations

from typing import Any

from holdfast.codec import MAX_LINE, DecodeError, Record, decode
from holdfast.errors import BadValue, UsageError

EVENTS = ("heartbeat", "task_start", "task_result", "error", "info")
RESULTS = ("success", "failure")
NO_TASK = "system"
TYPICAL = {
    "task_start": ("task_type",),
    "task_result": ("status", "duration_sec"),
    "error": ("error",),
}
"""What readers look for in the data of an event; of an `info`, the summary is the message."""
IMPORT = "imported"
"""The field of `data` in an `info` that tells of files of others."""


def entry(
    *,
    agent: str,
    session: str,
    event: str,
    task: str,
    source: str,
    summary: str,
    data: dict[str, Any],
) -> Record:
    """The record of one event, without its time."""
    return {
        "agent": agent.lower(),
        "session_id": session,
        "event": event,
        "task_id": task,
        "source": source,
        "summary": summary,
        "data": data,
    }


def check_event(event: str, extra: tuple[str, ...] = ()) -> str:
    if event in EVENTS or event in extra:
        return event
    allowed = ", ".join((*EVENTS, *extra))
    raise UsageError(f"unknown event {event[:80]!r}", hint=f"one of {allowed}")


def task_for(event: str, task: str | None) -> str:
    """The task an event belongs to; the events of a task have to name it."""
    if task:
        return task
    if event in ("task_start", "task_result"):
        raise UsageError(f"{event} without a task", hint="name it with --task ID")
    return NO_TASK


def lacking(event: str, data: dict[str, Any]) -> list[str]:
    """What is usually said in the data of such an event, and is not."""
    return [name for name in TYPICAL.get(event, ()) if data.get(name) in (None, "")]


def parse_data(event: str, text: bytes) -> dict[str, Any]:
    """The `data` object of an entry, unchanged, or an error that says why not."""
    if len(text) > MAX_LINE:
        raise BadValue(
            f"data is too large: {len(text)} bytes, the limit is {MAX_LINE}",
            hint="store the text as a file and put its path and sha256 into the record",
        )
    try:
        found = decode(text.strip())
    except DecodeError as error:
        raise BadValue(f"data: {error}", hint="quote it: --data '{\"k\": 1}'") from None
    if not isinstance(found, dict):
        raise BadValue("data has to be a JSON object", hint='such as {"status": "success"}')
    if event == "task_result" and found.get("status", "success") not in RESULTS:
        raise BadValue(
            f"status of a task_result is {found['status']!r}",
            hint="success or failure; put the reason under `cause`",
        )
    return found
