"""The gate for money: every reservation is judged here, be it the fleet's or a single call's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import OverBudget

_TINY = 1e-6
"""Sums of floats differ in the last digits; no reservation is refused for that."""


class Bound(NamedTuple):
    """One limit and what counts against it, in USD."""

    name: str
    """What is limited: `rio today`, `this call`."""
    most: float | None
    """None is no limit."""
    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    """By sessions and calls that have not ended."""
    unknown: int = 0
    """How many ended without a reported cost."""
    assumed_usd: float = 0.0
    """What counts for those."""

    @property
    def left(self) -> float:
        used = self.spent_usd + self.reserved_usd + self.assumed_usd
        return (self.most or 0.0) - used


def grant(bounds: Sequence[Bound], wanted: float | None, *, hint: str) -> float | None:
    """How much to reserve under all `bounds`, or OverBudget; None if there is no limit.

    `wanted` None is a cost that is not known before: it gets all that is left, which has to be
    something.
    """
    limits = [bound for bound in bounds if bound.most is not None]
    usd = min((bound.left for bound in limits), default=None) if wanted is None else wanted
    for bound in limits:
        if usd is not None and (
            usd > bound.left + _TINY or (wanted is None and bound.left < _TINY)
        ):
            raise _refusal(bound, wanted, hint)
    return usd


def _refusal(bound: Bound, wanted: float | None, hint: str) -> OverBudget:
    parts = [f"{_usd(bound.spent_usd)} is spent"]
    if bound.reserved_usd:
        parts.append(f"{_usd(bound.reserved_usd)} is reserved")
    if bound.unknown:
        parts.append(f"{_usd(bound.assumed_usd)} counts for {bound.unknown} of unknown cost")
    wish = "" if wanted is None else f", {_usd(wanted)} is needed"
    report = "report unknown costs (`holdfast session set --session ID --cost USD`), "
    return OverBudget(
        f"{bound.name} may spend {_usd(bound.most or 0.0)} USD: {', '.join(parts)}{wish}",
        hint=f"{report if bound.unknown else ''}{hint}",
    )


def _usd(amount: float) -> str:
    """In cents, or finer where cents would hide something."""
    return f"{amount:.2f}" if abs(round(amount, 2) - amount) < _TINY else f"{amount:.4f}"
