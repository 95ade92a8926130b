"""Names that are safe to become file names, and the session ids built from them.

Nothing is normalised: a name that does not fit is refused, so two spellings can never meet
in one file.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date
from typing import NamedTuple

from holdfast.errors import BadName

_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KEY_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_SESSION = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})_([a-z0-9][a-z0-9_-]{0,63})_([0-9]{3}|[1-9][0-9]{3,17})"
)


class SessionId(NamedTuple):
    """`2026-11-15_rio_001`: the day it began, the agent, the number that day."""

    day: str
    agent: str
    number: int

    def __str__(self) -> str:
        return f"{self.day}_{self.agent}_{self.number:03d}"


def is_agent_id(name: str) -> bool:
    return _AGENT.fullmatch(name) is not None


def agent_id(name: str) -> str:
    """`name` if it may name an agent."""
    if is_agent_id(name):
        return name
    raise BadName(
        f"not an agent id: {name[:80]!r}",
        hint="1 to 64 of A-Z a-z 0-9 _ -, starting with a letter or digit",
    )


def session_id(text: str) -> SessionId:
    """The parts of a session id."""
    if found := _SESSION.fullmatch(text):
        day, agent, number = found.groups()
        with suppress(ValueError):
            date.fromisoformat(day)
            return SessionId(day, agent, int(number))
    raise BadName(f"not a session id: {text[:80]!r}", hint="the form is YYYY-MM-DD_agent_001")


def key_parts(key: str) -> list[str]:
    """The components of a store key such as `state/rio/journal.jsonl`.

    Names that start with a dot are the store's own (locks, temporaries, stamps), so no key
    can reach them.
    """
    parts = key.split("/")
    if all(_KEY_PART.fullmatch(part) for part in parts):
        return parts
    raise BadName(
        f"not a key: {key[:80]!r}",
        hint="components of A-Z a-z 0-9 . _ - that start with a letter or digit, joined by /",
    )
