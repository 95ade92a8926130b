"""A job of another system, brought into a home.

    copies · `new` · one `told` line for each call on record · `imported`, which says what it all
    came to

The last line is what makes it a job: whoever dies before it is followed by one who writes what is
missing.  Calls of others are told and not replayed: their table of states is not ours.  Nothing is
made up: what a file does not say is absent or null here too, and what we do not know is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.codec import MAX_DOCUMENT, MAX_LINE, DecodeError, Record, decode, encode
from holdfast.contracts.job_exchange import escapes
from holdfast.contracts.job_history import HISTORY, JobHistory
from holdfast.contracts.job_lines import MANIFEST, JobManifest, JobMetrics, Phase
from holdfast.contracts.job_spec import JobSpec
from holdfast.contracts.job_states import Hold, State
from holdfast.errors import BadName, HoldfastError
from holdfast.ids import mapped_agent_id
from holdfast.jobs.job import Job, job_id
from holdfast.jobs.replay import wrong_in
from holdfast.jobs.salvage import salvaged
from holdfast.jobs.spec import Options, settled, spec_from
from holdfast.ledger import sealed
from holdfast.ledger.adopt import Foreign, Taken
from holdfast.ledger.sealed import FOLDER, Sealed
from holdfast.mask import hiding
from holdfast.mask.shown import beginning
from holdfast.store.primitives import Problem

if TYPE_CHECKING:
    from holdfast.contracts.kind import Finding, Kind
    from holdfast.jobs.job import State as JobState
    from holdfast.store.home import Home

MANIFESTS = ("manifest.json", "job_manifest.json")
"""The first one that is there counts."""
CALLS = "jobHistory.json"
_LINES_AT_ONCE = 100
_SURELY_FITS, _LOGS_OWN = 1 << 20, 1 << 10
_MOST_TRAIL = 1 << 20
_MOST_SAID, _MOST_EVIDENCE = 4000, 100
"""Of the last call, for whoever is asked next; the call itself has all of it."""
_HARMLESS = frozenset({"unknown_field", "missing", "form"})
_TEXTS = ("description", "prompt", "objective", "details", "acceptance", "roles")
_LIMITS = ("cost_threshold", "time_threshold_minutes")


def is_part(name: str) -> bool:
    """Whether a file in the folder of a job is one of those that are read."""
    return name in (*MANIFESTS, CALLS)


def kind_of(name: str) -> Kind:
    return HISTORY if name == CALLS else MANIFEST


def mapped_job_id(name: str) -> str:
    """The id of a job that another system calls `name`: the same if it fits."""
    try:
        return job_id(name)
    except BadName:
        mapped = mapped_agent_id(name)
        return re.sub("^agent-", "job-", mapped) if mapped.startswith("agent-") else mapped


class _Read(NamedTuple):
    """A file that could be read, in the form that is written."""

    value: Record
    mended: str


class _Job(NamedTuple):
    """What the files of a job come to."""

    spec: JobSpec
    created_at: str | None
    foreign_status: str | None
    units: Record
    calls: list[Record]
    outcome: Record
    """The line `imported`."""


class Adoption:
    """One job of another system; `folder` is what it is called there."""

    def __init__(self, home: Home, folder: str, *, layout: str, dry_run: bool = False) -> None:
        self._home, self._folder, self._layout, self._dry_run = home, folder, layout, dry_run
        self.job = mapped_job_id(folder)

    def take(self, files: Sequence[Foreign]) -> list[Taken]:
        """Look at the files, make a job of them if it is new, and say what became of each."""
        told = [_noted(file) for file in files]
        with Job(self._home, self.job) as job:
            state = job.state()
            if state["job_id"] and (state["foreign"] is not None or not _began(state, told)):
                return [self._again(state, each) for each in told]
            read, taken = self._read(files)
            made = self._made(read, taken)
            if not self._dry_run:
                self._bring_in(job, made, files, told)
        return list(taken.values())

    def _again(self, state: JobState, told: Record) -> Taken:
        if any(_same(each, told) for each in files_of(state)):
            return Taken(told["path"], "known", "the same bytes were imported before")
        whose = "was imported before, from other files" if state["origin"] else "is there already"
        return Taken(told["path"], "skipped", f"a job {self.job} {whose}")

    # -- looking -----------------------------------------------------------------------

    def _read(self, files: Sequence[Foreign]) -> tuple[dict[str, _Read], dict[str, Taken]]:
        read: dict[str, _Read] = {}
        taken: dict[str, Taken] = {}
        for file in sorted(files, key=lambda each: _rank(each.path)):
            name = _basename(file.path)
            if name in MANIFESTS and any(each in read for each in MANIFESTS):
                told = f"{MANIFESTS[0]} beside it is the one that counts; a copy is kept"
                taken[file.path] = Taken(file.path, "skipped", told)
                continue
            try:
                found = read[name] = _reading(file, kind_of(name), self.job)
            except ValueError as why:
                taken[file.path] = Taken(file.path, "quarantined", str(why))
                continue
            count = len(found.value.get("interactions", []))
            state = "repaired" if found.mended else "taken"
            taken[file.path] = Taken(file.path, state, found.mended, count)
        return read, taken

    def _made(self, read: Mapping[str, _Read], taken: dict[str, Taken]) -> _Job:
        """The job without what cannot be written, which is seen before anything is."""
        made, told, wrong = self._tried(read, taken, (), "")
        for left_out in (MANIFESTS, (CALLS,), (*MANIFESTS, CALLS)):
            if wrong:
                made, told, wrong = self._tried(read, taken, left_out, wrong)
        taken.update(told)
        return made

    def _tried(
        self, read: Mapping[str, _Read], taken: Mapping[str, Taken], but: Sequence[str], why: str
    ) -> tuple[_Job, dict[str, Taken], str]:
        """The job, what is said of its files, and why it cannot be written, if so."""
        told = {
            path: Taken(path, "quarantined", why)
            if (name := _basename(path)) in but and name in read
            else each
            for path, each in taken.items()
        }
        made = self._put_together({n: each for n, each in read.items() if n not in but}, told)
        return made, told, _unwritable(made)

    def _put_together(self, read: Mapping[str, _Read], taken: dict[str, Taken]) -> _Job:
        """The job, and what has to be said about how it was made."""
        path = next((p for p in taken if _basename(p) in MANIFESTS and _basename(p) in read), "")
        manifest = read[_basename(path)].value if path else {}
        history = read[CALLS].value if CALLS in read else {}
        spec, notes = JobSpec(), list[str]()
        try:
            spec, notes = _spec(manifest)
        except HoldfastError as error:
            taken[path] = Taken(path, "quarantined", error.message)
            manifest = {}
        if self.job != self._folder:
            notes.append(f"{self._folder!r} became {self.job!r}")
        broken = [each for each in taken.values() if each.outcome == "quarantined"]
        made = _outcome(manifest, history, settled(spec, Options()), broken)
        left_out = len(_listed(manifest, "history")) - len(made.outcome["imported"]["trail"])
        if left_out:
            notes.append(f"the {left_out} oldest entries of its history are in the copy only")
        if manifest and notes:
            _add_notes(taken, path, notes)
        if made.calls != history.get("interactions", []):
            path = next(each for each in taken if _basename(each) == CALLS)
            _add_notes(taken, path, ["calls had the same number, and have new ones"])
        elif wrong := [*wrong_in(history)] if made.calls else []:
            path = next(each for each in taken if _basename(each) == CALLS)
            at, what = wrong[0]
            more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            note = f"its states do not follow: call {made.calls[at]['sequence']}: {what}{more}"
            _add_notes(taken, path, [note])
        return made

    # -- acting ------------------------------------------------------------------------

    def _bring_in(
        self, job: Job, made: _Job, files: Sequence[Foreign], told: Sequence[Record]
    ) -> None:
        for file in files:
            sealed.keep(self._home, job.key, file.path, file.data)
        origin: Record = {"layout": self._layout, "name": self._folder, "imported": list(told)}
        origin |= {"units": made.units} if made.units else {}
        origin |= {"foreign_status": made.foreign_status} if made.foreign_status else {}
        if not job.exists():
            job.create(made.spec, origin, created_at=made.created_at)
        there = sum(line.record.get("event") == "told" for line in job.lines())
        calls = made.calls[there:]
        lines: list[Record] = [{"event": "told", "interaction": each} for each in calls]
        lines.append(made.outcome)
        for at in range(0, len(lines), _LINES_AT_ONCE):
            job.decide(lambda state, at=at: lines[at : at + _LINES_AT_ONCE])


def _add_notes(taken: dict[str, Taken], path: str, notes: Sequence[str]) -> None:
    was = taken[path]
    taken[path] = was._replace(detail="; ".join(filter(None, [was.detail, *notes])))


def _unwritable(made: _Job) -> str:
    try:
        _check_writable({"event": "new", "spec": made.spec.value()})
        _check_writable(made.outcome)
    except HoldfastError as error:
        return error.message
    return ""


def _check_writable(line: Record) -> None:
    """Refuse a line that the history could not hold; what is secret is replaced there."""
    if len(encode(line, limit=MAX_LINE)) > _SURELY_FITS:
        encode(_hidden(line), limit=MAX_LINE - _LOGS_OWN)


_hidden = hiding()


def _reading(file: Foreign, kind: Kind, job: str) -> _Read:
    """A file in the form that is written; ValueError says what is wrong with it."""
    if not file.data.strip():
        raise ValueError(f"empty: {len(file.data)} bytes")
    try:
        value = decode(file.data.strip().removeprefix(b"\xef\xbb\xbf"), limit=MAX_DOCUMENT)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    if kind is HISTORY:
        value = _in_its_object(value)
    # Once in its own form, where what is odd can be mended, and once in ours.
    mended: list[Finding] = []
    form = kind.form_of(value)
    odd: list[str] = []
    while True:
        if isinstance(value, dict):
            value = _named(cast("dict[str, Any]", value), job, odd)
        reading = (
            salvaged(kind, form, value, odd) if kind is HISTORY else kind.read(value, form=form)
        )
        wrong = [each for each in reading.findings if each.level == "error"]
        if wrong:
            raise ValueError(_told(wrong[:1]))
        mended += [each for each in reading.findings if each.code not in _HARMLESS]
        value = reading.value
        if form is kind.current:
            break
        value = form.upgrade(value) if form.upgrade else value
        form = kind.forms[kind.forms.index(form) + 1]
    if not isinstance(value, dict):
        raise ValueError("not an object")
    for call in _listed(cast("Record", value), "interactions"):
        try:
            _check_writable({"event": "told", "interaction": call})
        except HoldfastError as error:
            raise ValueError(error.message) from None
    said = [*odd, *filter(None, [_told(list(dict.fromkeys(mended))[:3])])]
    return _Read(cast("Record", value), "; ".join(said))


def _in_its_object(value: Any) -> Any:
    """A list of calls that are as the object has them, without the object."""
    if not isinstance(value, list):
        return value
    calls = cast("list[Any]", value)
    if not calls or not all(isinstance(each, dict) and "sequence" in each for each in calls):
        return calls
    return {"created_at": None, "interactions": calls}


def _named(value: Record, job: str, odd: list[str]) -> Record:
    """With a name that a job can have; what it calls itself else goes to `odd`."""
    said = value.get("job_id")
    if isinstance(said, str) and mapped_job_id(said) == said:
        return value
    odd += [f"it calls itself {said!r}"] if said is not None else []
    return {**value, "job_id": job}


def _told(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{each.field}: {each.reason}".removeprefix(": ") for each in findings)


def _spec(manifest: Record) -> tuple[JobSpec, list[str]]:
    """What a manifest says of what is wanted; and what was taken otherwise than it stands."""
    wanted: Record = {
        name: manifest[name] for name in (*_TEXTS, *_LIMITS) if manifest.get(name) is not None
    }
    known = ("name", "role", "description", "worker_instructions")
    wanted["phases"] = [
        {name: phase[name] for name in known if phase.get(name)}
        for phase in _listed(manifest, "phases")
    ]
    files = [str(each) for each in _listed(manifest, "files")]
    wanted["files"] = [each for each in files if not escapes(each)]
    outside = [each for each in files if escapes(each)]
    spec, notes = spec_from(wanted, "manifest")
    if outside:
        notes.append(f"{', '.join(outside[:3])[:200]}: not in the workspace, so no file to look at")
    return spec, [each.removeprefix("manifest: ") for each in notes]


def _outcome(manifest: Record, history: Record, spec: JobSpec, broken: Sequence[Taken]) -> _Job:
    calls = _numbered(history.get("interactions", []))
    said = manifest.get("foreign_status") or manifest.get("status")
    status, why = _state_here(manifest, broken)
    hold = _hold_here(manifest, status)
    if hold == "approval":
        status = "REVIEWING"  # where it is decided
    changed = said is not None and (said != status or manifest.get("hold"))
    names = [phase.name for phase in spec.phases]
    current = manifest.get("current_phase")
    metrics: Record = manifest.get("metrics") or _summed(calls)
    last = calls[-1] if calls else None
    line: Record = {
        "event": "imported",
        "status": status,
        "phase": names.index(current) if current in names else 0,
        "imported": {
            "cost_usd": (metrics.get("cumulative_cost") or 0.0) / 100,
            "seconds": metrics.get("cumulative_time_seconds") or 0.0,
            "steps": metrics.get("current_action_count") or len(calls),
            "trail": _newest(_listed(manifest, "history")),
            "former": None if last is None else _former(last),
            "points": [_point(each, names) for each in history.get("recovery_points", [])],
            "foreign": _unknown(manifest, history),
        },
    }
    line |= {"hold": hold} if hold else {}
    line |= {"reason": why} if why else {}
    cents = manifest.get("cost_threshold") is not None or "metrics" in manifest
    units: Record = {"cost_threshold": "cents", "cumulative_cost": "cents"} if cents else {}
    foreign = str(said) if changed else None
    return _Job(spec, history.get("created_at"), foreign, units, calls, line)


def _numbered(calls: list[Record]) -> list[Record]:
    """With a number of its own for each call."""
    if len({each["sequence"] for each in calls}) == len(calls):
        return calls
    return [{**each, "sequence": number} for number, each in enumerate(calls)]


def _newest(trail: list[Any]) -> list[Any]:
    """What one line can hold of it, beside all else."""
    size = 0
    for kept, each in enumerate(reversed(trail)):
        size += len(encode(each, limit=MAX_DOCUMENT))
        if size > _MOST_TRAIL:
            return trail[len(trail) - kept :]
    return trail


def _hold_here(manifest: Record, status: State) -> Hold | None:
    """Of a job that asks for a person anyway, approval is none that anybody could give."""
    hold: Hold | None = manifest.get("hold")
    if status == "DRAFT" or (hold == "approval" and status == "INTERVENTION_REQUIRED"):
        return None
    return hold


def _state_here(manifest: Record, broken: Sequence[Taken]) -> tuple[State, str | None]:
    """The state that the job has here, and why, if it is none that it had."""
    if not manifest:
        found = next((each for each in broken if _basename(each.path) in MANIFESTS), None)
        why = f"{found.path} could not be read: {found.detail}" if found else "it had no manifest"
        return "INTERVENTION_REQUIRED", why
    status: State = manifest["status"]
    if status != "RUNNING":
        return status, None
    was = manifest.get("foreign_status") or status
    return "INTERVENTION_REQUIRED", (
        f"it was {was} when it was imported; whoever ran it is not here, and what was asked last "
        "may have had an effect: look, then decide"
    )


def _summed(calls: Sequence[Record]) -> Record:
    """The metrics by the calls alone."""
    cost = sum(each["response"].get("cost_usd") or 0.0 for each in calls)
    seconds = sum(each["response"].get("execution_time_seconds") or 0.0 for each in calls)
    return {"cumulative_cost": round(cost * 100, 6), "cumulative_time_seconds": seconds}


def _former(call: Record) -> Record:
    asked, answered = call["request"].get("metadata", {}), call["response"]
    return {
        "role": asked.get("role"),
        "phase": asked.get("phase"),
        "action": answered.get("action"),
        "summary": beginning(answered.get("summary_for_supervisor") or "", _MOST_SAID),
        "complaint": None,
        "evidence_files": answered.get("evidence_files", [])[:_MOST_EVIDENCE],
    }


def _point(point: Record, names: Sequence[str]) -> Record:
    phase = point.get("resume_phase")
    place = names.index(phase) if phase in names else None
    # The files that it stands for were not brought.
    can = bool(point.get("can_resume_from")) and place is not None
    return {**point, "can_resume_from": can, "tree": None, "former": None, "place": place}


def _unknown(manifest: Record, history: Record) -> Record:
    """What no field of ours says, for whoever reads the views."""
    phases: dict[str, Record] = {
        str(phase.get("name")): _beside(phase, Phase.model_fields)
        for phase in _listed(manifest, "phases")
    }
    return {
        "manifest": _beside(manifest, JobManifest.model_fields),
        "metrics": _beside(manifest.get("metrics") or {}, JobMetrics.model_fields),
        "phases": {name: told for name, told in phases.items() if told},
        "history": _beside(history, set(JobHistory.model_fields) - {"set_aside"}),
    }


def _listed(value: Record, name: str) -> list[Any]:
    return cast("list[Any]", value.get(name) or [])


def _beside(value: Record, known: Any) -> Record:
    return {name: each for name, each in value.items() if name not in known}


# --- what the history says ------------------------------------------------------------------


def files_of(state: JobState) -> list[Record]:
    """The files that a job was made of; anybody may have written the line."""
    origin: Record = state["origin"] or {}
    files: Any = origin.get("imported")
    return [each for each in cast("list[Any]", files) if _is_file(each)] if files else []


def _is_file(told: Any) -> bool:
    match told:
        case {"path": str(), "sha256": str(), "name": str(name)}:
            return "/" not in name
        case _:
            return False


def _began(state: JobState, files: Sequence[Record]) -> bool:
    """Whether these files were being imported when somebody died."""
    known = files_of(state)
    return len(known) == len(files) and all(map(_same, known, files))


def _same(known: Record, told: Record) -> bool:
    both = [(_basename(str(each["path"])), each["sha256"]) for each in (known, told)]
    return both[0] == both[1]


def problems(home: Home, name: str) -> Iterator[Problem]:
    """Copies that are not what was imported."""
    with Job(home, name) as job:
        for told in files_of(job.state()):
            key = f"{job.key}/{FOLDER}/{told['name']}"
            copy = Sealed(str(told["path"]), key, str(told["sha256"]))
            if (problem := sealed.problem_with(home, copy)) is not None:
                yield problem


def _noted(file: Foreign) -> Record:
    digest = sealed.digest_of(file.data)
    name = _basename(sealed.key_for("", file.path, digest))
    return {"path": file.path, "sha256": digest, "bytes": len(file.data), "name": name}


def _basename(path: str) -> str:
    return path.rpartition("/")[2]


def _rank(path: str) -> tuple[int, str]:
    names = (*MANIFESTS, CALLS)
    name = _basename(path)
    return names.index(name) if name in names else len(names), path
