"""A ledger entry: its eight fields, and what may stand in them.  No I/O.

`ts` is set by the log at the moment of writing; the other seven are made here.
"""

from __future__ import annotations

from typing import Any, cast

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
OUTPUT = frozenset({"stdout", "stderr", "output"})
"""The fields of `data`, however deep, in which the output of a command is shortened."""
MOST_OUTPUT = 16 << 10
_HEAD = MOST_OUTPUT // 4
IMPORTER = "holdfast import"
"""The source of an `info` that tells of files of others; nobody else may call himself so."""
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


def check_source(source: str) -> None:
    """Refuse one from outside who calls himself by our name."""
    if source == IMPORTER:
        raise UsageError(f"the source {source!r} is Holdfast's own", hint="name another --source")


def task_for(event: str, task: str | None) -> str:
    """The task an event belongs to; the events of a task have to name it."""
    if task:
        return task
    if event in ("task_start", "task_result"):
        raise UsageError(f"{event} without a task", hint="name it with --task ID")
    return NO_TASK


def capped(data: dict[str, Any]) -> dict[str, Any]:
    """The data with long output shortened: how much there was is said in its place."""
    return _capped(data, "") if _names_output(data) else data


def _names_output(value: dict[str, Any] | list[Any]) -> bool:
    if isinstance(value, dict) and not OUTPUT.isdisjoint(value):
        return True
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list) and _names_output(cast("list[Any]", inner)):
            return True
    return False


def _capped(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {inner: _capped(each, inner) for inner, each in found.items()}
    if isinstance(value, list):
        return [_capped(each, name) for each in cast("list[Any]", value)]
    if isinstance(value, str) and name in OUTPUT and len(value) > MOST_OUTPUT:
        return _shortened(value)
    return value


def _shortened(text: str) -> str:
    """Its beginning and, from the start of a line on, its end.

    A line is not cut in front: a secret would be parted from what tells that it is one.
    """
    first = len(text) - (MOST_OUTPUT - _HEAD)
    start = text.find("\n", first - 1) + 1
    end = text[start:] if start else ""
    left_out = len(text) - _HEAD - len(end)
    return f"{text[:_HEAD]}\n[{left_out} of {len(text)} characters left out]\n{end}"


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
