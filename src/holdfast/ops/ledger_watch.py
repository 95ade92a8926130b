"""Verbs that watch over ledgers: signed checkpoints, and tasks that nobody finished."""

from __future__ import annotations

from typing import Annotated

from holdfast.clock import utc_stamp
from holdfast.codec import Record, pretty
from holdfast.errors import UsageError
from holdfast.ledger.book import Found, Ledger
from holdfast.ledger.status import is_over, presence
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, OfAgent, moment
from holdfast.text import duration


@example("holdfast ledger checkpoint --out 2026-11-15.checkpoint")
def checkpoint(
    context: Context,
    *,
    agent: OfAgent = None,
    out: Annotated[str | None, Arg("Write it here instead of showing it", metavar="FILE")] = None,
) -> Show | Change:
    from holdfast.ledger.checkpoint import Head, key_path, sign, signing_key
    from holdfast.ops.ledger import chosen_agents
    from holdfast.userfile import put_new

    home = context.home()
    heads: list[Head] = []
    for name in chosen_agents(context, agent):
        with Ledger(home, name, context.layout) as ledger:
            settled = ledger.log.settle()
        if settled.seq:
            heads.append(Head(name, settled.seq, settled.hash, settled.segment, settled.offset))
    if not heads:
        raise UsageError("there is nothing to sign yet", hint="write to a ledger first")
    signed = sign(heads, utc_stamp(home.clock.now()), signing_key(key_path()))
    text = pretty(signed)
    if out is None:
        return Show(signed, text=text.decode())
    put_new(out, text)
    what = ", ".join(f"{head.agent}#{head.seq}" for head in heads)
    return Change(out, applied=True, detail=f"signed {what}", data=signed)


@example("holdfast ledger orphans --agent rio", columns="agent task_id age why session_id summary")
def orphans(
    context: Context,
    *,
    agent: OfAgent = None,
    since: Annotated[str, Arg("Begun since then: 30d, a date or a time", metavar="T")] = "30d",
    older_than: Annotated[
        str, Arg("Count as forgotten after so long, even if the agent lives", metavar="D")
    ] = "24h",
) -> Rows:
    from holdfast.ops.ledger import chosen_agents

    home = context.home()
    begin, patience = moment(since, home), duration(older_than)
    rows: list[Record] = []
    for name in chosen_agents(context, agent):
        rows += _unfinished(context, name, begin, patience)
    return Rows(rows, {"orphans": len(rows)}, exit_code=ATTENTION if rows else 0)


def _unfinished(context: Context, name: str, begin: float, patience: float) -> list[Record]:
    """Tasks that were begun and have no result, and why they will have none."""
    from holdfast.ops.ledger import entries

    home = context.home()
    now = home.clock.now()
    with Ledger(home, name, context.layout) as ledger:
        status = ledger.state()
    ends = ("task_start", "task_result")
    began: dict[str, Found] = {}
    for found in entries(context, name, lambda each: each.entry.get("event") in ends, begin):
        task = str(found.entry.get("task_id"))
        if found.entry["event"] == "task_start":
            began[task] = found
        else:
            began.pop(task, None)
    gone = presence(status, now, home.settings.offline_after).state == "offline"
    rows: list[Record] = []
    for task, found in began.items():
        record, age = found.entry, now - found.instant
        if is_over(status, record.get("session_id")):
            why = "its session is over"
        elif gone:
            why = "the agent is offline"
        elif age > patience:
            why = "nothing was heard of it for too long"
        else:
            continue
        rows.append(
            {
                "agent": name,
                "task_id": task,
                "session_id": record.get("session_id"),
                "began": record.get("ts"),
                "age": round(age),
                "why": why,
                "summary": record.get("summary"),
            }
        )
    return rows
