"""The state of a job, folded from the lines of its history.  Pure.

It holds what the next step needs, and the trail: a short entry for each event.  A line that the
state does not allow changes nothing: a replaced runner wrote it, or a hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

from pydantic import ValidationError

from holdfast.clock import instant_of, utc_stamp
from holdfast.codec import Record
from holdfast.contracts.job_exchange import escapes
from holdfast.contracts.job_spec import JobSpec, PhaseSpec
from holdfast.contracts.job_states import (
    FINAL,
    STATES,
    SUSPENDABLE,
    TRANSITIONS,
    Cause,
    Hold,
    State,
    after,
    allowed,
)
from holdfast.errors import Corrupt, HoldfastError
from holdfast.store.primitives import Line

Job = dict[str, Any]
_PARTS_KEPT = 256
_POINTS_KEPT = 200
_CONTEXT_KEPT, _LONGEST_PATH = 100, 4095
MOST_PATHS, _MOST_TEXT = 1000, 128 << 10
"""Of one list in a line, and how long they may be together: a line has its limit, and the files
themselves are in the trees."""


class Refused(HoldfastError):
    """What is asked for cannot be done to a job in its state."""

    code = "refused"


def initial() -> Job:
    absent = "created_at updated_at hold why call not_before former last tree restore base result"
    return {
        **dict.fromkeys([*absent.split(), "origin", "foreign", "archived"]),
        **dict.fromkeys(("phase", "run", "sequence", "steps", "failures", "fence"), 0),
        **dict.fromkeys(("unknown", "tokens"), 0),
        **dict.fromkeys(("cost_usd", "assumed_usd", "seconds"), 0.0),
        **{name: list[Any]() for name in ("guidance", "attachments", "context", "points", "since")},
        **{name: dict[str, Any]() for name in ("spec", "retries", "tries", "limits", "parts")},
        "job_id": "",
        "status": "DRAFT",
        "suspending": False,
        "asked": {},
        "trail": [],
    }


def fold(state: Job, line: Line) -> Job:
    """In place; what is not a line of a history changes nothing."""
    record = line.record
    act = _ACTS.get(str(record.get("event")))
    fence = record.get("fence", 0)
    if act is None or (isinstance(fence, int) and 0 < fence < state["fence"]):
        return state
    if isinstance(fence, int) and fence > state["fence"]:
        state["fence"] = fence
    if isinstance(record.get("ts"), str):
        state["updated_at"] = record["ts"]
    act(state, record)
    return state


def capped(paths: Sequence[str]) -> list[str]:
    """As many of a list, from its beginning, as a line of the history can hold."""
    kept, size = list[str](), 0
    for path in paths[:MOST_PATHS]:
        size += len(path)
        if size > _MOST_TEXT:
            break
        kept.append(path)
    return kept


def add_known(line: Record, fields: Record) -> Record:
    """A line with those of the fields that are known."""
    line |= {name: value for name, value in fields.items() if value is not None}
    return line


@lru_cache(maxsize=64)
def utc_of(stamp: object) -> str:
    """A time of the history, as the format has it."""
    try:
        return utc_stamp(instant_of(str(stamp)))
    except ValueError:
        return utc_stamp(0.0)


def _add_to_trail(state: Job, record: Record, **more: Any) -> None:
    entry = add_known({"timestamp": utc_of(record.get("ts"))}, more)
    state["trail"].append(entry | {"new_status": state["status"]})


# --- reading a state ------------------------------------------------------------------------


def spec_of(state: Job) -> JobSpec:
    """The spec as it stands; checked when it was written, so it is not checked again."""
    global _last_spec
    if _last_spec is None or _last_spec[0] is not state["spec"]:
        try:
            spec = JobSpec.model_validate(state["spec"])
        except ValidationError as error:
            what = f"the spec of {state['job_id']} cannot be read: {error.errors()[0]['msg']}"
            hint = "`holdfast check` tells whether its history was changed"
            raise Corrupt(what, hint=hint) from None
        _last_spec = state["spec"], spec
    return _last_spec[1]


_last_spec: tuple[Any, JobSpec] | None = None
"""With the object that it was made of: a run asks thousands of times."""


def phase_of(state: Job) -> PhaseSpec:
    phases, at = spec_of(state).phases, cast("int", state["phase"])
    return phases[min(at, len(phases) - 1)]


def ready_state(phase: PhaseSpec) -> State:
    """How a job waits for a phase."""
    return "REVIEWING" if phase.reviews else "PENDING"


def committed_usd(state: Job) -> float:
    """What is spent or may be: calls of unknown cost count as what was set aside for them."""
    call: Record = state["call"] or {}
    return state["cost_usd"] + state["assumed_usd"] + (call.get("reserved_usd") or 0.0)


def waits_for_approval(state: Job) -> bool:
    """Whether a person can agree; an imported job may be held for it in another state."""
    return state["hold"] == "approval" and state["status"] in TRANSITIONS["approve"][0]


_VERBS: dict[Cause, str] = {
    "claim": "run",
    "continue": "steward continue",
    "halt": "steward halt",
}
_BY_PEOPLE = frozenset(("activate", "claim", "continue", "halt", "resume", "rewind", "cancel"))
_WHEN_HELD: dict[Hold, tuple[str, ...]] = {
    "suspended": ("resume",),
    "approval": (),
    "iterations": ("resume --max-iterations",),
}


def allowed_actions(state: Job) -> list[str]:
    """The verbs that are not refused, beside those that only look or make a recovery point."""
    status, hold = cast("State", state["status"]), cast("Hold | None", state["hold"])
    if waits_for_approval(state):
        actions = ["cancel", "steward approve", "steward reject"]
    else:
        actions = [_VERBS.get(each, each) for each in allowed(status) if each in _BY_PEOPLE]
        if "steward continue" in actions:
            actions.append("steward answer")
        if hold is not None:
            actions = [*(each for each in actions if each != "run"), *_WHEN_HELD[hold]]
    if status == "DRAFT":
        actions += ["run", "set"]
    if state["suspending"]:
        actions.append("resume")
    elif hold is None and status in SUSPENDABLE:
        actions.append("suspend")
    return sorted(actions)


def refusal(state: Job, cause: str, *, why: str = "") -> Refused:
    """What is wrong with doing `cause` now, and what could be done instead."""
    name, status, hold = state["job_id"], state["status"], state["hold"]
    held = f" (held: {hold})" if hold else ""
    if status in FINAL:
        hint = "it is over; `holdfast job new` begins another one"
    else:
        hint = f"what can be done now: {', '.join(allowed_actions(state))}"
    return Refused(f"{name} is {status}{held}: {cause} is refused{why and f', {why}'}", hint=hint)


def check(state: Job, cause: Cause) -> None:
    """Refuse what the table does not allow."""
    held = cause not in ("approve", "reject") or state["hold"] == "approval"
    if state["status"] not in TRANSITIONS[cause][0] or not held:
        raise refusal(state, _VERBS.get(cause, cause))


# --- one act for each event -----------------------------------------------------------------


def _new(state: Job, record: Record) -> None:
    if not state["job_id"]:
        state |= {name: record.get(name) for name in ("created_at", "origin")}
        state["job_id"] = str(record.get("job_id", ""))
        _specify(state, record.get("spec", {}))


def _set(state: Job, record: Record) -> None:
    if state["status"] == "DRAFT" and isinstance(record.get("spec"), dict):
        _specify(state, record["spec"])


def _specify(state: Job, spec: Record) -> None:
    given = [each for each in state["attachments"] if not escapes(each)]
    context = list(dict.fromkeys([*spec.get("files", []), *given]))
    state |= {"spec": spec, "limits": dict(spec.get("budget", {})), "context": context}


def _move(state: Job, record: Record) -> None:
    cause, status = record.get("cause"), record.get("status")
    if cause not in TRANSITIONS or status not in after(state["status"], cause):
        return
    state["since"] = [*state["since"], cause][-20:]
    state["status"], state["hold"] = status, record.get("hold")
    state["why"] = record.get("reason")
    if isinstance(record.get("phase"), int):
        if record["phase"] != state["phase"]:
            state["tree"] = None
        state["phase"] = record["phase"]
    call: Record = state["call"] or {"sequence": None}
    named = record.get("sequence", -1)  # an older cancellation left the call to be answered
    if cause in ("lost", "halt", "rewind") or (cause == "cancel" and named == call["sequence"]):
        _drop_call(state, again=cause == "lost" and status != "INTERVENTION_REQUIRED")
    if cause in ("continue", "reject", "resume", "rewind"):
        state |= {"retries": {}, "tries": {}, "failures": 0, "not_before": None}
    if cause in ("approve", "reject"):
        state["suspending"] = False  # the line says whether it stays so
    if cause == "approve":
        state["tries"] = {}
        last, phases = state["sequence"] - 1, len(state["spec"].get("phases", []))
        state["points"] = [
            {**each, "can_resume_from": True}
            if each.get("sequence") == last and (each.get("place") or 0) < phases
            else each
            for each in state["points"]
        ]
    if cause == "rewind":
        state["former"] = record.get("former")
        state["tree"] = state["restore"] = record.get("tree")
        if record.get("start"):
            zero = {"steps": 0, "cost_usd": 0.0, "unknown": 0, "assumed_usd": 0.0, "seconds": 0.0}
            state |= {**zero, "run": state["run"] + 1, "former": None}
    if isinstance(record.get("limits"), dict):
        state["limits"] = {**state["limits"], **record["limits"]}
    _add_guidance(state, record)
    _suspend_if_asked(state)
    event = {"lost": "AUTOMATIC_RECOVERY", "rewind": "RESTEP"}.get(cause, cause.upper())
    parts = [record.get(name) for name in ("reason", "guidance", "previous_phase")]
    description = "; ".join(str(each) for each in parts if each) or None
    _add_to_trail(state, record, event=event, description=description)


def _add_guidance(state: Job, record: Record) -> None:
    if record.get("guidance"):
        given = {"text": str(record["guidance"]), "by": record.get("by"), "at": record.get("ts")}
        state["guidance"] = [*state["guidance"], given]


def _drop_call(state: Job, *, again: bool) -> None:
    """A call that nobody will answer for: what was set aside for it counts as spent."""
    call = state["call"]
    if call is None:
        return
    if again:
        state["asked"][call["model"]] -= 1
        state["restore"] = call["tree"]
    if call.get("outcome") is None:
        state["unknown"] += 1
        state["assumed_usd"] += call.get("reserved_usd") or 0.0
    state["call"] = None


def _hold(state: Job, record: Record) -> None:
    """Suspended or let go; a job whose call is in flight is suspended when that has ended."""
    hold = record.get("hold")
    if isinstance(record.get("limits"), dict) and state["status"] in _CAN_BE_HELD:
        state["limits"] = {**state["limits"], **record["limits"]}
    if state["status"] == "RUNNING":
        state["suspending"] = hold == "suspended"
    elif hold is None and state["suspending"]:
        state["suspending"] = False  # what waits for approval still does
    elif state["status"] in _CAN_BE_HELD:
        state["hold"] = hold
        if state["status"] != "INTERVENTION_REQUIRED":  # where it says what was asked
            state["why"] = record.get("reason", state["why"])
    _add_to_trail(
        state, record, event=str(hold or "released").upper(), description=record.get("reason")
    )


_CAN_BE_HELD: tuple[State, ...] = ("PENDING", "REVIEWING", "RUNNING", "INTERVENTION_REQUIRED")


def _suspend_if_asked(state: Job) -> None:
    if not state["suspending"] or state["status"] == "RUNNING" or state["hold"] == "approval":
        return
    state["suspending"] = False
    if state["status"] in _CAN_BE_HELD and state["hold"] is None:
        state["hold"] = "suspended"


_OF_A_CALL = (
    *("sequence", "state_before", "phase", "model", "tree", "by_budget", "charge"),
    "reserved_usd",
)


def _call(state: Job, record: Record) -> None:
    if state["status"] not in TRANSITIONS["claim"][0] or state["hold"] is not None:
        return
    state |= {"status": "RUNNING", "since": [], "not_before": None, "why": None, "restore": None}
    tree, model = record.get("tree"), str(record.get("model"))
    state["call"] = {name: record.get(name) for name in _OF_A_CALL}
    state["call"] |= {"at": record.get("ts"), "outcome": None}
    state["sequence"] = int(record.get("sequence", state["sequence"])) + 1
    state["steps"] += 1
    state["asked"][model] = state["asked"].get(model, 0) + 1
    name, tries = str(record.get("phase")), state["tries"]
    state["tries"] = {**tries, name: tries.get(name, 0) + 1}
    for kept in ("tree", "base"):
        state[kept] = tree if state[kept] is None else state[kept]
    parts: dict[str, bool] = state["parts"]
    named = dict.fromkeys(map(str, record.get("parts", [])), True)
    for each in named:  # the latest last
        parts.pop(each, None)
    parts |= named
    while len(parts) > max(_PARTS_KEPT, len(named)):  # else they were written again at each step
        del parts[next(iter(parts))]


def _reply(state: Job, record: Record) -> None:
    call = state["call"]
    if call is None or call["sequence"] != record.get("sequence") or call["outcome"] is not None:
        return
    call["outcome"] = record.get("outcome")
    for name in ("error", "retryable", "raw_response"):
        if record.get(name) is not None:
            call[name] = record[name]
    cost, reserved = record.get("cost_usd"), call.get("reserved_usd") or 0.0
    call["reserved_usd"] = 0.0
    if isinstance(cost, int | float):
        state["cost_usd"] += cost
    else:
        state["unknown"] += 1
        state["assumed_usd"] += reserved
    counts = (record.get("input_tokens"), record.get("output_tokens"))
    state["tokens"] += sum(count for count in counts if isinstance(count, int))
    seconds = record.get("execution_time_seconds")
    state["seconds"] += seconds if isinstance(seconds, int | float) else 0.0


def _judged(state: Job, record: Record) -> None:
    call = state["call"]
    if call is None or call["sequence"] != record.get("sequence") or call["outcome"] is None:
        return
    status = record.get("status")
    state["call"] = None
    if status not in STATES:
        return
    role, name, action = record.get("role"), str(call.get("phase")), record.get("action")
    if state["status"] in FINAL:
        status = state["status"]  # it was cancelled while somebody was asked
    state["status"], state["hold"] = status, record.get("hold")
    state["why"] = record.get("reason")
    state["restore"] = record.get("restore")
    gate = record.get("gate")
    if isinstance(gate, dict):
        state["seconds"] += float(cast("Any", gate).get("seconds", 0.0))
    failed = action == "RETRY" and record.get("outcome") == "ERROR"
    state["failures"] = state["failures"] + 1 if failed else 0
    state["not_before"] = record.get("not_before")
    if not failed:
        _count(state, name, action)
    if isinstance(record.get("next_phase"), int) and record["next_phase"] != state["phase"]:
        if record["next_phase"] > state["phase"]:
            if state["status"] != "REVIEWING":
                state["tries"] = {}
            elif call.get("state_before") != "REVIEWING":  # a reviewer can send back to this work
                state["tries"] = {name: state["tries"].get(name, 1)}
        state["phase"], state["tree"] = record["next_phase"], None
    evidence = capped([str(each) for each in record.get("evidence_files", [])])
    _suspend_if_asked(state)
    summary = record.get("summary_for_supervisor")
    _add_to_trail(state, record, role=role, action=action, evidence_files=evidence, summary=summary)
    former = reported(record) | {"role": role, "phase": name, "evidence_files": evidence}
    state["last"] = {**former, "model": call.get("model"), "status": state["status"]}
    if failed:
        return  # nobody said anything
    state["former"] = former
    state["context"] = _named(state, evidence)
    if status == "SUCCESS":
        state["result"] = summary


def _named(state: Job, evidence: Sequence[str]) -> list[str]:
    """The files that the next one is told of: all that people gave, and the latest evidence."""
    new = [each for each in evidence if len(each) <= _LONGEST_PATH and not escapes(each)]
    named = list(dict.fromkeys([*state["context"], *new]))
    if len(named) <= _CONTEXT_KEPT:
        return named
    given = {*state["spec"].get("files", []), *state["attachments"]}
    kept = {*given, *[each for each in named if each not in given][-_CONTEXT_KEPT:]}
    return [each for each in named if each in kept]


def reported(judged: Record) -> Record:
    """What an agent reported, by a `judged` line: the line's action is what is done about it.

    `unsaid` is there if it reported nothing that counts; the summary says why.
    """
    complaint, refused = judged.get("complaint"), "refused" if judged.get("violations") else None
    found: Record = {
        "action": judged.get("action") if complaint is None else "COMPLETED",
        "summary": judged.get("summary_for_supervisor"),
        "complaint": complaint,
    }
    nothing = {"ERROR": "failed", "TIMEOUT": "late"}.get(str(judged.get("outcome")), refused)
    return add_known(found, {"unsaid": nothing})


def _count(state: Job, name: str, action: object) -> None:
    retries = dict(state["retries"])
    if action == "RETRY":
        retries[name] = retries.get(name, 0) + 1
    elif action == "COMPLETED":
        retries.pop(name, None)
    state["retries"] = retries


def _point(state: Job, record: Record) -> None:
    if not isinstance(record.get("point"), dict):
        return
    point, place = cast("Record", record["point"]), record.get("place")
    files: list[str] = point.get("rollback_files") or []
    if len(few := capped(files)) < len(files):  # older points named all of them
        point = {**point, "rollback_files": few, "rollback_count": len(files)}
    point = {**point, "tree": record.get("tree"), "former": state["former"], "place": place}
    if state["hold"] == "approval" and isinstance(place, int) and place > state["phase"]:
        point["can_resume_from"] = False  # it was not approved yet
    others = [each for each in state["points"] if each["id"] != point.get("id")]
    state["points"] = [*others, point][-_POINTS_KEPT:]


def _attach(state: Job, record: Record) -> None:
    if isinstance(path := record.get("path"), str):
        inside = () if escapes(path) else ("context",)  # as some could in older jobs
        for name in ("attachments", *inside):
            state[name] = list(dict.fromkeys([*state[name], path]))


def _note(state: Job, record: Record) -> None:
    _add_guidance(state, record)
    if record.get("tree") is None and state["status"] in TRANSITIONS["claim"][0]:
        state["why"] = record.get("reason") or state["why"]
    if record.get("tree") is not None and record["tree"] == state["restore"]:
        state["restore"] = None  # it is done


def _told(state: Job, record: Record) -> None:
    """A call of another system: it is shown, and counts for nothing."""
    call = record.get("interaction")
    number = cast("Record", call).get("sequence") if isinstance(call, dict) else None
    if isinstance(number, int) and state["foreign"] is None:
        state["sequence"] = max(state["sequence"], number + 1)


def _imported(state: Job, record: Record) -> None:
    """What a job of another system had come to."""
    status, found = record.get("status"), record.get("imported")
    if state["origin"] is None or state["foreign"] is not None or status not in STATES:
        return
    brought = cast("Record", found) if isinstance(found, dict) else {}
    state |= {name: brought[name] for name in _BROUGHT if name in brought}
    state["foreign"] = brought.get("foreign") or {}
    state["status"], state["hold"] = status, record.get("hold")
    state["phase"], state["why"] = record.get("phase") or 0, record.get("reason")


_BROUGHT = ("cost_usd", "seconds", "steps", "trail", "former", "points")


def _archived(state: Job, record: Record) -> None:
    packed = record.get("archived")
    if state["status"] in FINAL and isinstance(packed, dict):
        state["archived"] = packed or {"files": None}


_ACTS: dict[str, Callable[[Job, Record], None]] = {
    "new": _new,
    "set": _set,
    "move": _move,
    "hold": _hold,
    "part": lambda state, record: None,  # the call that names it is remembered
    "call": _call,
    "reply": _reply,
    "judged": _judged,
    "point": _point,
    "attach": _attach,
    "note": _note,
    "told": _told,
    "imported": _imported,
    "archived": _archived,
}
