"""What a command did to the files around it: counted by us, whatever it says itself.

    [agents.rio]
    measure.sources_archived = "inbox/archive/**/*.md"

in holdfast.toml counts the files that match after a session and did not exist before it, below
the directory in which the command runs.  Links are never followed, so a count cannot leave it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.codec import Record
from holdfast.errors import ConfigError
from holdfast.settings import SETTINGS

if TYPE_CHECKING:
    from holdfast.store.home import Home

MEASURED = ("sources_archived",)
MOST_NAMED = 100
MOST_SEEN = 100_000
_NOT_THEIRS = (".git", ".holdfast")


class Seen(NamedTuple):
    """The files below a directory."""

    changed: dict[str, float]
    """When each was changed, by its path from there."""
    complete: bool


def look(folder: str, home: str) -> Seen:
    """What is there, but for what we write ourselves."""
    changed: dict[str, float] = {}
    for number, path in enumerate(_files(folder, os.path.realpath(home))):
        if number >= MOST_SEEN:
            return Seen(changed, complete=False)
        try:
            found = os.lstat(path)
        except OSError:
            continue  # it went while we looked
        if stat.S_ISREG(found.st_mode):
            # Whoever copies a file with its time has changed it now all the same.
            changed[path[len(folder) :].lstrip("/")] = max(found.st_mtime, found.st_ctime)
    return Seen(changed, complete=True)


def _files(folder: str, home: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        real = os.path.realpath(place)
        folders[:] = [
            name for name in folders if name not in _NOT_THEIRS and os.path.join(real, name) != home
        ]
        yield from (os.path.join(place, name) for name in files)


class Count:
    """What there is to count of an agent, and what was there before its command."""

    def __init__(self, home: Home, agent: str, folder: str) -> None:
        self._patterns, self._folder, self._home = _patterns(home, agent), folder, home.path
        self._before = self._matching(look(folder, home.path)) if self._patterns else {}

    def since(self, began: float) -> Record:
        """How many new files match, by name, null for what is not to be counted; and the files
        that were written since then, with the first names."""
        seen = look(self._folder, self._home)
        now = self._matching(seen)
        found: Record = dict.fromkeys(MEASURED)
        for name in self._patterns:
            before, after = self._before[name], now[name]
            found[name] = None if before is None or after is None else len(after - before)
        names = sorted(name for name, changed in seen.changed.items() if changed >= began)
        # A name that is not UTF-8 cannot stand in a record.
        shown = [os.fsencode(name).decode("utf-8", "replace") for name in names[:MOST_NAMED]]
        touched = len(names) if seen.complete else None
        return {**found, "files_touched": shown, "files_touched_count": touched}

    def _matching(self, seen: Seen) -> dict[str, set[str] | None]:
        return {
            name: {path for path in seen.changed if pattern.fullmatch(path)}
            if seen.complete
            else None
            for name, pattern in self._patterns.items()
        }


def _patterns(home: Home, agent: str) -> dict[str, re.Pattern[str]]:
    wanted = home.settings.measure(agent)
    if unknown := sorted(wanted.keys() - set(MEASURED)):
        raise _wrong(f"measure.{unknown[0][:60]} of {agent} is not known")
    return {name: _compiled(agent, name, value) for name, value in wanted.items()}


def _compiled(agent: str, name: str, value: object) -> re.Pattern[str]:
    parts = value.split("/") if isinstance(value, str) else [""]
    if not all(parts) or ".." in parts:
        raise _wrong(f"measure.{name} of {agent} is not a pattern below the working directory")
    steps = ["(?:[^/]+/)*" if part == "**" else _step(part) + "/" for part in parts[:-1]]
    last = "(?:[^/]+/)*[^/]+" if parts[-1] == "**" else _step(parts[-1])
    return re.compile("".join(steps) + last, re.DOTALL)


def _step(part: str) -> str:
    """One name of a pattern; no wildcard of it reaches over a slash."""
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)) for letter in part)


def _wrong(what: str) -> ConfigError:
    hint = 'write [agents.NAME] and below it measure.sources_archived = "archive/**/*.md"'
    return ConfigError(f"{SETTINGS}: {what}", hint=hint, path=SETTINGS)
