"""The spec of a job from a file, a folder with one in it, or options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from filecmp import cmp
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from holdfast import text
from holdfast.byhand import MOST_BYTES, parse
from holdfast.contracts.job_spec import (
    DEFAULT_PHASE,
    ISOLATIONS,
    SUPERVISOR,
    WORKER,
    JobSpec,
    PhaseSpec,
)
from holdfast.errors import BadValue, Conflict, NotFound, UsageError, typed
from holdfast.jobs.state import add_known
from holdfast.userfile import read
from holdfast.workspace.command import words_of
from holdfast.workspace.files import ATTACHMENTS, check_name

NAMES = ("job.yaml", "job.yml", "job.json", "job-spec.json", "sample-job.json")
"""The files that a folder with a job in it has one of."""
_MOST_MONEY = 1e9

_OTHER_NAMES = {
    **dict.fromkeys(("gitSourceRepo", "git_source_repo"), "source"),
    **dict.fromkeys(("baseBranch", "base_branch"), "base"),
    "roles": "models",
}
_PHASE_NAMES = {"worker_instructions": "instructions", "retries": "max_retries"}
_TIMES = {"timeout": "timeout_seconds", "max_time": "max_seconds"}
_LIMITS = ("max_cost_usd", "max_seconds", "max_iterations")
_BUDGET = {"max_cost": "max_cost_usd", "max_time": "max_seconds", **{n: n for n in _LIMITS}}
_SHOWN = {"max_cost_usd": "max_cost", "max_seconds": "max_time", "timeout_seconds": "timeout"}
_IGNORED = {"status", "metrics", "history", "current_phase", "hold", "nextSteps", "version"}
"""Fields of a manifest, which people take for a spec."""


class Read(NamedTuple):
    spec: JobSpec
    notes: list[str]
    """What was read otherwise than it is written."""


def read_spec(path: str) -> Read:
    """The spec in a file, or in a folder that has one."""
    if os.path.isdir(path):
        found = [name for name in NAMES if os.path.isfile(os.path.join(path, name))]
        if not found:
            hint = f"it has none of {', '.join(NAMES)}"
            raise NotFound(f"no spec in {path}", hint=hint, path=path)
        path = os.path.join(path, found[0])
    if not os.path.isfile(path):
        raise NotFound(f"there is no spec {path}", hint="name a file or a folder", path=path)
    with typed("reading the spec", path):
        fields = parse(read(path, MOST_BYTES), path)
    if not isinstance(fields, dict):
        raise BadValue(f"{path}: a spec is an object", hint="see docs/jobs.md", path=path)
    return spec_from(fields, path, folder=os.path.dirname(os.path.abspath(path)))


def spec_from(fields: Mapping[str, Any], where: str = "spec", *, folder: str = "") -> Read:
    """A spec as people write it, with durations as text and older names."""
    notes: list[str] = []
    value: dict[str, Any] = {}
    for name, each in fields.items():
        if name in _IGNORED:
            notes.append(f"{where}: {name} is no part of a spec, and left out")
        else:
            _put(value, _OTHER_NAMES.get(name, name), each, where)
    if budget := _budget(value, notes, where):
        value["budget"] = budget
    if isinstance(given := value.get("models"), dict):
        value["models"] = dict[str, Any]()
        for role, model in cast("dict[Any, Any]", given).items():
            name = role.lower() if isinstance(role, str) else role
            _put(value["models"], name, model, f"{where}: models")
    if not isinstance(value.get("phases"), list | None):
        what, hint = f"phases: {_kind(value['phases'])}, not a list", "each begins with `- name: …`"
        raise BadValue(f"{where}: {what}", hint=hint)
    phases = cast("list[Any]", value.get("phases") or [])
    value["phases"] = [_phase(each, where) for each in phases]
    if isinstance(value.get("source"), str) and folder:
        value["source"] = os.path.join(folder, os.path.expanduser(value["source"]))
    if isinstance(value.get("attachments"), list) and folder:
        value["attachments"] = [os.path.join(folder, str(each)) for each in value["attachments"]]
    return Read(_checked(value, where), notes)


def _put(value: dict[str, Any], name: str, each: Any, where: str) -> None:
    """Set a field that has several names; BadValue if two of them differ."""
    if value.get(name) not in (None, each):
        raise BadValue(f"{where}: {name} is said twice", hint="leave one of its names out")
    value[name] = each


def _kind(value: object) -> str:
    kinds = ((dict, "a mapping"), (list, "a list"), (str, "a text"), (bool, "a truth value"))
    return next((kind for known, kind in kinds if isinstance(value, known)), "a number")


def _budget(value: dict[str, Any], notes: list[str], where: str) -> dict[str, Any]:
    given = value.pop("budget", None)
    if not isinstance(given, dict | None):
        hint = f"such as {{max_cost: 2.5}}; it has {', '.join(_BUDGET)}"
        raise BadValue(f"{where}: budget: {_kind(given)}, not a mapping", hint=hint)
    budget: dict[str, Any] = {}
    for name, each in cast("dict[str, Any]", given or {}).items():
        if name not in _BUDGET:
            raise BadValue(f"{where}: budget has no {name}", hint=f"one of {', '.join(_BUDGET)}")
        if name == "max_time":
            each = duration(each, f"{where}: {name}")
        _put(budget, _BUDGET[name], each if name == "max_iterations" else _number(each), where)
    cents = _threshold(value, "cost_threshold", where)
    if cents is not None:
        _put(budget, "max_cost_usd", cents / 100, where)
        notes.append(f"{where}: cost_threshold {cents:g} is in cents: {cents / 100:.2f} USD")
    minutes = _threshold(value, "time_threshold_minutes", where)
    if minutes is not None:
        _put(budget, "max_seconds", minutes * 60, where)
    money = budget.get("max_cost_usd")
    if isinstance(money, float) and money >= _MOST_MONEY:
        hint = f"in USD, below {_MOST_MONEY:,.0f}"
        raise BadValue(f"{where}: max_cost: {money:g} is not an amount", hint=hint)
    return budget


def _threshold(value: dict[str, Any], name: str, where: str) -> float | None:
    given = value.pop(name, None)
    if given is None or (isinstance(given, int | float) and not isinstance(given, bool)):
        return given
    hint = "without quotes, such as 50"
    raise BadValue(f"{where}: {name}: {given!r:.40} is no number", hint=hint)


def _number(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _phase(given: Any, where: str) -> Any:
    if isinstance(given, str):
        return {"name": given}
    if not isinstance(given, dict):
        return given
    phase: dict[str, Any] = {}
    for name, each in cast("dict[str, Any]", given).items():
        if name in _TIMES:
            _put(phase, _TIMES[name], duration(each, f"{where}: {name}"), where)
        elif name == "gate":
            _put(phase, "gates", [_gate(each, where)], where)
        elif name == "gates" and isinstance(each, list):
            _put(phase, "gates", [_gate(one, where) for one in cast("list[Any]", each)], where)
        elif name == "temperature":
            phase[name] = _number(each)
        else:
            _put(phase, _PHASE_NAMES.get(name, name), each, where)
    return phase


def _gate(given: Any, where: str) -> Any:
    if isinstance(given, str):
        return {"run": given}
    if not isinstance(given, dict):
        return given
    gate = dict(cast("dict[str, Any]", given))
    if "timeout" in gate:
        _put(gate, "timeout_seconds", duration(gate.pop("timeout"), f"{where}: gate"), where)
    return gate


def duration(value: Any, where: str) -> float:
    """Seconds: a number, or text such as 90s, 10m, 2h."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return text.duration(str(value))
    except UsageError as error:
        raise BadValue(f"{where}: {error.message}", hint=error.hint) from None


