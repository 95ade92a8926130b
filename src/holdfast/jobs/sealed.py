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

from holdfast.agents.sealed import lasting
from holdfast.codec import Record
from holdfast.errors import Corrupt
from holdfast.keys import held
from holdfast.seal import opened_in

if TYPE_CHECKING:
    from holdfast.seal import Ring
    from holdfast.store.home import Home

MARK = "sealed"
"""Of a line: the id of the key."""
BLANK, SPOILT = "[sealed]", "[sealed, and does not open]"
_SAID = ("text", "raw_response", "error", "summary_for_supervisor", "complaint", "reason")
_SPEC = ("description", "prompt", "objective", "details", "acceptance")
_PHASE, _FORMER = ("description", "instructions"), ("summary", "complaint")
_KEPT = 4096

Lock = Callable[[str], str]


def is_sealed(spec: Record) -> bool:
    return spec.get("sensitive") is True


class Seals:
    """The sealed texts of one job; keys are looked for when they are needed."""

    def __init__(self, home: Home, log: str) -> None:
        self._home, self._place = home, log
        self._held: Ring | None = None
        self._known: dict[str, str] = {}

    @property
    def ring(self) -> Ring:
        if self._held is None:
            self._held = held(self._home.clock)
        return self._held

    def lock(self, line: Record) -> Record:
        """A line with its texts sealed."""
        locked = _with_texts(line, self._lock)
        if isinstance(locked.get("approved"), str):
            locked["approved"] = self.ring.digest(locked["approved"])
        return {**locked, MARK: self.ring.current.id}

    def _lock(self, text: str) -> str:
        return lasting(self._home, self.ring, text, self._place)

    def name_of(self, text: str) -> str:
        """What a part is called: by its hash alone a guess at it could be tried."""
        return self.ring.digest(text)

    def opened(self, value: Any) -> Any:
        """A value with its sealed texts open; NoKey if their key is not at hand."""
        return _walked(value, self._open)

    def _open(self, sealed: str) -> str:
        text = self._known.get(sealed)
        if text is None:
            try:
                text = self.ring.open(sealed, self._place)
            except Corrupt:
                text = SPOILT
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[sealed] = text
        return text


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
