"""The summary of a session: Markdown for people, and the same again as a record.

Text is escaped so that Markdown shows it as it is and parsing gives it back: what Markdown would
take for its own stands behind a backslash, a line break is `<br>`, and a character that no line
can hold is a numeric reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from holdfast.contracts.kind import Finding, Form, Kind, Located, Origin, Reading
from holdfast.contracts.markdown import read_page
from holdfast.contracts.record import Count, Formed, NonEmpty, OffsetTime, Record, Seconds

GENERATED = "Session summary generated from ledger entries."
_NOTHING = "(none)"
_LARGE = 1e15
_SECTIONS = {
    "timeline": "Timeline",
    "tasks_completed": "Tasks Completed",
    "errors": "Errors",
    "notes": "Notes",
}
DAY = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
NAME = "[a-z0-9][a-z0-9_-]{0,63}"
_ID = rf"{DAY}_{NAME}_(?:[0-9]{{3}}|[1-9][0-9]{{3,17}})"
SessionIdText = Annotated[str, Formed(f"^{_ID}$", "2026-11-15_rio_001")]


class TimelineItem(Record):
    ts: OffsetTime
    event: Annotated[str, Formed(r"^[^\s\[\]]+$", "task_start")]
    summary: str
    task_id: NonEmpty | None = None


class CompletedTask(Record):
    task_id: NonEmpty
    summary: str
    status: NonEmpty | None = None
    duration_sec: Seconds | None = None


class SummaryError(Record):
    ts: OffsetTime
    summary: str
    task_id: NonEmpty | None = None


class SessionSummary(Record):
    """What happened in a session."""

    often_missing: ClassVar[frozenset[str]] = frozenset({"notes"})

    session_id: SessionIdText
    date: Annotated[str, Formed(f"^{DAY}$", "2026-11-15")]
    total_events: Count
    timeline: list[TimelineItem] = Field(default_factory=list[TimelineItem])
    tasks_completed: list[CompletedTask] = Field(default_factory=list[CompletedTask])
    errors: list[SummaryError] = Field(default_factory=list[SummaryError])
    notes: str = GENERATED


# --- text ---------------------------------------------------------------------------------------

_MARKDOWN = re.compile(r"[\\`*\[<|~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
_UNHOLDABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]|^\s|\s$")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])|<br>|&#([0-9]{1,5});")


def escaped(text: str) -> str:
    """Text on one line of Markdown."""
    safe = _MARKDOWN.sub(r"\\\g<0>", text).replace("\n", "<br>")
    return _UNHOLDABLE.sub(lambda found: f"&#{ord(found[0])};", safe)


def unescaped(text: str) -> str:
    """What `escaped` was given."""
    return _ESCAPED.sub(_meant, text)


def _meant(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    meant = chr(int(found[2])) if found[2] else "\n"
    return meant if _UNHOLDABLE.fullmatch(meant) else found[0]


_CODE = re.compile(r"`([^`]*)`")
_FITS_CODE = re.compile(r"[!-_a-~]+(?: [!-_a-~]+)*")


# --- writing --------------------------------------------------------------------------------------


def render(found: SessionSummary) -> str:
    """The summary as Markdown."""
    agent = found.session_id[len(found.date) + 1 :].rpartition("_")[0]
    head = [
        f"# {agent.upper()} Session Summary: {found.session_id}",
        "",
        f"**Date:** {found.date}",
        f"**Total Events:** {found.total_events}",
    ]
    sections = {
        "timeline": [line for each in found.timeline for line in _moment(each)],
        "tasks_completed": [line for each in found.tasks_completed for line in _task(each)],
        "errors": [line for each in found.errors for line in _moment(each)],
        "notes": [f"_{escaped(found.notes)}_"] if found.notes else [],
    }
    for name, title in _SECTIONS.items():
        head += ["", f"## {title}", "", *(sections[name] or [_NOTHING])]
    return "\n".join(head) + "\n"


def _moment(item: TimelineItem | SummaryError) -> Iterator[str]:
    event = f" [{escaped(item.event)}]" if isinstance(item, TimelineItem) else ""
    yield f"- **{item.ts}**{event} {escaped(item.summary)}".rstrip()
    if (task := item.task_id) is not None:
        yield f"  - Task: {f'`{task}`' if _FITS_CODE.fullmatch(task) else escaped(task)}"


def _task(task: CompletedTask) -> Iterator[str]:
    yield f"- **{escaped(task.task_id)}**: {escaped(task.summary)}".rstrip()
    if task.status is not None:
        yield f"  - Status: {escaped(task.status)}"
    if task.duration_sec is not None:
        whole = task.duration_sec.is_integer() and task.duration_sec < _LARGE
        yield f"  - Duration: {int(task.duration_sec) if whole else task.duration_sec}s"


# --- reading --------------------------------------------------------------------------------------

_TITLE = re.compile(rf"# +.*?Session Summary: *({_ID}|\S+)\s*")
_FIELD = re.compile(r"\*\*(Date|Total Events):\*\* *(.*?)\s*")
_ITEM = re.compile(r"- \*\*((?:[^*\\]|\\.)*)\*\*(.*)")
_DETAIL = re.compile(r"\s+- (Task|Status|Duration): *(.*?)\s*")
_EVENT = re.compile(r" \[((?:[^\]\\]|\\.)*)\](?: (.*))?")
_WHOLE = re.compile(r"[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,3})?")


class _Parser:
    """Line by line; what it cannot place becomes a finding and is left alone."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.findings: list[Finding] = []
        self.lines: dict[str, int] = {}
        """Where each field was read."""
        self._section = ""
        self._item: dict[str, Any] | None = None

    def take(self, number: int, line: str) -> None:
        if not line.strip():
            return
        if line.startswith("# "):
            title = _TITLE.fullmatch(line)
            self._set(number, "session_id", title[1] if title else line[2:].strip())
        elif line.startswith("## "):
            self._begin(number, line[3:].strip())
        elif not self._section:
            self._take_field(number, line)
        elif self._section == "notes":
            self._take_note(line)
        elif self._section != "?" and line.strip() != _NOTHING:
            self._take_item(number, line)

    def _set(self, number: int, name: str, value: Any) -> None:
        self.value[name] = value
        self.lines[name] = number

    def _begin(self, number: int, title: str) -> None:
        known = [name for name, known in _SECTIONS.items() if known == title]
        if known:
            self._section, self._item = known[0], None
            self._set(number, known[0], "" if known[0] == "notes" else [])
        else:
            self._section = "?"
            self._odd(number, f"section {title!r} is not one of {', '.join(_SECTIONS.values())}")

    def _take_field(self, number: int, line: str) -> None:
        field = _FIELD.fullmatch(line)
        if field is None:
            self._odd(number, f"not expected here: {line[:60]!r}")
        elif field[1] == "Date":
            self._set(number, "date", field[2])
        else:
            count = int(field[2]) if _WHOLE.fullmatch(field[2]) else field[2]
            self._set(number, "total_events", count)

    def _take_note(self, line: str) -> None:
        text = line.strip()
        if text == _NOTHING:
            return
        if len(text) > 1 and text[0] == text[-1] == "_":
            text = text[1:-1]
        before = self.value["notes"]
        self.value["notes"] = f"{before}\n{unescaped(text)}" if before else unescaped(text)

    def _take_item(self, number: int, line: str) -> None:
        item, detail = _ITEM.fullmatch(line), _DETAIL.fullmatch(line)
        if item is not None:
            self._item = self._new_item(unescaped(item[1]), item[2])
            items = self.value[self._section]
            self.lines[f"{self._section}[{len(items)}]"] = number
            items.append(self._item)
        elif detail is not None and self._item is not None:
            self._add_detail(detail[1], detail[2])
        else:
            self._odd(number, f"not expected here: {line[:60]!r}")

    def _new_item(self, head: str, rest: str) -> dict[str, Any]:
        if self._section == "tasks_completed":
            return {"task_id": head, "summary": unescaped(rest.removeprefix(":").strip())}
        event = _EVENT.fullmatch(rest) if self._section == "timeline" else None
        if event is None:
            return {"ts": head, "summary": unescaped(rest.strip())}
        said = unescaped((event[2] or "").strip())
        return {"ts": head, "event": unescaped(event[1]), "summary": said}

    def _add_detail(self, name: str, text: str) -> None:
        assert self._item is not None
        if name == "Task":
            code = _CODE.fullmatch(text)
            self._item["task_id"] = code[1] if code else unescaped(text)
        elif name == "Status":
            self._item["status"] = unescaped(text)
        else:
            number = text.removesuffix("s")
            known = _NUMBER.fullmatch(number)
            self._item["duration_sec"] = float(number) if known else text

    def _odd(self, number: int, reason: str) -> None:
        self.findings.append(Finding("warning", "unknown_field", "", reason, number))


