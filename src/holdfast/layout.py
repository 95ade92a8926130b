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


def journal(agent: str) -> str:
    """The log of an agent's sessions: the truth behind report, session and metrics."""
    return f"{STATE}/{agent_id(agent).lower()}/journal.jsonl"


def report(agent: str) -> str:
    return f"{STATE}/{agent_id(agent).lower()}/report.json"


def session(agent: str, role: str = "") -> str:
    """The newest session of all, or of a role."""
    return f"{STATE}/{agent_id(agent).lower()}/session{f'.{role}' if role else ''}.json"


def metrics(agent: str) -> str:
    return f"{STATE}/{agent_id(agent).lower()}/metrics.json"


def memory(agent: str) -> str:
    return f"{STATE}/{agent_id(agent).lower()}/memory.md"


def tasks(agent: str) -> str:
    return f"{STATE}/{agent_id(agent).lower()}/tasks.json"


def inbox(agent: str) -> str:
    return f"{STATE}/{agent_id(agent).lower()}/inbox"


def leases(agent: str) -> str:
    """Who has which session, as far as it was looked up: made again when it is lost."""
    return f"cache/leases/{agent_id(agent).lower()}.json"


def told(agent: str) -> str:
    """How far the ledger has been told of the journal: made again when it is lost."""
    return f"cache/told/{agent_id(agent).lower()}.json"


def output(agent: str, session: str) -> str:
    """What the command of a session printed, as much as was kept."""
    return f"{STATE}/{agent_id(agent).lower()}/output/{session}.txt"


def scratch(session: str, name: str) -> str:
    """A file for the time of a session, such as the context of its command."""
    return f"cache/sessions/{session}/{name}"
