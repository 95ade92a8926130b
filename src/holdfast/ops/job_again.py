"""The verb that derives a job again, or asks for the rest of it once more."""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import Annotated

from holdfast.codec import Record
from holdfast.errors import UsageError
from holdfast.jobs.job import Job
from holdfast.jobs.packing import needing_files
from holdfast.jobs.place import Models
from holdfast.jobs.queue import check_undamaged
from holdfast.jobs.replay import NothingToReplay, begin_again, beginning_of, files_in_place
from holdfast.jobs.replay import replay as replayed
from holdfast.jobs.report import known_usd, shown_usd
from holdfast.jobs.runner import is_ready
from holdfast.jobs.steward import check_activates
from holdfast.ops.context import Context
from holdfast.ops.envelope import Show
from holdfast.ops.job_run import running
from holdfast.ops.jobs import Id, opened, queue_of
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.text import plural


@example("holdfast job replay hello")
def replay(
    call: Context,
    id: Id = None,
    *,
    until: Annotated[int | None, Arg("Only the first so many calls")] = None,
    from_: Annotated[
        int | None, Arg("Go on behind so many calls in a new job, and compare")
    ] = None,
    model: Annotated[str | None, Arg("Whom to ask there instead", metavar="MODEL")] = None,
) -> Show:
    """Fails with the line where the history is not what was written, or the call where it recorded
    another state. With --from N the first N calls are copied into a new job, and the rest is asked
    again; if no model can be asked, no job is made.
    """
    if until is not None and from_ is not None:
        raise UsageError("--until and --from", hint="one of them")
    for option, count in (("--until", until), ("--from", from_)):
        if count is not None and count < 0:
            raise UsageError(f"{option} {count} is no number of calls", hint="0 or more")
    if model is not None and from_ is None:
        raise UsageError("--model goes with --from", hint="say behind how many calls")
    with opened(call, id, change=from_ is not None) as job:
        job.reveal()
        check_undamaged(job)
        if from_ is not None:
            # Behind calls of ours; those of another system come before all of them.
            until = from_ + sum(line.record.get("event") == "told" for line in job.lines())
        found = replayed(job, until)
        if found.unproven and not found.calls and from_ is None:
            raise NothingToReplay(
                f"{job.name}: {plural(found.unproven, 'imported call')} without answers or states",
                hint=f"`holdfast job history {job.name}` shows what was recorded of them",
            )
        if from_ is None:
            data = {"job": job.name, **found._asdict()}
            calls = plural(found.calls, "call")
            said = f"{job.name}: {calls} replayed, {found.status}: every state follows\n"
            if found.unproven:
                left = plural(found.unproven, "imported call")
                said += f"{left} without answers or states: nothing is proven of them\n"
            return Show(data, text=said)
        return _again(call, job, from_, model)


def _again(call: Context, job: Job, behind: int, model: str | None) -> Show:
    """Go on behind some calls in a new job, and compare the two."""
    with needing_files(job, "replay --from"):
        begun = beginning_of(job, behind, model)
    if begun.state["status"] == "DRAFT":
        check_activates(begun.state)
    elif not is_ready(begun.state):
        return _compared(job, None, begun.state)
    name = f"{job.name[:110]}-again-{secrets.token_hex(3)}"
    key = call.layout.path("job", name)
    with Job(call.home_to_change(), name, call.layout) as new:
        with (
            needing_files(job, "replay --from"),
            files_in_place(job, begun, name, key) as workspace,
        ):
            models = Models(workspace.path, clock=call.clock, sandbox=workspace.sandbox)
            with closing(models):
                models.check(begun.spec)
            begin_again(job, new, begun, {"calls": behind, "model": model})
        with queue_of(call, change=True) as queue:
            queue.register(name, new.state()["created_at"], use=False)
        with running(call, new) as runner:
            runner.run()
        return _compared(job, name, new.state())


def _compared(job: Job, name: str | None, state: Record) -> Show:
    """Without a name there was nothing left to ask."""
    was, now = _figures(job.state()), _figures(state)
    same = was["status"] == now["status"]
    text = f"{job.name}: {_in_words(was)}\n{name or 'nobody to ask'}: {_in_words(now)}\n"
    return Show({"job": job.name, "new": name, "same": same, "was": was, "now": now}, text=text)


def _figures(state: Record) -> Record:
    return {
        "status": state["status"],
        "calls": state["steps"],
        "cost_usd": known_usd(state),
        "unknown_costs": state["unknown"],
        "seconds": round(state["seconds"], 3),
        "result": state["result"],
    }


def _in_words(figures: Record) -> str:
    cost = shown_usd(figures["cost_usd"], figures["unknown_costs"])
    calls = plural(figures["calls"], "call")
    return f"{figures['status']} after {calls}, {figures['seconds']:.1f} s, {cost}"
