"""The turns of an agent as they are on record: who asked which model, and what came of it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from holdfast.calls.conversation import SHAPE
from holdfast.calls.sealing import MARK, Seals, meta_of, part_of, tries_of, with_texts
from holdfast.state.statelog import StateLog
from holdfast.store.primitives import START, Cursor, Line, Log

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.codec import Record
    from holdfast.layout import Part
    from holdfast.store.home import Home

WAITING, ANSWERED, FAILED = "waiting", "answered", "failed"
LOST = "[does not open: it was changed, or stood elsewhere]"


class Turn(NamedTuple):
    """A question and how it ended; None is what nobody told."""

    turn: str
    session_id: str | None
    asked: float | None
    """When, in seconds since 1970."""
    model: str | None
    question: str | None
    state: str = WAITING
    answer: str | None = None
    """What came, also where it could not be used."""
    answered_by: str | None = None
    error: str | None = None
    reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    tries: tuple[Record, ...] = ()
    """The calls that failed: all of them in a turn that failed."""
    sealed: str | None = None
    """The key that the texts are sealed with; they are None until they are opened."""

    @property
    def calls(self) -> int:
        """How often the model was called."""
        return len(self.tries) + 1 if self.error is None else max(1, len(self.tries))


class Recorded(NamedTuple):
    newest: list[Turn]
    """The newest last."""
    of: int
    """How many there are in all."""


def turns(home: Home, key: Callable[[Part], str], most: int, *, decrypt: bool = False) -> Recorded:
    """The newest `most` turns, of a log that anybody may have written to."""
    turns = StateLog(home, key("conversation"), SHAPE, {key("turns"): SHAPE.render})
    log = turns.log
    try:
        if not log.segments():
            return Recorded([], 0)
        state = turns.state()
        wanted = min(most, state["turns"])
        marks = [Cursor(*each) for each in state["marks"]]
        found: list[Turn] = []
        # From a place near the end if that reaches far enough back, else from the beginning.
        for start in (*marks[:1], START):
            found = _read(log, start, wanted, Seals(home, log.key) if decrypt else None)
            if len(found) >= wanted:
                break
        return Recorded(found, state["turns"])
    finally:
        turns.close()


def _read(log: Log, start: Cursor, most: int, seals: Seals | None) -> list[Turn]:
    found: OrderedDict[str, Turn] = OrderedDict()
    for line in log.read(start):
        meta = meta_of(line.record) if isinstance(line, Line) else {}
        name = meta.get("turn")
        if not isinstance(line, Line) or not isinstance(name, str):
            continue
        record = _shown(line, seals) if MARK in meta else line.record
        meta = meta_of(record)
        if record.get("role") == "user":
            found[name] = _asked(name, record, meta)
            if len(found) > most:
                found.popitem(last=False)
        elif name in found and found[name].state == WAITING:
            found[name] = _ended(found[name], record, meta)
    return list(found.values())


def _shown(line: Line, seals: Seals | None) -> Record:
    """A sealed line with its texts, or without them."""

    def opened(sealed: str, field: str) -> str | None:
        if seals is None or field == "request":
            return None
        text = seals.open(sealed, part_of(line.seq, field))
        return LOST if text is None else text

    return with_texts(line.record, opened)


def _asked(name: str, record: Record, meta: Record) -> Turn:
    return Turn(
        name,
        _text(meta.get("session_id")),
        _number(record.get("ts")),
        _text(meta.get("model")),
        _text(record.get("content")),
        sealed=_text(meta.get(MARK)),
    )


def _ended(turn: Turn, record: Record, meta: Record) -> Turn:
    error, content = _text(meta.get("error")), _text(record.get("content"))
    seconds = _number(meta.get("seconds"))
    ended = _number(record.get("ts"))
    if seconds is None and ended is not None and turn.asked is not None:
        seconds = max(0.0, ended - turn.asked)
    return turn._replace(
        state=ANSWERED if error is None else FAILED,
        answer=content if error is None else _text(meta.get("reply")),
        answered_by=_text(meta.get("model")),
        error=error,
        reason=None if error is None else content,
        input_tokens=_whole(meta.get("input_tokens")),
        output_tokens=_whole(meta.get("output_tokens")),
        cost_usd=_number(meta.get("cost_usd")),
        seconds=seconds,
        tries=tuple(tries_of(meta)),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