def parse(text: str) -> Reading:
    """The summary that Markdown tells, liberally."""
    parser = _Parser()
    for number, line in enumerate(text.split("\n"), 1):
        parser.take(number, line.removesuffix("\r"))
    return read_page(SessionSummary, parser.value, parser.lines, parser.findings)


def _check(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
    for _, reading in found:
        if not isinstance(record := reading.record, SessionSummary):
            continue
        day = record.session_id[: len(record.date)]
        if record.date != day:
            yield Finding("warning", "date", "date", f"{record.date}, but the session is of {day}")
        if record.total_events != len(record.timeline):
            reason = f"{record.total_events}, but {len(record.timeline)} stand in the timeline"
            yield Finding("warning", "count", "total_events", reason)
        named = origin.name.removesuffix(".md")
        if re.fullmatch(_ID, named) and named != record.session_id:
            reason = f"{record.session_id!r} in a file named {origin.name!r}"
            yield Finding("warning", "session_path", "session_id", reason)


def _looks(value: Any) -> bool:
    return isinstance(value, str) and re.match(r"\s*# .*Session Summary: ", value) is not None


SUMMARY = Kind(
    name="summary",
    what="What happened in a session, for people",
    shape="markdown",
    forms=(Form("1.0", SessionSummary),),
    paths=(rf"(?:^|/)sessions/{_ID}\.md$", r"(?:^|/)memory/[^/]+/sessions/[^/]+\.md$"),
    looks=_looks,
    cross_check=_check,
    parse=parse,
)
