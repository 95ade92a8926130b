"""For tests of agents that work on jobs: would this answer do, and what follows from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from holdfast.codec import MAX_DOCUMENT, decode
from holdfast.contracts.job_states import (
    ACTIONS_AFTER,
    Action,
    Outcome,
    State,
    after,
    after_call,
    allowed,
    cause_of,
)
from holdfast.errors import UsageError


def validate_agent_response(
    response_json: str,
    workspace_dir: str | None = None,
    preset: Literal["seed", "logist"] = "seed",
    tolerant: bool = False,
) -> bool:
    """Whether a job would go by this answer.

    Evidence that is missing from the workspace is a warning to the job, so it is accepted; a path
    that leads out of it is not.
    """
    from holdfast.jobs.verdict import Rules, judge  # noqa: PLC0415 - most tests have no jobs

    return not judge(response_json, Rules(preset, tolerant), workspace=workspace_dir).violations


def replay_job_history(job_dir: str, until_sequence: int | None = None) -> int:
    """Go through `jobHistory.json` of a job once more; how many calls there were.

    In any of its forms, of any system.  AssertionError names the first call whose answer would not
    do, or whose state does not follow from what was before.  `until_sequence` is a number of calls.
    """
    from holdfast.contracts.job_history import HISTORY  # noqa: PLC0415 - most tests have no jobs
    from holdfast.jobs.replay import wrong_in  # noqa: PLC0415 - the same

    path = Path(job_dir) / "jobHistory.json"
    value: Any = HISTORY.upgraded(decode(path.read_bytes(), limit=MAX_DOCUMENT))
    calls = value["interactions"][:until_sequence]
    for at, what in wrong_in({**value, "interactions": calls}):
        raise AssertionError(f"call {calls[at].get('sequence', at)}: {what}")
    return len(calls)


def next_state(
    state: State,
    action: Action,
    *,
    outcome: Outcome = "SUCCESS",
    next_role: Literal["worker", "supervisor"] | None = None,
    again: bool = True,
) -> State:
    """The state of a job after a call that was claimed in `state` and ended so.

    `next_role` is that of the phase that follows, None after the last; `again` is false when the
    phase was tried as often as it may be.  UsageError if no such call can be.
    """
    if action not in ACTIONS_AFTER[outcome]:
        known = ", ".join(ACTIONS_AFTER[outcome])
        raise UsageError(f"{action} after {outcome}", hint=f"what follows is {known}")
    in_flight = state == "RUNNING"
    cause = cause_of(outcome, action)
    possible = after(state, cause) if in_flight else after_call(state, outcome, action)
    if not possible:
        causes = ", ".join(allowed(state)) or "nothing: it is over"
        raise UsageError(f"no call of a job in {state}", hint=f"what can happen to it is {causes}")
    meant: State
    if action == "COMPLETED":
        following: dict[str | None, State] = {"supervisor": "REVIEWING", None: "SUCCESS"}
        meant = following.get(next_role, "PENDING")
    elif action == "STUCK" or not again:
        meant = "INTERVENTION_REQUIRED"
    else:
        meant = state if outcome == "ERROR" and not in_flight else "PENDING"
    assert meant in possible
    return meant


def unmarked(prompt: str) -> str:
    """The prompt of a call without its mark, which is another one in each call."""
    mark = _MARK.search(prompt)
    return prompt if mark is None else prompt.replace(mark[0], "MARK")


_MARK = re.compile(r"(?<=<others )[0-9a-f]{16}(?=>)")
