"""`agent turns`: what an agent was asked, what it answered, and what that cost."""

from __future__ import annotations

from textwrap import shorten
from typing import Annotated, Any

from holdfast.agents import history
from holdfast.agents.agent import Agent
from holdfast.calls.turns import FAILED, LOST, WAITING, Turn, turns
from holdfast.clock import local_stamp, zone
from holdfast.errors import UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Rows
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.ops.status import known_agent
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
    if limit < 0:
        raise UsageError("fewer than none", hint="--limit 20, or 0 for all")
    if decrypt and context.from_afar:
        raise UsageError(
            "what is sealed is opened at a terminal only", hint="holdfast agent turns --decrypt"
        )
    home = context.home()
    with Agent(home, known_agent(home, context.layout, agent), context.layout) as one:
        found = turns(home, one.key, limit or 1 << 62, decrypt=decrypt)
        askers = _askers(one) if found.newest else {}
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


def _askers(one: Agent) -> dict[str, str]:
    """What the sessions of the turns were for: chats, phases of jobs, whatever asked."""
    return {
        each["session_id"]: each["role"] or each["type"]
        for each in history.every_session(one.name, one.lines())
    }


def _row(home: Home, turn: Turn, askers: dict[str, str]) -> dict[str, Any]:
    at = turn.asked
    whens = local_stamp(at, zone(home.settings.timezone)) if at and 0 < at < _LATEST else None
    return {
        "at": whens,
        "by": askers.get(turn.session_id or ""),
        **{name: value for name, value in turn._asdict().items() if name != "asked"},
        "tries": list(turn.tries),
        "calls": turn.calls,
        "tokens": _tokens(turn),
        "cost": _cost(turn),
        "took": None if turn.seconds is None else f"{turn.seconds:.1f} s",
        "what": _what(turn),
    }


def _tokens(turn: Turn) -> str:
    counts = (turn.input_tokens, turn.output_tokens)
    return (
        "" if counts == (None, None) else " + ".join("?" if n is None else str(n) for n in counts)
    )


def _cost(turn: Turn) -> str:
    if turn.state == WAITING:
        return ""
    return "unknown" if turn.cost_usd is None else f"{turn.cost_usd:.4f}"


def _what(turn: Turn) -> str:
    """The question, and before it what went wrong."""
    again = f" after {turn.calls} tries" if turn.calls > 1 else ""
    wrong = f"{turn.error}{again}: " if turn.error else ""
    said = f"sealed with the key {turn.sealed}" if turn.question is None and turn.sealed else ""
    return shorten(wrong + (turn.question or said), _WIDEST, placeholder=" …")
