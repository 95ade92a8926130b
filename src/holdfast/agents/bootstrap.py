"""What an agent begins with: each entry of its folder made if it is absent, none ever replaced.

The views are folded from a journal that has no line yet, so that their stamps say that it never
had one: an empty journal is then as it should be, and one that was emptied is told from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agents.notes import empty
from holdfast.clock import utc_stamp
from holdfast.codec import pretty
from holdfast.store.vfs import CREATE_NEW

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent
    from holdfast.layout import Part
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
                _put(home, agent, part, _manifest(home, called))
            case "journal":
                _begin_journal(home, agent)
            case "tasks":
                tasks = {"schema_version": "1.0", "agent": agent.name}
                now = utc_stamp(home.clock.now())
                _put(home, agent, part, pretty({**tasks, "updated_at": now, "tasks": []}))
            case "notes":
                _put(home, agent, part, empty(called).encode())
            case "inbox":
                _make_inbox(home, agent)
            case _:
                pass
    with agent.showing(*map(agent.key, lacks)) as journal:
        journal.flush()
    return lacks


def _manifest(home: Home, called: str) -> bytes:
    return pretty({"agent_id": called, "created_at": utc_stamp(home.clock.now())})


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


def _make_inbox(home: Home, agent: Agent) -> None:
    with home.opened_dir(agent.key("agent")) as directory:
        if directory is not None:
            directory.subdir(name_of(agent, "inbox"), create=True).close()
            directory.sync()
