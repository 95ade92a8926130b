"""Decisions of people about a job.

A decision is bound to what was shown: it names a hash, and is refused where that has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from os.path import basename
from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast import audit
from holdfast.codec import MAX_DOCUMENT, Record, encode
from holdfast.contracts.job_states import FINAL, SUSPENDABLE, Cause, State
from holdfast.errors import BadName, Busy, NotFound, UsageError
from holdfast.jobs.place import Changed, any_acts, changed, end_orphans
from holdfast.jobs.state import (
    Refused,
    allowed_actions,
    check,
    phase_of,
    ready_state,
    refusal,
    spec_of,
    waits_for_approval,
)

if TYPE_CHECKING:
    from holdfast.jobs.job import Job
    from holdfast.jobs.job import State as JobState
    from holdfast.store.primitives import Decision

_SHORTEST, _LONGEST_NAME = 8, 128
_MOST_GUIDANCE, _MOST_TIMES = 1 << 20, 1000
"""Characters in all, and how often: each is a part of every later request."""


class Stale(Refused):
    """A decision about something that has changed since it was shown."""

    code = "stale_approval"


# --- what waits for a decision --------------------------------------------------------------


def waits_for(state: JobState) -> str | None:
    """What a person has to decide, if anything."""
    if waits_for_approval(state):
        return "approve or reject"
    if state["status"] == "INTERVENTION_REQUIRED":
        return "continue or halt"
    if any(limit.at in (state["status"], state["hold"]) for limit in _LIMITS.values()):
        return "resume with a higher limit, or cancel"
    return "rewind or cancel" if state["hold"] == "approval" else None


def could(state: JobState) -> list[str]:
    """What a person can do about a job now, the likeliest first."""
    found = {each.removeprefix("steward ").partition(" ")[0] for each in allowed_actions(state)}
    if state["hold"] == "suspended":
        found -= {"continue", "halt"}  # after it is resumed
    return [each for each in _LIKELIEST if each in found]


_LIKELIEST = (
    *("approve", "reject", "resume", "continue", "halt", "activate", "suspend", "rewind"),
    "cancel",
)


def next_commands(state: JobState, shown: str = "HASH") -> list[str]:
    """What a person would type now, the likeliest first; empty if the job is over or runs."""
    name, status, hold = state["job_id"], state["status"], state["hold"]
    job, steward = "holdfast job", f"holdfast job steward {state['job_id']}"
    if status in FINAL:
        return []
    if waits_for_approval(state):
        return [
            f"{job} diff {name}",
            f"{steward} approve --shown {shown}",
            f'{steward} reject --guidance "…"',
        ]
    if hold == "approval":
        return [f"{job} rewind {name} --phase 0", f"{job} cancel {name}"]
    if status == "INTERVENTION_REQUIRED":
        says = (f'{steward} {word} --guidance "…"' for word in ("answer", "continue"))
        return [*says, f"{steward} halt"]
    for limit in _LIMITS.values():
        if limit.at in (status, hold):
            resume = f"{job} resume {name} {limit.option} {limit.metavar}"
            return [resume, f"{job} cancel {name}"]
    if hold == "suspended" or state["suspending"]:
        return [f"{job} resume {name}"]
    if status == "DRAFT" and not _says_what(state):
        return [f'{job} set {name} --prompt "…"']
    return [] if status == "RUNNING" else [f"{job} run {name}"]


class _Limit(NamedTuple):
    at: str
    """The state or hold of a job that has used it up."""
    option: str
    metavar: str


_LIMITS = {
    "max_cost_usd": _Limit("HALTED_COST", "--max-cost", "USD"),
    "max_seconds": _Limit("HALTED_TIME", "--max-time", "D"),
    "max_iterations": _Limit("iterations", "--max-iterations", "N"),
}


class Shown(NamedTuple):
    """What a decision is about, as it is now."""

    hash: str
    changed: Changed


def shown_now(job: Job) -> Shown:
    """What a decision is about: the last call, what came of it, and the files.

    A sensitive job has the same hash with its key and without.
    """
    state = job.stored()
    about = [state[name] for name in ("job_id", "sequence", "status", "hold", "why", "former")]
    found = changed(job, state)
    files = [] if found.mark is None else [found.mark]
    text = encode([*about, state["points"][-1:], *files], limit=MAX_DOCUMENT)
    return Shown(sha256(text).hexdigest(), found)


def _check_shown(job: Job, named: str | None, verb: str) -> Shown | None:
    """Refuse a decision about what has changed since; what it is about, if it names it."""
    if named is None:
        return None
    if len(named) < _SHORTEST:
        raise UsageError(f"--shown {named!r} is too short", hint="as `holdfast job show` tells it")
    now = shown_now(job)
    if not now.hash.startswith(named.lower()):
        what = f"{verb} of {named[:16]}, but what waits is {now.hash[:16]}"
        because = f": {now.changed.in_words}" if now.changed.after_the_agent else ""
        audit.tell(job.home, "stale_approval", what, job=job.name)
        hint = f"`holdfast job show {job.name}` shows what waits now ({now.hash[:16]})"
        raise Stale(f"{job.name} has changed since {named[:16]} was shown{because}", hint=hint)
    return now


def _check_guidance(state: JobState, guidance: str | None) -> None:
    if not guidance:
        return
    before, times = sum(len(each["text"]) for each in state["guidance"]), len(state["guidance"])
    hint = f"put it into a file: holdfast job attach FILE --job {state['job_id']}"
    if before + len(guidance) > _MOST_GUIDANCE:
        what = f"guidance of {len(guidance):,} characters, and {before:,} before it"
        raise UsageError(f"{what}: {_MOST_GUIDANCE:,} are kept at most", hint=hint)
    if times >= _MOST_TIMES:
        what = f"guidance was given {times:,} times"
        raise UsageError(f"{what}: {_MOST_TIMES:,} are kept at most", hint=hint)


# --- decisions ------------------------------------------------------------------------------


def move(cause: str, status: str, **more: object) -> Record:
    known = {name: value for name, value in more.items() if value not in (None, "")}
    return {"event": "move", "cause": cause, "status": status, **known}


def _kept(state: JobState) -> str | None:
    """A job that was suspended stays so until it is resumed, whatever else is decided."""
    return "suspended" if state["hold"] == "suspended" or state["suspending"] else None


def _decide(
    job: Job,
    guidance: str | None = None,
    by: str | None = None,
    shown: str | None = None,
    *,
    cause: Cause,
    status: State,
    reason: str | None = None,
) -> None:
    if cause == "halt":
        guidance, reason = None, guidance or reason

    def decide(state: JobState) -> Sequence[Record]:
        check(state, cause)
        _check_shown(job, shown, "rejection" if cause == "reject" else cause)
        _check_guidance(state, guidance)
        hold = None if status in FINAL else _kept(state)
        return [move(cause, status, guidance=guidance, by=by, reason=reason, hold=hold)]

    job.decide(decide)


go_on = partial(_decide, cause="continue", status="PENDING")
"""Let a job go on that asked for a person."""
halt = partial(_decide, cause="halt", status="CANCELED", reason="halted by the steward")
"""End a job that asked for a person."""
reject = partial(_decide, cause="reject", status="PENDING", reason="rejected by the steward")
"""Send a phase back, with what is wrong."""


def approve(
    job: Job, guidance: str | None = None, by: str | None = None, shown: str | None = None
) -> None:
    """Agree with what a phase did, and go on after it.

    Without `shown`, nothing is approved that was changed after the agent ended.
    """

    def decide(state: JobState) -> Sequence[Record]:
        check(state, "approve")
        now = _check_shown(job, shown, "approval")
        if now is None and (now := shown_now(job)).changed.after_the_agent:
            what = f"approval without --shown: {now.changed.in_words}"
            audit.tell(job.home, "stale_approval", what, job=job.name)
            raise Stale(
                f"{job.name} is not what the agent left: {now.changed.in_words}",
                hint=f"look at it with `holdfast job show {job.name}`, then "
                f"`holdfast job steward {job.name} approve --shown HASH`",
            )
        _check_guidance(state, guidance)
        phases, after = spec_of(state).phases, cast("int", state["phase"]) + 1
        line = {"phase": after, "guidance": guidance, "by": by, "approved": now.hash}
        if after >= len(phases):
            return [move("approve", "SUCCESS", **line | {"phase": state["phase"]})]
        return [move("approve", ready_state(phases[after]), **line, hold=_kept(state))]

    job.decide(decide)


def suspend(job: Job, reason: str | None = None) -> None:
    """Let a job wait; one whose call is in flight waits when that has ended."""

    def decide(state: JobState) -> Sequence[Record]:
        suspended = state["hold"] == "suspended" or state["suspending"]
        if state["status"] not in SUSPENDABLE:
            raise refusal(state, "suspend")
        if suspended or state["hold"] is not None:
            what = "is suspended" if suspended else "waits"
            raise refusal(state, "suspend", why=f"it {what} already")
        return [{"event": "hold", "hold": "suspended", "reason": reason or "suspended"}]

    job.decide(decide)


def resume(
    job: Job,
    *,
    max_cost: float | None = None,
    max_seconds: float | None = None,
    max_iterations: int | None = None,
) -> None:
    """Let a job go on that was suspended, or that used up what it may, with a higher limit."""
    if max_iterations is not None and max_iterations < 1:
        raise UsageError(f"--max-iterations {max_iterations}", hint="a number of calls, from 1 on")
    asked = zip(_LIMITS, (max_cost, max_seconds, max_iterations), strict=True)
    limits: Record = {name: value for name, value in asked if value is not None}

    def decide(state: JobState) -> Sequence[Record]:
        status, hold = state["status"], state["hold"]
        halted = status in ("HALTED_COST", "HALTED_TIME")
        held = hold in ("iterations", "suspended") or state["suspending"]
        # A limit that was raised by too little can be raised again before it halts the job again.
        let_go = status in ("PENDING", "REVIEWING") and not _HALTS.isdisjoint(state["since"])
        if not (halted or held or (let_go and hold is None and limits)):
            raise refusal(state, "resume", why="it is not suspended")
        needed = [name for name, each in _LIMITS.items() if each.at in (status, hold)]
        used = {
            "max_cost_usd": state["cost_usd"] + state["assumed_usd"],
            "max_seconds": state["seconds"],
            "max_iterations": state["steps"],
        }
        for name in dict.fromkeys([*needed, *limits]):
            if limits.get(name, 0) <= used[name]:
                why = f"it needs {_LIMITS[name].option} above what is used ({used[name]:g})"
                raise refusal(state, "resume", why=why)
        if halted:
            return [move("resume", ready_state(phase_of(state)), limits=limits)]
        line: Record = {"event": "hold", "hold": None, "reason": "resumed"}
        return [line | ({"limits": limits} if limits else {})]

    job.decide(decide)


_HALTS = frozenset(("over_cost", "over_time"))


def cancel(job: Job, reason: str | None = None, by: str | None = None) -> None:
    state = job.state()
    check(state, "cancel")
    why = reason or "cancelled"
    if state["call"] is not None and job.holder() is None:
        try:
            ended = end_orphans(job)
        except (Busy, UsageError) as error:
            ended = error.message  # the job is cancelled all the same
        why += f"; {ended}" if ended else ""

    def decide(state: JobState) -> Sequence[Record]:
        check(state, "cancel")
        call: Record = state["call"] or {}
        # It gets no verdict: what was reserved for it counts as spent.
        ends = {name: call.get(name) for name in ("sequence", "charge")}
        return [move("cancel", "CANCELED", reason=why, by=by, **ends)]

    # Cancelling needs no key.
    job.decide(decide, blind=reason is None)


def activate(job: Job) -> None:
    def decide(state: JobState) -> Sequence[Record]:
        check_activates(state)
        return [move("activate", "PENDING")]

    job.decide(decide)


def check_activates(state: JobState) -> None:
    """Refuse a job that is no draft, or has no task."""
    check(state, "activate")
    if not _says_what(state):
        what = refusal(state, "activate", why="nobody said what is to be done").message
        raise Refused(what, hint=next_commands(state)[0])
    spec = spec_of(state)
    attached = {basename(path) for path in state["attachments"]}
    missing = [path for path in spec.attachments if basename(path) not in attached]
    if missing and "replayed_from" not in (state["origin"] or {}):
        # Its maker was ended before everything was in its place.
        what = f"{state['job_id']} was to have {basename(missing[0])[:80]!r} attached, and has not"
        raise Refused(what, hint=f"holdfast job attach {missing[0]} --job {state['job_id']}")


def _says_what(state: JobState) -> bool:
    spec = spec_of(state)
    return bool(spec.task) or any(phase.instructions for phase in spec.phases)


# --- back to an earlier place ---------------------------------------------------------------


def rewind(
    job: Job,
    *,
    phase: int | str | None = None,
    point: str | None = None,
    start: bool = False,
    dry_run: bool = False,
) -> Record:
    """Go back to a phase, a recovery point or the start; the line that says so."""

    def decide(state: JobState) -> Decision[Record]:
        check(state, "rewind")
        if waits_for_approval(state):
            raise refusal(state, "rewind", why="what waits for approval is rejected instead")
        place = None if phase is None else _place_of(state, phase)
        line = _rewound(state, place, point, start=start)
        return [] if dry_run else [line], line

    return job.transact(decide).value


def _place_of(state: JobState, phase: int | str) -> int:
    """The number of a phase; the name of a phase counts, even if it looks like a number."""
    names = [each.name for each in spec_of(state).phases]
    if phase in names:
        return names.index(str(phase))
    try:
        return int(phase)
    except ValueError:
        hint = f"0 to {len(names) - 1}, or one of {', '.join(names)}"
        raise UsageError(f"there is no phase {str(phase)[:80]!r}", hint=hint) from None


def _rewound(state: JobState, phase: int | None, point: str | None, *, start: bool) -> Record:
    phases, here = spec_of(state).phases, phase_of(state).name
    tree, former, place = None, None, phase or 0
    if point is not None:
        found = next((each for each in state["points"] if each["id"] == point), None)
        if found is None:
            known = ", ".join(each["id"] for each in state["points"]) or "there is none"
            raise NotFound(f"no recovery point {point[:80]!r}", hint=f"known: {known}")
        _check_resumable(state, found)
        tree, former, place = found["tree"], found["former"], found["place"]
    if not 0 <= place < len(phases):
        hint = f"0 to {len(phases) - 1}: {', '.join(each.name for each in phases)}"
        raise UsageError(f"there is no phase {place}", hint=hint)
    if point is None and place > state["phase"]:
        why = f"{phases[place].name} is ahead of {here}: what is between them would be left out"
        raise refusal(state, "rewind", why=why)
    if start:
        spec, origin = spec_of(state), cast("Record", state["origin"] or {})
        job = origin.get("replayed_from")
        if job and origin.get("calls") and spec.isolation != "none" and any_acts(spec):
            why = f"the files of the start stayed with {job}; --phase 0 leaves them as they are"
            raise refusal(state, "rewind", why=why)
        tree = state["base"]
    back, why = ready_state(phases[place]), f"back to {point or phases[place].name}"
    line = move("rewind", back, phase=place, reason=why, tree=tree, hold=_kept(state))
    return line | {"previous_phase": here, "former": former} | ({"start": True} if start else {})


def _check_resumable(state: JobState, point: Record) -> None:
    """Refuse a point that nothing follows, that was not approved, or whose files are gone."""
    spec, name = spec_of(state), point["id"]
    origin: Record = state["origin"] or {}
    # Files that no model can change are as they were.
    kept = point["tree"] is not None or spec.isolation == "none"
    kept = kept or not (any_acts(spec) or origin.get("replayed_from"))
    if point["place"] is None or point["place"] >= len(spec.phases):
        why = f"{name} is the end of the job"
    elif not kept:
        why = f"the files of {name} were not kept; --phase leaves them as they are"
    elif not point["can_resume_from"]:
        why = f"{name} was not approved"
    else:
        return
    raise refusal(state, "rewind", why=why)


def checkpoint(job: Job, name: str, description: str | None, tree: str | None) -> None:
    """A recovery point by hand."""

    def decide(state: JobState) -> Sequence[Record]:
        check_checkpoint(state, name)
        phase = phase_of(state)
        former: Record = state["former"] or {}
        count = len(former.get("evidence_files", []))
        point: Record = {
            "id": name,
            "checkpoint_id": name,
            "sequence": max(state["sequence"] - 1, 0),
            "can_resume_from": True,
            "description": description or "made by hand",
            "resume_phase": phase.name,
            "rollback_files": list(state["context"]),
            "metadata": {"confidence": "medium", "evidence_count": count, "test_pass_rate": None},
        }
        return [{"event": "point", "point": point, "place": state["phase"], "tree": tree}]

    job.decide(decide)


def check_checkpoint(state: JobState, name: str) -> None:
    """Refuse a recovery point of a job that has nothing to keep, or under no name of its own."""
    if not (0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()):
        hint = f"1 to {_LONGEST_NAME} characters that can be printed, no space around them"
        raise BadName(f"not the name of a recovery point: {name[:80]!r}", hint=hint)
    if state["status"] in ("DRAFT", "RUNNING", *FINAL):
        raise refusal(state, "checkpoint")
    if any(each["id"] == name for each in state["points"]):
        known = ", ".join(each["id"] for each in state["points"])
        what = f"there is a recovery point {name[:80]!r} already"
        raise UsageError(what, hint=f"take another name than {known}")
