"""What people can do about a job in its state, as the command line calls it."""

from __future__ import annotations

from typing import Any

from holdfast.contracts.job_states import SUSPENDABLE, TRANSITIONS, Cause, Hold, State, allowed

SAID: dict[Cause, str] = {
    "claim": "run",
    "continue": "steward continue",
    "halt": "steward halt",
}
_BY_PEOPLE: frozenset[Cause] = frozenset(
    ("activate", "claim", "continue", "halt", "resume", "rewind", "cancel")
)
_WHEN_HELD: dict[Hold, tuple[str, ...]] = {
    "suspended": ("resume",),
    "approval": (),
    "iterations": ("resume --max-iterations",),
}


def waits_for_approval(state: dict[str, Any]) -> bool:
    """Whether a person can agree; a job of elsewhere may be held for it in another state."""
    return state["hold"] == "approval" and state["status"] in TRANSITIONS["approve"][0]


def doable(state: dict[str, Any]) -> list[str]:
    """The verbs that are not refused, beside those that only look or make a recovery point."""
    status: State = state["status"]
    hold: Hold | None = state["hold"]
    if waits_for_approval(state):
        could = ["cancel", "steward approve", "steward reject"]
    else:
        could = [SAID.get(each, each) for each in allowed(status) if each in _BY_PEOPLE]
        if "steward continue" in could:
            could.append("steward answer")
        if hold is not None:
            could = [*(each for each in could if each != "run"), *_WHEN_HELD[hold]]
    if status == "DRAFT":
        could += ["run", "set"]
    if state["suspending"]:
        could.append("resume")
    elif hold is None and status in SUSPENDABLE:
        could.append("suspend")
    return sorted(could)
