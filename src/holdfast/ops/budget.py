"""The verb of money."""

from __future__ import annotations

from typing import Annotated, Any

from holdfast.clock import local_stamp, zone
from holdfast.ids import agent_id
from holdfast.ops.context import Context
from holdfast.ops.envelope import Rows
from holdfast.ops.moment import moment
from holdfast.ops.parameter import Arg
from holdfast.spend.book import Spend, Tally, total
from holdfast.spend.budget import budget_of

FLEET = "(all)"
"""In place of an agent; no agent can be called so."""


def show(
    context: Context,
    agent: Annotated[str | None, Arg("Only this agent", positional=True)] = None,
    *,
    day: Annotated[str | None, Arg("Another day than today", metavar="DAY")] = None,
) -> Rows:
    home = context.home()
    if day is None:
        when = home.today()
    else:
        when = local_stamp(moment(day, home), zone(home.settings.timezone))[:10]
    with Spend(home) as spend:
        spent = spend.agents(when)
    everybody = total(spent.values())
    names = sorted(spent) if agent is None else [agent_id(agent).lower()]
    rows: list[dict[str, Any]] = []
    for name in names:
        budget = budget_of(home, name)
        tally = spent.get(name, Tally())
        rows.append(_row(name, tally, budget.agent_day) | {"session_limit_usd": budget.session})
    limit = budget_of(home, "").fleet_day
    rows.append(_row(FLEET, everybody, limit) | {"session_limit_usd": None})
    return Rows(rows, {"day": when, "agents": len(names), "unknown": everybody.unknown})


def _row(who: str, spent: Tally, limit: float | None) -> dict[str, Any]:
    told = {name: round(value, 6) for name, value in spent._asdict().items()}
    left = None if limit is None else round(max(limit - spent.committed, 0.0), 6)
    return {"agent": who, **told, "limit_usd": limit, "left_usd": left}
