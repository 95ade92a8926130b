"""The verbs of the home as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from holdfast.clock import utc_stamp
from holdfast.codec import pretty
from holdfast.errors import BadName, ConfigError, NotFound
from holdfast.ids import SessionId, agent_id, key_parts, session_id
from holdfast.layout import HOLDFAST, Layout
from holdfast.ledger.book import Ledger, agents, key_of
from holdfast.ledger.status import SHOWN, presence
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, Show
from holdfast.ops.examine import examine, proved
from holdfast.ops.parameter import Arg
from holdfast.store.check import HARMLESS
from holdfast.store.check import check as prove
from holdfast.store.home import Home, find
from holdfast.store.sweep import sweep

CORRUPT = 6


def init(
    context: Context,
    agent: Annotated[Sequence[str], Arg("Agents to make", positional=True)] = (),
    *,
    timezone: Annotated[
        str | None, Arg("Zone of the home's days: UTC, +07:00, Europe/Berlin", metavar="ZONE")
    ] = None,
    dry_run: Annotated[bool, Arg("Only say what would be done")] = False,
) -> Change:
    names = [agent_id(name) for name in agent]
    if dry_run:
        return _would_make(context, names)
    home, made = _home(context, timezone)
    fresh = [name for name in names if _make_agent(home, context.layout, name)]
    known = [name for name in names if name not in fresh]
    parts = [f"{'made' if made else 'found'} home {home.path}, zone {home.settings.timezone}"]
    parts += [f"made {', '.join(fresh)}"] if fresh else []
    parts += [f"already there: {', '.join(known)}"] if known else []
    data = {"home": home.path, "timezone": home.settings.timezone, "made": fresh}
    data["layout"] = context.layout.name
    return Change(home.path, applied=made or bool(fresh), detail="; ".join(parts), data=data)


def _would_make(context: Context, names: list[str]) -> Change:
    place = os.path.abspath(context.place or find())
    try:
        home = context.home()
        fresh = [name for name in names if not _is_agent(home, context.layout, name)]
        parts = [f"found home {home.path}"]
    except NotFound:
        fresh, parts = names, [f"would make a home at {place}"]
    parts += [f"would make {', '.join(fresh)}"] if fresh else []
    return Change(place, applied=False, detail="; ".join(parts), dry_run=True)


def _home(context: Context, timezone: str | None) -> tuple[Home, bool]:
    """The home, and whether it was made just now."""
    try:
        made = not context.adopted
    except NotFound:
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


def _make_agent(home: Home, layout: Layout, name: str) -> bool:
    """Whether the agent was not there before."""
    if _is_agent(home, layout, name):
        return False
    document = home.document(layout.manifest(name))
    text = pretty({"agent_id": name, "created_at": utc_stamp(home.clock.now())})
    document.update(lambda old: old or text)
    return True


def _is_agent(home: Home, layout: Layout, name: str) -> bool:
    return home.document(layout.manifest(name)).read() is not None


def status(
    context: Context,
    agent: Annotated[str | None, Arg("Only this agent", positional=True)] = None,
) -> Rows:
    home = context.home()
    known = agents(home, context.layout)
    if agent is not None:
        name = agent_id(agent).lower()
        if name not in known:
            hint = f"known: {', '.join(known)}" if known else "`holdfast init NAME` makes one"
            raise NotFound(f"no agent called {agent}", hint=hint)
        known = [name]
    rows = [_standing(home, context.layout, name) for name in known]
    states = [row["state"] for row in rows]
    return Rows(rows, {"agents": len(rows), **{s: states.count(s) for s in sorted(set(states))}})


def _standing(home: Home, layout: Layout, agent: str) -> dict[str, Any]:
    state = Ledger(home, agent, layout).status()
    now = presence(state, home.clock.now(), home.settings.offline_after)
    row = {name: state[name] for name in SHOWN} | {"agent": agent}
    age = None if now.age is None else round(now.age)
    return {
        **row,
        "recorded_state": state["state"],
        "state": now.state,
        "age": age,
        "note": now.note,
    }


def check(
    context: Context,
    *,
    all: Annotated[bool, Arg("Also list traces of crashes that cost nothing")] = False,
) -> Rows:
    home = _own(context)
    found = list(proved(home))
    serious = [each for each in found if each.kind not in HARMLESS]
    shown = found if all else serious
    counts = {"files": len(home.keys()), "broken": len(serious)}
    counts["harmless"] = len(found) - len(serious)
    return Rows([each._asdict() for each in shown], counts, exit_code=CORRUPT if serious else 0)


def doctor(
    context: Context,
    *,
    fix: Annotated[bool, Arg("Mend what can be mended without losing anything")] = False,
    dry_run: Annotated[bool, Arg("With --fix: only say what would be done")] = False,
) -> Rows:
    home = _own(context)
    mended = list(_mend(home, dry_run=dry_run)) if fix else []
    rows = [*mended, *(each.as_row() for each in examine(home))]
    states = [row["state"] for row in rows]
    counts = {state: states.count(state) for state in ("ok", "warning", "broken", "mended")}
    bad = counts["broken"] + counts["warning"]
    return Rows(rows, counts, exit_code=ATTENTION if bad else 0)


def _mend(home: Home, *, dry_run: bool) -> Iterator[dict[str, Any]]:
    word = "would be mended" if dry_run else "mended"
    for key in sweep(home, dry_run=dry_run):
        detail = "left behind by a writer that died" + (", would be removed" if dry_run else "")
        yield {"check": key, "state": word, "detail": detail, "fix": ""}
    stale = {each.key for each in prove(home) if each.kind in ("view", "stale")}
    for name in agents(home):
        key = HOLDFAST.status(name)
        if key in stale:
            if not dry_run:
                Ledger(home, name).rebuild()
            yield {"check": key, "state": word, "detail": "folded anew", "fix": ""}


def _own(context: Context) -> Home:
    """The home, if all that is in it is ours to judge."""
    home = context.home()
    if context.layout is not HOLDFAST:
        raise ConfigError(
            f"{home.path} is a tree of {context.layout.name}: most of its files are not ours",
            hint="`holdfast ledger verify` proves what Holdfast wrote to it",
            path=home.path,
        )
    return home


def rebuild(
    context: Context,
    *,
    dry_run: Annotated[bool, Arg("Only say what would be done")] = False,
) -> Change:
    home, layout = context.home_to_change(), context.layout
    keys: list[str] = []
    for name in agents(home, layout):
        with Ledger(home, name, layout) as ledger:
            if not ledger.exists():
                continue
            keys.append(ledger.status_key)
            for aside in [] if dry_run else ledger.rebuild():
                context.warn(f"{ledger.status_key} was edited by hand; kept as {aside}")
    verb = "would fold anew" if dry_run else "folded anew"
    detail = f"{verb}: {', '.join(keys) or 'nothing'}"
    return Change(home.path, bool(keys) and not dry_run, detail, dry_run=dry_run)


def path(
    context: Context,
    id: Annotated[str | None, Arg("An agent, a session or a key", positional=True)] = None,
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
    try:
        return _file_of(context, session_id(id))
    except BadName:
        key_parts(id)
    if any(key == id or key.startswith(f"{id}/") for key in home.keys()):
        return id
    raise NotFound(
        f"nothing called {id}", hint="an agent, a session id, or a key such as ledger/rio"
    )