def _checked(value: dict[str, Any], where: str) -> JobSpec:
    try:
        spec = JobSpec.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(_SHOWN.get(str(each), str(each)) for each in first["loc"])
        isolation = f"isolation is one of {', '.join(ISOLATIONS)}"
        hint = isolation if at == "isolation" else "see docs/jobs.md"
        raise BadValue(f"{where}: {at or 'spec'}: {first['msg']}", hint=hint) from None
    unknown = sorted(spec.unknown_fields())
    if unknown:
        hint = "a misspelt field would be one that does nothing; see docs/jobs.md"
        raise BadValue(f"{where}: nothing is called {', '.join(unknown[:5])}", hint=hint)
    return spec


# --- what options say -----------------------------------------------------------------------


class Options(NamedTuple):
    """Options of the command line, which replace fields of a spec."""

    prompt: str | None = None
    worker: str | None = None
    supervisor: str | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    max_iterations: int | None = None
    timeout: float | None = None
    isolation: str | None = None
    source: str | None = None
    base: str | None = None
    gates: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()
    description: str | None = None
    objective: str | None = None
    details: str | None = None
    acceptance: str | None = None
    tolerant: bool = False
    sensitive: bool = False


_FIELDS = (
    *("prompt", "description", "objective", "details", "acceptance"),
    *("isolation", "base"),
)


