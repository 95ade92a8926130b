"""A job of another system, brought into a home.

    copies · `new` · one `told` line for each recorded call · `imported`, which says what it all
    came to

The last line makes it a job: after a crash, the next import writes what is missing.  Calls of
others are shown and not replayed: their table of states is another.  Nothing is made up: what a
file does not say is absent or null here too, and unknown fields are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from posixpath import basename
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.codec import MAX_DOCUMENT, MAX_LINE, Record, encode
from holdfast.contracts.job_exchange import escapes
from holdfast.contracts.job_history import HISTORY, JobHistory
from holdfast.contracts.job_lines import MANIFEST, JobManifest, JobMetrics, Phase
from holdfast.contracts.job_spec import JobSpec
from holdfast.contracts.job_states import Hold, State
from holdfast.errors import BadName, HoldfastError
from holdfast.ids import mapped_agent_id
from holdfast.interop import copies
from holdfast.interop.copies import Foreign, Sealed, Taken, errors_in, sealed, shown, value_in
from holdfast.jobs.job import Job, job_id
from holdfast.jobs.replay import wrong_in
from holdfast.jobs.spec import Options, settled, spec_from
from holdfast.jobs.state import add_known
from holdfast.mask import hiding
from holdfast.mask.shown import beginning
from holdfast.store.primitives import Problem

if TYPE_CHECKING:
    from holdfast.contracts.kind import Finding, Form, Kind, Reading
    from holdfast.store.home import Home

MANIFESTS = ("manifest.json", "job_manifest.json")
"""The first one that is there counts."""
CALLS = "jobHistory.json"
PARTS = (*MANIFESTS, CALLS)
"""The files in the folder of a job that are read."""
_LINES_AT_ONCE = 100
_SURELY_FITS, _LOGS_OWN = 1 << 20, 1 << 10
_MOST_TRAIL = 1 << 20
_MOST_SUMMARY, _MOST_EVIDENCE = 4000, 100
"""Of the last call, for the next request; the call itself has all of it."""
_HARMLESS = frozenset({"unknown_field", "missing", "form"})
_WANTED = (
    *("description", "prompt", "objective", "details", "acceptance", "roles"),
    *("cost_threshold", "time_threshold_minutes"),
)
_OF_A_PHASE = ("name", "role", "description", "worker_instructions")
_ENTRY = re.compile(r"(interactions|recovery_points|)\[(\d+)\](?:[.\[]|\Z)")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def kind_of(name: str) -> Kind:
    return HISTORY if name == CALLS else MANIFEST


def mapped_job_id(name: str) -> str:
    """The id of a job that another system calls `name`: the same if it fits."""
    try:
        return job_id(name)
    except BadName:
        return re.sub("^agent-", "job-", mapped_agent_id(name))


class _Made(NamedTuple):
    """What the files of a job come to."""

    spec: JobSpec
    created_at: str | None
    origin: Record
    calls: list[Record]
    outcome: Record
    """The line `imported`."""


class Adoption:
    """One job of another system; `folder` is what it is called there."""

    def __init__(self, home: Home, folder: str, *, layout: str, dry_run: bool = False) -> None:
        self._home, self._folder, self._layout, self._dry_run = home, folder, layout, dry_run
        self.job = mapped_job_id(folder)

    def take(self, files: Sequence[Foreign]) -> list[Taken]:
        """Read the files, make a job of them if it is new, and say what became of each."""
        named = [(basename(file.path), copies.digest_of(file.data)) for file in files]
        with Job(self._home, self.job) as job:
            state = job.state()
            known = [(basename(copy.path), copy.sha256) for copy in _copies_of(job)]
            interrupted = state["foreign"] is None and known == named
            if state["job_id"] and not interrupted:
                other = (
                    "was imported before, from other files"
                    if state["origin"]
                    else "is there already"
                )
                return [
                    Taken(file.path, "known", copies.KNOWN)
                    if name in known
                    else Taken(file.path, "skipped", f"a job {self.job} {other}")
                    for file, name in zip(files, named, strict=True)
                ]
            read, taken = self._read(files)
            # Without what cannot be written, which is seen before anything is.
            why = ""
            for left_out in ((), MANIFESTS, (CALLS,), PARTS):
                kept = {name: each for name, each in read.items() if name not in left_out}
                lost = (path for path in taken if basename(path) in read.keys() - kept.keys())
                found = taken | {path: Taken(path, "quarantined", why) for path in lost}
                made = self._made(kept, found)
                try:
                    _check_writable({"event": "new", "spec": made.spec.value()})
                    _check_writable(made.outcome)
                    break
                except HoldfastError as error:
                    why = error.message
            if not self._dry_run:
                self._bring_in(job, made, files)
        return [found[path] for path in taken]

    # -- reading -----------------------------------------------------------------------

    def _read(self, files: Sequence[Foreign]) -> tuple[dict[str, Record], dict[str, Taken]]:
        read: dict[str, Record] = {}
        taken: dict[str, Taken] = {}
        by_rank = {(PARTS.index(basename(each.path)), each.path): each for each in files}
        for (_, path), file in sorted(by_rank.items()):
            name = basename(path)
            if name in MANIFESTS and not read.keys().isdisjoint(MANIFESTS):
                why = f"{MANIFESTS[0]} beside it is the one that counts; a copy is kept"
                taken[path] = Taken(path, "skipped", why)
                continue
            try:
                read[name], mended = _reading(file, kind_of(name), self.job)
            except ValueError as error:
                taken[path] = Taken(path, "quarantined", str(error))
                continue
            count = len(read[name].get("interactions", []))
            taken[path] = Taken(path, "repaired" if mended else "taken", mended, count)
        return read, taken

    def _made(self, read: Mapping[str, Record], taken: dict[str, Taken]) -> _Made:
        """The job; what has to be said about how it was made is added to `taken`."""
        path = next((p for p in taken if basename(p) in MANIFESTS and basename(p) in read), "")
        manifest, history = read.get(basename(path), {}), read.get(CALLS, {})
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
        if manifest:
            _add_notes(taken, path, *notes)
        path = next((each for each in taken if basename(each) == CALLS), "")
        if made.calls != history.get("interactions", []):
            _add_notes(taken, path, "calls had the same number, and have new ones")
        elif wrong := [*wrong_in(history)] if made.calls else []:
            at, what = wrong[0]
            more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            what = f"its states do not follow: call {made.calls[at]['sequence']}: {what}{more}"
            _add_notes(taken, path, what)
        return made

    # -- writing -----------------------------------------------------------------------

    def _bring_in(self, job: Job, made: _Made, files: Sequence[Foreign]) -> None:
        for file in files:
            copies.keep(self._home, job.key, file)
        if not job.exists():
            origin: Record = {"layout": self._layout, "name": self._folder}
            origin["imported"] = [copies.noted(file) for file in files]
            job.create(made.spec, origin | made.origin, created_at=made.created_at)
        there = sum(line.record.get("event") == "told" for line in job.lines())
        calls: list[Record] = [{"event": "told", "interaction": each} for each in made.calls]
        lines = [*calls[there:], made.outcome]
        for at in range(0, len(lines), _LINES_AT_ONCE):
            job.decide(lambda state, at=at: lines[at : at + _LINES_AT_ONCE])


def _add_notes(taken: dict[str, Taken], path: str, *notes: str) -> None:
    was = taken[path]
    taken[path] = was._replace(detail="; ".join(filter(None, [was.detail, *notes])))


def _check_writable(line: Record) -> None:
    """Refuse a line that the history could not hold; what is secret is replaced there."""
    if len(encode(line, limit=MAX_LINE)) > _SURELY_FITS:
        encode(_hidden(line), limit=MAX_LINE - _LOGS_OWN)


_hidden = hiding()


def _reading(file: Foreign, kind: Kind, job: str) -> tuple[Record, str]:
    """A file in the form that is written, and what was mended; ValueError says what is wrong."""
    value = _decoded(file, kind)
    # Once in its own form, where mistakes can be mended, and once in the form of Holdfast.
    mended: list[Finding] = []
    form = kind.form_of(value)
    warnings: list[str] = []
    while True:
        if isinstance(value, dict):
            record = cast("Record", value)
            name = record.get("job_id")
            if not isinstance(name, str) or mapped_job_id(name) != name:
                warnings += [f"it calls itself {name!r}"] if name is not None else []
                value = {**record, "job_id": job}
        reading = kind.read(value, form=form)
        if kind is HISTORY:
            reading = _salvaged(kind, form, value, reading, warnings)
        if wrong := errors_in(reading):
            raise ValueError(shown(wrong[:1]))
        mended += [each for each in reading.findings if each.code not in _HARMLESS]
        value = reading.value
        if form is kind.current:
            break
        value = form.upgrade(value) if form.upgrade else value
        form = kind.forms[kind.forms.index(form) + 1]
    if not isinstance(value, dict):
        raise ValueError("not an object")
    record = cast("Record", value)
    try:
        for call in _listed(record, "interactions"):
            _check_writable({"event": "told", "interaction": call})
    except HoldfastError as error:
        raise ValueError(error.message) from None
    return record, "; ".join(filter(None, [*warnings, shown(list(dict.fromkeys(mended))[:3])]))


def _decoded(file: Foreign, kind: Kind) -> Any:
    if not file.data.strip():
        raise ValueError(f"empty: {len(file.data)} bytes")
    value: Any = value_in(file)
    if kind is HISTORY and isinstance(value, list):  # of calls that stand without their object
        calls = cast("list[Any]", value)
        if calls and all(isinstance(each, dict) and "sequence" in each for each in calls):
            return {"created_at": None, "interactions": calls}
        return calls
    return value


def _salvaged(kind: Kind, form: Form, value: Any, reading: Reading, warnings: list[str]) -> Reading:
    """A history that is not quite in its format, read in part if need be.

    A field that a call lacks is unknown, where the format has room for that.  A call that nothing
    can be made of is left out, and so is such a recovery point; `warnings` gets what was done.
    """
    wrong = errors_in(reading)
    if not wrong or not all(_ENTRY.match(each.field) for each in wrong):
        return reading
    if missing := [each for each in wrong if each.code == "missing"]:
        value = deepcopy(value)
        for each in missing:
            *steps, last = [int(at) if at else name for at, name in _STEP.findall(each.field)]
            holder = value
            for step in steps:
                holder = holder[step]
            holder[last] = None
        reading = kind.read(value, form=form)
        wrong = errors_in(reading)
        if unknown := sorted({each.field for each in missing} - {each.field for each in wrong}):
            warnings.append(f"missing, so unknown: {_first_of(unknown)}")
    found = [_ENTRY.match(each.field) for each in wrong]
    entries = {(each[1], int(each[2])) for each in found if each is not None}
    if not wrong or not all(found):
        return reading
    bare = isinstance(value, list)
    lists: dict[str, list[Any]] = {"": value} if bare else value
    kept = {
        name: [each for number, each in enumerate(lists[name]) if (name, number) not in entries]
        for name in {each[0] for each in entries}
    }
    rest = {**lists, **kept}
    again = kind.read(rest[""] if bare else rest, form=form)
    if errors_in(again) or not rest.get("" if bare else "interactions"):
        return reading
    places = _first_of(sorted({each.field for each in wrong}))
    for name in sorted(kept):
        count = len(lists[name]) - len(kept[name])
        what = "recovery points" if name == "recovery_points" else "calls"
        warnings.append(f"{count} {what} could not be read and are in the copy only: {places}")
    return again


def _first_of(places: Sequence[str]) -> str:
    return places[0] + (f" and {len(places) - 1} more" if places[1:] else "")


def _spec(manifest: Record) -> tuple[JobSpec, list[str]]:
    """The spec in a manifest; and what was read otherwise than it is written."""
    wanted: Record = {name: manifest[name] for name in _WANTED if manifest.get(name) is not None}
    wanted["phases"] = [
        {name: phase[name] for name in _OF_A_PHASE if phase.get(name)}
        for phase in _listed(manifest, "phases")
    ]
    files = [str(each) for each in _listed(manifest, "files")]
    outside = [each for each in files if escapes(each)]
    wanted["files"] = [each for each in files if each not in outside]
    spec, notes = spec_from(wanted, "manifest")
    if outside:
        notes.append(f"{', '.join(outside[:3])[:200]}: not in the workspace, so no file to look at")
    return spec, [each.removeprefix("manifest: ") for each in notes]


def _outcome(manifest: Record, history: Record, spec: JobSpec, broken: Sequence[Taken]) -> _Made:
    calls: list[Record] = history.get("interactions", [])
    if len({each["sequence"] for each in calls}) != len(calls):
        calls = [{**each, "sequence": number} for number, each in enumerate(calls)]
    foreign = manifest.get("foreign_status") or manifest.get("status")
    status, why = _state_here(manifest, broken)
    hold: Hold | None = None if status == "DRAFT" else manifest.get("hold")
    if hold == "approval" and status == "INTERVENTION_REQUIRED":
        hold = None  # a job that asks for a person anyway cannot be approved
    status = "REVIEWING" if hold == "approval" else status  # where it is decided
    names = [phase.name for phase in spec.phases]
    current = manifest.get("current_phase")
    sums = [
        sum(each["response"].get(name) or 0.0 for each in calls)
        for name in ("cost_usd", "execution_time_seconds")
    ]
    summed = {"cumulative_cost": round(sums[0] * 100, 6), "cumulative_time_seconds": sums[1]}
    metrics: Record = manifest.get("metrics") or summed
    line: Record = {
        "event": "imported",
        "status": status,
        "phase": names.index(current) if current in names else 0,
        "imported": {
            "cost_usd": (metrics.get("cumulative_cost") or 0.0) / 100,
            "seconds": metrics.get("cumulative_time_seconds") or 0.0,
            "steps": metrics.get("current_action_count") or len(calls),
            "trail": _newest(_listed(manifest, "history")),
            "former": _former(calls[-1]) if calls else None,
            "points": [_point(each, names) for each in history.get("recovery_points", [])],
            "foreign": _unknown(manifest, history),
        },
    }
    add_known(line, {"hold": hold, "reason": why})
    origin: Record = {}
    if manifest.get("cost_threshold") is not None or "metrics" in manifest:
        origin["units"] = {"cost_threshold": "cents", "cumulative_cost": "cents"}
    if foreign is not None and (foreign != status or manifest.get("hold")):
        origin["foreign_status"] = str(foreign)
    return _Made(spec, history.get("created_at"), origin, calls, line)


def _newest(trail: list[Any]) -> list[Any]:
    """What one line can hold of it, beside all else."""
    size = 0
    for kept, each in enumerate(reversed(trail)):
        size += len(encode(each, limit=MAX_DOCUMENT))
        if size > _MOST_TRAIL:
            return trail[len(trail) - kept :]
    return trail


def _state_here(manifest: Record, broken: Sequence[Taken]) -> tuple[State, str | None]:
    """The state that the job has here, and why, if it is another than it had."""
    if not manifest:
        found = next((each for each in broken if basename(each.path) in MANIFESTS), None)
        why = f"{found.path} could not be read: {found.detail}" if found else "it had no manifest"
    elif manifest["status"] == "RUNNING":
        why = (
            f"it was {manifest.get('foreign_status') or 'RUNNING'} when it was imported; whoever "
            "ran it is not here, and what was asked last may have had an effect: look, then decide"
        )
    else:
        return manifest["status"], None
    return "INTERVENTION_REQUIRED", why


def _former(call: Record) -> Record:
    asked, answered = call["request"].get("metadata", {}), call["response"]
    return {
        "role": asked.get("role"),
        "phase": asked.get("phase"),
        "action": answered.get("action"),
        "summary": beginning(answered.get("summary_for_supervisor") or "", _MOST_SUMMARY),
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
    """Fields that Holdfast does not have, for the views."""
    phases: dict[str, Record] = {
        str(phase.get("name")): fields
        for phase in _listed(manifest, "phases")
        if (fields := _without(phase, Phase.model_fields))
    }
    return {
        "manifest": _without(manifest, JobManifest.model_fields),
        "metrics": _without(manifest.get("metrics") or {}, JobMetrics.model_fields),
        "phases": phases,
        "history": _without(history, set(JobHistory.model_fields) - {"set_aside"}),
    }


def _listed(value: Record, name: str) -> list[Any]:
    return cast("list[Any]", value.get(name) or [])


def _without(value: Record, known: Any) -> Record:
    return {name: each for name, each in value.items() if name not in known}


# --- what the history says ------------------------------------------------------------------


def _copies_of(job: Job) -> list[Sealed]:
    """The files that a job was made of; the line may be edited, so each is checked."""
    listed = _listed(job.state()["origin"] or {}, "imported")
    return [copy for each in listed if (copy := sealed(each, job.key)) is not None]


def problems(home: Home, name: str) -> Iterator[Problem]:
    """Copies that are not what was imported."""
    with Job(home, name) as job:
        yield from copies.problems(home, _copies_of(job))
