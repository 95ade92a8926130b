"""`agent turns`: what an agent was asked, what it answered, and what that cost."""

from __future__ import annotations

from textwrap import shorten
from typing import Annotated, Any

from holdfast.agents import history
from holdfast.agents.agent import Agent
from holdfast.calls.turns import FAILED, LOST, WAITING, Turn, turns
from holdfast.clock import local_stamp, zone
from holdfast.errors import UsageError
from holdfast.ledger.book import agents
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Rows
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, checked_limit, known_agent
from holdfast.store.home import Home

_WIDEST = 48
_LATEST = 253_402_300_799.0
"""The last second of the year 9999: what is later is no time of ours."""


@example("holdfast agent turns rio --limit 5", columns="at by model tokens cost took state what")
def list_turns(
    context: Context,
    agent: Annotated[str, Arg("Of whom", positional=True)],
    *,
    limit: Annotated[int, Arg("The newest N; 0 is all")] = 20,
    decrypt: Annotated[bool, Arg("Open what is sealed, with the keys at hand")] = False,
) -> Rows:
    if decrypt and context.from_afar:
        raise UsageError(
            "what is sealed is opened at a terminal only", hint="holdfast agent turns --decrypt"
        )
    home = context.home()
    with Agent(home, known_agent(agent, agents(home, context.layout)), context.layout) as one:
        found = turns(home, one.key, checked_limit(limit) or 1 << 62, decrypt=decrypt)
        # What their sessions were for: chats, phases of jobs and others.
        sessions = history.every_session(one.name, one.lines()) if found.newest else ()
        askers = {each["session_id"]: each["role"] or each["type"] for each in sessions}
    rows = [_row(home, each, askers) for each in reversed(found.newest)]
    counts: dict[str, Any] = {
        "turns": found.of,
        "shown": len(rows),
        "failed": sum(row["state"] == FAILED for row in rows),
        "usd": round(sum(row["cost_usd"] or 0.0 for row in rows), 9),
        "unknown": sum(row["cost"] == "unknown" for row in rows),
    }
    lost = sum(LOST in (row["question"], row["answer"], row["reason"]) for row in rows)
    if lost:
        context.warn(f"{lost} sealed turns do not open; `holdfast check` shows what was changed")
    code = ATTENTION if lost else 0
    return Rows(rows, counts, truncated=len(rows) < found.of, exit_code=code)


def _row(home: Home, turn: Turn, askers: dict[str, str]) -> dict[str, Any]:
    at = turn.asked
    counts = (turn.input_tokens, turn.output_tokens)
    tokens = " + ".join("?" if n is None else str(n) for n in counts)
    cost = "unknown" if turn.cost_usd is None else f"{turn.cost_usd:.4f}"
    tries = f" after {turn.calls} tries" if turn.calls > 1 else ""
    wrong = f"{turn.error}{tries}: " if turn.error else ""
    sealed = f"sealed with the key {turn.sealed}" if turn.sealed and turn.question is None else ""
    whens = local_stamp(at, zone(home.settings.timezone)) if at and 0 < at < _LATEST else None
    return {
        "at": whens,
        "by": askers.get(turn.session_id or ""),
        **{name: value for name, value in turn._asdict().items() if name != "asked"},
        "tries": list(turn.tries),
        "calls": turn.calls,
        "tokens": "" if counts == (None, None) else tokens,
        "cost": "" if turn.state == WAITING else cost,
        "took": None if turn.seconds is None else f"{turn.seconds:.1f} s",
        "what": shorten(wrong + (turn.question or sealed), _WIDEST, placeholder=" …"),
    }
