"""A call of an agent, and how it ended."""

from __future__ import annotations

from typing import NamedTuple

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


class Answer(NamedTuple):
    """How a call ended."""

    outcome: Outcome
    raw: str
    seconds: float = 0.0
    reply: Reply | None = None
    error: str | None = None
    retryable: bool = False
    free: bool = False
    """Whether it failed before it could cost anything."""
    simulated: bool = False
