"""What holdfast.toml says beyond what the store itself needs; checked where it is used."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import ConfigError
from holdfast.store.home import SETTINGS

if TYPE_CHECKING:
    from holdfast.store.home import Home

Table = dict[str, Any]
READ: Table = {
    "format": 1,
    "timezone": "",
    "heartbeat": "",
    "offline_after": "",
    "stale_after": "",
    "alert_every": "",
    "layout": "",
    "ledger": {"extra_events": [], "throttle": ""},
    "log": {"rotate_at": ""},
    "budget": {"session_usd": 0.0, "agent_day_usd": 0.0, "fleet_day_usd": 0.0},
    "tasks": {"park_after": 0},
    "models": {"default": ""},
    "agents": {
        "*": {
            "session_usd": 0.0,
            "day_usd": 0.0,
            "model": "",
            "measure": {"sources_archived": ""},
        }
    },
}
"""Every setting that somebody reads, with any value; `*` stands for the name of an agent."""


def settings(home: Home, word: str) -> Table:
    """The whole of it, for one who looks for `word`; the store has refused what cannot be read.

    Empty where the word is not: few homes say anything of it, and the others need not be parsed.
    """
    text = home.document(SETTINGS).read()
    if text is None or word.encode() not in text.data:
        return {}
    return tomllib.loads(text.data.decode())


def table(found: Table, *names: str) -> Table:
    """A table in a table, such as `[agents.rio]`; empty if there is none."""
    for depth, name in enumerate(names, 1):
        below = found.get(name, {})
        if not isinstance(below, dict):
            path = ".".join(names[:depth])
            raise ConfigError(
                f"{SETTINGS}: {path} is not a table", hint=f"begin it by [{path}]", path=SETTINGS
            )
        found = cast("Table", below)
    return found


def amount(found: Table, name: str) -> float | None:
    """A sum of money in USD; None if nothing is said."""
    value = found.get(name)
    if value is None:
        return None
    if type(value) in (int, float) and math.isfinite(value) and value >= 0:
        return float(value)
    raise ConfigError(
        f"{SETTINGS}: {name} is not a sum of money",
        hint=f"write it in USD, as {name} = 2.5",
        path=SETTINGS,
    )


def unread(found: Table, known: Table = READ, above: str = "") -> Iterator[tuple[str, str]]:
    """Settings that nobody reads, by their full names, and what may have been meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - hot verbs read settings too

    for name, value in found.items():
        read = known.get(name, known.get("*"))
        if read is None:
            near = get_close_matches(name, known, 1)
            yield above + name, above + near[0] if near else ""
        elif isinstance(read, dict) and isinstance(value, dict):
            yield from unread(cast("Table", value), cast("Table", read), f"{above}{name}.")
