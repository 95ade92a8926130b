"""How an agent begins, stands in the list of all, and retires.

What it begins with is made entry by entry if absent, none ever replaced.  The views are folded from
a journal that has no line yet, so that their stamps say that it never had one: an empty journal is
then as it should be, and one that was emptied is told from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast.agents.notes import empty
from holdfast.clock import instant_of, utc_stamp
from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode, pretty
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
            case "manifest" if not agent.persona.read():  # else somebody died before the file
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
        # Under the lock of the log: nobody can be writing its first line meanwhile.
        with home.opened_dir(agent.key("agent")) as directory:
            if directory is not None and not agent.journal.log.segments():
                home.vfs.close(directory.open(name_of(agent, "journal"), CREATE_NEW))
        return (), None

    agent.journal.log.write(decide)


# --- state/index.json: who there is, who descends from whom, how many lines each has -------------


def refresh_index(home: Home, only: Collection[str] | None = None) -> bool:
    """Count again, the lines of all agents or of these; whether anything had changed.

    It is counted under the lock of the document, so that of two who count the second is right.
    """
    document = home.document(HOLDFAST.path("index"))

    def known(text: bytes | None) -> tuple[object, dict[str, Record]]:
        before: Any = None if text is None else _object(text).get("agents")
        told: dict[str, Record] = cast("Any", before) if only and isinstance(before, dict) else {}
        counted = {
            name: told[name] if name in told and name not in (only or ()) else _entry(home, name)
            for name in agents(home)
        }
        return cast("object", before), counted

    def counted(text: bytes | None) -> bytes:
        return pretty({"updated": round(home.clock.now(), 6), "agents": known(text)[1]})

    text = document.read()
    before, now = known(None if text is None else text.data)
    if before == now:
        return False
    document.update(counted)
    return True


def parent_in(home: Home, layout: Layout, name: str) -> str | None:
    """Whose child an agent is, as its manifest says, in the case of folders."""
    text = home.document(key_of(home, layout, "manifest", name)).read()
    found = None if text is None else _parent(_object(text.data))
    return None if found is None else found.lower()


def _entry(home: Home, name: str) -> Record:
    key = HOLDFAST.manifest(name)
    text = home.document(key).read()
    manifest = {} if text is None else _object(text.data)
    entry: Record = {"parent_id": _parent(manifest), "manifest_path": key if manifest else None}
    if (born := _instant(manifest.get("created_at"))) is not None:
        entry["created_ts"] = born
    counters = {"memory_lines": "conversation", "events_lines": "events"}
    entry["counters"] = {
        shown: _lines(home, name, cast("Part", part)) for shown, part in counters.items()
    }
    return entry


def _parent(manifest: Record) -> str | None:
    ancestry = manifest.get("ancestry")
    named = cast("Record", ancestry).get("parent_id") if isinstance(ancestry, dict) else None
    found = named or manifest.get("parent_id")
    return found if isinstance(found, str) and found else None


def _lines(home: Home, name: str, part: Part) -> int:
    log = home.log(HOLDFAST.path(part, name))
    try:
        return log.head().seq
    finally:
        log.close()


def _instant(stamp: object) -> float | None:
    try:
        return instant_of(stamp) if isinstance(stamp, str) else None
    except ValueError:
        return None


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = decode(data.strip(), limit=MAX_DOCUMENT)
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


# --- retired: what it left stays where it is, and no session of it is begun ----------------------


def retire(agent: Agent, reason: str) -> bool:
    """Whether it was in service until now; a session under way goes on to its end."""
    line: Record = {"event": "retired", **({"reason": reason} if reason else {})}
    applied = agent.tell(lambda state: [] if state["retired"] else [line])
    # The journal decides; whoever died between the two does the second by saying it again.
    if agent.ledger.state()["state"] != "offline":
        why = f"retired: {reason}" if reason else "retired"
        agent.ledger.write(Event("info", why, "holdfast", data={"state": "offline"}))
    return applied


def reinstate(agent: Agent) -> bool:
    """Whether it was retired until now."""
    applied = agent.tell(lambda state: [{"event": "reinstated"}] if state["retired"] else [])
    if agent.ledger.state()["state"] == "offline":
        agent.ledger.write(Event("info", "back in service", "holdfast", data={"state": "idle"}))
    return applied
