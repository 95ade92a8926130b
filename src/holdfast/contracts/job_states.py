"""The states of a job, and the one table of what leads from which to which.

The table is data: the engine asks it before it moves a job, the check of a history asks it
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

State = Literal[
    "DRAFT",
    "PENDING",
    "RUNNING",
    "REVIEWING",
    "SUCCESS",
    "CANCELED",
    "INTERVENTION_REQUIRED",
    "HALTED_COST",
    "HALTED_TIME",
]
Action = Literal["COMPLETED", "STUCK", "RETRY"]
Outcome = Literal["SUCCESS", "ERROR", "TIMEOUT"]
Hold = Literal["suspended", "approval", "iterations"]
Cause = Literal[
    "activate",
    "claim",
    "COMPLETED",
    "RETRY",
    "STUCK",
    "api_error",
    "lost",
    "over_cost",
    "over_time",
    "continue",
    "halt",
    "approve",
    "reject",
    "resume",
    "rewind",
    "cancel",
]

STATES: tuple[State, ...] = get_args(State)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
ACTIONS: tuple[Action, ...] = get_args(Action)
CAUSES: tuple[Cause, ...] = get_args(Cause)
FINAL: frozenset[State] = frozenset({"SUCCESS", "CANCELED"})

_READY: tuple[State, ...] = ("PENDING", "REVIEWING")
_STOPPED: tuple[State, ...] = ("PENDING", "REVIEWING", "INTERVENTION_REQUIRED")
_OPEN: tuple[State, ...] = tuple(state for state in STATES if state not in FINAL)

TRANSITIONS: dict[Cause, tuple[tuple[State, ...], tuple[State, ...]]] = {
    "activate": (("DRAFT",), ("PENDING",)),
    # RUNNING only while a call is in flight.
    "claim": (_READY, ("RUNNING",)),
    # On to the next phase, which its role makes PENDING or REVIEWING; SUCCESS after the last.
    "COMPLETED": (("RUNNING",), ("PENDING", "REVIEWING", "SUCCESS")),
    # To the worker's phase again; too often is like STUCK.
    "RETRY": (("RUNNING",), ("PENDING", "INTERVENTION_REQUIRED")),
    "STUCK": (("RUNNING",), ("INTERVENTION_REQUIRED",)),
    # The same phase again, of any role; too often is like STUCK.
    "api_error": (("RUNNING",), _STOPPED),
    # The runner died: back to where it was claimed, unless a call may have had an effect.
    "lost": (("RUNNING",), _STOPPED),
    "over_cost": ((*_READY, "RUNNING"), ("HALTED_COST",)),
    "over_time": ((*_READY, "RUNNING"), ("HALTED_TIME",)),
    "continue": (("INTERVENTION_REQUIRED",), ("PENDING",)),
    "halt": (("INTERVENTION_REQUIRED",), ("CANCELED",)),
    # What a phase did is held until a person agrees; else it is done again.
    "approve": (("REVIEWING",), ("PENDING", "REVIEWING", "SUCCESS")),
    "reject": (("REVIEWING",), ("PENDING",)),
    # With a higher limit.
    "resume": (("HALTED_COST", "HALTED_TIME"), _READY),
    "rewind": (_STOPPED, _READY),
    "cancel": (_OPEN, ("CANCELED",)),
}
"""For each cause the states in which it may happen, and those that may follow."""

SUSPENDABLE: frozenset[State] = frozenset((*_STOPPED, "RUNNING"))
"""Where a person can let a job wait; that is a hold, and no state of its own."""
CLAIMABLE: frozenset[State] = frozenset(TRANSITIONS["claim"][0])

_UNTOLD: tuple[Cause, ...] = ("activate", "continue", "resume")
"""What a history of calls alone leaves out.  A rewind is not among it: it has to be told, or
every state could follow every other."""

ACTIONS_AFTER: dict[Outcome, tuple[Action, ...]] = {
    "SUCCESS": ACTIONS,
    "ERROR": ("RETRY", "STUCK"),
    "TIMEOUT": ("STUCK",),
}
"""What can be done about a call, by how it ended."""

INTERRUPTED: tuple[State, ...] = ("HALTED_COST", "HALTED_TIME", "CANCELED")
"""Where a job may be after a call, whatever was answered."""


def after(state: State, cause: Cause) -> tuple[State, ...]:
    """The states that may follow; none if the cause is refused in this state."""
    before, then = TRANSITIONS[cause]
    return then if state in before else ()


def allowed(state: State) -> tuple[Cause, ...]:
    """What may happen to a job in this state; nothing in a final one."""
    return tuple(cause for cause, (before, _) in TRANSITIONS.items() if state in before)


def cause_of(outcome: Outcome, action: Action) -> Cause:
    """What a call that ended so does to its job."""
    return "api_error" if outcome == "ERROR" and action == "RETRY" else action


def after_call(claimed: State, outcome: Outcome, action: Action) -> tuple[State, ...]:
    """The states that a call may lead to, if its job was claimed in `claimed`."""
    if claimed not in CLAIMABLE or action not in ACTIONS_AFTER[outcome]:
        return ()
    cause = cause_of(outcome, action)
    return (claimed, "INTERVENTION_REQUIRED") if cause == "api_error" else after("RUNNING", cause)


def claimable_from(states: Iterable[State], told: Sequence[Cause] | None = None) -> set[State]:
    """The states in which the next call may have been claimed after `states`.

    `told` is what happened in between; None if it was not recorded.
    """
    reached = set(states)
    if told is None:
        reached |= _then(reached, _UNTOLD)
    for cause in told or ():
        reached = _then(reached, (cause,))
    return reached & CLAIMABLE


def _then(states: Iterable[State], causes: Sequence[Cause]) -> set[State]:
    found: set[State] = set()
    for state in states:
        for cause in causes:
            found.update(after(state, cause))
    return found
