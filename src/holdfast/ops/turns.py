"""What was said to an agent and by it, for people to read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Any

from holdfast.agents.agent import opened
from holdfast.agents.sealed import MARK, Seals, meta_of
from holdfast.clock import utc_stamp
from holdfast.errors import UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Rows
from holdfast.ops.parameter import Arg
from holdfast.store.primitives import Line

_LOST = "[does not open: it was changed, or stood elsewhere]"


def turns(
    context: Context,
    agent: Annotated[str, Arg("Whose", positional=True)],
    *,
    limit: Annotated[int, Arg("The newest N lines; 0 is all")] = 20,
    decrypt: Annotated[bool, Arg("Open what is sealed, with the keys at hand")] = False,
) -> Rows:
    if limit < 0:
        raise UsageError("--limit is below zero", hint="0 is all")
    home = context.home()
    with opened(home, agent, context.layout) as one:
        log = home.log(one.key("conversation"))
        try:
            said = (
                line
                for line in log.read()
                if isinstance(line, Line) and "turn" in meta_of(line.record)
            )
            kept = deque(said, maxlen=limit + 1 if limit else None)
        finally:
            log.close()
    shown = list(kept)[-limit:] if limit else list(kept)
    seals = Seals(home, log)
    rows = [_row(line, seals, decrypt=decrypt) for line in shown]
    lost = sum(row["text"] == _LOST for row in rows if row["sealed"])
    if lost:
        context.warn(f"{lost} sealed lines do not open; `holdfast check` shows what was changed")
    counts = {"lines": len(rows), "sealed": sum(bool(row["sealed"]) for row in rows)}
    code = ATTENTION if lost else 0
    return Rows(rows, counts, truncated=len(kept) > len(shown), exit_code=code)


def _row(line: Line, seals: Seals, *, decrypt: bool) -> dict[str, Any]:
    record, meta = line.record, meta_of(line.record)
    mark = meta.get(MARK)
    closed = mark is not None and not decrypt

    def shown(read: Callable[[], str | None]) -> str:
        if closed:
            return f"[sealed with the key {mark}]"
        text = read()
        return _LOST if text is None else text

    ts = record.get("ts")
    row = {
        "seq": line.seq,
        "ts": utc_stamp(ts) if isinstance(ts, int | float) else ts,
        "role": record.get("role"),
        "text": shown(lambda: seals.text(line)),
        "turn": meta["turn"],
        "session_id": meta.get("session_id"),
        "sealed": mark,
    }
    names = ("model", "input_tokens", "output_tokens", "cost_usd", "error")
    row |= {name: meta[name] for name in names if name in meta}
    if "reply" in meta:
        row["reply"] = shown(lambda: seals.field(line, "reply"))
    return row
