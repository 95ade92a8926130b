"""Time as other people's files tell it, read by one function.

We write one form for each format; we read all that were met: with a zone in three spellings,
with fractions, as seconds or milliseconds since the epoch, as numbers or as text.  A time
without a zone is read too, by a stated rule: it is taken as UTC unless the caller knows better.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, tzinfo
from typing import Literal, NamedTuple

Form = Literal["utc", "offset", "compact_offset", "naive", "epoch", "epoch_ms"]
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
    form: Form
    text: str
    """The same moment in canonical text: with its own offset, or with Z."""


def read_moment(value: object, *, naive: tzinfo = UTC) -> Moment:
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
        moment = datetime.fromisoformat(whole + (offset or ("+00:00" if zulu else "")))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=naive)
            offset = moment.isoformat()[-6:]
    except ValueError as error:
        raise ValueError(f"not a time: {value[:60]!r} ({error})") from None
    form = _form_of(zulu, found[4], compact)
    text = whole + (offset if offset and offset != "+00:00" else "Z")
    return Moment(moment.timestamp(), form, text)


def _form_of(zulu: str | None, offset: str | None, compact: str | None) -> Form:
    if zulu:
        return "utc"
    if offset:
        return "offset"
    return "compact_offset" if compact else "naive"


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
