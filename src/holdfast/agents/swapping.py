"""An agent that takes the persona of another one; its memory stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast.agents.forking import tell
from holdfast.agents.persona import KEPT, Edit
from holdfast.clock import instant_of
from holdfast.codec import Record
from holdfast.store.primitives import Line

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent
    from holdfast.store.home import Home

_STAYS = (*KEPT, "display_name", "notes")


def swapped(before: Record, persona: Record) -> Record:
    """A persona as that of the agent whose manifest is `before`."""
    taken = {name: value for name, value in persona.items() if name not in _STAYS}
    return {name: before[name] for name in _STAYS if name in before} | taken


def swap(home: Home, agent: Agent, persona: Record, to: str, cause: str) -> Edit:
    """One line of the journal; the event follows from it, also after a crash."""
    told: Record = {"from": agent.name, "to": to, "cause": cause}
    done = agent.persona.change(lambda before: swapped(before, persona), swapped=told)
    tell(home, agent, "events", agent.key("events"), _as_event)
    return done


def _as_event(line: Line) -> Record | None:
    meta = line.record.get("swapped")
    if not isinstance(meta, dict):
        return None
    stamp = instant_of(str(line.record["ts"]))
    return {"ts": stamp, "type": "persona_swap_in", "meta": cast("Record", meta)}
