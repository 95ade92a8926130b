"""The verbs of agents: who there is, in which order to wake them, and all about one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from holdfast.agents.agent import Agent
from holdfast.agents.forking import lineage
from holdfast.agents.standing import by_health, fleet, health, standing
from holdfast.errors import Corrupt
from holdfast.ledger.book import agents
from holdfast.ops.context import Context
from holdfast.ops.envelope import Rows, Show, tally
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, known_agent
from holdfast.ops.status import now, row_of

By = Literal["health", "name"]


@example("holdfast agent list --by health", columns="place agent health reason")
def list_(
    context: Context,
    *,
    by: Annotated[By, Arg("In the order in which to wake them, or by name")] = "name",
) -> Rows:
    home = context.home()
    ordered = by_health(fleet(home, now(home), context.layout))
    rows: list[dict[str, Any]] = [
        {
            "place": place,
            "agent": each.agent,
            "health": each.group,
            "failed": each.failed,
            "recent": each.of,
            "last_ended": each.last_ended,
            "reason": each.reason,
        }
        for place, each in enumerate(ordered, 1)
    ]
    if by == "name":
        rows.sort(key=lambda row: row["agent"])
    return Rows(rows, {"agents": len(rows), **tally(rows, "health")})


@example("holdfast agent show rio")
def show(context: Context, agent: Annotated[str, Arg("Which one", positional=True)]) -> Show:
    home, layout = context.home(), context.layout
    known = known_agent(agent, agents(home, layout))
    one = standing(home, known, now(home), layout)
    with Agent(home, known, layout) as opened:
        report, session, metrics = opened.report(), opened.session(), opened.metrics()
        try:
            persona = opened.persona.look()
        except Corrupt as error:  # an unreadable manifest does not hide the rest
            persona = None
            context.warn(error.message)
        retired = opened.state()["retired"]
        roles = {role: opened.session(role) for role in opened.state()["sessions"] if role}
        place = opened.key("agent")
    row = row_of(one)
    fit = health(one)
    data = {
        "agent": known,
        "path": f"{home.path}/{place}",
        "state": one.state,
        "health": fit.group,
        "reason": fit.reason,
        "retired": retired,
        "persona": persona,
        "lineage": lineage(home, layout, known)._asdict(),
        "troubles": row["troubles"],
        "parked": row["parked"],
        "inbox": row["inbox"],
        "inbox_high": row["inbox_high"],
        "cost_today_usd": row["cost_today_usd"],
        "sessions": row["sessions"],
        "recent": one.history["recent"],
        "report": report,
        "session": session,
        "roles": roles,
        "metrics": metrics,
    }
    return Show(data)
