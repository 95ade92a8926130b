"""Where a job is worked on: its files, its processes, its models.

Files lie in a hidden folder, since whatever stands in the visible ones is taken for Holdfast's: an
agent's `.draft.tmp` is no temporary of the store.  People get a link, `jobs/<id>/workspace`.
Processes are found by a name in their environment that follows from the job alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from holdfast import keys
from holdfast.codec import Record, encode
from holdfast.contracts.job_spec import JobSpec
from holdfast.errors import Busy, ConfigError, HoldfastError, StorageError, typed
from holdfast.jobs.state import capped, waits_for_approval
from holdfast.layout import CACHE, JOB_FILES, JOB_LINK
from holdfast.models.registry import acts, open_model
from holdfast.proc.around import Around
from holdfast.proc.survivors import end_around
from holdfast.store.home import MASK_KEY
from holdfast.workspace.command import our_environment
from holdfast.workspace.snapshots import difference, printable
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.jobs.job import Job
    from holdfast.jobs.job import State as JobState
    from holdfast.models.protocol import Model
    from holdfast.workspace.sandbox import Sandbox


def folder_of(job: Job, *below: str) -> str:
    """The folder of a job on the disk, or what lies in it."""
    return "/".join([job.home.path, job.key, *below])


def workspace_of(job: Job) -> Workspace:
    """The files of a job; nothing is made yet but the folder for them."""
    spec, files = job.spec, folder_of(job, JOB_FILES)
    if spec.isolation != "none" and os.path.isdir(folder_of(job)):
        with typed("making the folder for the job's files", folder_of(job)):
            with suppress(FileExistsError, PermissionError):
                os.mkdir(files, 0o700)  # noqa: TID251 - scratch
            with suppress(FileExistsError, PermissionError):
                os.symlink(f"{JOB_FILES}/{JOB_LINK}", folder_of(job, JOB_LINK))  # noqa: TID251 - for people
    return Workspace(
        files,
        spec.isolation,
        job=job.name,
        source=spec.source,
        base=spec.base,
        hidden=partial(_authority, job),
    )


def _authority(job: Job) -> list[str]:
    """What gives its reader the rights of the user: the dashboard's token and all keys.

    Folders where there is one: a file that is replaced while a program runs loses its cover.
    """
    job.home.secret()  # made now: what is not there yet cannot be covered
    found = [f"{job.home.path}/{CACHE}", f"{job.home.path}/{MASK_KEY}", keys.folder()]
    where = keys.kept(job.home.clock).where
    return [*found, where] if os.path.isabs(where) else found


# --- put back -------------------------------------------------------------------------------


def put_back(job: Job, workspace: Workspace) -> bool:
    """Put back the files that the history says are to be what they were; whether they are.

    A line asks for it before anything is touched, so the next process makes good for a kill.  Where
    another process runs the job, that process does it before its next call.
    """
    if job.state()["restore"] is None:
        return True
    if not job.fence:
        try:
            job.own(f"putting back the files of {job.name}")
        except Busy:
            return False
        try:
            return put_back(job, workspace)
        finally:
            job.disown()
    with suppress(StorageError):  # what was changed by hand is not lost over it
        workspace.snapshot("before files were put back")
    tree: str = job.state()["restore"]
    workspace.restore(tree)
    done: Record = {"event": "note", "reason": "the files are put back", "tree": tree}
    job.decide(lambda now: [done] if now["restore"] == tree else [])
    return True


# --- changed since --------------------------------------------------------------------------


class Changed(NamedTuple):
    """What became of the files of a job that waits for a decision, since its last call."""

    mark: str | None = None
    """Names what they are now; None if they are what the history says, or it says nothing."""
    files: tuple[str, ...] = ()
    """Those that were changed since the agent ended."""
    note: str | None = None
    """Why they are not what they were, where that is no matter of single files."""

    @property
    def after_the_agent(self) -> bool:
        return bool(self.files or self.note)

    @property
    def in_words(self) -> str:
        some = ", ".join(self.files[:5])
        more = f" and {len(self.files) - 5} more" if len(self.files) > 5 else ""
        return self.note or (f"{some}{more} changed since the agent ended" if self.files else "")


def changed(job: Job, state: JobState) -> Changed:
    """Compare the files with the last snapshot, if a decision waits that is about them."""
    approval, tree = waits_for_approval(state), None
    if approval:  # points made by hand come after that of the call
        last, points = state["sequence"] - 1, state["points"]
        tree = next((each.get("tree") for each in points if each.get("sequence") == last), None)
    elif state["status"] == "INTERVENTION_REQUIRED" and state["restore"] is None:
        tree = state["tree"]
    # A runner with a workspace of its own making has its files elsewhere.
    if tree is None or not os.path.isdir(folder_of(job, JOB_FILES)):
        return Changed()
    try:
        workspace = workspace_of(job)
        if workspace.isolation == "none":
            return Changed()
        if os.path.islink(workspace.path) or not os.path.isdir(workspace.path):
            return Changed("gone", note="the workspace is gone; it will be as it was last kept")
        former, now = workspace.since(tree)
    except HoldfastError as error:
        return Changed("unknown", note=f"the files could not be compared: {error.message}")
    differ = {path: each for path, each in difference(former, now).items() if path[-1] != "/"}
    if not differ:
        return Changed()
    names = sorted((printable(path), path) for path in differ)
    mark = sha256()
    for name, path in names:
        mark.update(encode([name, *(differ[path] or ("gone",))]) + b"\n")
    # How the agent left the files of a job that is stuck is not recorded.
    return Changed(mark.hexdigest(), tuple(capped([name for name, _ in names])) if approval else ())


# --- processes ------------------------------------------------------------------------------


def around(job: Job) -> Around:
    """What is started in its block belongs to the job."""
    return Around(_name(job))


def end_orphans(job: Job) -> str:
    """End what a runner that is gone left running; what to say of it, empty if there was nothing.

    Busy if some of it does not end: nothing may go on with the job beside it.
    """
    count = end_around(_name(job))
    if count == 1:
        return "1 process of it still ran and was ended"
    return f"{count} processes of it still ran and were ended" if count else ""


def _name(job: Job) -> str:
    place = f"{job.home.path}\0{job.key}"
    return f"job-{sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


# --- models ---------------------------------------------------------------------------------


def any_acts(spec: JobSpec) -> bool:
    """Whether a model of a job may change its files."""
    return any(acts(spec.model_of(phase) or "") for phase in spec.phases)


class Models:
    """The models of a job by name, opened when they are first asked, and closed together."""

    def __init__(
        self,
        folder: str,
        *,
        clock: Clock,
        sandbox: Sandbox | None = None,
        given: Mapping[str, Model] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`folder` is where programs work, `given` are models that are open already, `environment`
        is for programs."""
        self._folder, self._clock, self._sandbox = folder, clock, sandbox
        self._open: dict[str, Model] = dict(given or {})
        self._environment = environment or {}

    def model(self, ref: str) -> Model:
        if ref not in self._open:
            self._open[ref] = self._opened(ref)
        return self._open[ref]

    def _opened(self, ref: str) -> Model:
        provider = ref.partition(":")[0]
        if provider == "command":
            env, sandbox = {**our_environment(), **self._environment}, self._sandbox
            return open_model(ref, env=env, cwd=self._folder, clock=self._clock, sandbox=sandbox)
        if provider != "acp":
            return open_model(ref)
        if self._sandbox is not None:
            hint = "use a command, or isolation worktree"
            raise ConfigError(f"{ref} cannot be asked in a sandbox", hint=hint)
        return open_model(ref, cwd=self._folder)

    def check(self, spec: JobSpec) -> None:
        """Open the model of each phase; ConfigError if one is not available."""
        for phase in spec.phases:
            ref = spec.model_of(phase)
            if ref is None:
                what = f"nobody is named for phase {phase.name} ({phase.role})"
                hint = f"--{phase.role.lower()} MODEL, or `model:` in the spec"
                raise ConfigError(what, hint=hint)
            try:
                self.model(ref)
            except HoldfastError as error:
                what = f"{ref} cannot be asked in phase {phase.name}: {error.message}"
                hint = error.hint or "`holdfast model list` shows who can be asked"
                raise ConfigError(what, hint=hint, path=error.path) from error

    def close(self) -> None:
        for model in self._open.values():
            model.close()
        self._open.clear()
