"""`ledger summary`: what happened in a session, as Markdown for people."""

from __future__ import annotations

import os
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from holdfast.clock import utc_stamp
from holdfast.errors import BadName, ConfigError, NotFound, UsageError
from holdfast.ids import SessionId, session_id
from holdfast.ledger.book import Found, Ledger
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show
from holdfast.ops.ledger import chosen_agents, entries
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, moment

if TYPE_CHECKING:
    from holdfast.contracts.summary import SessionSummary
    from holdfast.store.home import Home

_SESSION = "session_id"


class _Made(NamedTuple):
    """The summary of one session."""

    session: SessionId
    found: list[Found]
    record: SessionSummary
    text: str


class _Put(NamedTuple):
    """What became of a file that holds a summary."""

    place: str
    state: str
    aside: str | None = None
    """Where the text went that a person had edited."""


@example(
    "holdfast ledger summary --day yesterday", columns="session_id events tasks errors state file"
)
def summary(
    context: Context,
    session: Annotated[
        str | None, Arg("The session", positional=True, metavar="SESSION_ID")
    ] = None,
    *,
    day: Annotated[
        str | None, Arg("Every session of a day instead: today, yesterday, 2026-11-15", metavar="D")
    ] = None,
    agent: Annotated[str | None, Arg("With --day: only of this agent")] = None,
    all_: Annotated[bool, Arg("With --day: of every agent, as without --agent")] = False,
    out: Annotated[
        str | None,
        Arg("The file; else memory/AGENT/sessions/SESSION_ID.md", metavar="FILE", is_path=True),
    ] = None,
    dry_run: Annotated[bool, Arg("Only print it")] = False,
) -> Change | Show | Rows:
    """The file is written again from the ledger each time, so that it has what was added since. A
    session that ran over midnight is one summary; it belongs to each of its days. A summary that
    was edited is kept as NAME.edited-TIME before it is written again.
    """
    if (session is None) == (day is None):
        raise UsageError("one session, or --day", hint="such as --day yesterday")
    if session is not None:
        if agent is not None or all_:
            raise UsageError("a session id names its agent", hint="leave --agent and --all out")
        return _one(context, session_id(session), out, dry_run=dry_run)
    if out is not None:
        raise UsageError("--out is for one session", hint="name the session, or leave it out")
    if agent is not None and all_:
        raise UsageError("--agent and --all at once", hint="leave one of them out")
    return _of_day(context, str(day), chosen_agents(context, agent), dry_run=dry_run)


# --- one session --------------------------------------------------------------------------------


def _one(context: Context, session: SessionId, out: str | None, *, dry_run: bool) -> Change | Show:
    chosen_agents(context, session.agent)
    made = _made(session, _sessions(context, session.agent, {str(session)}).get(str(session), []))
    if not made.found:
        raise NotFound(
            f"no entry of a session {session}",
            hint=f"`holdfast ledger list --agent {session.agent}` shows which there are",
        )
    if dry_run:
        return Show({**_told(made), "markdown": made.text}, text=made.text)
    put = _at(context, out, made) if out is not None else _in_home(context, made)
    told = {**_told(made), "file": put.place, "state": put.state, "kept_aside": put.aside}
    detail = f"{put.state}: {put.place} ({made.record.total_events} events)"
    return Change(put.place, applied=put.state != "unchanged", detail=detail, data=told)


def _told(made: _Made) -> dict[str, Any]:
    record = made.record
    return {
        "session_id": record.session_id,
        "agent": made.session.agent,
        "events": record.total_events,
        "tasks": len(record.tasks_completed),
        "errors": len(record.errors),
    }


# --- a day ----------------------------------------------------------------------------------


