"""How values drift in files that agents wrote by hand, and what they were meant to be.

Each function takes a value and gives what was meant, or None.  Used on read only, always with a
warning: what is written is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.contracts.moment import Wanted, read_moment, written

_QUOTES = "\"'`“”‘’ \t\r\n"
_REMARK = re.compile(r"\s*\([^()]*\)\s*$")
_BETWEEN_WORDS = re.compile(r"[\s_-]+")
_SHORTEST_STEM = 5
_UNKNOWN = {"", "unknown", "none", "null", "n/a", "-"}


def meant_choice(value: object, allowed: Sequence[str]) -> str | None:
    """`"Complete (13 pages)"` where `completed` is allowed."""
    if not isinstance(value, str) or "|" in value:
        return None  # several at once are an example of the format, not a value
    wanted = _folded(_REMARK.sub("", value.strip(_QUOTES)).strip(_QUOTES))
    same = [each for each in allowed if _folded(each) == wanted]
    if not same and len(wanted) >= _SHORTEST_STEM:
        same = [each for each in allowed if _folded(each).startswith(wanted)]
    return same[0] if len(same) == 1 else None


def _folded(text: str) -> str:
    return _BETWEEN_WORDS.sub("", text).casefold()


def meant_time(value: object, wanted: Wanted) -> tuple[str | float, str] | None:
    """The time in the form that is written, and what was odd about it."""
    try:
        moment = read_moment(value)
    except ValueError:
        return None
    odd = "no time zone, taken as UTC" if moment.form == "naive" else "another form of time"
    return written(moment, wanted), odd


def meant_number(value: object, *, whole: bool) -> float | int | None:
    """`"0\\n0"` and `"247"` were numbers before a shell wrote them."""
    if not isinstance(value, str):
        return int(value) if isinstance(value, float) and whole and value.is_integer() else None
    first = value.strip(_QUOTES).partition("\n")[0].strip(_QUOTES)
    try:
        return int(first) if whole else float(first)
    except ValueError:
        return None


def meant_text(value: object, pattern: str) -> str | None:
    """`"Liam"` where a name in lower case is wanted."""
    if not isinstance(value, str):
        return None
    lower = value.strip(_QUOTES).lower()
    return lower if re.search(pattern, lower) else None


def means_nothing(value: object) -> bool:
    """Whether the text only says that nothing is known."""
    return isinstance(value, str) and value.strip(_QUOTES).casefold() in _UNKNOWN
