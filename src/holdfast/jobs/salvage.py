"""What can be read of a history of another system that is not quite in its format.

A field that a call lacks is unknown, where the format has room for that.  A call that nothing can
be made of is left out, and so is such a recovery point; whoever asks is told, and has the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from holdfast.contracts.kind import Finding, Form, Kind, Reading

_ENTRY = re.compile(r"(interactions|recovery_points|)\[(\d+)\](?:[.\[]|\Z)")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_NAMES = {"recovery_points": "recovery points"}


def salvaged(kind: Kind, form: Form, value: Any, notes: list[str]) -> Reading:
    """As it is read, if need be in part; what was done about it goes to `notes`."""
    reading = kind.read(value, form=form)
    missing = [each for each in _wrong(reading) if each.code == "missing"]
    if missing and all(_ENTRY.match(each.field) for each in _wrong(reading)):
        value = _with_nulls(value, missing)
        reading = kind.read(value, form=form)
        unknown = {each.field for each in missing} - {each.field for each in _wrong(reading)}
        if unknown:
            notes.append(_told("missing, so unknown", sorted(unknown)))
    wrong = _wrong(reading)
    entries = {(found[1], int(found[2])) for each in wrong if (found := _ENTRY.match(each.field))}
    if not wrong or not all(_ENTRY.match(each.field) for each in wrong):
        return reading
    rest = _without(value, entries)
    again = kind.read(rest, form=form)
    if _wrong(again) or not _calls(rest):
        return reading
    places = sorted({each.field for each in wrong})
    for name in sorted({each[0] for each in entries}):
        count = sum(each[0] == name for each in entries)
        what = _NAMES.get(name, "calls")
        notes.append(_told(f"{count} {what} could not be read and are in the copy only", places))
    return again


def _wrong(reading: Reading) -> list[Finding]:
    return [each for each in reading.findings if each.level == "error"]


def _told(what: str, places: Sequence[str]) -> str:
    more = f" and {len(places) - 1} more" if places[1:] else ""
    return f"{what}: {places[0]}{more}"


def _with_nulls(value: Any, missing: Sequence[Finding]) -> Any:
    filled = deepcopy(value)
    for each in missing:
        steps = [int(number) if number else name for number, name in _STEP.findall(each.field)]
        holder: Any = filled
        for step in steps[:-1]:
            holder = holder[step]
        holder[steps[-1]] = None
    return filled


def _without(value: Any, entries: set[tuple[str, int]]) -> Any:
    if isinstance(value, list):
        every = cast("list[Any]", value)
        return [each for number, each in enumerate(every) if ("", number) not in entries]
    whole = dict(cast("dict[str, Any]", value))
    for name in {each[0] for each in entries}:
        kept = [each for number, each in enumerate(whole[name]) if (name, number) not in entries]
        whole[name] = kept
    return whole


def _calls(value: Any) -> Sequence[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return cast("list[Any]", cast("dict[str, Any]", value).get("interactions") or [])
