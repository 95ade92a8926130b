"""The verbs of agents: who there is, in which order to wake them; how they begin, change, multiply
and retire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict, Unpack

from holdfast import userfile
from holdfast.agents.agent import Agent, opened
from holdfast.agents.forking import fork as forked
from holdfast.agents.forking import lineage, refuse_fork, swapped
from holdfast.agents.forking import swap as swap_persona
from holdfast.agents.history import open_sessions
from holdfast.agents.lifecycle import bootstrap, refresh_index
from holdfast.agents.lifecycle import retire as retired
from holdfast.agents.persona import Edit, checked, from_text, library, patched, replaced
from holdfast.agents.standing import by_health, fleet, health, standing
from holdfast.clock import utc_stamp
from holdfast.codec import Record, pretty
from holdfast.errors import Corrupt, NotFound, UsageError, recorded
from holdfast.ids import agent_id
from holdfast.layout import HOLDFAST
from holdfast.ledger.book import agents, key_of
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show, tally
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun, known_agent
from holdfast.ops.status import now, row_of

_LARGEST = 4 << 20
_LIKE = 'such as {"roles": ["reviewer"]}; nothing was changed'
_OF_STATUS = ("troubles", "parked", "inbox", "inbox_high", "cost_today_usd", "sessions")
By = Literal["health", "name"]
Whose = Annotated[str, Arg("Which agent", positional=True)]


class PersonaFields(TypedDict, total=False):
    """What a persona says: flags of `agent new` and `agent edit`."""

    description: Annotated[str | None, Arg("Who it is, in a few sentences", metavar="TEXT")]
    display_name: Annotated[str | None, Arg("What people call it", metavar="NAME")]
    role: Annotated[Sequence[str], Arg("What it does; may be repeated", metavar="ROLE")]
    directive: Annotated[Sequence[str], Arg("What it keeps to; may be repeated", metavar="TEXT")]
    goal: Annotated[Sequence[str], Arg("What it is for; may be repeated", metavar="TEXT")]
    tag: Annotated[Sequence[str], Arg("A label; may be repeated")]


@example("holdfast agent list --by health", columns="place agent health reason")
def list_(
    context: Context,
    *,
    by: Annotated[By, Arg("In the order in which to wake them, or by name")] = "name",
) -> Rows:
    home = context.home()
    ordered = by_health(fleet(home, now(home), context.layout))
    rows = [{"place": place, **each._asdict()} for place, each in enumerate(ordered, 1)]
    if by == "name":
        rows.sort(key=lambda row: row["agent"])
    return Rows(rows, {"agents": len(rows), **tally(rows, "health")})


@example("holdfast agent show rio")
def show(context: Context, agent: Annotated[str, Arg("Which one", positional=True)]) -> Show:
    home, layout = context.home(), context.layout
    known = known_agent(agent, agents(home, layout))
    one = standing(home, known, now(home), layout)
    with Agent(home, known, layout) as opened:
        report, session, metrics = opened.report(), opened.session(), opened.metrics()
        try:
            persona = opened.persona.look()
        except Corrupt as error:  # an unreadable manifest does not hide the rest
            persona = None
            context.warn(error.message)
        retired = opened.state()["retired"]
        roles = {role: opened.session(role) for role in opened.state()["sessions"] if role}
        place = opened.key("agent")
    row = row_of(one)
    fit = health(one)
    data = {
        "agent": known,
        "path": f"{home.path}/{place}",
        "state": one.state,
        "health": fit.health,
        "reason": fit.reason,
        "retired": retired,
        "persona": persona,
        "lineage": lineage(home, layout, known),
        **{name: row[name] for name in _OF_STATUS},
        "recent": one.history["recent"],
        "report": report,
        "session": session,
        "roles": roles,
        "metrics": metrics,
    }
    return Show(data)


# --- how they begin, change, multiply and retire ------------------------------------------------


@example('holdfast agent new ada --role reviewer --goal "No flaky test in main"')
def new(
    context: Context,
    agent: Annotated[str, Arg("What it is to be called", positional=True, metavar="NAME")],
    *,
    from_: Annotated[
        str | None,
        Arg("A persona in JSON or YAML; - is standard input", metavar="FILE", is_path=True),
    ] = None,
    persona: Annotated[str | None, Arg("Begin as one of `agent personas`", metavar="NAME")] = None,
    dry_run: DryRun = False,
    **given: Unpack[PersonaFields],
) -> Change:
    if persona is not None and from_ is not None:
        raise UsageError("both --persona and --from", hint="give one of them")
    called, home = agent_id(agent), context.home_to_change()
    if home.document(key_of(home, context.layout, "manifest", called.lower())).read() is not None:
        raise _taken(called.lower())
    manifest: Record = {"agent_id": called}
    if persona is not None:
        manifest = from_text(_of_library(persona), called, persona)
    elif from_ is not None:
        text = userfile.text(from_, "--from", _LARGEST)
        manifest = from_text(text, called, "standard input" if from_ == "-" else from_)
    manifest = {**manifest, "created_at": utc_stamp(home.clock.now())}
    manifest = patched(manifest, _patch(given))
    for oddity in checked(manifest):
        context.warn(oddity)
    if dry_run:
        return Change(called, applied=False, detail="would make it", data=manifest, dry_run=True)
    with Agent(home, called, context.layout) as one:

        def first(before: Record) -> Record:
            if before:
                raise _taken(called.lower())  # somebody has made it meanwhile
            return manifest

        made = one.persona.change(first).after
        with recorded(f"agent {one.name}", f"`holdfast init {one.name}` makes what it lacks"):
            bootstrap(home, one, called)
            one.tell_topics()
            if context.layout is HOLDFAST:
                refresh_index(home, [one.name])
    return Change(one.name, applied=True, detail=f"made {one.name}", data=made)


@example("holdfast agent personas", columns="persona description")
def personas(
    context: Context,
    persona: Annotated[
        str | None, Arg("Show this one, as a file for `agent new --from`", positional=True)
    ] = None,
) -> Rows | Show:
    """`agent new NAME --persona PERSONA` makes an agent of one."""
    del context  # they need no home
    if persona is not None:
        text = _of_library(persona)
        return Show({"persona": persona, "text": text}, text=text.rstrip(), exact=True)
    rows = [
        {"persona": name, **{field: found.get(field) for field in ("roles", "description")}}
        for name, found in ((name, from_text(text, name, name)) for name, text in library().items())
    ]
    return Rows(rows, {"personas": len(rows)})


def _of_library(name: str) -> str:
    known = library()
    if name in known:
        return known[name]
    raise NotFound(f"no such persona: {name[:80]}", hint=f"one of {', '.join(known)}")


@example('holdfast agent edit rio --role researcher --goal "Know what fees are for"')
def edit(
    context: Context,
    agent: Whose,
    *,
    patch: Annotated[
        str | None,
        Arg("Fields to change, as an object; null takes one away", metavar="JSON", or_file=True),
    ] = None,
    dry_run: DryRun = False,
    **given: Unpack[PersonaFields],
) -> Change:
    """A list that is given replaces the present one. Without any field the manifest is opened in
    $EDITOR. Every change is a line of the agent's journal, also one that was made to the file by
    hand.
    """
    home = context.home_to_change()
    fields: Record = {}
    if patch is not None and not (fields := _object(patch, "--patch")):
        raise UsageError("--patch changes nothing", hint=_LIKE)
    fields |= _patch(given)
    with opened(home, agent, context.layout) as one:
        before = one.persona.look() if dry_run else one.persona.read()
        if fields:
            done = Edit(before, patched(before, fields))
        else:
            done = Edit(before, _by_hand(context, before))
        for oddity in checked(done.after):
            context.warn(oddity)
        if not dry_run and done.fields:
            # By name, so that what somebody else changes meanwhile stays.
            news = {name: done.after.get(name) for name in done.fields}
            done = one.persona.change(lambda now: _with(now, news))
            with recorded("the change"):
                one.tell_topics()
    did = "would change" if dry_run else "changed"
    detail = f"{did} {', '.join(done.fields)}" if done.fields else "nothing to change"
    return Change(
        one.name,
        applied=bool(done.fields) and not dry_run,
        detail=detail,
        data={
            "changed": done.fields,
            "before": {name: done.before.get(name) for name in done.fields},
            "after": {name: done.after.get(name) for name in done.fields},
        },
        dry_run=dry_run,
    )


@example('holdfast agent fork rio rio-2 --note "a second opinion"')
def fork(
    context: Context,
    old: Annotated[str, Arg("The agent to begin as", positional=True)],
    new: Annotated[str, Arg("What the new one is to be called", positional=True)],
    *,
    note: Annotated[str, Arg("What for", metavar="TEXT")] = "",
    dry_run: DryRun = False,
) -> Change:
    """It has the persona, memory.md, conversation and topics of the other agent as they are now;
    later changes of either are its own. Conversation and topics are referred to, not copied, so
    that a fork takes no more room than persona and memory.md. Tasks, messages, sessions and money
    stay with the other agent.
    """
    home, called = context.home_to_change(), agent_id(new)
    with opened(home, old, context.layout) as parent, Agent(home, new, context.layout) as child:
        if dry_run:
            refuse_fork(home, parent, child)
        else:
            forked(home, parent, child, called, note)
        names = parent.name, child.name
    did = "would fork" if dry_run else "forked"
    return Change(
        names[1],
        applied=not dry_run,
        detail=f"{did} {names[1]} from {names[0]}",
        data={"agent": names[1], "parent": names[0]},
        dry_run=dry_run,
    )


@example('holdfast agent swap rio --persona critic --cause "the plan needs a second look"')
def swap(
    context: Context,
    agent: Whose,
    *,
    persona: Annotated[str | None, Arg("One of `agent personas`", metavar="NAME")] = None,
    like: Annotated[str | None, Arg("The persona of this agent", metavar="AGENT")] = None,
    cause: Annotated[str, Arg("Why", metavar="TEXT")] = "",
    dry_run: DryRun = False,
) -> Change:
    """Its name, parent, conversation, notes and topics stay; the journal has the former persona."""
    if (persona is None) == (like is None):
        raise UsageError("need --persona or --like", hint="give one of them")
    home, to = context.home_to_change(), persona or like or ""
    with opened(home, agent, context.layout) as one:
        if persona is not None:
            taken = from_text(_of_library(persona), one.name, persona)
        else:
            with opened(home, to, context.layout) as other:
                taken, to = other.persona.look(), other.name
        before = one.persona.read()
        if dry_run:
            done = Edit(before, swapped(before, taken))
        else:
            done = swap_persona(home, one, taken, to, cause)
            with recorded("the swap"):
                one.tell_topics()
                if context.layout is HOLDFAST:
                    refresh_index(home, [one.name])
    did = "would take" if dry_run else "has"
    detail = f"{one.name} {did} the persona of {to}" if done.fields else "nothing to change"
    data = {"changed": done.fields, "to": to, "cause": cause}
    return Change(one.name, bool(done.fields) and not dry_run, detail, data, dry_run=dry_run)


@example('holdfast agent retire rio --reason "Its work is done"')
def retire(
    context: Context,
    agent: Whose,
    *,
    reason: Annotated[str, Arg("Why", metavar="TEXT")] = "",
    undo: Annotated[bool, Arg("Take it back into service")] = False,
    dry_run: DryRun = False,
) -> Change:
    """A running session goes on to its end. `--undo` takes the agent back into service."""
    with context.agent(agent, change=True) as one:
        if dry_run:
            applied = (one.state()["retired"] is not None) == undo
        else:
            applied = retired(one, reason, undo=undo)
        for session in () if undo else open_sessions(one.state()):
            context.warn(f"{session['session_id']} is under way and goes on to its end")
    state = "back in service" if undo else "retired"
    detail = f"{one.name} {'would be' if dry_run else 'is'} {state}"
    detail += "" if applied else " already"
    return Change(one.name, applied and not dry_run, detail, dry_run=dry_run)


def _taken(name: str) -> UsageError:
    return UsageError(
        f"{name} already exists; nothing was changed",
        hint=f"`holdfast agent edit {name}` changes its persona; if making it was broken off, "
        f"`holdfast init {name}` makes what it lacks",
    )


# --- what is to be changed ------------------------------------------------------------------


def _patch(given: PersonaFields) -> Record:
    goals = list(given.get("goal", ()))
    fields = {
        "description": given.get("description"),
        "display_name": given.get("display_name"),
        "roles": list(given.get("role", ())),
        "core_directives": list(given.get("directive", ())),
        "goals": {"local": goals} if goals else None,
        "persona_tags": list(given.get("tag", ())),
    }
    return {name: value for name, value in fields.items() if value}


def _with(now: Record, news: Record) -> Record:
    changed = {**now, **{name: value for name, value in news.items() if value is not None}}
    return {name: changed[name] for name in changed if name not in news or news[name] is not None}


def _object(text: str, what: str) -> Record:
    from holdfast.byhand import parse

    found = parse(text.encode(), what)
    if not isinstance(found, dict):
        raise UsageError(f"{what} is no object", hint=_LIKE)
    return found


def _by_hand(context: Context, manifest: Record) -> Record:
    if context.edit is None:
        raise UsageError(
            "nothing to change",
            hint="--patch JSON, --role, --goal, …; at a terminal it opens $EDITOR",
        )
    text = context.edit(pretty(manifest).decode())
    if text is None:
        return manifest
    return replaced(manifest, _object(text, "the edited manifest"))
