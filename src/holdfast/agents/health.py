"""In which order a scheduler should wake agents, and why.

Pure: standings in, an order out.  First those that can run and do well, those who have waited
longest before others; then those most of whose newest sessions failed; then who is blocked; then
who is at work already; last who is retired and not to be woken.  An agent without a history is
not worse than a good one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.agents.history import RECENT
from holdfast.agents.standing import Standing
from holdfast.text import plural

READY, FAILING, BLOCKED, BUSY, RETIRED = "ready", "failing", "blocked", "busy", "retired"
_ORDER = (READY, FAILING, BLOCKED, BUSY, RETIRED)


class Health(NamedTuple):
    agent: str
    group: str
    """ready, failing, blocked, busy or retired."""
    failed: int
    """Of its newest sessions."""
    of: int
    last_ended: str | None
    urgent: int
    reason: str

    @property
    def place(self) -> tuple[int, float, bool, str, str]:
        share = self.failed / self.of if self.of else 0.0
        return _ORDER.index(self.group), share, not self.urgent, self.last_ended or "", self.agent


def health(one: Standing) -> Health:
    recent = one.history["recent"]
    crashed = len(one.crashed)
    # What nobody has put on record yet counts as well.
    outcomes = [each["outcome"] for each in recent] + ["error"] * crashed
    outcomes = outcomes[-RECENT:]
    failed = sum(outcome != "completed" for outcome in outcomes)
    last = recent[-1]["ended_at"] if recent else None
    group, reason = _group(one, failed, len(outcomes))
    return Health(one.agent, group, failed, len(outcomes), last, one.urgent, reason)


def _group(one: Standing, failed: int, of: int) -> tuple[str, str]:
    tally = f"{failed} of its last {of} sessions failed" if failed else f"{of} of {of} completed"
    tally = tally if of else "no sessions yet"
    alive = [each.session for each in one.running if each.alive]
    if alive:
        what = ", ".join(f"{each['type']} session {each['session_id']}" for each in alive)
        return BUSY, f"at work: {what}"
    if (retired := one.history["retired"]) is not None:
        why = f": {retired['reason']}" if retired["reason"] else ""
        return RETIRED, f"since {retired['at']}{why}"
    if one.state == "busy":
        return BUSY, f"at work on {one.task or 'something'}"
    notes = [plural(one.urgent, "urgent message")] if one.urgent else []
    notes += [f"{session['session_id']} crashed" for session in one.crashed]
    said = "; ".join([tally, *notes])
    if one.blocked_by:
        return BLOCKED, f"blocked by {one.blocked_by}; {said}"
    return (FAILING if 2 * failed >= of > 1 else READY), said


def by_health(standings: Iterable[Standing]) -> list[Health]:
    """The order in which to wake them."""
    return sorted(map(health, standings), key=lambda each: each.place)
