"""The texts of a sensitive job: sealed in every file, open to who has the key.

What is sealed is what was said: the task, the parts of prompts, replies, summaries, guidance,
reasons, what gates printed.  Phases, states, paths, models and money can be read by everybody.

Lines are sealed when they are decided and opened when they are read.  The fold in between works
with the sealed texts as they are, so neither the state beside a view nor the view itself ever has
anything else.
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
    made = _with_texts(line, seals.lock)
    if isinstance(made.get("approved"), str):
        made["approved"] = seals.ring.digest(made["approved"])
    return {**made, **seals.mark}


def opened(value: Any, seals: Seals) -> Any:
    """A value with its sealed texts open; NoKey if their key is missing."""
    return _walked(value, lambda sealed: SPOILT if (text := seals.open(sealed)) is None else text)


def blanked(value: Any) -> Any:
    """A value as it is shown to who has no key."""
    return _walked(value, lambda sealed: BLANK)


def _walked(value: Any, change: Lock) -> Any:
    match value:
        case str():
            return opened_in(value, change)
        case list():
            return [_walked(each, change) for each in cast("list[Any]", value)]
        case dict():
            return {
                name: _walked(each, change) for name, each in cast("dict[str, Any]", value).items()
            }
        case _:
            return value


def _with_texts(line: Record, lock: Lock) -> Record:
    """A copy of a line in which every text went through `lock`."""
    made = _texts_of(line, (*_SAID, "guidance"), lock)
    for name in ("violations", "warnings"):
        if isinstance(line.get(name), list):
            made[name] = [_texts_of(each, ("reason",), lock) for each in line[name]]
    if isinstance(spec := line.get("spec"), dict):
        made["spec"] = _texts_of(cast("Record", spec), _SPEC, lock)
        phases = cast("list[Record]", made["spec"].get("phases") or [])
        made["spec"]["phases"] = [_texts_of(each, _PHASE, lock) for each in phases]
    if isinstance(former := line.get("former"), dict):
        made["former"] = _texts_of(cast("Record", former), _FORMER, lock)
    if isinstance(point := line.get("point"), dict):
        made["point"] = _texts_of(cast("Record", point), ("description",), lock)
    if isinstance(line.get("gate"), dict):
        gate: Record = line["gate"]
        runs = cast("list[Record]", gate.get("runs") or [])
        made["gate"] = {**gate, "runs": [_texts_of(each, ("output",), lock) for each in runs]}
    return made


def _texts_of(record: Record, names: Sequence[str], lock: Lock) -> Record:
    changed = {
        name: lock(text) for name in names if isinstance(text := record.get(name), str) and text
    }
    return {**record, **changed}
