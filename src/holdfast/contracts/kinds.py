"""All kinds of files there are."""

from __future__ import annotations

from holdfast.contracts import agents, improve, job_history, ledger, own, swarm
from holdfast.contracts.kind import Kind
from holdfast.errors import NotFound

KINDS: tuple[Kind, ...] = (
    *agents.KINDS,
    *ledger.KINDS,
    *own.KINDS,
    *job_history.KINDS,
    *swarm.KINDS,
    *improve.KINDS,
)


def kind(name: str) -> Kind:
    """The kind called `name`."""
    for each in KINDS:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in KINDS)
    raise NotFound(f"there is no kind {name[:80]!r}", hint=f"one of {known}")
