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
_TEXTS = (
    *("text", "raw_response", "error", "summary_for_supervisor", "complaint", "reason", "guidance"),
    *("violations.*.reason", "warnings.*.reason", "gate.runs.*.output", "point.description"),
    *("former.summary", "former.complaint", "spec.description", "spec.prompt", "spec.objective"),
    *("spec.details", "spec.acceptance", "spec.phases.*.description", "spec.phases.*.instructions"),
)
"""Of a line of the history; `*` is each item of a list."""

Lock = Callable[[str], str]


def is_sealed(spec: Record) -> bool:
    return spec.get("sensitive") is True


def locked(line: Record, seals: Seals) -> Record:
    """A line with its texts sealed."""
    made = {**line, **seals.mark}
    if isinstance(made.get("approved"), str):
        made["approved"] = seals.ring.digest(made["approved"])
    for path in _TEXTS:
        made = _locked(made, path.split("."), seals.lock)
    return made


def _locked(value: Any, path: Sequence[str], lock: Lock) -> Any:
    match value, path:
        case str(), [] if value:
            return lock(value)
        case list(), ["*", *below]:
            return [_locked(each, below, lock) for each in cast("list[Any]", value)]
        case dict(), [name, *below] if name in value:
            record = cast("Record", value)
            return {**record, name: _locked(record[name], below, lock)}
        case _:
            return value


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
