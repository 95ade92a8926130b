"""What the entries of a ledger say of each other and of the file they are in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import orjson

from holdfast.contracts.formats import read_moment
from holdfast.contracts.kind import Finding, Origin
from holdfast.errors import BadName
from holdfast.ids import session_id

_DAY_FILE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:\.[0-9]+)?\.jsonl(?:\.zst)?")
_IS_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DAY, _STAMP = 10, 19
"""How long a time is: only the day, and without fractions and zone."""


def content(entry: dict[str, Any]) -> bytes:
    """What makes two entries the same one: everything but their place in a chain."""
    bare = entry.copy()
    bare.pop("seq", None)
    bare.pop("hash", None)
    return orjson.dumps(bare, option=orjson.OPT_SORT_KEYS)


def agent_of(session: str) -> str | None:
    """Whose session it is; None if the id is none."""
    try:
        return session_id(session).agent
    except BadName:
        return None


class LedgerWatch:
    """Called for every entry of files with very many: most of it is for what is as it should be."""

    def __init__(self, origin: Origin) -> None:
        named = _DAY_FILE.fullmatch(origin.name)
        self._day = named[1] if named else None
        inside = origin.parent(2) == "ledger"
        self._agent = origin.parent().lower() if named and inside else None
        self._latest, self._today, self._zone = "", "", ""
        """The last time; a day that is as it should be; fractions and zone of the last time."""
        self._sessions: dict[str, str | None] = {}
        self._seen: dict[int, int] = {}
        """The line of each content; of that only a hash, for a day can have very many."""
        self._ids: dict[str, int] = {}
        self._open: dict[tuple[str, str], int] = {}

    def see(self, line: int, value: Any, written: Any) -> list[Finding]:
        found: list[Finding] = []
        if not isinstance(value, dict):
            return found
        entry = cast("dict[str, Any]", value)
        agent, session, ts = entry.get("agent"), entry.get("session_id"), entry.get("ts")
        if type(ts) is str:
            if ts < self._latest or ts[:_DAY] != self._today or ts[_STAMP:] != self._zone:
                self._look_at_time(line, ts, found)
            self._latest = ts
        if type(agent) is str:
            if agent != self._agent and self._agent is not None:
                reason = f"{agent!r} in the ledger of {self._agent}"
                found.append(Finding("warning", "agent_path", "agent", reason, line))
            if type(session) is str and self._owner(session) != agent:
                reason = f"{session!r} is no session of {agent!r}"
                found.append(Finding("warning", "session_agent", "session_id", reason, line))
        if "ledger_id" in entry:
            self._see_id(line, entry["ledger_id"], found)
        event = entry.get("event")
        if event == "task_start" or event == "task_result":
            task = str(agent), str(entry.get("task_id", ""))
            self._open.pop(task, None)
            if event == "task_start" and task[1]:
                self._open[task] = line
        first = self._seen.setdefault(hash(content(written)), line)
        if first != line:
            reason = f"the same entry as in line {first}"
            found.append(Finding("warning", "duplicate", "", reason, line))
        return found

    def end(self) -> Iterator[Finding]:
        for (_, task), line in self._open.items():
            reason = f"{task!r} was started, and has no task_result in this file"
            yield Finding("warning", "orphan", "task_id", reason, line)

    def _look_at_time(self, line: int, ts: str, found: list[Finding]) -> None:
        today = ts[:_DAY]
        if self._day is not None and today != self._day and _IS_DAY.fullmatch(today):
            reason = f"ts date {today} != file date {self._day}"
            found.append(Finding("warning", "date", "ts", reason, line))
            today = ""
        if self._latest and _is_before(ts, self._latest):
            reason = f"goes back, after {self._latest}"
            found.append(Finding("warning", "time_order", "ts", reason, line))
        self._today, self._zone = today, ts[_STAMP:]

    def _owner(self, session: str) -> str | None:
        if session not in self._sessions:
            self._sessions[session] = agent_of(session)
        return self._sessions[session]

    def _see_id(self, line: int, name: Any, found: list[Finding]) -> None:
        if isinstance(name, str):
            first = self._ids.setdefault(name, line)
            if first != line:
                reason = f"{name!r} stands in line {first} already"
                found.append(Finding("warning", "id", "ledger_id", reason, line))


def _is_before(ts: str, other: str) -> bool:
    if len(ts) == len(other) and ts[_STAMP:] == other[_STAMP:]:
        return ts < other
    try:
        return read_moment(ts).instant < read_moment(other).instant
    except ValueError:
        return False
