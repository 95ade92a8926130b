"""Times as people type them: `2h`, `7d`, `2026-11-01`, `2026-11-01T08:00`, with or without zone."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.clock import local_stamp, zone
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.store.home import Home

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


_LENGTH = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?([smhdw]?)")


def duration(text: str) -> float:
    """Seconds: `90m`, `1.5h`, `5400`."""
    found = _LENGTH.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2] or "s"] if found else 0.0
    if seconds > 0:
        return seconds
    raise UsageError(f"not a length of time: {text[:80]!r}", hint="such as 90s, 30m, 1.5h or 2d")


def moment(text: str, home: Home) -> float:
    """The instant meant; a time without a zone is in the home's."""
    where = zone(home.settings.timezone)
    try:
        if ago := _AGO.fullmatch(text):
            instant = home.clock.now() - int(ago[1]) * _SECONDS[ago[2]]
        else:
            found = datetime.fromisoformat(text)
            instant = (found if found.tzinfo else found.replace(tzinfo=where)).timestamp()
        local_stamp(instant, where)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"not a time: {text[:80]!r}", hint="such as 2h, 7d, 2026-11-01 or 2026-11-01T08:00"
        ) from None
    return instant
