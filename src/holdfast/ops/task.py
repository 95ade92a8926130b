"""The verbs of tasks."""

from __future__ import annotations

from typing import Annotated, Literal

from holdfast import userfile
from holdfast.agents.tasks import (
    OPEN,
    New,
    Priority,
    TaskList,
    Type,
    Verb,
    in_order,
    is_untouched,
    parked_because,
    state_of,
)
from holdfast.agents.tasks import board as page_of
from holdfast.codec import Record
from holdfast.errors import Corrupt, HoldfastError, UsageError
from holdfast.ids import agent_id
from holdfast.ledger.book import agents
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, Show, tally
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.text import clip, one_line

Whose = Annotated[str, Arg("Whose task")]
Id = Annotated[str, Arg("Which task", positional=True, metavar="ID")]
Outcome = Annotated[str | None, Arg("What came of it, in a line")]


def _read(call: Context, tasks: TaskList) -> list[Record]:
    """In a tree that is only looked at nothing is taken in."""
    return tasks.read() if call.adopted else tasks.look()


@example('holdfast task add --agent rio --priority high "Who sets the fees?"')
def add(
    call: Context,
    text: Annotated[str, Arg("What is to be done", positional=True, or_file=True)],
    *,
    agent: Whose,
    type: Annotated[Type, Arg("What kind of work it is")] = "research",
    priority: Annotated[Priority, Arg("How urgent it is")] = "medium",
    context: Annotated[str | None, Arg("What one has to know for it", or_file=True)] = None,
    follow_up_from: Annotated[str | None, Arg("The task it comes from", metavar="ID")] = None,
) -> Change:
    with call.agent(agent, change=True) as one:
        tasks = one.desk.tasks
        if follow_up_from is not None and follow_up_from not in _ids(tasks.read()):
            call.warn(f"{tasks.agent} has no task {follow_up_from[:60]!r} that it could follow")
        done = tasks.add(New(text.strip(), type, priority, context, follow_up_from))
    id = str(done.task["id"])
    return Change(
        id, applied=True, detail=f"{tasks.agent}: {id} {clip(one_line(text), 80)}", data=done.task
    )


def _ids(tasks: list[Record]) -> set[str]:
    return {str(task.get("id")) for task in tasks}


@example("holdfast task list --agent rio", columns="agent id state priority type description note")
def list_(
    call: Context,
    *,
    agent: Annotated[str | None, Arg("Only of this agent; else of all")] = None,
    status: Annotated[
        Literal["open", "pending", "active", "completed", "dropped", "all"],
        Arg("Only these; open is pending and active"),
    ] = "open",
    parked: Annotated[bool, Arg("Only those that failed too often")] = False,
) -> Rows:
    home = call.home()
    names = [agent_id(agent).lower()] if agent is not None else agents(home, call.layout)
    rows: list[Record] = []
    broken = 0
    for name in names:
        try:
            with call.agent(name) as one:
                tasks = one.desk.tasks
                found = in_order(_read(call, tasks))
                failed = call.once("failures", one.key("journal"), tasks.failures) if found else {}
        except HoldfastError as error:
            if agent is not None and not isinstance(error, Corrupt):
                raise
            _warn(call, name, error)
            broken += 1
            continue
        wanted = (task for task in found if _is_wanted(task, status, parked=parked))
        rows += [_row(name, task, failed) for task in wanted]
    counts = {"tasks": len(rows), **tally(rows, "state")}
    return Rows(rows, counts, exit_code=ATTENTION if broken else 0)


def _warn(call: Context, agent: str, error: HoldfastError) -> None:
    """What is wrong with the tasks of one agent hides nobody else's."""
    where = error.path or f"the tasks of {agent}"
    said = error.message if where in error.message else f"{where}: {error.message}"
    call.warn(f"{said}; {error.hint}" if error.hint else said)


def _is_wanted(task: Record, status: str, *, parked: bool) -> bool:
    if parked:
        return bool(task.get("parked"))
    if status == "open":
        return task.get("status") in OPEN
    return status in ("all", task.get("status"))


def _row(agent: str, task: Record, failed: dict[str, tuple[int, str]]) -> Record:
    times, why = failed.get(str(task.get("id")), (0, ""))
    note = parked_because(task) or why
    return {"agent": agent, "state": state_of(task), **task, "failures": times, "note": note}


@example("holdfast task show --agent rio task-001")
def show(call: Context, id: Id, *, agent: Whose) -> Show:
    with call.agent(agent) as one:
        tasks = one.desk.tasks
        looked = () if call.adopted else (each for each in tasks.look() if each.get("id") == id)
        task = next(iter(looked), None) or tasks.find(id)
        row = _row(tasks.agent, task, tasks.failures())
        rest = _read(call, tasks)
    follow = [str(each.get("id")) for each in rest if each.get("follow_up_from") == id]
    return Show({**row, "follow_ups": follow})


@example("holdfast task start --agent rio task-001")
def start(call: Context, id: Id, *, agent: Whose) -> Change:
    return _move(call, agent, id, "start")


@example('holdfast task done --agent rio task-001 --outcome "By vote" --follow-up "Whose?"')
def done(
    call: Context,
    id: Id,
    *,
    agent: Whose,
    outcome: Outcome = None,
    follow_up: Annotated[str | None, Arg("A task that comes out of it", metavar="TEXT")] = None,
) -> Change:
    return _move(call, agent, id, "done", outcome, follow_up)


@example('holdfast task drop --agent rio task-001 --outcome "Nobody asks any more"')
def drop(call: Context, id: Id, *, agent: Whose, outcome: Outcome = None) -> Change:
    return _move(call, agent, id, "drop", outcome)


@example("holdfast task reopen --agent rio task-001")
def reopen(call: Context, id: Id, *, agent: Whose) -> Change:
    return _move(call, agent, id, "reopen")


def _move(
    call: Context,
    agent: str,
    id: str,
    verb: Verb,
    outcome: str | None = None,
    follow_up: str | None = None,
) -> Change:
    with call.agent(agent, change=True) as one:
        changed = one.desk.tasks.move(id, verb, outcome, follow_up)
    data, more = changed.task, "" if changed.applied else " already"
    if changed.follow_up is not None:
        data = data | {"follow_up": changed.follow_up["id"]}
        more = more or f"; {changed.follow_up['id']} follows"
    detail = f"{one.name}: {id} is {changed.task.get('status')}{more}"
    return Change(id, changed.applied, detail, data=data)


# --- the board ------------------------------------------------------------------------------


@example("holdfast task board --out queue.md")
def board(
    call: Context,
    *,
    out: Annotated[str | None, Arg("Write it here instead of showing it", metavar="FILE")] = None,
) -> Show | Change:
    listed: dict[str, list[Record]] = {}
    for name in agents(call.home(), call.layout):
        try:
            with call.agent(name) as one:
                listed[name] = _read(call, one.desk.tasks)
        except HoldfastError as error:
            _warn(call, name, error)
    page = page_of(listed)
    if out is None:
        return Show({"board": page}, text=page)
    there = (userfile.existing(out) or b"").decode(errors="replace")
    if there and not is_untouched(there):
        raise UsageError(
            f"{out} was edited, or is no board",
            hint="move it away, or give another file",
            path=out,
        )
    written = userfile.put_over(out, page.encode())
    return Change(out, written, f"{len(listed)} agents on the board {out}")
