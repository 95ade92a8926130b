"""`status`: the fleet in a table, or one agent in detail.  Looks only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from holdfast.agents.standing import Moment, Running, Standing, fleet, standing
from holdfast.clock import zone
from holdfast.codec import Record
from holdfast.layout import HOLDFAST
from holdfast.ledger.book import agents
from holdfast.ledger.status import SHOWN
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Rows, tally
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, known_agent
from holdfast.store.home import Home
from holdfast.text import ago, clip, one_line, plural

_WIDEST = 26
"""Characters of a trouble in the table; all of it is in the JSON and in `status AGENT`."""


@example("holdfast status", columns="agent state session age task inbox cost trouble")
def status(
    context: Context,
    agent: Annotated[str | None, Arg("Only this agent, in detail", positional=True)] = None,
) -> Rows:
    home, layout = context.home(), context.layout
    moment = now(home)
    if agent is None:
        found = fleet(home, moment, layout)
    else:
        found = [standing(home, known_agent(agent, agents(home, layout)), moment, layout)]
    rows = [row_of(one) for one in found]
    attention = sum(bool(row["troubles"]) for row in rows)
    counts = {"agents": len(rows), **tally(rows, "state")}
    if agent is None and layout is HOLDFAST and home.names(layout.above("job")):
        from holdfast.ops.jobs import summaries

        jobs = list(summaries(context).values())
        counts["jobs"] = sum(not each.over for each in jobs)
        counts["jobs_waiting_for_you"] = sum(each.asks for each in jobs)
    plain = list(detail(rows[0])) if agent is not None else None
    return Rows(
        rows,
        counts | {"attention": attention},
        exit_code=ATTENTION if attention else 0,
        plain=plain,
    )


def now(home: Home) -> Moment:
    """This moment, by the home's clock, zone and settings."""
    instant = home.clock.now()
    local = datetime.fromtimestamp(instant, zone(home.settings.timezone))
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    return Moment(instant, midnight, home.settings.offline_after, home.settings.stale_after)


# --- a row ----------------------------------------------------------------------------------


def row_of(one: Standing) -> dict[str, Any]:
    troubles = one.troubles
    age = one.presence.age
    unknown, spent = one.unknown_costs, one.spent
    return {
        **{name: one.recorded[name] for name in SHOWN},
        "agent": one.agent,
        "recorded_state": one.recorded["state"],
        "state": one.state,
        "session": _sessions(one) or one.recorded["session_id"],
        "sessions": [_session(each) for each in one.running],
        "age": None if age is None else round(age),
        "task": one.task,
        "inbox": one.waiting,
        "inbox_high": one.urgent,
        # `0.42`, `?` where it is unknown, `0.42+?` where it is at least that.
        "cost": "+".join([f"{spent:.2f}"] * bool(spent) + ["?"] * bool(unknown)) or None,
        "cost_today_usd": None if unknown else spent,
        "cost_today_known_usd": spent,
        "cost_today_unknown": unknown,
        "report": one.report.state,
        "parked": [each._asdict() for each in one.parked],
        "note": one.presence.note,
        "trouble": _short(troubles),
        "troubles": troubles,
    }


def _session(one: Running) -> Record:
    names = ("session_id", "type", "started_at", "task")
    return {
        **{name: one.session[name] for name in names},
        "role": one.session["role"] or None,
        "status": "running" if one.alive else "crashed",
    }


def _sessions(one: Standing) -> str:
    """Open sessions; of several of one day only the numbers, so that all of them fit."""
    ids = [str(each.session["session_id"]) for each in one.running]
    several = len(ids) > 1 and len({id.rpartition("_")[0] for id in ids}) == 1
    told: list[str] = []
    for id, each in zip(ids, one.running, strict=True):
        role = each.session["role"]
        name = id.rpartition("_")[2] if several else id
        told.append(f"{name} as {role}" if role else f"{name} {each.session['type']}")
    return ", ".join(told)


def _short(troubles: list[str]) -> str | None:
    if not troubles:
        return None
    more = f" (+{len(troubles) - 1})" if troubles[1:] else ""
    return clip(one_line(troubles[0]), _WIDEST - len(more)) + more


def detail(row: Record) -> Iterator[str]:
    """One agent, line by line."""
    age = "never heard of" if row["age"] is None else f"heard of {ago(row['age'])} ago"
    yield f"{row['agent']}: {row['state']}, {age}"
    for each in row["sessions"]:
        role = f" as {each['role']}" if each["role"] else ""
        task = f", task {each['task']}" if each["task"] else ""
        how = f"{each['status']} since {each['started_at']}"
        yield f"  session  {each['session_id']} {each['type']}{role}: {how}{task}"
    if not row["sessions"] and row["session_id"]:
        yield f"  session  {row['session_id']}, none open"
    if row["task"]:
        yield f"  task     {row['task']}"
    yield f"  inbox    {row['inbox']} waiting, {row['inbox_high']} of them urgent"
    unknown, money = row["cost_today_unknown"], f"{row['cost_today_known_usd']:.2f} USD"
    more = f", cost unknown for {plural(unknown, 'session')}" if unknown else ""
    yield f"  today    {money}{more}"
    yield f"  report   {row['report'] or 'none needed'}"
    for trouble in row["troubles"]:
        yield f"  trouble  {trouble}"
