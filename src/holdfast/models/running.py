"""What every program that is asked gets: its time and its limits."""

from __future__ import annotations

from holdfast.models.protocol import Request
from holdfast.proc.limits import Limits

MOST_OUTPUT = 32 << 20
_GRACE_SHARE, _LONGEST_GRACE = 10, 2.0


def limits_for(request: Request, *, memory: int | None, output: int) -> Limits:
    """So that the call ends by its deadline: the last of the time is for ending in order."""
    grace = min(request.timeout / _GRACE_SHARE, _LONGEST_GRACE)
    return Limits(time=request.timeout - grace, grace=grace, memory=memory, output=output)
