"""The rest of a job once more, to see what another model makes of it."""

from __future__ import annotations

import secrets

from holdfast.codec import Record
from holdfast.jobs.again import begin_again
from holdfast.jobs.job import Job
from holdfast.jobs.packing import check_unpacked
from holdfast.ops.context import Context
from holdfast.ops.envelope import Show
from holdfast.ops.job_run import running
from holdfast.ops.jobs import queue_of, workspace_of


def again(call: Context, job: Job, behind: int, model: str | None) -> Show:
    """Go on behind some calls in a new job, and compare the two."""
    check_unpacked(job.state(), "replay --from")
    name = f"{job.name[:110]}-again-{secrets.token_hex(3)}"
    with Job(call.home_to_change(), name, call.layout) as new:
        tree = begin_again(job, new, behind, model)
        with queue_of(call, change=True) as queue:
            queue.register(name, new.state()["created_at"], use=False)
        if tree is not None:
            workspace = workspace_of(new)
            workspace.make()
            workspace_of(job).copy_to(workspace, tree)
        with running(call, new) as runner:
            runner.run()
        was, now = _figures(job), _figures(new)
    same = was["status"] == now["status"]
    told = f"{job.name}: {_told(was)}\n{name}: {_told(now)}\n"
    return Show({"job": job.name, "new": name, "same": same, "was": was, "now": now}, text=told)


def _figures(job: Job) -> Record:
    state = job.state()
    return {
        "status": state["status"],
        "calls": state["steps"],
        "cost_usd": round(state["cost_usd"], 6),
        "seconds": round(state["seconds"], 3),
        "result": state["result"],
    }


def _told(figures: Record) -> str:
    cost, seconds = figures["cost_usd"], figures["seconds"]
    return f"{figures['status']} after {figures['calls']} calls, {cost:.4f} USD, {seconds:.1f} s"
