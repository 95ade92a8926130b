"""What holdfast.toml says beyond what the store itself needs; checked where it is used."""

from __future__ import annotations

import math
import tomllib
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import ConfigError
from holdfast.store.home import SETTINGS

if TYPE_CHECKING:
    from holdfast.store.home import Home

Table = dict[str, Any]


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
