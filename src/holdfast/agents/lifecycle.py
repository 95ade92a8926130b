"""How an agent begins, stands in the list of all, and retires.

What it begins with is made entry by entry if absent, none ever replaced.  The views are folded from
a journal that has no line yet, so that their stamps say that it never had one: an empty journal is
then as it should be, and one that was emptied is told from it.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.agents.document import as_object, decoded, object_at
from holdfast.agents.notes import empty
from holdfast.clock import instant, utc_stamp
from holdfast.codec import Record, pretty
from holdfast.layout import HOLDFAST
from holdfast.ledger.book import Event, agents, key_of
from holdfast.store.vfs import CREATE_NEW

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.agents.agent import Agent
    from holdfast.layout import Layout, Part
    from holdfast.store.home import Home
    from holdfast.store.primitives import Cursor, Decision

# The manifest says since when there is the agent, and the views are folded from the journal.
ENTRIES: tuple[Part, ...] = (
    *("manifest", "journal", "report", "session", "metrics", "tasks", "notes", "inbox"),
)


def missing(home: Home, agent: Agent) -> list[Part]:
    """What the folder of an agent lacks."""
    with home.opened_dir(agent.key("agent")) as directory:
        there = set(directory.names()) if directory is not None else set[str]()
    lacks: list[Part] = [part for part in ENTRIES if name_of(agent, part) not in there]
    if "journal" in lacks and agent.journal.log.segments():
        lacks.remove("journal")
    return lacks


def name_of(agent: Agent, part: Part) -> str:
    return agent.key(part).rpartition("/")[2]


def bootstrap(home: Home, agent: Agent, called: str) -> list[Part]:
    """Make what is missing; `called` is the agent's name as people write it."""
    lacks = missing(home, agent)
    for part in lacks:
        match part:
            case "manifest" if not agent.persona.read():  # else a process died before the file
                born = {"agent_id": called, "created_at": utc_stamp(home.clock.now())}
                _put(home, agent, part, pretty(born))
            case "journal":
                _begin_journal(home, agent)
            case "tasks":
                tasks = {"schema_version": "1.0", "agent": agent.name}
                now = utc_stamp(home.clock.now())
                _put(home, agent, part, pretty({**tasks, "updated_at": now, "tasks": []}))
            case "notes":
                _put(home, agent, part, empty(called).encode())
            case "inbox":
                with home.opened_dir(agent.key("agent")) as directory:
                    if directory is not None:
                        directory.subdir(name_of(agent, "inbox"), create=True).close()
                        directory.sync()
            case _:
                pass
    with agent.showing(*map(agent.key, lacks)) as journal:
        journal.flush()
    return lacks


def _put(home: Home, agent: Agent, part: Part, data: bytes) -> None:
    home.document(agent.key(part)).update(lambda old: data if old is None else old)


def _begin_journal(home: Home, agent: Agent) -> None:
    def decide(head: Cursor) -> Decision[None]:
        # Under the lock of the log, so that no process writes its first line in between.
        with home.opened_dir(agent.key("agent")) as directory:
            if directory is not None and not agent.journal.log.segments():
                home.vfs.close(directory.open(name_of(agent, "journal"), CREATE_NEW))
        return (), None

    agent.journal.log.write(decide)


# --- state/index.json: who there is, who descends from whom, how many lines each has -------------


def refresh_index(home: Home, only: Collection[str] = ()) -> None:
    """Count the lines of all agents, or of these, again.

    It is counted under the lock of the document, so that of two who count the second is right.
    """
    document = home.document(HOLDFAST.path("index"))

    def count(text: bytes | None) -> tuple[object, dict[str, Record]]:
        before: object = decoded(text).get("agents")
        kept = as_object(before) if only else {}
        return before, {
            name: kept[name] if name in kept and name not in only else _entry(home, name)
            for name in agents(home)
        }

    text = document.read()
    before, now = count(None if text is None else text.data)
    if before != now:
        updated = round(home.clock.now(), 6)
        document.update(lambda old: pretty({"updated": updated, "agents": count(old)[1]}))


def parent_in(home: Home, layout: Layout, name: str) -> str | None:
    """Whose child an agent is, as its manifest says, in the case of folders."""
    found = _parent(object_at(home, key_of(home, layout, "manifest", name)))
    return None if found is None else found.lower()


def _entry(home: Home, name: str) -> Record:
    key = HOLDFAST.manifest(name)
    manifest = object_at(home, key)
    entry: Record = {"parent_id": _parent(manifest), "manifest_path": key if manifest else None}
    if (born := instant(manifest.get("created_at"))) is not None:
        entry["created_ts"] = born
    counted: dict[str, int] = {}
    parts: dict[str, Part] = {"memory_lines": "conversation", "events_lines": "events"}
    for shown, part in parts.items():
        with closing(home.log(HOLDFAST.path(part, name))) as log:
            counted[shown] = log.head().seq
    return {**entry, "counters": counted}


def _parent(manifest: Record) -> str | None:
    found = as_object(manifest.get("ancestry")).get("parent_id") or manifest.get("parent_id")
    return found if isinstance(found, str) and found else None


# --- retired: what it left stays where it is, and no session of it is begun ----------------------


def retire(agent: Agent, reason: str = "", *, undo: bool = False) -> bool:
    """Take an agent out of service, or back into it; whether it was not so already.

    A session under way goes on to its end.
    """
    why = f"retired: {reason}" if reason else "retired"
    line: Record = {"event": "retired", **({"reason": reason} if reason else {})}
    if undo:
        why, line = "back in service", {"event": "reinstated"}
    applied = agent.tell(lambda state: [line] if bool(state["retired"]) is undo else [])
    # The journal decides; if a process dies between the two, the same command does the second.
    if (agent.ledger.state()["state"] == "offline") is undo:
        data = {"state": "idle" if undo else "offline"}
        agent.ledger.write(Event("info", why, "holdfast", data=data))
    return applied
