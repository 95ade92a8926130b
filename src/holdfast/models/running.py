"""What every program that is asked gets: its time, its limits, its environment."""

from __future__ import annotations

import os
import re

from holdfast.models.protocol import Request
from holdfast.proc.limits import Limits

MOST_OUTPUT = 32 << 20
_GRACE_SHARE, _LONGEST_GRACE = 10, 2.0
_SECRET = re.compile(r"HOLDFAST_.*(?:KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE)")


def limits_for(request: Request, *, memory: int | None, output: int) -> Limits:
    """So that the call ends by its deadline: the last of the time is for ending in order."""
    grace = min(request.timeout / _GRACE_SHARE, _LONGEST_GRACE)
    return Limits(time=request.timeout - grace, grace=grace, memory=memory, output=output)


def our_environment() -> dict[str, str]:
    """Ours, without what only we need to know."""
    return {name: value for name, value in os.environ.items() if not _SECRET.fullmatch(name)}
