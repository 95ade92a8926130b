"""Times and values in other writers' files, and what they were meant to be.

Each format is written with one form of time; all forms that were met are read: with a zone in
three spellings, with fractions, as seconds or milliseconds since the epoch, as numbers or as
text.  A time without a zone is taken as UTC.

The `meant_*` functions take a value that an agent wrote by hand and give what was meant, or None.
They are used on read only, always with a warning: what is written is never guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

Wanted = Literal["utc", "offset", "epoch"]

_ISO = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)"
    r"(?:([Zz])|([+-]\d{2}:\d{2})|([+-]\d{4}|[+-]\d{2}))?"
)
_NUMBER = re.compile(r"-?\d{1,14}(?:\.\d{1,9})?")
_SECONDS = range(10**8, 10**11)
_MILLISECONDS = range(10**11, 10**14)


class Moment(NamedTuple):
    instant: float
    """Seconds since the epoch."""
    form: Literal["utc", "offset", "compact_offset", "naive", "epoch", "epoch_ms"]
    text: str
    """The same moment in canonical text: with its own offset, or with Z."""


def read_moment(value: object) -> Moment:
    """The moment that `value` tells; ValueError says why it tells none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("neither text nor a number")
    if not isinstance(value, str):
        return _from_number(value)
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return _from_number(float(text))
    found = _ISO.fullmatch(text)
    if found is None:
        raise ValueError(f"not a time: {value[:60]!r}")
    day, clock, zulu, offset, compact = found.groups()
    if compact:
        offset = f"{compact[:3]}:{compact[3:] or '00'}"
    whole = f"{day}T{clock.replace(',', '.')}"
    try:
        instant = datetime.fromisoformat(whole + (offset or "+00:00")).timestamp()
    except ValueError as error:
        raise ValueError(f"not a time: {value[:60]!r} ({error})") from None
    form = "utc" if zulu else "compact_offset" if compact else "offset" if offset else "naive"
    text = whole + (offset if offset and offset != "+00:00" else "Z")
    return Moment(instant, form, text)


def _from_number(number: float) -> Moment:
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    if int(abs(number)) in _SECONDS:
        return Moment(float(number), "epoch", _utc_text(number))
    if int(abs(number)) in _MILLISECONDS:
        return Moment(number / 1000, "epoch_ms", _utc_text(number / 1000))
    raise ValueError(f"{number:g} is neither seconds nor milliseconds since 1970")


def _utc_text(instant: float) -> str:
    text = datetime.fromtimestamp(instant, UTC).isoformat()
    return text.removesuffix("+00:00") + "Z"


def written(moment: Moment, wanted: Wanted) -> str | float:
    """The moment in the one form that a format is written with."""
    if wanted == "epoch":
        return moment.instant
    if wanted == "utc" and not moment.text.endswith("Z"):
        return _utc_text(moment.instant)
    return moment.text


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
