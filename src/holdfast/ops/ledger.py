"""The verbs of the ledger."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Annotated, Any

from holdfast.errors import HoldfastError, Indeterminate, NotFound, NotOurs, UsageError
from holdfast.ids import agent_id
from holdfast.layout import HOLDFAST
from holdfast.ledger.book import Event, Found, Ledger, WrittenEvent, agents, key_of, unfit_agents
from holdfast.ledger.entry import EVENTS, check_source, lacking, parse_data
from holdfast.ledger.spool import Spool, Waiting
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, Stream
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun, OfAgent, Since, checked_limit, known_agent, moment
from holdfast.store.home import Home, find
from holdfast.store.primitives import START, Cursor, Question, Verified
from holdfast.text import duration, plural

CORRUPT = 6
_PAUSE = 0.2
_LARGEST_CHECKPOINT = 16 << 20
_ANYTHING: Mapping[str, str] = MappingProxyType({})


_LIKE = {
    "task_type": '"research"',
    "status": '"success"',
    "duration_sec": "120",
    "error": '"what went wrong"',
}
"""Of what readers look for in the data of an event, an example."""


@example('holdfast ledger write --agent rio --event task_start --task wo-1 "Read the logs"')
def write(
    context: Context,
    text: Annotated[str, Arg("What happened, in a line; never interpreted", positional=True)] = "",
    *,
    agent: Annotated[str, Arg("Who did it")],
    event: Annotated[
        str, Arg("heartbeat, task_start, task_result, error, info, or one of your settings")
    ],
    task: Annotated[str | None, Arg("The task it belongs to", metavar="ID")] = None,
    source: Annotated[str, Arg("Who or what asked for it")] = "user",
    session: Annotated[str | None, Arg("Session id; `new` begins one", metavar="ID")] = None,
    data: Annotated[str | None, Arg("More about it: a JSON object", or_file=True)] = None,
    best_effort: Annotated[
        bool, Arg("If it cannot be written: keep it for later, warn and exit 0")
    ] = False,
    throttle: Annotated[
        str | None, Arg("Count what was written so lately, instead of repeating it", metavar="D")
    ] = None,
) -> Change:
    agent = agent_id(agent).lower()
    if not text and event != "heartbeat":
        raise UsageError(f"{event} without a text", hint="say what happened, in quotes, at the end")
    what = Event(
        event=event,
        summary=text or "Heartbeat",
        source=source,
        task=task,
        session=session or context.called_in_session(agent),
        data=parse_data(event, data.encode()) if data is not None else {},
    )
    check_source(source)
    spool = Spool(context.place or find(), agent, context.clock)
    try:
        home = _checked_home(context, what, agent)
        with Ledger(home, agent, context.layout) as ledger:
            _greet(context, home, ledger)
            waiting = _waiting(context, spool, ledger)
            pause = home.settings.throttle if throttle is None else duration(throttle)
            if pause is None:
                written = ledger.write(what, waiting.events)
            else:
                written = _throttled(context, ledger, what, pause, waiting)
    except HoldfastError as error:
        if not best_effort or isinstance(error, UsageError):
            raise
        return _keep(context, spool, what, error)
    if isinstance(written, Change):
        return written
    _pass(context, spool, waiting)
    if written.stale is not None:
        context.warn(f"written, but the status is behind: {written.stale.message}")
    if missing := lacking(event, what.data or {}):
        example = ", ".join(f'"{name}": {_LIKE[name]}' for name in missing)
        names = " and ".join(missing)
        like = f"--data '{{{example}}}'"
        context.warn(f"{event} without {names} in its data; readers look for {like}")
    record, cursor = written.record, written.cursor
    detail = f"{record['session_id']} #{cursor.seq} {record['event']} {record['task_id']}"
    return Change(
        target=f"{agent}#{cursor.seq}",
        applied=True,
        detail=detail,
        data={**record, "seq": cursor.seq, "hash": cursor.hash, "file": cursor.segment},
    )


def _throttled(
    context: Context, ledger: Ledger, what: Event, pause: float, waiting: Waiting
) -> WrittenEvent | Change:
    from holdfast.ledger import throttle

    home = context.home()
    key = f"{key_of(home, context.layout, 'agent', ledger.agent)}/{throttle.NAME}"
    done = throttle.write(
        home, key, ledger, what, pause, lambda event: ledger.write(event, waiting.events)
    )
    if not isinstance(done, throttle.Counted):
        return done
    times = plural(done.times, "time")
    detail = f"counted, not repeated: it is #{done.seq}, and came {times} more"
    data = {"seq": done.seq, "repeated": done.times}
    return Change(f"{ledger.agent}#{done.seq}", applied=False, detail=detail, data=data)


def _checked_home(context: Context, what: Event, agent: str) -> Home:
    """The home, made if it is not there, but not for an event that can never be written."""
    try:
        home = context.home()
    except NotFound:
        what.check(agent)
        return context.home(create=True)
    if context.adopted:
        return home  # the ledger checks what it writes
    what.check(agent, home.settings.extra_events)
    return context.home(create=True)


def _greet(context: Context, home: Home, ledger: Ledger) -> None:
    """Say so when an agent is new: it may be a slip of the keyboard."""
    if ledger.exists():
        return
    others = agents(home, context.layout)
    if others and ledger.agent not in others:
        context.warn(f"first event of {ledger.agent}; known so far: {', '.join(others)}")


def _waiting(context: Context, spool: Spool, ledger: Ledger) -> Waiting:
    try:
        return spool.waiting(ledger.state()["spools"])
    except HoldfastError as error:
        context.warn(f"spooled events cannot be read from {spool.path}: {error.message}")
        return Waiting([], START)


def _pass(context: Context, spool: Spool, waiting: Waiting) -> None:
    if waiting.events:
        context.warn(f"took in {len(waiting.events)} events that had been kept in {spool.path}")
        with suppress(HoldfastError):
            spool.passed(waiting.end)  # it only saves the next one from looking at them again


def _keep(context: Context, spool: Spool, what: Event, error: HoldfastError) -> Change:
    context.warn(f"NOT written to the ledger: {error.message}")
    if isinstance(error, Indeterminate):
        # Kept, it could be there twice; the caller is told to look.
        return Change("", applied=False, detail="perhaps written: read the ledger to see")
    try:
        spool.put(what)
    except HoldfastError as second:
        context.warn(f"NOT kept for later either: {second.message}")
        return Change("", applied=False, detail="not written, and not kept: it is lost")
    detail = f"kept in {spool.path}; the next write to this ledger takes it in"
    return Change(spool.path, applied=False, detail=detail)


@example(
    "holdfast ledger list --agent rio --event error --since 2026-11-01 --limit 20",
    columns="seq ts agent event task_id summary",
)
def list_(
    context: Context,
    *,
    agent: OfAgent = None,
    event: Annotated[str | None, Arg("Only events of this type")] = None,
    task: Annotated[str | None, Arg("Only of this task", metavar="ID")] = None,
    session: Annotated[str | None, Arg("Only of this session", metavar="ID")] = None,
    since: Since = None,
    until: Annotated[str | None, Arg("Up to then", metavar="T")] = None,
    limit: Annotated[int, Arg("The newest N; 0 is all")] = 100,
    dedupe: Annotated[bool, Arg("Each entry once, however often it is there")] = False,
) -> Rows:
    home = context.home()
    begin = moment(since, home) if since is not None else None
    end = moment(until, home) if until is not None else None
    given = {"event": event, "task_id": task, "session_id": session}
    asked = {name: value for name, value in given.items() if value is not None}
    wanted = _filter(asked, begin, end)
    # One more than asked for tells whether there is more.
    most = checked_limit(limit) + 1 if limit and not dedupe else None
    streams: list[list[Found]] = []
    for name in chosen_agents(context, agent):
        with _skipped_if_alien(context, name, set(), named=agent is not None):
            streams += _streams(context, name, wanted, begin, asked, most)
    rows = _merged(streams)
    counts: dict[str, int] = {}
    if dedupe:
        from holdfast.contracts.ledger import content

        met, kept = len(rows), dict[bytes, Found]()
        for each in rows:
            kept.setdefault(content(each.record), each)
        rows = list(kept.values())
        counts["duplicates"] = met - len(rows)
    shown = rows[-limit:] if limit else rows
    known = (*EVENTS, *home.settings.extra_events)
    if event and not rows and event not in known:
        context.warn(f"no event is called {event}; there are {', '.join(known)}")
    return Rows(
        [_row(each) for each in shown],
        {"shown": len(shown), **counts},
        truncated=len(shown) < len(rows),
    )


def entries(
    context: Context,
    agent: str,
    wanted: Callable[[Found], bool],
    since: float | None = None,
    *,
    asked: Mapping[str, str] = _ANYTHING,
) -> list[Found]:
    """The wanted entries of an agent, imported ones too, oldest first.

    `asked` are values that they have to have: an index of the ledger finds those.
    """
    return _merged(_streams(context, agent, wanted, since, asked, None))


def _streams(
    context: Context,
    agent: str,
    wanted: Callable[[Found], bool],
    since: float | None,
    asked: Mapping[str, str],
    most: int | None,
) -> list[list[Found]]:
    """The ledger of an agent and the files imported into it, each in its order."""
    home = context.home()
    ledger = Ledger(home, agent, context.layout)
    progress = context.progress(f"making an index of the ledger of {agent}")
    question = Question(asked, keep=context.adopted, progress=progress)
    streams = [ledger.newest(most, wanted, since, question)]
    if asked and progress is not None:
        progress(1, 1)
    if ledger.damaged:
        count = plural(len(ledger.damaged), "damaged line")
        context.warn(f"{agent}: left out {count}; `holdfast ledger verify` tells where")
    if context.once("imports", ledger.key, ledger.has_imports):
        from holdfast.interop import ledgers

        streams += ledgers.newest(ledger, home, most, wanted, since)
    return streams


def _merged(streams: list[list[Found]]) -> list[Found]:
    """Several ledgers as one: by time between them, by sequence within each."""

    def timed(stream: list[Found]) -> Iterator[tuple[float, Found]]:
        latest = 0.0
        for found in stream:
            latest = max(latest, found.instant)  # a clock that went back reorders nothing
            yield latest, found

    merged = heapq.merge(*map(timed, streams), key=lambda each: each[0])
    return [found for _, found in merged]


@contextmanager
def _skipped_if_alien(
    context: Context, name: str, skipped: set[str], *, named: bool
) -> Generator[None]:
    """Warn and go on where a file of this agent is not safe to read, unless it was asked for."""
    try:
        yield
    except NotOurs as error:
        if named:
            raise
        skipped.add(name)
        context.warn(f"{name} is left out: {error.message}")


@example("holdfast ledger tail --agent rio --follow", columns="seq ts agent event task_id summary")
def tail(
    context: Context,
    *,
    agent: OfAgent = None,
    limit: Annotated[int, Arg("How many to begin with")] = 10,
    follow: Annotated[bool, Arg("Go on showing events as they are written")] = False,
) -> Stream:
    return Stream(_follow(context, agent, checked_limit(limit), follow=follow))


def _follow(
    context: Context, agent: str | None, limit: int, *, follow: bool
) -> Iterator[dict[str, Any]]:
    home = context.home()
    begun: list[list[Found]] = []
    ends: dict[str, Cursor] = {}
    skipped: set[str] = set()
    for name in chosen_agents(context, agent):
        with _skipped_if_alien(context, name, skipped, named=agent is not None):
            found = Ledger(home, name, context.layout).newest(max(limit, 1), lambda _: True)
            ends[name] = found[-1].cursor if found else START
            begun.append(found)
    merged = _merged(begun)
    if not merged:
        context.warn("no events yet" + ("; waiting for the first" if follow else ""))
    yield from map(_row, merged[len(merged) - limit :] if limit < len(merged) else merged)
    while follow:
        names = [agent_id(agent).lower()] if agent is not None else agents(home, context.layout)
        for name in [each for each in names if each not in skipped]:
            with _skipped_if_alien(context, name, skipped, named=agent is not None):
                for found in Ledger(home, name, context.layout).read(ends.get(name, START)):
                    ends[name] = found.cursor
                    yield _row(found)
        context.clock.sleep(_PAUSE)


@example("holdfast ledger verify --agent rio", columns="agent state where detail")
def verify(
    context: Context,
    *,
    agent: OfAgent = None,
    against: Annotated[
        str | None,
        Arg("A checkpoint that the ledgers must still hold", metavar="FILE", is_path=True),
    ] = None,
) -> Rows:
    home = context.home()
    rows: list[dict[str, Any]] = []
    counts = {"agents": 0, "lines": 0, "unchained": 0, "bad_lines": 0, "problems": 0}
    loose = 0
    if against is not None:
        rows += _broken_promises(context, against, agent)
        counts["problems"] += len(rows)
    for name in chosen_agents(context, agent):
        ledger = Ledger(home, name, context.layout)
        counts["agents"] += 1
        try:
            found = ledger.verify()
            if ledger.has_imports():
                from holdfast.interop import ledgers

                found.problems.extend(ledgers.problems(ledger, home))
        except NotOurs as error:
            counts["problems"] += 1
            told = {"agent": name, "state": "alien", "where": error.path, "detail": error.message}
            rows.append(told)
            continue
        loose += found.loose
        counts["lines"] += found.sealed
        counts["unchained"] += found.unchained
        counts["bad_lines"] += len(found.bad)
        counts["problems"] += len(found.problems)
        rows += _verdict(name, found)
    code = CORRUPT if counts["problems"] else ATTENTION if loose else 0
    return Rows(rows, counts, exit_code=code)


def _broken_promises(context: Context, file: str, agent: str | None) -> Iterator[dict[str, Any]]:
    """What a checkpoint says was there and is not."""
    from holdfast.ledger.checkpoint import parse
    from holdfast.userfile import read

    try:
        promised = parse(read(file, _LARGEST_CHECKPOINT))
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror}", hint="name the file of a checkpoint"
        ) from None
    for head in promised.heads:
        if agent is not None and head.agent != agent_id(agent).lower():
            continue
        if not Ledger(context.home(), head.agent, context.layout).log.contains(head.cursor):
            detail = f"line {head.seq} was signed at {promised.signed_at} and is not there any more"
            where = {"agent": head.agent, "state": "rolled back", "where": head.segment}
            yield {**where, "detail": detail}


def _verdict(agent: str, found: Verified) -> Iterator[dict[str, Any]]:
    """A row for each thing to look at, and one for the whole."""
    for problem in found.problems:
        where = f"{problem.segment}:{problem.line}" if problem.line else problem.segment
        detail = f"{problem.detail} (byte {problem.offset})"
        yield {"agent": agent, "state": problem.kind, "where": where, "detail": detail}
    for bad in found.bad:
        where = f"{bad.segment}:{bad.line}"
        yield {
            "agent": agent,
            "state": "bad line",
            "where": where,
            "detail": f"{bad.reason} (byte {bad.offset})",
        }
    lines = f"{found.sealed} lines" + (f", {found.unchained} unchained" if found.unchained else "")
    state = "broken" if found.problems else "sound" if found.sealed else "no events yet"
    if not found.sealed and not found.problems:
        # Nothing proves lines that others wrote, until a line of ours follows them.
        state = "unchained" if found.unchained else "not a ledger" if found.loose else state
    head = f"#{found.head.seq} {found.head.hash[:16]}" if found.sealed else None
    yield {"agent": agent, "state": state, "where": head, "detail": lines}


@example("holdfast ledger archive --older-than 30d", columns="agent file state bytes packed_bytes")
def archive(
    context: Context,
    *,
    agent: OfAgent = None,
    older_than: Annotated[
        str | None, Arg("Only days before then: 30d, a date or a time", metavar="T")
    ] = None,
    dry_run: DryRun = False,
) -> Rows:
    home = context.own_home(
        ", whose readers know no packed files",
        hint="`holdfast import` brings it into a home of Holdfast's own",
    )
    before = home.day(moment(older_than, home)) if older_than is not None else None
    rows: list[dict[str, Any]] = []
    for name in chosen_agents(context, agent):
        try:
            for done in Ledger(home, name).log.archive(before=before, dry_run=dry_run):
                if done.left:
                    context.warn(f"{name}: {done.segment} was left as it is: {done.left}")
                state = "left" if done.left else "would be packed" if dry_run else "packed"
                size = {"bytes": done.size, "packed_bytes": done.packed or None}
                rows.append({"agent": name, "file": done.segment, "state": state, **size})
        except NotOurs as error:
            context.warn(f"{name}: {error.message}")
            none = {"bytes": None, "packed_bytes": None}
            rows.append({"agent": name, "file": error.path, "state": "alien", **none})
    packed = [row for row in rows if row["state"] not in ("left", "alien")]
    counts = {"files": len(packed), "bytes": sum(row["bytes"] for row in packed)}
    counts["packed_bytes"] = sum(row["packed_bytes"] or 0 for row in packed)
    alien = any(row["state"] == "alien" for row in rows)
    return Rows(rows, counts, exit_code=ATTENTION if alien else 0)


def chosen_agents(context: Context, agent: str | None) -> list[str]:
    """The agent that was named, if there is such a one; else all."""
    home, layout = context.home(), context.layout
    known = agents(home, layout)
    if layout is not HOLDFAST and (unfit := unfit_agents(home, layout)):
        context.warn(f"left out, since no agent of ours can be called that: {', '.join(unfit)}")
    if agent is None:
        return known
    return [known_agent(agent, known)]


def _filter(
    asked: Mapping[str, str], begin: float | None, end: float | None
) -> Callable[[Found], bool]:
    def wanted(found: Found) -> bool:
        entry = found.entry if asked else {}
        if any(entry.get(name) != value for name, value in asked.items()):
            return False
        if begin is None and end is None:
            return True
        return (begin is None or found.instant >= begin) and (end is None or found.instant < end)

    return wanted


def _row(found: Found) -> dict[str, Any]:
    line = found.line
    return {**found.entry, "seq": line.seq, "hash": line.hash, "file": line.segment}
