"""A call of a job: what it is made of, and how the history names its end."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.calls.call import Ending, Result
from holdfast.contracts.job_spec import PhaseSpec
from holdfast.contracts.job_states import Outcome, State
from holdfast.jobs.request import Asking
from holdfast.models.protocol import Reply, Request


class Call(NamedTuple):
    """A call in flight."""

    sequence: int
    phase: PhaseSpec
    model: str
    state_before: State
    tree: str | None
    """The files before it."""
    prompt: str
    by_budget: bool = False
    """Whether its time is what is left of the job's."""
    charge: str = ""
    """What it is called in the fleet's book of money."""


class Prepared(NamedTuple):
    """A call that can be put on record, and made."""

    call: Call
    asked: Asking
    request: Request
    most: float | None
    """What it can cost."""
    aside: float | None
    """What is set aside for it."""


OUTCOMES: dict[Ending, Outcome] = {
    "ok": "SUCCESS",
    # A reply is judged by the rules of the job, which may be milder than the schema.
    "invalid": "SUCCESS",
    "error": "ERROR",
    "timeout": "TIMEOUT",
}
"""How the history names the end of a call."""
ENDINGS: dict[Outcome, Ending] = {"SUCCESS": "ok", "ERROR": "error", "TIMEOUT": "timeout"}


def given(raw: str) -> Result:
    """The reply of a person or a script, asked instead of a model."""
    return Result("ok", Reply(raw, "", cost_usd=0.0))
