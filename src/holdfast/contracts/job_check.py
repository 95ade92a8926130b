"""What no single call of a job's history can show: order, states, ids, and what the reply was.

Works on the value as it was read, in whatever form and however broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from holdfast.contracts.job_exchange import escapes, said
from holdfast.contracts.job_lines import check_directory
from holdfast.contracts.job_states import (
    ACTIONS,
    ACTIONS_AFTER,
    CAUSES,
    INTERRUPTED,
    OUTCOMES,
    STATES,
    Action,
    Cause,
    Outcome,
    State,
    after_call,
    claimable_from,
)
from holdfast.contracts.kind import Finding, Located, Origin, object_of

_SAID = ("action", "evidence_files", "summary_for_supervisor")


class Call(NamedTuple):
    """One interaction, with its place in the file."""

    where: str
    entry: dict[str, Any]

    @property
    def response(self) -> dict[str, Any]:
        return object_of(self.entry.get("response"))


def check_history(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
    for located in found:
        for finding in _check(located.reading.value, origin):
            yield finding._replace(line=located.line)


def _check(value: Any, origin: Origin) -> Iterator[Finding]:
    whole = object_of(value)
    calls = list(_calls(value))
    archived = bool(whole.get("archives"))
    yield from check_directory(whole, origin)
    yield from _in_sequence(calls, whole, archived=archived)
    yield from _by_the_table(calls, archived=archived)
    for call in calls:
        yield from _as_it_was_said(call)
        for number, path in enumerate(_list(call.response.get("evidence_files"))):
            if isinstance(path, str) and escapes(path):
                where = f"{call.where}.response.evidence_files[{number}]"
                reason = f"{path!r} is outside of the workspace"
                yield Finding("warning", "escaping_path", where, reason)
    yield from _points(whole, calls, archived=archived)


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _calls(value: Any) -> Iterator[Call]:
    name = "" if isinstance(value, list) else "interactions"
    entries = _list(object_of(value).get(name) if name else value)
    for number, entry in enumerate(entries):
        if isinstance(entry, dict):
            yield Call(f"{name}[{number}]", cast("dict[str, Any]", entry))


def _in_sequence(calls: list[Call], whole: dict[str, Any], *, archived: bool) -> Iterator[Finding]:
    numbered = [(call, call.entry["sequence"]) for call in calls if _is_number(call)]
    if not numbered:
        return
    first = numbered[0][1]
    bases = (0,) if "schema_version" in whole else (0, 1)
    if first not in bases and not archived:
        yield _odd(numbered[0][0], "sequence", f"begins with {first}, not with 0")
    for expected, (call, number) in enumerate(numbered, first):
        if number != expected:
            yield _odd(call, "sequence", f"{number} where {expected} follows")
            return


def _is_number(call: Call) -> bool:
    number = call.entry.get("sequence")
    return isinstance(number, int) and not isinstance(number, bool)


def _odd(call: Call, field: str, reason: str, code: str = "") -> Finding:
    return Finding("error", code or field, f"{call.where}.{field}", reason)


def _by_the_table(calls: list[Call], *, archived: bool) -> Iterator[Finding]:
    """Each state must follow from the call before, and each outcome from its call."""
    reached: set[State] = set(STATES) if archived else {"DRAFT", "PENDING", "REVIEWING"}
    for call in calls:
        claimable = claimable_from(reached, _told(call))
        before = _state(call.entry.get("state_before"))
        if before is not None and before not in claimable:
            yield _odd(call, "state_before", _not(before, claimable), "state")
        outcome, action = _ended(call)
        if action is None:
            reached = set(STATES)
            continue
        if action not in ACTIONS_AFTER[outcome]:
            yield _odd(call, "response.action", f"{action} after {outcome}", "state")
        then: set[State] = set()
        for start in claimable if before is None else (before,):
            then.update(after_call(start, outcome, action))
        status = _state(call.response.get("new_status"))
        if status is not None and then and status not in then.union(INTERRUPTED):
            reason = f"{_not(status, then)} after {action}"
            yield _odd(call, "response.new_status", reason, "state")
        reached = then if status is None else {status}


def _told(call: Call) -> list[Cause] | None:
    told = call.entry.get("preceded_by")
    return None if told is None else [cause for cause in _list(told) if cause in CAUSES]


def _ended(call: Call) -> tuple[Outcome, Action | None]:
    status, action = call.response.get("status"), call.response.get("action")
    outcome = status if status in OUTCOMES else "SUCCESS"
    return outcome, action if action in ACTIONS else None


def _state(value: Any) -> State | None:
    return value if value in STATES else None


def _not(state: State, allowed: set[State]) -> str:
    return f"{state} where the states allow {', '.join(sorted(allowed)) or 'no further call'}"


def _as_it_was_said(call: Call) -> Iterator[Finding]:
    """The parsed fields against the text they were parsed from."""
    response = call.response
    raw = response.get("raw_response")
    if not isinstance(raw, str) or response.get("status") != "SUCCESS":
        return
    parsed = _parsed(raw)
    if response.get("action") == "STUCK" and (parsed is None or parsed.get("action") != "STUCK"):
        return  # what breaks the rules is recorded as STUCK
    if response.get("overruled") is not None:
        return  # it was checked, and the reply did not hold
    if parsed is None:
        reason = "no JSON object, so that nothing can be compared with it"
        yield Finding("warning", "raw_response", f"{call.where}.response.raw_response", reason)
        return
    for name in _SAID:
        if name in response and response[name] != parsed.get(name):
            yield _odd(call, f"response.{name}", "differs from raw_response", "raw_response")


def _parsed(text: str) -> dict[str, Any] | None:
    """The object that a text is, or holds."""
    try:
        value = said(text, tolerant=True).value
    except ValueError:
        return None
    return object_of(value.get("response")) or value or None


def _points(whole: dict[str, Any], calls: list[Call], *, archived: bool) -> Iterator[Finding]:
    numbers = [call.entry["sequence"] for call in calls if _is_number(call)]
    seen: dict[str, int] = {}
    for place, point in enumerate(_list(whole.get("recovery_points"))):
        where = f"recovery_points[{place}]"
        name = object_of(point).get("id") or object_of(point).get("checkpoint_id")
        if isinstance(name, str) and seen.setdefault(name, place) != place:
            reason = f"{name!r} is recovery_points[{seen[name]}] already"
            yield Finding("error", "duplicate", f"{where}.id", reason)
        number = object_of(point).get("sequence")
        if not isinstance(number, int) or number in numbers or "interactions" not in whole:
            continue
        if not archived or number > max(numbers, default=-1):
            yield Finding(
                "error", "recovery_point", f"{where}.sequence", f"there is no call {number}"
            )
