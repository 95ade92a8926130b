"""The verbs of money."""

from __future__ import annotations

from typing import Annotated, Any

from holdfast.clock import local_stamp, zone
from holdfast.errors import UsageError
from holdfast.ids import agent_id
from holdfast.layout import SPEND
from holdfast.ledger.book import agents
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun, moment
from holdfast.settings import SETTINGS
from holdfast.spend.book import Spend, Tally, total
from holdfast.spend.limits import limit, set_limits

FLEET = "(all)"
"""In place of an agent; no agent can be called so."""


@example("holdfast budget show", columns="agent usd unknown reserved_usd limit_usd left_usd")
def show(
    context: Context,
    agent: Annotated[str | None, Arg("Only this agent", positional=True)] = None,
    *,
    day: Annotated[str | None, Arg("Another day than today", metavar="DAY")] = None,
) -> Rows:
    home = context.home()
    if day is None:
        when = home.day()
    else:
        when = local_stamp(moment(day, home), zone(home.settings.timezone))[:10]
    with Spend(home) as spend:
        spent = context.once(f"spent on {when}", SPEND, lambda: spend.agents(when))
    everybody = total(spent.values())
    names = sorted(spent) if agent is None else [agent_id(agent).lower()]
    rows: list[dict[str, Any]] = []
    for name in names:
        budget = home.settings.budget(name)
        tally = spent.get(name, Tally())
        rows.append(_row(name, tally, budget.agent_day) | {"session_limit_usd": budget.session})
    limit = home.settings.budget().fleet_day
    rows.append(_row(FLEET, everybody, limit) | {"session_limit_usd": None})
    return Rows(rows, {"day": when, "agents": len(names), "unknown": everybody.unknown})


@example("holdfast budget set --session 2 --day 5 --fleet-day 20")
def set_(
    context: Context,
    agent: Annotated[str | None, Arg("Only for this agent", positional=True)] = None,
    *,
    session: Annotated[
        str | None, Arg("What one session may spend, in USD, or none", metavar="USD")
    ] = None,
    day: Annotated[
        str | None, Arg("What an agent may spend in a day, in USD, or none", metavar="USD")
    ] = None,
    fleet_day: Annotated[
        str | None, Arg("What all may spend in a day, in USD, or none", metavar="USD")
    ] = None,
    dry_run: DryRun = False,
) -> Change:
    """The limits are kept in holdfast.toml; the rest of the file, comments too, stays unchanged.
    They apply to sessions that start from now on. `none` removes a limit; an agent without a
    limit of its own has the limit of all agents.
    """
    context.check_person()
    home = context.home_to_change()
    name = None if agent is None else agent_id(agent).lower()
    said = {"session": session, "day": day, "fleet_day": fleet_day}
    changes = {
        _setting(each, name): limit(f"--{each.replace('_', '-')}", text)
        for each, text in said.items()
        if text is not None
    }
    if not changes:
        raise UsageError("no limit to set", hint="--session, --day or --fleet-day, in USD")
    if name is not None and name not in agents(home, context.layout):
        context.warn(f"there is no agent called {name} yet; the limit holds once there is")
    before, after = set_limits(home, changes, dry_run=dry_run)
    rows = {".".join(key): {"before": before[key], "after": after[key]} for key in changes}
    told = [f"{key}: {_money(row['before'])} → {_money(row['after'])}" for key, row in rows.items()]
    applied = before != after and not dry_run
    detail = ("would set " if dry_run else "") + ", ".join(told)
    return Change(SETTINGS, applied, detail, data={"limits": rows}, dry_run=dry_run)


def _setting(said: str, agent: str | None) -> tuple[str, ...]:
    if agent is None:
        names = {"session": "session_usd", "day": "agent_day_usd", "fleet_day": "fleet_day_usd"}
        return ("budget", names[said])
    if said == "fleet_day":
        raise UsageError(
            "--fleet-day is for all agents together", hint="leave the agent out, or use --day"
        )
    return ("agents", agent, f"{said}_usd")


def _money(usd: float | None) -> str:
    return "no limit" if usd is None else f"{usd:g} USD"


def _row(who: str, spent: Tally, limit: float | None) -> dict[str, Any]:
    told = {name: round(value, 6) for name, value in spent._asdict().items()}
    left = None if limit is None else round(max(limit - spent.committed, 0.0), 6)
    return {"agent": who, **told, "limit_usd": limit, "left_usd": left}
