"""The verbs that make jobs, list them and put them in their order."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict, Unpack

from holdfast.codec import Record
from holdfast.contracts.job_spec import JobSpec
from holdfast.contracts.job_states import STATES
from holdfast.errors import BadName, HoldfastError, NotFound, UsageError, recorded
from holdfast.jobs.job import Job, job_id
from holdfast.jobs.packing import check_kept
from holdfast.jobs.place import Models
from holdfast.jobs.queue import known
from holdfast.jobs.report import shown_usd
from holdfast.jobs.spec import Options, check_amount, check_there, is_attached, read_spec, settled
from holdfast.jobs.state import refusal, spec_of
from holdfast.jobs.steward import activate as activated
from holdfast.jobs.steward import cancel, check_activates
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show, tally
from holdfast.ops.job_damage import DAMAGED, lost_rows, warn_of_damage, warn_of_views
from holdfast.ops.job_watch import words_of
from holdfast.ops.jobs import (
    Decrypt,
    Id,
    details,
    held,
    indented,
    opened,
    queue_of,
    row,
    workspace_of,
)
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun
from holdfast.text import duration, one_line, plural
from holdfast.workspace.command import doubts
from holdfast.workspace.files import ATTACHMENTS
from holdfast.workspace.sandbox import hidden_in
from holdfast.workspace.source import repository_of

_FILES_SHOWN, _POINTS_SHOWN = 20, 3
Isolation = Literal["none", "directory", "worktree", "sandbox"]


class JobFields(TypedDict, total=False):
    """What a draft says of a job: flags of `job new` and `job set`."""

    prompt: Annotated[str | None, Arg("What is to be done", or_file=True)]
    description: Annotated[str | None, Arg("What it is for, in a line")]
    files: Annotated[str | None, Arg("Files to look at, with commas between", metavar="A,B")]
    worker: Annotated[str | None, Arg("Model that does the work", metavar="MODEL")]
    supervisor: Annotated[str | None, Arg("Model that reviews it", metavar="MODEL")]
    max_cost: Annotated[float | None, Arg("What the job may spend, in USD", metavar="USD")]
    max_time: Annotated[str | None, Arg("What the job may take in all: 2h", metavar="D")]
    max_iterations: Annotated[int | None, Arg("How many calls it may make")]
    timeout: Annotated[str | None, Arg("What one call may take: 10m", metavar="D")]


def _options(given: JobFields) -> Options:
    timeout, total = given.get("timeout"), given.get("max_time")
    return Options(
        prompt=given.get("prompt"),
        description=given.get("description"),
        files=tuple(filter(None, (each.strip() for each in (given.get("files") or "").split(",")))),
        worker=given.get("worker"),
        supervisor=given.get("supervisor"),
        max_cost=check_amount("--max-cost", given.get("max_cost")),
        max_seconds=None if total is None else duration(total),
        max_iterations=given.get("max_iterations"),
        timeout=None if timeout is None else duration(timeout),
    )


@example('holdfast job new --prompt "Say hello" --worker scripted:echo --id hello')
def new(
    call: Context,
    spec: Annotated[
        str | None,
        Arg("A spec (YAML or JSON), or a folder with one", positional=True, is_path=True),
    ] = None,
    *,
    id: Annotated[str | None, Arg("What to call it; else a name is made up")] = None,
    isolation: Annotated[Isolation | None, Arg("Where the work is done")] = None,
    source: Annotated[
        str | None, Arg("The folder or repository it is about", metavar="DIR", is_path=True)
    ] = None,
    base: Annotated[str | None, Arg("The branch or commit to begin with", metavar="REV")] = None,
    gate: Annotated[Sequence[str], Arg("A command that has to succeed; repeatable")] = (),
    attach: Annotated[
        Sequence[str], Arg("A file to put into the workspace; repeatable", is_path=True)
    ] = (),
    tolerant: Annotated[bool, Arg("Take answers with text or a fence around them")] = False,
    sensitive: Annotated[bool, Arg("Put prompts and answers on record sealed")] = False,
    activate: Annotated[bool, Arg("Put it into the queue at once")] = False,
    dry_run: DryRun = False,
    **given: Unpack[JobFields],
) -> Change:
    """It is a draft until it is activated or run. Without a spec, --prompt and --worker make a job
    of one phase; with --supervisor, of two.
    """
    prompt = given.get("prompt")
    if spec is not None and prompt is not None:
        raise UsageError("a spec and a prompt", hint="leave one of them out")
    if spec is None and not (prompt or "").strip():
        raise UsageError("nothing to do", hint='name a spec, or say --prompt "…"')
    options = _options(given)._replace(
        isolation=isolation,
        source=source,
        base=base,
        gates=tuple(gate),
        attachments=tuple(os.path.abspath(each) for each in attach),
        tolerant=tolerant,
        sensitive=sensitive,
    )
    told = JobSpec()
    if spec is not None:
        told, notes = read_spec(spec)
        for note in notes:
            call.warn(note)
    whole = settled(told, options)
    check_there(whole)
    if whole.isolation == "worktree" and whole.source is not None:
        repository_of(whole.source, needed=True)
    name = _named(whole, id, spec)
    if dry_run:
        return Change(name, False, f"would make {name}", whole.value(), dry_run=True)
    return _made(call, name, whole, queued=activate)


def _made(call: Context, name: str, spec: JobSpec, *, queued: bool) -> Change:
    home = call.home(create=True)
    with Job(home, name, call.layout) as job:
        job.create(spec)
        try:
            _attach(job, spec.attachments)
        except HoldfastError as error:
            # It must not run without what it was given.
            cancel(job, f"it could not be made: {error.message}")
            _register(call, job, use=False)
            raise
        with recorded(f"job {name}", "`holdfast doctor --fix` puts it on the list of jobs"):
            _register(call, job, use=True)
        gates = [gate for phase in spec.phases for gate in phase.gates]
        for doubt in doubts(gates):
            call.warn(doubt)
        if spec.isolation == "sandbox":
            models = [(spec.model_of(phase) or "").partition(":") for phase in spec.phases]
            commands = [rest for provider, _, rest in models if provider == "command"]
            for path in hidden_in([*commands, *(gate.run for gate in gates)]):
                call.warn(f"{path} is not there in the sandbox, whose /tmp and /run are empty")
        if queued:
            try:
                _activate(call, job, None)
            except HoldfastError:
                kept = f"{name} is kept as a draft: `holdfast job activate {name}` tries again"
                call.warn(kept)
                raise
        status = job.state()["status"]
        data = details(job)
    return Change(name, applied=True, detail=f"{name} is {status}", data=data)


def _register(call: Context, job: Job, *, use: bool) -> None:
    with queue_of(call, change=True) as queue:
        queue.register(job.name, job.state()["created_at"], use=use)


def _attach(job: Job, paths: Sequence[str]) -> None:
    if not paths:
        return
    check_kept(job)
    workspace = workspace_of(job)
    workspace.make()
    for path in paths:
        inside = workspace.attach(os.path.basename(path), path)
        job.decide(lambda state, inside=inside: [{"event": "attach", "path": inside}])


def _named(spec: JobSpec, id: str | None, path: str | None) -> str:
    if spec.job_id is not None:
        return job_id(spec.job_id)
    if id is not None:
        return job_id(id)
    if path is not None and os.path.isdir(path) and os.path.abspath(path) != os.getcwd():
        try:
            return job_id(os.path.basename(os.path.abspath(path)))
        except BadName:
            pass
    return f"job-{secrets.token_hex(4)}"


@example("holdfast job set hello --max-cost 2.5")
def set_(
    call: Context,
    id: Id = None,
    *,
    objective: Annotated[str | None, Arg("What it is to achieve")] = None,
    details: Annotated[str | None, Arg("What one has to know")] = None,
    acceptance: Annotated[str | None, Arg("When it is accepted")] = None,
    rank: Annotated[int | None, Arg("Its place in the queue; 0 is the front, -1 the end")] = None,
    **given: Unpack[JobFields],
) -> Change:
    options = _options(given)._replace(objective=objective, details=details, acceptance=acceptance)
    changes = options != Options()
    if rank is not None and changes:
        raise UsageError("--rank goes alone", hint="call it twice")
    if rank is None and not changes:
        raise UsageError("nothing to set", hint="see `holdfast job set --help`")
    with opened(call, id, change=True) as job:
        if rank is not None:
            with queue_of(call, change=True) as queue:
                applied = queue.move(job.name, rank)
                place = queue.waiting().index(job.name)
            return Change(job.name, applied, f"{job.name} has rank {place}", {"rank": place})

        def decide(state: Record) -> Sequence[Record]:
            if state["status"] != "DRAFT":
                raise refusal(state, "set", why="only a draft can be changed")
            spec = spec_of(state)
            if options.files:
                spec = spec.model_copy(update={"files": []})
            return [{"event": "set", "spec": settled(spec, options).value()}]

        job.decide(decide)
        return Change(job.name, applied=True, detail=f"{job.name} is set", data=job.spec.value())


@example("holdfast job attach notes.md --job hello")
def attach(
    call: Context,
    file: Annotated[str, Arg("A file", positional=True, is_path=True)],
    *,
    job: Annotated[str | None, Arg("Which job; else the one in use", metavar="ID")] = None,
) -> Change:
    """The file is put under attachments/."""
    if not os.path.isfile(file):
        raise NotFound(f"there is no file {file}", hint="name one that can be read", path=file)
    with opened(call, job, change=True) as one:
        state = one.state()
        if state["status"] in ("SUCCESS", "CANCELED"):
            raise refusal(state, "attach")
        inside = f"{ATTACHMENTS}/{os.path.basename(file)}"
        known = inside in state["attachments"] and is_attached(file, workspace_of(one).path)
        if not known:
            _attach(one, [os.path.abspath(file)])
        detail = f"{one.name} has {inside}{' already' if known else ''}"
        return Change(one.name, not known, detail, {"attachments": one.state()["attachments"]})


@example("holdfast job activate hello --rank 0")
def activate(
    call: Context,
    id: Id = None,
    *,
    rank: Annotated[int | None, Arg("Its place in the queue, where 0 is the front")] = None,
) -> Change:
    with opened(call, id, change=True) as job:
        _activate(call, job, rank)
        return Change(job.name, True, f"{job.name} waits in the queue", row(job))


def _activate(call: Context, job: Job, rank: int | None) -> None:
    if rank is not None and rank < 0:
        raise UsageError(f"rank {rank} is before the front", hint="0 is the front")
    state = job.state()
    check_activates(state)
    workspace = workspace_of(job)
    workspace.make()
    for note in workspace.notes:
        call.warn(note)
    models = Models(workspace.path, clock=call.clock)
    try:
        models.check(job.spec)
    finally:
        models.close()
    activated(job)
    run = f"`holdfast job run {job.name}` runs it"
    with recorded(f"the start of {job.name}", run), queue_of(call, change=True) as queue:
        queue.register(job.name, state["created_at"], use=False)
        queue.enqueue(job.name, rank)


@example("holdfast job queue", columns="rank job status hold phase description")
def queue(call: Context) -> Rows:
    with queue_of(call) as waiting:
        found = waiting.waiting()
    rows = _rows(call, found, found)
    return Rows(rows, {"jobs": len(rows)})


@example("holdfast job use hello")
def use(call: Context, id: Annotated[str, Arg("Which job", positional=True)]) -> Change:
    with opened(call, id, change=True) as job, queue_of(call, change=True) as queue:
        applied = queue.use(job.name)
        return Change(job.name, applied, f"{job.name} is in use")


@example(
    "holdfast job list --waiting",
    columns="job status hold phase calls cost_usd waits_for asks description",
)
def list_(
    call: Context,
    *,
    waiting: Annotated[bool, Arg("Only those that wait for a person")] = False,
    status: Annotated[str | None, Arg("Only those in this state")] = None,
) -> Rows:
    states = (*STATES, DAMAGED)
    if status is not None and status not in states:
        raise UsageError(f"there is no state {status[:40]!r}", hint=f"one of {', '.join(states)}")
    with queue_of(call) as queue:
        listed = queue.state()
    order: list[str] = listed["queue"]
    current: str | None = listed["current_job_id"]
    rows = _rows(call, known(call.home(), call.layout, listed["jobs"]), order)
    rows += lost_rows(call, {str(each["job"]) for each in rows})
    rows = [each for each in rows if status in (None, each["status"])]
    if waiting:
        rows = [_asking(each) for each in rows if each["waits_for"] or each["runner_gone"]]
    return Rows(rows, {"jobs": len(rows), **tally(rows, "status"), "in_use": current})


def _asking(row: Record) -> Record:
    """A job that waits, with what somebody wants to know before he decides."""
    if row["runner_gone"]:
        return row | {"asks": f"its runner is gone; `{row['next'][0]}` goes on"}
    why = one_line((row["why"] or "").split("\n", 1)[0])[:200]
    return row | {"asks": f"{why} (shown: {row['shown']})".strip()}


def _rows(call: Context, jobs: Sequence[str], order: Sequence[str]) -> list[Record]:
    rows: list[Record] = []
    for name in jobs:
        with Job(call.home(), name, call.layout) as job:
            state = job.state()
            if state["job_id"]:
                rows.append(row(job, order.index(name) if name in order else None, state))
    return rows


@example("holdfast job show hello")
def show(
    call: Context,
    id: Id = None,
    *,
    csv: Annotated[bool, Arg("What was measured of each call, as CSV")] = False,
    decrypt: Decrypt = False,
) -> Show:
    with opened(call, id, decrypt=decrypt) as job:
        if not call.from_afar:  # lists of jobs ask so of each one
            warn_of_damage(call, job)
            warn_of_views(call, job)
        if csv:
            from holdfast.jobs.report import as_csv

            text = as_csv(job)
            return Show({"csv": text}, text=text, exact=True)
        told = details(job)
    return Show(told, text=_text(told))


def _text(told: Record) -> str:
    lines = [f"{told['job']}  {held(told)}  phase {told['phase']}"]
    if told["description"]:
        lines.append(f"  {told['description']}")
    limits, used = told["limits"], told["used"]
    lines.append(
        f"  {shown_usd(told['cost_usd'], told['unknown_costs'], limits.get('max_cost_usd', 0))} "
        f"({used['cost']['level']}), {told['seconds']:.0f} of {limits.get('max_seconds', 0):g} s "
        f"({used['time']['level']}), "
        f"{told['calls']} of {plural(limits.get('max_iterations', 0), 'call')}"
    )
    if told["runner"]:
        lines.append(f"  run by process {told['runner']}")
    if told["runner_gone"]:
        lines.append(f"  its runner is gone; `{told['next'][0]}` goes on")
    if told["suspending"]:
        when = "the call has ended" if told["status"] == "RUNNING" else "that is decided"
        lines.append(f"  it is suspended when {when}")
    if told["why"]:
        lines.append(f"  why: {indented(told['why'])}")
    if told["former"]:
        lines.append(f"  {words_of(told['former'])}")
    lines += _files_changed(told)
    if told["waits_for"]:
        lines.append(f"  waits for you: {told['waits_for']}  (shown: {told['shown']})")
    marks = " → ".join(
        f"[{each['name']}]" if each["name"] == told["phase"] else each["name"]
        for each in told["phases"]
    )
    lines.append(f"  phases: {marks}")
    lines.append(f"  files: {told['packed'] or told['workspace']}")
    lines += _ways_back(told)
    lines += [f"  {'or' if at else 'next'}: {each}" for at, each in enumerate(told["next"])]
    return "\n".join(lines) + "\n"


def _files_changed(told: Record) -> list[str]:
    if told["files_note"]:
        return [f"  {told['files_note']}"]
    files: list[str] = told["changed_files"]
    more = [f"    and {len(files) - _FILES_SHOWN} more"] if len(files) > _FILES_SHOWN else []
    head = ["  changed since the agent ended, by somebody else:"] if files else []
    return [*head, *(f"    {each}" for each in files[:_FILES_SHOWN]), *more]


def _ways_back(told: Record) -> list[str]:
    points: list[str] = told["points"][-_POINTS_SHOWN:]
    if not points:
        return []
    before = len(told["points"]) - len(points)
    points = [f"{before} older", *points] if before else points
    back = f"; `holdfast job rewind {told['job']} --point ID` goes back to one"
    can = "rewind" in told["could"]
    return [f"  recovery points: {', '.join(points)}{back if can else ''}"]
