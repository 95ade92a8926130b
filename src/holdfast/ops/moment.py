"""Times as people type them: `2h`, `7d`, `2026-11-01`, `2026-11-01T08:00`, with or without zone."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.clock import local_stamp, zone
from holdfast.errors import UsageError
from holdfast.text import duration

if TYPE_CHECKING:
    from holdfast.store.home import Home


def moment(text: str, home: Home) -> float:
    """The instant meant; a time without a zone is in the home's."""
    where = zone(home.settings.timezone)
    try:
        if text[-1:] in ("s", "m", "h", "d", "w"):
            instant = home.clock.now() - duration(text)
        else:
            found = datetime.fromisoformat(text)
            instant = (found if found.tzinfo else found.replace(tzinfo=where)).timestamp()
        local_stamp(instant, where)
    except (UsageError, ValueError, OverflowError, OSError):
        raise UsageError(
            f"not a time: {text[:80]!r}", hint="such as 2h, 7d, 2026-11-01 or 2026-11-01T08:00"
        ) from None
    return instant
