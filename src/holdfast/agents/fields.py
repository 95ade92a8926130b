"""What can be true of a session: the rules for whatever is said of it, by flag, report or output.

A negative cost would give money back to a budget, and a negative count take sources away.  Pure.
"""

from __future__ import annotations

from holdfast.agents.history import SETTABLE
from holdfast.codec import Record
from holdfast.errors import BadValue, UsageError

_NUMBERS = frozenset({"sources_archived", "sources_expected", "tokens_used", "pr_number"})


def is_credible(name: str, value: object) -> bool:
    from holdfast.models.report import count, usd  # noqa: PLC0415 - a heartbeat needs none of it

    if name == "cost_usd":
        return usd(value) is not None
    if name in _NUMBERS:
        return count(value) is not None
    return isinstance(value, str)


def check(fields: Record) -> None:
    """Refuse what no session has, and what cannot be."""
    if unknown := fields.keys() - SETTABLE:
        raise UsageError(
            f"a session has no {min(unknown)!r}", hint=f"one of {', '.join(sorted(SETTABLE))}"
        )
    for name, value in fields.items():
        if not is_credible(name, value):
            from holdfast.models.report import MOST_COUNTED, MOST_USD  # noqa: PLC0415 - as above

            most = f"{MOST_USD:.0f} USD" if name == "cost_usd" else MOST_COUNTED
            raise BadValue(f"{name} cannot be {str(value)[:80]}", hint=f"from 0 to {most}")
