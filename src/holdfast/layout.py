"""The directory tree is an API: this is where every key of a home gets its name."""

from __future__ import annotations

from holdfast.ids import agent_id

LEDGER = "ledger"
STATE = "state"


def ledger(agent: str) -> str:
    """The log of what an agent did, one file a day; ledgers carry the lower-case name."""
    return f"{LEDGER}/{agent_id(agent).lower()}"


def status(agent: str) -> str:
    return f"{STATE}/{agent_id(agent).lower()}/status.json"


def manifest(agent: str) -> str:
    return f"{STATE}/{agent_id(agent).lower()}/manifest.json"
