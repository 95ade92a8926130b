"""The verbs about the files of a job: what it changed, taking that over, and packing it."""

from __future__ import annotations

from typing import Annotated

from holdfast.codec import Record
from holdfast.errors import ConfigError, HoldfastError, NotFound
from holdfast.jobs import packing
from holdfast.jobs.job import Job
from holdfast.jobs.place import put_back
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Show
from holdfast.ops.jobs import Id, held, opened, workspace_of
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun


@example("holdfast job diff hello --patch")
def diff(
    call: Context,
    id: Id = None,
    *,
    patch: Annotated[bool, Arg("The patch itself; `git apply` takes it")] = False,
    since: Annotated[
        str | None, Arg("Only what was changed since this recovery point", metavar="POINT")
    ] = None,
) -> Show:
    """Without --patch, one line per file. The patch applies to where the job started from."""
    with opened(call, id) as job:
        if since is None:
            text = _changes(job, patch=patch)
        else:
            tree = _tree_of(job, since)
            with packing.needing_files(job, "diff --since"):
                text = workspace_of(job).diff(tree, patch=patch)
        data: Record = {"job": job.name, "since": since, "patch" if patch else "changes": text}
    said = text or ("" if patch else "nothing was changed\n")
    return Show(data, text=said, exact=patch)


def _changes(job: Job, *, patch: bool) -> str:
    text = packing.changes_of(job, patch=patch)
    if text is not None:
        return text
    try:
        packing.check_kept(job)
        return workspace_of(job).diff(patch=patch)
    except HoldfastError:
        # Who packed the job meanwhile put on record what it changed before he took the files.
        text = packing.changes_of(job, patch=patch)
        if text is None:
            raise
        return text


def _tree_of(job: Job, point: str) -> str:
    points = {each["id"]: each.get("tree") for each in job.state()["points"]}
    if point not in points:
        known = ", ".join(points) or "there is none"
        raise NotFound(f"no recovery point {point[:80]!r}", hint=f"known: {known}")
    if points[point] is None:
        hint = "`holdfast job diff` without --since shows all that was changed"
        raise ConfigError(f"{point} was made without keeping the files", hint=hint)
    return str(points[point])


@example("holdfast job merge hello --dry-run")
def merge(
    call: Context,
    id: Id = None,
    *,
    into: Annotated[
        str | None, Arg("The branch to make or move forward; else job-ID", metavar="BRANCH")
    ] = None,
    dry_run: DryRun = False,
) -> Change:
    """The changes become a branch, which is new or moves forward. The checkout is not touched:
    merge the branch as any other.
    """
    with opened(call, id, change=not dry_run) as job:
        workspace = workspace_of(job)
        with packing.needing_files(job, "merge"):
            if not dry_run:
                put_back(job, workspace)
            merged = workspace.merge(into=into, dry_run=dry_run)
        if (doubt := _doubt(job.state())) is not None:
            call.warn(doubt)
        data: Record = {**merged._asdict(), "files": merged.files._asdict()}
        word = "would be" if dry_run else "is"
        branch = f"branch {merged.branch} {word} {merged.commit[:12]}; " if merged.commits else ""
        detail = f"{job.name}: {branch}{merged.note}"
        return Change(job.name, merged.made, detail, data, dry_run=dry_run)


def _doubt(state: Record) -> str | None:
    """Why what is merged may not be what somebody wants."""
    if state["status"] == "SUCCESS":
        return None
    former: Record = state["former"] or {}
    sent = former.get("action") == "RETRY" or state["why"] == "rejected by the steward"
    so = "its last work was sent back" if sent else "it is not finished"
    return f"{state['job_id']} is {held(state)}, {so}"


@example("holdfast job archive hello --dry-run")
def archive(call: Context, id: Id = None, *, dry_run: DryRun = False) -> Change:
    """Its history is compressed, its workspace goes into files.tar.zst, its changes into
    result.patch; show, history, replay, diff and export work as before.
    """
    with opened(call, id, change=not dry_run) as job:
        state = job.state()
        packing.check_packable(state)
        if dry_run:
            applied = state["archived"] is None
            said = f"would pack {job.name}" if applied else f"{job.name} is packed already"
            return Change(job.name, applied=False, detail=said, dry_run=True)
        packed = packing.pack(job)
        data: Record = {"files": packed.files, "segments": packed.segments}
        said = f"{job.name} is packed" + ("" if packed.applied else " already")
        return Change(job.name, packed.applied, said, data)