def _of_day(context: Context, said: str, names: list[str], *, dry_run: bool) -> Rows:
    home = context.home()
    day = _day(said, home)
    begin, end = (moment(each.isoformat(), home) for each in (day, day + timedelta(days=1)))
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    for name in names:
        that_day = entries(context, name, lambda each: begin <= each.instant < end, begin)
        ids = {str(each.entry.get(_SESSION)) for each in that_day}
        mine = sorted(each for each in map(_session_id, ids) if each and each.agent == name)
        found = _sessions(context, name, {str(each) for each in mine}) if mine else {}
        for session in mine:
            made = _made(session, found[str(session)])
            put = _Put(_key(context, session), "would be written")
            if not dry_run:
                put = _in_home(context, made)
            texts += made.text.split("\n")
            rows.append({**_told(made), "state": put.state, "file": put.place})
    counts = {"day": day.isoformat(), "sessions": len(rows)}
    return Rows(rows, counts, plain=texts if dry_run else None)


def _day(said: str, home: Home) -> date:
    today = date.fromisoformat(home.day())
    ago = {"today": 0, "yesterday": 1}.get(said)
    try:
        return today - timedelta(days=ago) if ago is not None else date.fromisoformat(said)
    except ValueError:
        raise UsageError(
            f"not a day: {said[:80]!r}", hint="today, yesterday, or a date such as 2026-11-15"
        ) from None


def _session_id(text: str) -> SessionId | None:
    try:
        return session_id(text)
    except BadName:
        return None


def _sessions(context: Context, agent: str, wanted: set[str]) -> dict[str, list[Found]]:
    """The entries of sessions of an agent.

    None of ours is older than the day that its session is named for; those of other systems are.
    """
    home = context.home()
    imported = Ledger(home, agent, context.layout).has_imports()
    since = None if imported else moment(min(wanted)[:10], home)
    asked = {_SESSION: min(wanted)} if len(wanted) == 1 else {}
    found = entries(
        context, agent, lambda each: each.entry.get(_SESSION) in wanted, since, asked=asked
    )
    sessions: dict[str, list[Found]] = {}
    for each in found:
        sessions.setdefault(each.entry[_SESSION], []).append(each)
    return sessions


def _made(session: SessionId, found: list[Found]) -> _Made:
    from holdfast.contracts.summary import render
    from holdfast.ledger.summary import summary_of

    record = summary_of(session, found)
    return _Made(session, found, record, render(record))


# --- files ----------------------------------------------------------------------------------


def _key(context: Context, session: SessionId) -> str:
    layout = context.layout
    if "summaries" not in layout.paths:
        raise ConfigError(
            f"a tree of {layout.name} has no place for summaries",
            hint="name a file with --out, or print it with --dry-run",
        )
    return f"{layout.path('summaries', session.agent)}/{session}.md"


def _in_home(context: Context, made: _Made) -> _Put:
    home, key = context.home_to_change(), _key(context, made.session)
    put = _Put(key, "unchanged")

    def change(old: bytes | None) -> bytes:
        nonlocal put
        put = _judged(context, key, made, old)
        if put.aside is not None:
            home.document(put.aside).replace(old or b"")
        return made.text.encode()

    document = home.document(key)
    there = document.read()
    if there is None or there.data != made.text.encode():
        document.update(change)
    return put


def _at(context: Context, out: str, made: _Made) -> _Put:
    """A file of the user's, anywhere."""
    from holdfast.userfile import existing, put_new, put_over

    old = existing(out)
    put = _judged(context, out, made, old)
    if put.aside is not None:
        put_new(put.aside, old or b"", mode=0o600)
    put_over(out, made.text.encode(), mode=0o600)
    return put._replace(place=os.path.abspath(out))


def _judged(context: Context, place: str, made: _Made, old: bytes | None) -> _Put:
    from holdfast.ledger.summary import is_untouched
    from holdfast.store.document import revision_of

    if old is None:
        return _Put(place, "written")
    if old == made.text.encode():
        return _Put(place, "unchanged")
    try:
        untouched = is_untouched(old.decode(), made.session, made.found)
    except UnicodeDecodeError:
        untouched = False
    if untouched:
        return _Put(place, "brought up to date")
    when = utc_stamp(context.clock.now()).replace(":", "").replace("-", "")
    # By its content too, so that two edits of one second do not meet.
    aside = f"{place}.edited-{when}-{revision_of(old)[:8]}"
    context.warn(f"{place} was edited by hand; that text is kept as {aside}")
    return _Put(place, "rebuilt", aside)
