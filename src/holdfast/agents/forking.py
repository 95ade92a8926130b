"""A new agent that begins as another one: its persona, its notes, and all that it remembers.

Nothing of a log is copied.  A log only grows, so the conversation of the parent up to a line
never changes: the child's own logs begin with a line that says how far back into the parent's they
reach.  Only what people edit in place, the manifest and memory.md, is copied: a file that two
agents shared would change for both.

The first line of the child's journal is the fork.  The rest follows from it, each part once; what
somebody who died has not done is done by forking again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, cast

from holdfast.agents.document import as_object
from holdfast.agents.lifecycle import bootstrap, parent_in, refresh_index
from holdfast.agents.persona import KEPT, Edit
from holdfast.calls.conversation import Conversation
from holdfast.calls.sealing import meta_of
from holdfast.clock import instant_of, utc_stamp
from holdfast.codec import Record
from holdfast.errors import HoldfastError, UsageError, recorded
from holdfast.layout import HOLDFAST, Layout, retold
from holdfast.ledger.book import agents
from holdfast.store.primitives import Cursor, Line
from holdfast.store.projection import Projection, Tell

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent
    from holdfast.store.home import Home

FORKED, FROM = "forked", "forked_from"


def fork(home: Home, parent: Agent, child: Agent, called: str, note: str) -> None:
    """Make `child`, or complete a fork that was broken off; UsageError if `child` exists."""
    refuse_fork(home, parent, child)
    _begin(home, parent, child, note)
    now = home.clock.now()

    def begin_as(before: Record) -> Record:
        return before or _descendant(parent.persona.look(), parent.name, called, note, now)

    child.persona.change(begin_as)
    child.desk.notes.begin_as(parent.desk.notes)
    bootstrap(home, child, called)
    child.tell_topics()
    tell(home, child, "conversation", child.key("conversation"), _reaching_back)
    try:
        tell(home, child, "parent", parent.key("events"), lambda line: _as_event(line, child.name))
        if child.layout is HOLDFAST:
            refresh_index(home, [parent.name, child.name])
    except HoldfastError:
        if _is_broken_off(home, parent, child):
            raise
        with recorded(f"{child.name}, a fork of {parent.name},"):
            raise


def refuse_fork(home: Home, parent: Agent, child: Agent) -> None:
    """UsageError unless the child can be made, or is one whose making was broken off."""
    if parent.name == child.name:
        raise UsageError(f"{parent.name} cannot be its own parent", hint="give it another name")
    if child.name in agents(home, child.layout) and not _is_broken_off(home, parent, child):
        raise UsageError(
            f"{child.name} already exists; nothing was changed",
            hint=f"choose another name, or see `holdfast agent show {child.name}`",
        )


def _is_broken_off(home: Home, parent: Agent, child: Agent) -> bool:
    first = next(child.lines(), None)
    if first is None or as_object(first.record.get(FROM)).get("agent") != parent.name:
        return False
    with closing(home.log(parent.key("events"))) as events:
        told = (meta_of(line.record) for line in events.read() if isinstance(line, Line))
        return not any(meta.get("child_id") == child.name for meta in told)


def _begin(home: Home, parent: Agent, child: Agent, note: str) -> None:
    reach: Record = {"agent": parent.name}
    with Conversation(home, parent.key) as said:
        if (head := said.log.settle()).seq:
            reach["conversation"] = {**_place(said.log.key, head), "after": list(said.mark())}
    with closing(home.log(parent.key("topics"))) as topics:
        if (head := topics.settle()).seq:
            reach["topics"] = _place(topics.key, head)
    line: Record = {"event": FORKED, FROM: reach, **({"message": note} if note else {})}
    child.journal.log.write(lambda head: ([] if head.seq else [line], None))


def _place(log: str, head: Cursor) -> Record:
    return {"log": log, "seq": head.seq, "hash": head.hash}


def _descendant(persona: Record, parent: str, called: str, note: str, now: float) -> Record:
    notes = persona.get("notes")
    before = cast("list[object]", notes) if isinstance(notes, list) else []
    said = {"ts": round(now, 6), "note": note or f"fork of {parent}"}
    taken = {name: persona[name] for name in persona if name not in ("display_name", "parent_id")}
    return {
        **taken,
        "agent_id": called,
        "created_at": utc_stamp(now),
        "ancestry": {"parent_id": parent},
        "notes": [*before, said],
    }


# --- what other logs get of it --------------------------------------------------------------


def tell(home: Home, agent: Agent, to: str, key: str, as_line: Tell) -> None:
    """Write to a log what a line of the agent's journal means there, once."""
    with closing(home.log(key)) as target:
        cell = home.cell(retold(agent.name, to))
        with closing(Projection(agent.journal.log, target, cell, as_line)) as projection:
            projection.catch_up()


def _forked_from(line: Line) -> Record:
    return as_object(line.record.get(FROM)) if line.record.get("event") == FORKED else {}


def _reaching_back(line: Line) -> Record | None:
    """The first line of the child's conversation: where it goes on before itself."""
    if not (place := as_object(_forked_from(line).get("conversation"))):
        return None
    text = f"What was said before stands in {place['log']}, up to line {place['seq']}."
    stamp = instant_of(str(line.record["ts"]))
    return {"ts": stamp, "role": "system", "content": text, "meta": {FROM: place}}


def _as_event(line: Line, child: str) -> Record | None:
    """The event of the parent."""
    if not _forked_from(line):
        return None
    note = str(line.record.get("message") or "")
    stamp = instant_of(str(line.record["ts"]))
    return {"ts": stamp, "type": "fork", "meta": {"child_id": child, "note": note}}


# --- the persona of another agent; the memory stays ------------------------------------------

_STAYS = (*KEPT, "display_name", "notes")


def swapped(before: Record, persona: Record) -> Record:
    """A persona as that of the agent whose manifest is `before`."""
    taken = {name: value for name, value in persona.items() if name not in _STAYS}
    return {name: before[name] for name in _STAYS if name in before} | taken


def swap(home: Home, agent: Agent, persona: Record, to: str, cause: str) -> Edit:
    """One line of the journal; the event follows from it, also after a crash."""
    line: Record = {"from": agent.name, "to": to, "cause": cause}
    done = agent.persona.change(lambda before: swapped(before, persona), swapped=line)
    tell(home, agent, "events", agent.key("events"), _as_swap)
    return done


def _as_swap(line: Line) -> Record | None:
    if not (meta := as_object(line.record.get("swapped"))):
        return None
    return {"ts": instant_of(str(line.record["ts"])), "type": "persona_swap_in", "meta": meta}


# --- who descends from whom -----------------------------------------------------------------


def lineage(home: Home, layout: Layout, agent: str) -> Record:
    """Parent, ancestors from the nearest on, and children, by the manifests there are; a line of
    parents that comes back to itself ends there.
    """
    parents = {name: parent_in(home, layout, name) for name in agents(home, layout)}
    ancestors = list(_upwards(agent, parents))
    children = [name for name, parent in parents.items() if parent == agent and name != agent]
    return {"parent": parents.get(agent), "ancestors": ancestors, "children": sorted(children)}


def _upwards(agent: str, parents: dict[str, str | None]) -> Iterator[str]:
    seen, at = {agent}, parents.get(agent)
    while at is not None and at not in seen:
        seen.add(at)
        yield at
        at = parents.get(at)
