"""What a plan has to keep: one hypothesis, families, schema, history, scope.  Pure.

Code decides; a model may reject more, and approves nothing that is rejected here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from holdfast.codec import Record
from holdfast.contracts.improve import Plan
from holdfast.contracts.kind import read
from holdfast.improve.files import in_scope
from holdfast.workspace.repo import Sealed
from holdfast.workspace.safedir import leads_inside

STREAK = 2
"""A family that won so many rounds in a row may not win the next one."""
CHECKS = (
    *("h001_hypothesis_count", "h002_family_streak", "h003_intra_round_diversity"),
    *("schema_valid", "history_aware"),
)


class Bounds(NamedTuple):
    """What plans of a round are held against."""

    families: Sequence[str]
    winners: Sequence[str | None]
    """The family that won each round so far, the last one last."""
    failed: Mapping[str, str]
    """What each hypothesis that failed ended as, by its `likeness`."""
    sealed: Sealed
    scope: Sequence[str]
    leads_out: Callable[[str], bool]
    """Whether a path goes through a link of the repository."""


def likeness(hypothesis: str) -> str:
    """What two wordings of one hypothesis have in common."""
    return " ".join(re.findall(r"[^\W_]+", hypothesis.casefold()))


def blocked(winners: Sequence[str | None]) -> str | None:
    """The family that may not win again now; a round without a winner ends a streak."""
    last = winners[-STREAK:]
    return last[0] if len(last) == STREAK and len(set(last)) == 1 else None


def review(plan: Record, bounds: Bounds, taken: Sequence[str]) -> Record:
    """The critic's review of one plan; `taken` are the families of those approved before it."""
    wrong: dict[str, str] = {}
    hypothesis, family = plan.get("hypothesis"), plan.get("approach_family")
    if not isinstance(hypothesis, str) or not hypothesis.strip():
        wrong["h001_hypothesis_count"] = "H001: a plan has exactly one hypothesis, as a text"
    if family is not None and family == blocked(bounds.winners):
        wrong["h002_family_streak"] = f"H002: {family} won the last {STREAK} rounds"
    if family in taken:
        wrong["h003_intra_round_diversity"] = f"H003: {family} is taken by another plan"
    if reason := _misfit(plan, bounds):
        wrong["schema_valid"] = reason
    elif reason := _forgetful(plan, bounds):
        wrong["history_aware"] = reason
    found: Record = {name: "fail" if name in wrong else "pass" for name in CHECKS}
    found["verdict"] = "rejected" if wrong else "approved"
    return {**found, "rejection_reason": "; ".join(wrong.values()) or None}


def _misfit(plan: Record, bounds: Bounds) -> str | None:
    reading = read(Plan, plan, strict=True)
    for finding in reading.findings:
        if finding.level == "error":
            return f"schema: {finding.field}: {finding.reason}"
    family = str(plan["approach_family"])
    if family not in bounds.families:
        return f"schema: approach_family: no such family: {family}"
    if family == "other" and not str(plan["expected_outcome"]["rationale"]).strip():
        return "schema: of the family other, and the rationale does not say what it is"
    for path in dict.fromkeys([*plan["target_files"], *(step["file"] for step in plan["steps"])]):
        if reason := why_not(path, bounds):
            return f"scope: {path[:120]}: {reason}"
    return None


def why_not(path: str, bounds: Bounds) -> str | None:
    """Why a plan may not change a path, if so; `.` is all that is in scope."""
    plain = re.sub(r"^(?:\./)+", "", path).rstrip("/") or "."
    if plain == ".":
        return None
    if path.startswith("/") or "\0" in path or not leads_inside(plain):
        return "not inside the repository"
    if bounds.sealed.covers(plain) or bounds.sealed.stands_above(plain):
        return "it is sealed"
    if not in_scope(plain, bounds.scope):
        return f"not in scope ({', '.join(bounds.scope)})"
    return "it leads out of the repository" if bounds.leads_out(plain) else None


def _forgetful(plan: Record, bounds: Bounds) -> str | None:
    ended = bounds.failed.get(likeness(str(plan.get("hypothesis"))))
    avoids = str(plan["history_reference"]["avoids"]).strip().casefold()
    if ended is not None and avoids in ("", "none", "-", "n/a"):
        return f"history: it was tried and failed ({ended}); `avoids` has to say what differs"
    return None


def advice(plan: Record, bounds: Bounds, paths: Sequence[str]) -> Record:
    """The architect's review where nobody else has that role: what code can see."""
    concerns: list[str] = []
    targets = plan.get("target_files")
    for path in cast("list[Any]", targets) if isinstance(targets, list) else []:
        plain = str(path).removeprefix("./")
        if plain not in paths and not any(
            each.startswith(f"{plain.rstrip('/')}/") for each in paths
        ):
            concerns.append(f"{plain} does not exist yet")
        if reason := why_not(plain, bounds):
            concerns.append(f"{plain}: {reason}")
    if not str(plan.get("hypothesis") or "").strip():
        concerns.append("there is no hypothesis to test")
    verdict = "reject" if concerns else "approve"
    return {"verdict": verdict, "feedback": "; ".join(concerns), "structural_concerns": concerns}


def rejected_by(review: Record, given: Record) -> Record:
    """The review with what a model adds: a rejection counts, an approval changes nothing."""
    if review["verdict"] == "rejected" or given.get("verdict") != "rejected":
        return review
    reason = str(given.get("rejection_reason") or "rejected by the critic")[:1000]
    return {**review, "verdict": "rejected", "rejection_reason": reason}
