"""An agent that is retired: what it left stays where it is, and no session of it is begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.codec import Record
from holdfast.ledger.book import Event

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent

SOURCE = "holdfast"


def retire(agent: Agent, reason: str) -> bool:
    """Whether it was in service until now; a session under way goes on to its end."""
    line: Record = {"event": "retired", **({"reason": reason} if reason else {})}
    applied = agent.tell(lambda state: [] if state["retired"] else [line])
    # The journal decides; whoever died between the two does the second by saying it again.
    if agent.ledger.status()["state"] != "offline":
        why = f"retired: {reason}" if reason else "retired"
        agent.ledger.write(Event("info", why, SOURCE, data={"state": "offline"}))
    return applied


def reinstate(agent: Agent) -> bool:
    """Whether it was retired until now."""
    applied = agent.tell(lambda state: [{"event": "reinstated"}] if state["retired"] else [])
    if agent.ledger.status()["state"] == "offline":
        agent.ledger.write(Event("info", "back in service", SOURCE, data={"state": "idle"}))
    return applied
