"""Names that are safe to become file names, and the ids built from them.

Nothing is normalised: a name that does not fit is refused, so two spellings can never meet
in one file.  Only what others named is mapped, on import, by the rule of `mapped_agent_id`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date
from hashlib import sha256
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


_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_MAPPED, _DIGITS = 48, 8
"""How much of a foreign name is kept, and how many digits of its hash follow."""


def mapped_agent_id(name: str) -> str:
    """The agent id of what another system calls `name`.

    A name that fits is only put into lower case.  In any other one accents are dropped, each run
    of characters that do not fit becomes a dash, and the first 8 digits of the sha256 of the
    whole name follow, so that different names never become one.
    """
    if is_agent_id(name):
        return name.lower()
    import unicodedata  # noqa: PLC0415 - a library that only an import needs

    decomposed = unicodedata.normalize("NFKD", name)
    plain = "".join(each for each in decomposed if not unicodedata.combining(each))
    kept = _UNFIT.sub("-", plain).strip("-_")[:_MAPPED].rstrip("-_") or "agent"
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return agent_id(f"{kept}-{digest}".lower())


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


# --- messages -------------------------------------------------------------------------------

MOST_MESSAGE_ID = 100
"""Bytes: with all that a claim adds, a file name stays below 255."""
_OWN_MESSAGE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_RANK_AT = 15
LOWEST_RANK = 2


def message_id(name: str) -> str:
    """`name` if it may name a message: it is the stem of a file, and part of a claim's name."""
    if _may_name_a_message(name):
        return name
    raise BadName(
        f"not a message id: {name[:80]!r}",
        hint=f"at most {MOST_MESSAGE_ID} bytes of printable text without / and ~, "
        "not starting with . or -",
    )


def is_message_id(name: str) -> bool:
    return _OWN_MESSAGE.fullmatch(name) is not None or _may_name_a_message(name)


def _may_name_a_message(name: str) -> bool:
    # Printable excludes control characters, direction marks and what is no UTF-8.
    if not name or name[0] in ".-" or "/" in name or "~" in name or not name.isprintable():
        return False
    return len(name.encode()) <= MOST_MESSAGE_ID


def new_message_id(now: float, rank: int, noise: int) -> str:
    """A UUID of version 8: 48 bits of milliseconds, 2 of rank, 10 of 1/1024 ms, 62 of noise.

    Rank 0 is the most urgent.  Ids of one rank sort by time.
    """
    ticks = int(now * 1_024_000)
    head = (ticks >> 10) & (1 << 48) - 1
    custom = (rank & 3) << 10 | ticks & 1023
    tail = 0b10 << 62 | noise & (1 << 62) - 1
    text = f"{head:012x}8{custom:03x}{tail:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def rank_of_message(name: str) -> int | None:
    """The rank in an id of ours; None for an id of another system."""
    if _OWN_MESSAGE.fullmatch(name) is None:
        return None
    return min(int(name[_RANK_AT], 16) >> 2, LOWEST_RANK)


def time_of_message(name: str) -> float:
    """The instant in an id of ours."""
    return int(name[:8] + name[9:13], 16) / 1000


def place_in_time(instant: float) -> str:
    """How an id of ours would begin at that instant; what orders foreign ids among ours."""
    text = f"{max(0, round(instant * 1000)) & (1 << 48) - 1:012x}"
    return f"{text[:8]}-{text[8:]}"