def settled(spec: JobSpec, options: Options) -> JobSpec:
    """The spec with the options, and with every phase written out."""
    value = spec.value()
    value |= {name: given for name in _FIELDS if (given := getattr(options, name)) is not None}
    if options.source is not None:
        value["source"] = os.path.abspath(options.source)
    if value.get("source") is not None and "isolation" not in value:
        repository = os.path.lexists(os.path.join(value["source"], ".git"))
        value["isolation"] = "worktree" if repository else "directory"
    models = {WORKER: options.worker, SUPERVISOR: options.supervisor}
    if models := add_known(dict(value.get("models") or {}), models):
        value["models"] = {role.lower(): ref for role, ref in models.items()}
    given = (options.max_cost, options.max_seconds, options.max_iterations)
    if budget := add_known({}, dict(zip(_LIMITS, given, strict=True))):
        value["budget"] = {**(value.get("budget") or {}), **budget}
    value["phases"] = _phases(value, options)
    for name in ("files", "attachments"):
        if given := getattr(options, name):
            value[name] = [*(value.get(name) or []), *given]
    if options.tolerant:
        value["reply"] = {**(value.get("reply") or {}), "tolerant": True}
    if options.sensitive:
        value["sensitive"] = True
    whole = _checked(value, "the job")
    # Written out, so that a later default changes no job that is under way.
    return JobSpec.model_validate(whole.model_dump(mode="json", exclude_none=True))


def _phases(value: dict[str, Any], options: Options) -> list[dict[str, Any]]:
    phases: list[dict[str, Any]] = list(value.get("phases") or [])
    review = {"name": "review", "role": SUPERVISOR}
    if not phases and SUPERVISOR in (value.get("models") or {}):
        phases = [{"name": "work", "role": WORKER}, review]
    phases = phases or [{"name": DEFAULT_PHASE, "role": WORKER}]
    if options.supervisor is not None and not any(map(_reviews, phases)):
        work, *more = phases
        if more or work["name"] != DEFAULT_PHASE:
            hint = "add one to the phases of the spec: without it nothing would be reviewed"
            raise UsageError("a supervisor, but no phase with the role supervisor", hint=hint)
        timeout = {key: work[key] for key in ("timeout_seconds",) if key in work}
        phases = [{**work, "name": "work"}, review | timeout]
    if options.timeout is not None:
        phases = [{**each, "timeout_seconds": options.timeout} for each in phases]
    if options.gates:
        first = next((n for n, each in enumerate(phases) if not _reviews(each)), 0)
        gates = [*phases[first].get("gates", []), *({"run": run} for run in options.gates)]
        phases[first] = {**phases[first], "gates": gates}
    return phases


def _reviews(phase: dict[str, Any]) -> bool:
    return PhaseSpec.model_validate(phase).reviews


def check_there(spec: JobSpec) -> None:
    """Refuse a spec that names what is not on this machine, before a job is made of it."""
    source = spec.source
    if source is not None and not os.path.isdir(source):
        raise NotFound(f"there is no folder {source}", hint="--source names one", path=source)
    if spec.base is not None and (source is None or spec.isolation in ("none", "directory")):
        why = f"the base {spec.base[:80]!r} is of no use to isolation {spec.isolation}"
        raise BadValue(why, hint="--isolation worktree, of a repository that --source names")
    _check_attachments(spec)
    for phase in spec.phases:
        if "COMPLETED" not in phase.accepts:
            why = f"phase {phase.name[:80]!r} does not accept COMPLETED"
            raise BadValue(why, hint="it would never end; COMPLETED is one of `accepts`")
        for gate in phase.gates:
            words_of(gate)


def _check_attachments(spec: JobSpec) -> None:
    known: dict[str, str] = {}
    for path in spec.attachments:
        name = os.path.basename(path)
        if not os.path.isfile(path):
            raise NotFound(f"there is no file {path}", hint="attach one that is there", path=path)
        with typed("reading the attachment", path), open(path, "rb"):
            check_name(name)
        other = known.setdefault(name, path)
        if os.path.realpath(other) != os.path.realpath(path):
            raise Conflict(f"{other} and {path} are both called {name}", hint="rename one of them")
        if spec.source is not None and spec.isolation in ("none", "directory"):
            is_attached(path, spec.source)


def is_attached(path: str, folder: str) -> bool:
    """Whether a folder has this attachment; Conflict if it has another one of the name."""
    above = os.path.join(folder, ATTACHMENTS)
    inside = os.path.join(above, os.path.basename(path))
    if os.path.lexists(above) and (os.path.islink(above) or not os.path.isdir(above)):
        raise Conflict(f"{above} is no folder", hint="rename what stands there", path=above)
    if not os.path.lexists(inside):
        return False
    plain = os.path.isfile(inside) and not os.path.islink(inside)
    if plain and cmp(path, inside, shallow=False):
        return True
    raise Conflict(f"{inside} is there and differs", hint="attach it by another name", path=inside)


def check_amount(what: str, value: float | None) -> float | None:
    if value is not None and not 0 <= value < _MOST_MONEY:
        raise UsageError(f"{what} is not an amount: {value:g}", hint="a number from 0 on")
    return value
