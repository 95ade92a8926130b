"""Limits that are changed where people wrote them: holdfast.toml, of which nothing else changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import ConfigError, UsageError
from holdfast.settings import SETTINGS, Table, amount, parse_settings, table

if TYPE_CHECKING:
    from holdfast.store.home import Home

Path = tuple[str, ...]
"""Of a setting: `("budget", "session_usd")`."""
Limits = dict[Path, float | None]
"""In USD; None is no limit."""
NONE = "none"
_MOST = 1e9


def limit(what: str, text: str) -> float | None:
    """A sum of money in USD, or None for `none`."""
    if text.strip().lower() == NONE:
        return None
    try:
        usd = float(text)
    except ValueError:
        usd = math.nan
    if not 0 <= usd < _MOST:
        raise UsageError(
            f"{what}: {text[:40]!r} is not a sum of money", hint="in USD, such as 2.5, or none"
        )
    return usd


def set_limits(
    home: Home, changes: Mapping[Path, float | None], *, dry_run: bool = False
) -> tuple[Limits, Limits]:
    """Write limits into the settings; what they were, and what they are now."""
    document = home.document(SETTINGS)
    before: Limits = {}

    def change(old: bytes | None) -> bytes:
        nonlocal before
        text = (old or b"").decode()
        found = parse_settings(text.encode()).tables
        before = {path: amount(table(found, *path[:-1]), path[-1]) for path in changes}
        news = {path: usd for path, usd in changes.items() if usd != before[path]}
        return _edited(text, found, news).encode() if news else old or b""

    if dry_run:
        text = document.read()
        change(None if text is None else text.data)
    else:
        document.update(change)
    return before, dict(changes)


def _edited(text: str, found: Table, changes: Mapping[Path, float | None]) -> str:
    tomlkit = cast("Any", import_module("tomlkit"))  # most commands never write settings
    document, wanted = tomlkit.parse(text), deepcopy(found)
    for path, usd in changes.items():
        _set(document, path, usd, lambda last: tomlkit.table(is_super_table=not last))
        _set(wanted, path, usd, lambda _: dict[str, Any]())
    new = str(tomlkit.dumps(document))
    new += "" if new.endswith("\n") else "\n"
    # Whatever the library did: nothing but the limits may be another.
    if _without_empty(parse_settings(new.encode()).tables) != _without_empty(wanted):
        raise ConfigError(
            f"{SETTINGS} is written in a way that cannot be changed safely",
            hint=f"set {', '.join('.'.join(path) for path in changes)} with an editor",
            path=SETTINGS,
        )
    return new


def _set(top: Any, path: Path, usd: float | None, new: Callable[[bool], Any]) -> None:
    *above, name = path
    at = top
    for depth, each in enumerate(above, 1):
        if each not in at:
            if usd is None:
                return
            at[each] = new(depth == len(above))
        at = at[each]
    if usd is not None:
        at[name] = usd
    elif name in at:
        del at[name]


def _without_empty(found: Table) -> Table:
    shown: Table = {}
    for name, each in found.items():
        value = _without_empty(cast("Table", each)) if isinstance(each, dict) else each
        if value != {}:
            shown[name] = value
    return shown
