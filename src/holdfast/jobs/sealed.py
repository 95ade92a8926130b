"""The texts of a sensitive job: sealed in every file, readable with the key.

Sealed are the task, parts of prompts, replies, summaries, guidance, reasons and gate output.
Phases, states, paths, models and money are readable.  Lines are sealed when they are decided and
opened when they are read; the fold works with sealed texts, so views hold nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.codec import Record
from holdfast.seal import opened_in

if TYPE_CHECKING:
    from holdfast.calls.sealing import Seals

BLANK, SPOILT = "[sealed]", "[sealed, and does not open]"
_SAID = ("text", "raw_response", "error", "summary_for_supervisor", "complaint", "reason")
_SPEC = ("description", "prompt", "objective", "details", "acceptance")
_PHASE, _FORMER = ("description", "instructions"), ("summary", "complaint")

Lock = Callable[[str], str]


def is_sealed(spec: Record) -> bool:
    return spec.get("sensitive") is True


def locked(line: Record, seals: Seals) -> Record:
    """A line with its texts sealed."""
    lock = seals.lock
    made = {**_locked(line, (*_SAID, "guidance"), lock), **seals.mark}
    if isinstance(made.get("approved"), str):
        made["approved"] = seals.ring.digest(made["approved"])
    for name in ("violations", "warnings"):
        if isinstance(line.get(name), list):
            made[name] = [_locked(each, ("reason",), lock) for each in line[name]]
    for name, texts in (("spec", _SPEC), ("former", _FORMER), ("point", ("description",))):
        if isinstance(value := line.get(name), dict):
            made[name] = _locked(cast("Record", value), texts, lock)
    if isinstance(line.get("spec"), dict):
        phases = cast("list[Record]", made["spec"].get("phases") or [])
        made["spec"]["phases"] = [_locked(each, _PHASE, lock) for each in phases]
    if isinstance(line.get("gate"), dict):
        runs = cast("list[Record]", line["gate"].get("runs") or [])
        made["gate"] = {**line["gate"], "runs": [_locked(each, ("output",), lock) for each in runs]}
    return made


def opened(value: Any, seals: Seals) -> Any:
    """A value with its sealed texts open; NoKey if their key is missing."""
    return _walked(value, lambda sealed: SPOILT if (text := seals.open(sealed)) is None else text)


def blanked(value: Any) -> Any:
    """A value as it is shown without a key."""
    return _walked(value, lambda sealed: BLANK)


def _walked(value: Any, change: Lock) -> Any:
    match value:
        case str():
            return opened_in(value, change)
        case list():
            return [_walked(each, change) for each in cast("list[Any]", value)]
        case dict():
            record = cast("Record", value)
            return {name: _walked(each, change) for name, each in record.items()}
        case _:
            return value


def _locked(record: Record, names: Sequence[str], lock: Lock) -> Record:
    changed = {
        name: lock(text) for name in names if isinstance(text := record.get(name), str) and text
    }
    return {**record, **changed}
