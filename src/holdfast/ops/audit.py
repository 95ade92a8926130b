"""The verbs of the audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict, Unpack

from holdfast.audit import KINDS, Audit, Entry
from holdfast.ids import agent_id
from holdfast.ops.context import Context
from holdfast.ops.envelope import Rows, Show, Stream
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, OfAgent, Since, checked_limit, moment
from holdfast.text import plural

_PAUSE = 0.2
_SHOWN = ("job_id", "agent", "sequence", "detail")


class Which(TypedDict, total=False):
    """Which entries: flags of `audit list` and `audit tail`."""

    job: Annotated[str | None, Arg("Only of this job", metavar="ID")]
    agent: OfAgent
    kind: Annotated[str | None, Arg("Only of this kind, such as schema or refusal")]
    since: Since


@example("holdfast audit list --kind refusal --since 7d", columns="seq ts kind job_id agent detail")
def list_(
    context: Context,
    *,
    limit: Annotated[int, Arg("The newest N; 0 is all")] = 100,
    **which: Unpack[Which],
) -> Rows:
    wanted, begin = _wanted(context, which)
    with Audit(context.home()) as audit:
        # One more than asked for tells whether there is more.
        most = checked_limit(limit) + 1 if limit else None
        found = audit.newest(most, wanted, begin)
        if audit.damaged:
            count = plural(len(audit.damaged), "damaged line")
            context.warn(f"left out {count}; `holdfast check` tells where")
        if not found and (kind := which.get("kind")) is not None and kind not in KINDS:
            context.warn(f"nothing is called {kind}; the rules are {', '.join(KINDS)}")
    shown = found[-limit:] if limit else found
    counts: dict[str, int] = {"shown": len(shown)}
    for each in shown:
        name = str(each.record["event"])
        counts[name] = counts.get(name, 0) + 1
    return Rows([_row(each) for each in shown], counts, truncated=len(shown) < len(found))


@example("holdfast audit tail --agent rio --follow", columns="seq ts kind job_id agent detail")
def tail(
    context: Context,
    *,
    limit: Annotated[int, Arg("How many to begin with")] = 10,
    follow: Annotated[bool, Arg("Go on showing entries as they are written")] = False,
    **which: Unpack[Which],
) -> Stream:
    wanted, begin = _wanted(context, which)
    return Stream(_follow(context, wanted, begin, checked_limit(limit), follow=follow))


def _follow(
    context: Context,
    wanted: Callable[[Entry], bool],
    since: float | None,
    limit: int,
    *,
    follow: bool,
) -> Iterator[dict[str, Any]]:
    with Audit(context.home()) as audit:
        at = end = audit.head()
        # What comes while we look for the newest is shown by following.
        found = audit.newest(
            limit, lambda each: (each.line.seq or 0) <= end.seq and wanted(each), since
        )
        if not found:
            context.warn("no entries yet" + ("; waiting for the first" if follow else ""))
        yield from map(_row, found)
        while follow:
            for entry in audit.read(at):
                at = entry.cursor
                if wanted(entry):
                    yield _row(entry)
            context.clock.sleep(_PAUSE)


@example("holdfast audit show 1")
def show(
    context: Context,
    seq: Annotated[int, Arg("Its number in the audit", positional=True, metavar="N")],
) -> Show:
    with Audit(context.home()) as audit:
        found = audit.entry(seq)
    about = KINDS.get(str(found.record["event"]))
    data = _row(found) | {
        name: found.record[name] for name in ("ref", "data") if name in found.record
    }
    return Show(data | {"means": about} if about else data)


def _wanted(context: Context, which: Which) -> tuple[Callable[[Entry], bool], float | None]:
    """The test of an entry, and the moment before which none passes it."""
    since, agent = which.get("since"), which.get("agent")
    begin = None if since is None else moment(since, context.home())
    name = None if agent is None else agent_id(agent).lower()
    asked = {"job_id": which.get("job"), "agent": name, "event": which.get("kind")}
    values = [(name, value.lower()) for name, value in asked.items() if value is not None]

    def wanted(entry: Entry) -> bool:
        same = all(str(entry.record.get(name)).lower() == value for name, value in values)
        return same and (begin is None or entry.instant >= begin)

    return wanted, begin


def _row(entry: Entry) -> dict[str, Any]:
    record = entry.record
    row = {"seq": entry.line.seq, "ts": record.get("ts"), "kind": record["event"]}
    return row | {name: record.get(name) for name in _SHOWN}
