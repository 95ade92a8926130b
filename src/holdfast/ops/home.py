"""The verbs of the home as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Annotated, Any

from holdfast.agents import alerts
from holdfast.agents.agent import Agent
from holdfast.agents.lifecycle import ENTRIES, bootstrap, missing, name_of, refresh_index
from holdfast.errors import BadName, ConfigError, NotFound
from holdfast.ids import SessionId, agent_id, key_parts, session_id
from holdfast.improve.journal import AGENT_SETTINGS, Journal, campaigns
from holdfast.layout import ALERTED, ALERTS, HOLDFAST, SPEND, SPENT, Layout
from holdfast.ledger.book import Ledger, agents, key_of
from holdfast.memory.topics import Topics
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show
from holdfast.ops.examine import proved
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun
from holdfast.spend import book
from holdfast.state.statelog import StateLog
from holdfast.store.check import HARMLESS
from holdfast.store.home import Home, find
from holdfast.store.view import Shape

CORRUPT = 6


@example("holdfast init rio clay")
def init(
    context: Context,
    agent: Annotated[Sequence[str], Arg("Agents to make", positional=True)] = (),
    *,
    timezone: Annotated[
        str | None, Arg("Zone of the home's days: UTC, +07:00, Europe/Berlin", metavar="ZONE")
    ] = None,
    dry_run: DryRun = False,
) -> Change:
    names = [agent_id(name) for name in agent]
    home, made = _home(context, timezone, dry_run=dry_run)
    added: dict[str, list[str]] = {}
    for name in names:
        if home is None:
            added[name] = [HOLDFAST.path(part, "x").rpartition("/")[2] for part in ENTRIES]
            continue
        with Agent(home, name, context.layout) as one:
            parts = missing(home, one) if dry_run else bootstrap(home, one, name)
            added[name] = [name_of(one, part) for part in parts]
    if home is None:
        place = os.path.abspath(context.place or find())
        told = [f"would make a home at {place}", *_told(added, dry_run=True)]
        data: dict[str, Any] = {"home": place, "added": added}
        return Change(place, applied=False, detail="; ".join(told), data=data, dry_run=True)
    if names and context.layout is HOLDFAST and not dry_run:
        refresh_index(home)
    zone = home.settings.timezone
    told = [f"{'made' if made else 'found'} home {home.path}, zone {zone}"]
    told += _told(added, dry_run=dry_run)
    fresh = [name for name, parts in added.items() if _is_new(parts)]
    data = {"home": home.path, "timezone": zone, "layout": context.layout.name}
    data |= {"made": [] if dry_run else fresh, "added": added}
    applied = not dry_run and (made or any(added.values()))
    return Change(home.path, applied, detail="; ".join(told), data=data, dry_run=dry_run)


def _is_new(parts: Sequence[str]) -> bool:
    """Whether what was missing of an agent shows that it was not there at all."""
    return "manifest.json" in parts


def _told(added: dict[str, list[str]], *, dry_run: bool) -> Iterator[str]:
    """In words what was made for each agent, or would be."""
    if fresh := [name for name, parts in added.items() if _is_new(parts)]:
        entries = ", ".join(added[fresh[0]])
        yield f"{'would make' if dry_run else 'made'} {', '.join(fresh)}, with {entries}"
    for name, parts in added.items():
        if parts and not _is_new(parts):
            yield f"{'would add' if dry_run else 'added'} to {name}: {', '.join(parts)}"
    if known := [name for name, parts in added.items() if not parts]:
        yield f"already there: {', '.join(known)}"


def _home(context: Context, timezone: str | None, *, dry_run: bool) -> tuple[Home | None, bool]:
    """The home, and whether it was made just now; None if a dry run finds none."""
    try:
        made = not context.adopted and not dry_run
    except NotFound:
        if dry_run:
            return None, False
        made = True
    if made:
        return context.home(create=True, timezone=timezone), True
    home = context.home()
    if timezone not in (None, home.settings.timezone):
        raise ConfigError(
            f"the zone of this home is {home.settings.timezone} and stays",
            hint="its days are already named by it; make another home for another zone",
            path=home.path,
        )
    return home, False


@example("holdfast check --json", columns="kind key detail repair")
def check(
    context: Context,
    *,
    all: Annotated[bool, Arg("Also list traces of crashes that cost nothing")] = False,
) -> Rows:
    home = own_home(context)
    found = list(proved(home))
    serious = [each for each in found if each.kind not in HARMLESS]
    shown = found if all else serious
    counts = {"files": len(home.keys()), "broken": len(serious)}
    counts["harmless"] = len(found) - len(serious)
    return Rows([each._asdict() for each in shown], counts, exit_code=CORRUPT if serious else 0)


def own_home(context: Context) -> Home:
    """The home, if all that is in it is ours to judge."""
    return context.own_home(
        ": most of its files are not Holdfast's",
        hint="`holdfast ledger verify` proves what Holdfast wrote to it",
    )


@example("holdfast rebuild")
def rebuild(context: Context, *, dry_run: DryRun = False) -> Change:
    home, layout = context.home_to_change(), context.layout
    keys: list[str] = []
    found = [_rebuilt(home, layout, name, dry_run=dry_run) for name in agents(home, layout)]
    if layout is HOLDFAST:
        # Most homes have no jobs, and loading what they need takes its time.
        from holdfast.jobs.queue import rebuilt

        found.append(rebuilt(home, layout, dry_run=dry_run))
        found.append(_rebuilt_campaigns(home, dry_run=dry_run))
    for key, aside in chain(*found, _rebuilt_of_the_fleet(home, dry_run=dry_run)):
        keys.append(key)
        for kept in aside:
            context.warn(f"{key} was edited by hand; kept as {kept}")
    if keys and layout is HOLDFAST:
        keys.append(HOLDFAST.path("index"))
        if not dry_run:
            refresh_index(home)
    verb = "would rebuild" if dry_run else "rebuilt"
    detail = f"{verb}: {', '.join(keys) or 'nothing'}"
    return Change(home.path, bool(keys) and not dry_run, detail, dry_run=dry_run)


def _rebuilt(
    home: Home, layout: Layout, name: str, *, dry_run: bool
) -> Iterator[tuple[str, list[str]]]:
    """The views of an agent, and the names under which hand-edited ones were kept."""
    with Agent(home, name, layout) as agent:
        if agent.ledger.exists():
            yield agent.ledger.status_key, [] if dry_run else agent.ledger.rebuild()
        with Topics(home, agent.key) as topics:
            if topics.log.segments():
                if not dry_run:
                    topics.show()
                yield topics.fmm, topics.kept_aside
        # In the tree of another system a report is theirs until we have written one.
        ours = layout is HOLDFAST or home.cell(agent.key("report")).peek() is not None
        if ours and agent.journal.log.segments():
            yield from agent.rebuild(dry_run=dry_run)


def _rebuilt_campaigns(home: Home, *, dry_run: bool) -> Iterator[tuple[str, list[str]]]:
    for place in campaigns(home):
        from holdfast.improve.views import Views

        with Journal(home, place) as journal:
            yield place.key(AGENT_SETTINGS), [] if dry_run else journal.lines.rebuild()
            if not dry_run:
                Views(home, place).rebuild(journal.lines.log)


def _rebuilt_of_the_fleet(home: Home, *, dry_run: bool) -> Iterator[tuple[str, list[str]]]:
    shapes: tuple[tuple[str, str, Shape[Any]], ...] = (
        (SPENT, SPEND, book.SHAPE),
        (ALERTED, ALERTS, alerts.SHAPE),
    )
    for key, told_by, shape in shapes:
        with StateLog(home, told_by, shape, {key: shape.render}) as state:
            if state.log.segments():
                yield key, [] if dry_run else state.rebuild()


@example("holdfast path rio")
def path(
    context: Context,
    id: Annotated[str | None, Arg("An agent, a session, a job or a key", positional=True)] = None,
) -> Show:
    home = context.home()
    place = home.path if id is None else os.path.join(home.path, _key_of(context, id))
    return Show({"id": id, "path": place}, text=place)


def _file_of(context: Context, session: SessionId) -> str:
    """The file in which a session begins."""
    home, ledger = context.home(), Ledger(context.home(), session.agent, context.layout)
    for found in ledger.read():
        if found.record.get("session_id") == str(session):
            key = f"{ledger.key}/{found.line.segment}"
            return key if key in home.keys(ledger.key) else f"{key}.zst"
    raise NotFound(f"no session called {session}", hint="`holdfast ledger list` shows sessions")


def _key_of(context: Context, id: str) -> str:
    """The key that an id stands for: of an agent, of a session, or itself."""
    home = context.home()
    try:
        name = agent_id(id).lower()
        if name in agents(home, context.layout):
            return key_of(home, context.layout, "agent", name)
    except BadName:
        pass
    if (job := _job_called(context, id)) is not None:
        return job
    try:
        return _file_of(context, session_id(id))
    except BadName:
        key_parts(id)
    if any(key == id or key.startswith(f"{id}/") for key in home.keys()):
        return id
    raise NotFound(
        f"nothing called {id}", hint="an agent, a session id, a job, or a key such as ledger/rio"
    )


def _job_called(context: Context, id: str) -> str | None:
    """The folder of a job."""
    from holdfast.jobs.job import is_job_id
    from holdfast.jobs.queue import has_history

    if context.layout is not HOLDFAST or not is_job_id(id):
        return None
    key = HOLDFAST.path("job", id)
    return key if has_history(context.home(), key) else None
