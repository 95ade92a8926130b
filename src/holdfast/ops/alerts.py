"""The verbs of alerts: for a schedule that shall tell a person, but not every minute."""

from __future__ import annotations

from typing import Annotated, Any

from holdfast.agents.alerts import Alerts, troubles_of
from holdfast.agents.standing import fleet
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.ops.status import now
from holdfast.text import duration


@example("holdfast alerts check")
def check(
    context: Context,
    *,
    idle: Annotated[bool, Arg("Also agents that were idle when last heard of")] = False,
    every: Annotated[
        str | None, Arg("Tell what lasts again after so long (30m)", metavar="TIME")
    ] = None,
    dry_run: Annotated[bool, Arg("Only show what would be told")] = False,
) -> Show:
    home = context.home() if dry_run else context.home_to_change()
    pause = duration(every) if every is not None else home.settings.alert_every
    seen = troubles_of(fleet(home, now(home), context.layout), idle=idle)
    with Alerts(home) as alerts:
        told = alerts.look(seen, pause, dry_run=dry_run)
    names = ("id", "agent", "kind", "event", "says")
    rows = [{name: line[name] for name in names} for line in told]
    # Silent when there is nothing to tell: cron sends what is printed.
    text = "\n".join(f"{row['agent']}: {row['says']} ({row['id']})" for row in rows)
    data = {"told": rows, "troubles": len(seen)}
    return Show(data, text=text, exit_code=ATTENTION if rows else 0)


@example("holdfast alerts list", columns="id agent kind since times acked_by says")
def list_(context: Context) -> Rows:
    home = context.home()
    with Alerts(home) as alerts:
        rows: list[dict[str, Any]] = alerts.open()
    waiting = sum(not row["acked_by"] for row in rows)
    return Rows(rows, {"open": len(rows), "not_acknowledged": waiting})


@example('holdfast alerts ack alert-1 --note "restarted it"')
def ack(
    context: Context,
    id: Annotated[str, Arg("Which alert", positional=True)],
    *,
    note: Annotated[str | None, Arg("What is done about it", metavar="TEXT")] = None,
    by: Annotated[str | None, Arg("Who it is, if not the user", metavar="NAME")] = None,
) -> Change:
    home = context.home_to_change()
    with Alerts(home) as alerts:
        found = alerts.acknowledge(id, context.person(by), note)
    told, before = f"{found['agent']}: {found['says']}", found["acked_by"]
    if before:
        return Change(found["id"], False, f"{told}; {before} has acknowledged it", found)
    return Change(found["id"], True, f"{told}; silent until it is over", found)
