"""The verbs of sessions, step by step: for shell hooks that cannot let `run` do it all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, Unpack

from holdfast.agents.agent import DEFAULT_TIMEOUT, GRACE, Agent, End, Start, opened
from holdfast.agents.history import (
    LONG_NAMES,
    SESSION_FIELDS,
    Session,
    Type,
    check_fields,
    open_sessions,
)
from holdfast.agents.journal import OWN_EVENTS, SOURCES
from holdfast.codec import Record
from holdfast.errors import Busy, Corrupt, HoldfastError, NotFound, UsageError, recorded
from holdfast.ids import agent_id, session_id
from holdfast.layout import scratch
from holdfast.ledger.book import Event
from holdfast.ledger.entry import parse_data
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, OfAgent, checked_limit
from holdfast.process import this_process
from holdfast.text import duration

if TYPE_CHECKING:
    from holdfast.store.home import Home

Outcome = Literal["completed", "timeout", "error"]

MaxCost = Annotated[
    float | None, Arg("What it may spend: reserved from the budget, in USD", metavar="USD")
]


class StartFields(TypedDict, total=False):
    """What a session is about: flags of its start, of its end and of `session set`."""

    domain: Annotated[str | None, Arg("Its field")]
    branch: Annotated[str | None, Arg("The git branch it writes to")]
    model: Annotated[str | None, Arg("The model it uses")]
    question: Annotated[str | None, Arg("What it wants to find out")]
    belief: Annotated[str | None, Arg("The belief it puts to the test")]
    disconfirm: Annotated[str | None, Arg("What would refute that belief")]
    sources_expected: Annotated[int | None, Arg("How many sources it should bring")]


class SessionFields(StartFields, total=False):
    """And what came of it."""

    sources: Annotated[int | None, Arg("How many sources it brought")]
    pr: Annotated[int | None, Arg("Number of its pull request")]
    summary: Annotated[str | None, Arg("What it came to, in a line")]
    next: Annotated[str | None, Arg("What should be done next")]
    blocked_by: Annotated[str | None, Arg("What stands in the way")]
    error: Annotated[str | None, Arg("What went wrong, if something did")]
    tokens: Annotated[int | None, Arg("Tokens it used")]
    cost: Annotated[float | None, Arg("What it cost, in USD", metavar="USD")]
    handoff: Annotated[str | None, Arg("What the next session has to know")]


_SET_BY_US = frozenset(
    {"event", "session_id", "text", "ts", "seq", "hash", "fence", "lease", "patch"}
)
"""Fields by which lines of the journal are known: a `patch` changes a document."""


def in_journal(fields: StartFields) -> Record:
    """The flags that were given, under the names that the journal has for them."""
    return {LONG_NAMES.get(n, n): value for n, value in fields.items() if value is not None}


@example("holdfast session start --agent rio --type research --timeout 90m")
def start(
    context: Context,
    *,
    agent: Annotated[str, Arg("Whose session")],
    type: Annotated[Type, Arg("What it is for")] = "ad-hoc",
    role: Annotated[str, Arg("As what, if the agent does several things at once")] = "",
    task: Annotated[str | None, Arg("The task it works on", metavar="ID")] = None,
    timeout: Annotated[
        str | None, Arg("After which it counts as crashed: 90m", metavar="D")
    ] = None,
    max_cost: MaxCost = None,
    **given: Unpack[StartFields],
) -> Change:
    from holdfast.agents.context import compose, gather, with_mail

    fields = ({} if task is None else {"task": task}) | in_journal(given)
    limit = duration(timeout) if timeout is not None else None
    name = agent_id(agent).lower()
    home = context.home(create=True)
    with Agent(home, name, context.layout) as one:
        refuse_parked(one, task)
        buried = one.bury()  # first, so that the context tells how the last session ended
        known = gather(home, one)
        begun = one.start(Start(type, role, limit, fields, max_cost=max_cost))
        key = scratch(begun.id, "context.md")
        try:
            one.desk.hand_out(begun.id, begun.fence, seconds=(limit or DEFAULT_TIMEOUT) + GRACE)
            shown = home.mask(compose(with_mail(one, known, begun.id)))
            home.document(key).replace(shown.encode())
        except HoldfastError as error:
            failed = {"kind": "holdfast", "message": f"could not start: {error.message}"}
            with suppress(HoldfastError):  # on a full disk, its time limit ends it
                one.end(begun.role, begun.fence, End("error", "wrapper", failed))
            if one.open_session(role) is None:
                raise
            with recorded(f"the start of {begun.id}", "`holdfast session end` ends it"):
                raise
    tell_buried(context, [*buried, *begun.buried])
    data = {"session_id": begun.id, "agent": name, "role": role or None, "fence": begun.fence}
    data["context"] = os.path.join(home.path, key)
    return Change(begun.id, applied=True, detail=f"{begun.id} began", data=data)


def refuse_parked(one: Agent, task: str | None) -> None:
    """What has failed too often is tried again when somebody says so, not by the next cron line."""
    if task is None:
        return
    from holdfast.agents.tasks import parked_because

    try:
        tasks = one.desk.tasks.look()
    except Corrupt:
        return  # `doctor` tells of it; a list that cannot be read keeps no session from beginning
    why = next((parked_because(each) for each in tasks if each.get("id") == task), None)
    if why:
        raise UsageError(
            f"{task} is parked: {why}",
            hint=f"`holdfast task reopen --agent {one.name} {task}` lets it be tried again",
        )


def tell_buried(context: Context, buried: Sequence[str]) -> None:
    for name in buried:
        context.warn(f"{name} had crashed; that is on record now")


@example('holdfast session note --agent rio --event finding "Fees are set by vote"')
def note(
    context: Context,
    text: Annotated[str, Arg("What there is to say, in a line", positional=True)] = "",
    *,
    agent: Annotated[str, Arg("Whose session")],
    event: Annotated[str, Arg("orient_complete, sources_archived, finding, or your own word")],
    session: Annotated[str | None, Arg("Another than the open one", metavar="ID")] = None,
    data: Annotated[str | None, Arg("More about it: a JSON object", or_file=True)] = None,
) -> Change:
    if not event.strip():
        raise UsageError("an event without a word", hint="such as --event finding")
    if event in OWN_EVENTS:
        raise UsageError(f"{event} is written by Holdfast itself", hint="choose another word")
    more = parse_data(event, data.encode()) if data is not None else {}
    if reserved := _SET_BY_US & more.keys():
        raise UsageError(f"{min(reserved)!r} is set by the journal", hint="choose another name")
    if event == SOURCES and "count" in more:
        check_fields({SOURCES: more["count"]})
    with context.agent(agent, change=True) as one:
        named = _known(one, session, heard=True) or context.called_in_session(one.name)
        if named is None and not open_sessions(one.state()):
            context.warn(f"{one.name} has no open session: this belongs to none")
        cursor = one.note(event, text, more, named)
    return Change(f"{one.name}#{cursor.seq}", applied=True, detail=f"{event}: {text}")


@example("holdfast session set --agent rio --pr 247")
def set_(
    context: Context,
    *,
    agent: Annotated[str, Arg("Whose session")],
    session: Annotated[str | None, Arg("Another than the newest", metavar="ID")] = None,
    **given: Unpack[SessionFields],
) -> Change:
    fields = in_journal(given)
    if not fields:
        raise UsageError("nothing to set", hint="such as --pr 247; see --help")
    with context.agent(agent, change=True) as one:
        target = _known(one, session) or one.session()["session_id"]
        if target is None:
            raise NotFound(f"{one.name} has had no session", hint="`holdfast session start`")
        one.set(str(target), fields)
    return Change(str(target), applied=True, detail=f"set {', '.join(fields)}", data=fields)


@example("holdfast session beat --agent rio")
def beat(
    context: Context,
    *,
    agent: Annotated[str, Arg("Whose session")],
    role: Annotated[str, Arg("As what it runs")] = "",
) -> Change:
    with context.agent(agent, change=True) as one:
        session = _open(one, role)
        written = one.ledger.write(
            Event("heartbeat", "Heartbeat", "holdfast", session=session["session_id"])
        )
    target = f"{one.name}#{written.cursor.seq}"
    return Change(target, applied=True, detail=f"{session['session_id']} is alive")


@example("holdfast session end --agent rio --outcome completed --sources 8")
def end(
    context: Context,
    *,
    agent: Annotated[str, Arg("Whose session")],
    outcome: Annotated[Outcome, Arg("How it went")],
    role: Annotated[str, Arg("As what it ran")] = "",
    **given: Unpack[SessionFields],
) -> Change:
    error = given.pop("error", None)
    if error is not None and outcome == "completed":
        raise UsageError("a completed session has no error", hint="use --outcome error")
    fields = in_journal(given)
    check_fields(fields)
    with context.agent(agent, change=True) as one:
        session = _open(one, role)
        _refuse_living(context, one, session)
        failed = None
        if outcome != "completed":
            message = error or given.get("summary") or f"session ended with {outcome}"
            failed = {"kind": outcome, "message": message}
        cause = "timeout" if outcome == "timeout" else None
        name = one.end(role, session["fence"], End(outcome, cause, failed, fields))
    return Change(name, applied=True, detail=f"{name} ended: {outcome}", data=fields)


@example("holdfast session sweep", columns="agent session_id state")
def sweep(context: Context, *, agent: OfAgent = None) -> Rows:
    def found(one: Agent) -> list[Record]:
        buried = one.settle()
        return [{"agent": one.name, "session_id": each, "state": "crashed"} for each in buried]

    rows, code = _of_each(context, context.home_to_change(), agent, found)
    return Rows(rows, {"crashed": len(rows)}, exit_code=code)


def _of_each(
    context: Context, home: Home, agent: str | None, rows_of: Callable[[Agent], list[Record]]
) -> tuple[list[Record], int]:
    """Rows of an agent, or of all of them: one that cannot be read stops nobody, but is told."""
    from holdfast.ledger.book import agents

    if agent is not None:
        with opened(home, agent, context.layout) as one:
            return rows_of(one), 0
    rows: list[Record] = []
    failed: list[HoldfastError] = []
    heard = False
    for name in agents(home, context.layout):
        try:
            with opened(home, name, context.layout) as one:
                rows += rows_of(one)
            heard = True
        except NotFound:
            continue  # a folder with notes alone: nobody in it has had a session
        except HoldfastError as error:
            failed.append(error)
            context.warn(f"{name}: {error.message}")
    if failed and not heard:
        raise failed[0]  # as on a full disk: it is not this or that agent
    return rows, HoldfastError.exit_code if failed else 0


@example("holdfast session context --agent rio")
def given_context(context: Context, *, agent: Annotated[str, Arg("Whose context")]) -> Show:
    from holdfast.agents.context import compose, gather
    from holdfast.agents.recall import recalled

    home = context.home()
    with opened(home, agent, context.layout) as one:
        text = compose(recalled(home, one, gather(home, one), keep=context.adopted))
    return Show({"agent": one.name, "context": text}, text=text)


@example(
    "holdfast session list --agent rio --limit 5",
    columns="session_id role type status cause started_at ended_at",
)
def list_(
    context: Context,
    *,
    agent: OfAgent = None,
    limit: Annotated[int, Arg("The newest N; 0 is all")] = 20,
) -> Rows:
    def found(one: Agent) -> list[Record]:
        return [_row(one, each) for each in sessions(one)]

    rows, code = _of_each(context, context.home(), agent, found)
    rows.sort(key=lambda row: str(row["started_at"]))
    shown = rows[-limit:] if checked_limit(limit) else rows
    running = sum(row["status"] == "running" for row in shown)
    counts = {"sessions": len(shown), "running": running}
    return Rows(shown, counts, truncated=len(shown) < len(rows), exit_code=code)


def sessions(one: Agent) -> list[Session]:
    """Every session of an agent, as its journal tells it, oldest first."""
    from holdfast.agents import history

    return history.every_session(one.name, one.lines())


def _row(one: Agent, session: Session) -> Record:
    status = session["status"]
    if status == "running" and not one.is_live(session["role"]):
        status = "crashed"
    names = ("type", "started_at", "ended_at", "sources_archived", "cost_usd")
    return {
        "session_id": session["session_id"],
        "agent": one.name,
        "role": session["role"] or None,
        "status": status,
        **{name: session[name] for name in names},
        "cause": session.get("cause"),
        "errors": len(session["errors"]),
    }


@example("holdfast session show 2026-11-15_rio_001")
def show(
    context: Context, session: Annotated[str, Arg("Which session", positional=True, metavar="ID")]
) -> Show:
    found = session_id(session)
    with context.agent(found.agent) as one:
        lines = [line.record for line in one.lines(session)]
        known = [each for each in sessions(one) if each["session_id"] == session]
        if not known:
            raise NotFound(
                f"no session {session}", hint=f"`holdfast session list --agent {one.name}`"
            )
        row, output = _row(one, known[0]), one.output(session)
    fields = {name: known[0][name] for name in SESSION_FIELDS if known[0][name] is not None}
    extra = {
        name: known[0][name]
        for name in ("task", "pr_number", "exit_code", "signal", "duration_seconds", "measured")
        if known[0].get(name) is not None
    }
    told = {"errors": known[0]["errors"], "journal": lines, "output": output}
    return Show({**row, **fields, **extra, **told})


def _open(one: Agent, role: str) -> Session:
    """The session under way, or why there is none."""
    found = one.open_session(role)
    if found is not None:
        return found
    raise NotFound(
        f"{one.name} has no open session" + (f" as {role}" if role else ""),
        hint=f"`holdfast session start --agent {one.name}` begins one",
    )


def _refuse_living(context: Context, one: Agent, session: Session) -> None:
    """A session whose wrapper runs is ended by its wrapper, which knows how the command ended."""
    held = one.holder(session["role"])
    if held is None or held.owner in (None, this_process()) or not one.is_live(session["role"]):
        return
    named = session["session_id"]
    hint = f"end that process: kill {held.owner.pid}; its end is then written for it"
    if context.called_in_session(one.name) == named:
        hint = "say what there is to say with `holdfast session set`, or in $HOLDFAST_REPORT"
    raise Busy(f"{named} is ended by process {held.owner.pid}, which runs it", hint=hint)


def _known(one: Agent, session: str | None, *, heard: bool = False) -> str | None:
    """A session that somebody names, if the agent had it; `heard`: as far as its ledger knows."""
    if session is None:
        return None
    name = str(session_id(session))
    began = any(line.record.get("event") == "session_start" for line in one.lines(name))
    if began or (heard and one.ledger.newest(1, lambda each: each.record["session_id"] == name)):
        return name
    hint = f"`holdfast session list --agent {one.name}` shows those there are"
    raise NotFound(f"{one.name} has had no session {name}", hint=hint)


@example("holdfast agent count --agent rio --source ci claims_accepted=3")
def count(
    context: Context,
    counter: Annotated[Sequence[str], Arg("NAME=N, such as claims_accepted=3", positional=True)],
    *,
    agent: Annotated[str, Arg("For whom")],
    source: Annotated[str, Arg("Who counted: ci, reviewer, …")],
    session: Annotated[str | None, Arg("In which session", metavar="ID")] = None,
) -> Change:
    from holdfast.agents.metrics import COUNTERS

    known = (*COUNTERS, "disconfirmation_hits")
    counters: dict[str, int] = {}
    for each in counter:
        name, _, number = each.partition("=")
        if name not in known:
            raise UsageError(f"no counter {name[:60]!r}", hint=f"one of {', '.join(known)}")
        if not re.fullmatch(r"[+-]?[0-9]{1,12}", number):
            raise UsageError(f"not a number: {each[:80]!r}", hint=f"write {name}=3")
        counters[name] = int(number)
    with context.agent(agent, change=True) as one:
        line: Record = {"event": "count", "source": source, "counters": counters}
        known_as = _known(one, session, heard=True)
        cursor = one.append("the count", line | ({"session_id": known_as} if known_as else {}))
    detail = ", ".join(f"{name} {value:+d}" for name, value in counters.items())
    return Change(f"{one.name}#{cursor.seq}", applied=True, detail=detail, data=counters)
