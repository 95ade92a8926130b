"""A home opened with its layout: one of our own, or the tree of another system where it lies."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.clock import zone
from holdfast.errors import ConfigError, NotFound, from_os
from holdfast.layout import HOLDFAST, Layout, preset
from holdfast.settings import FORMAT, SETTINGS, Settings
from holdfast.store.home import Home, local_zone
from holdfast.store.vfs import RealVfs

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.clock import Clock

Kept = TypeVar("Kept")
_MOST_KEPT = 10_000

_SETTINGS = """\
# A tree of {layout} that Holdfast works on where it lies.
format = {format}
timezone = "{timezone}"
layout = "{layout}"
"""


class Opened(NamedTuple):
    home: Home
    layout: Layout
    adopted: bool
    """Whether the tree has settings of ours: then it is ours to change."""


class Shared:
    """One open home for all calls of a server, from any thread.

    It is opened again when `holdfast.toml` changed or another folder stands at its path.
    """

    def __init__(self, path: str, said: str | None, clock: Clock) -> None:
        self.path, self._said, self._clock = os.path.abspath(path), said, clock
        self._lock = Lock()
        self._current: Opened | None = None
        self._version: tuple[int, ...] = ()
        self._users: dict[int, int] = {}
        """Calls under way by the identity of the home they use; the last one closes an old one."""
        self._kept: dict[tuple[str, str], tuple[str, Any]] = {}
        """Values of `once`, each with the version of the log it was made from."""

    def take(self, *, create: bool = False) -> Opened:
        """The home, until `leave`."""
        with self._lock:
            version = self._stands()
            if self._current is None or version != self._version:
                made = open_home(self.path, self._said, self._clock, create=create)
                self._retire()
                # As it was before it was read: a change since then is seen by the next call.
                self._current, self._version = made, version
            opened = self._current
            self._users[id(opened)] = self._users.get(id(opened), 0) + 1
            return opened

    def leave(self, opened: Opened) -> None:
        with self._lock:
            self._users[id(opened)] -= 1
            if opened is not self._current and not self._users[id(opened)]:
                del self._users[id(opened)]
                opened.home.close()

    def once(self, home: Home, name: str, key: str, make: Callable[[], Kept]) -> Kept:
        # Looked at before `make` reads: a line in between makes the next call read again.
        version = home.version(key)
        known = self._kept.get((name, key))
        if known is None or known[0] != version:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            known = self._kept[name, key] = version, make()
        return known[1]

    def close(self) -> None:
        """Close it when the last call leaves it; the next one would open it again."""
        with self._lock:
            self._retire()

    def _retire(self) -> None:
        old, self._current = self._current, None
        if old is not None and not self._users.get(id(old)):
            self._users.pop(id(old), None)
            old.home.close()

    def _stands(self) -> tuple[int, ...]:
        """What is another tuple after a change of the settings or of the folder."""
        found: list[int] = []
        for path in (self.path, os.path.join(self.path, SETTINGS)):
            with suppress(OSError):
                at = os.stat(path)
                folder = path is self.path
                found += [at.st_dev, at.st_ino]
                found += [] if folder else [at.st_mtime_ns, at.st_ctime_ns, at.st_size]
        return tuple(found)


def open_home(
    path: str | None,
    said: str | None,
    clock: Clock,
    *,
    create: bool = False,
    timezone: str | None = None,
) -> Opened:
    """The home and its layout; `said` is the layout that the caller expects, if any."""
    asked = preset(said) if said is not None else None
    if asked is not None and asked is not HOLDFAST:
        assert path is not None
        return _foreign(os.path.abspath(path), asked, clock, create=create, timezone=timezone)
    home = Home.open(path, create=create, timezone=timezone, clock=clock)
    return _agreed(home, asked)


def _agreed(home: Home, asked: Layout | None) -> Opened:
    """The home by the layout that its settings name, which stays, like its format."""
    try:
        named = home.settings.layout
        found = HOLDFAST if named is None else preset(named)
        if asked is not None and asked is not found:
            raise ConfigError(
                f"{home.path} has the layout {found.name}, not {asked.name}",
                hint="leave --layout out, or name another place with --home",
                path=home.path,
            )
    except BaseException:
        home.close()
        raise
    return Opened(home, found, adopted=True)


def _foreign(
    path: str, layout: Layout, clock: Clock, *, create: bool, timezone: str | None
) -> Opened:
    if create and not layout.writable:
        raise ConfigError(
            f"a tree of {layout.name} is only read where it lies",
            hint="leave --layout out to write to a home of Holdfast's own",
            path=path,
        )
    home = _looked_at(path, layout, clock, create=create)
    try:
        adopted = home.root.stat(SETTINGS) is not None
        if create and not adopted:
            zone(timezone := timezone or local_zone())
            text = _SETTINGS.format(layout=layout.name, format=FORMAT, timezone=timezone)
            home.document(SETTINGS).update(lambda old: old or text.encode())
            adopted = True
    except BaseException:
        home.close()
        raise
    if not adopted:
        return Opened(home, layout, adopted=False)
    home.close()
    return _agreed(Home.open(path, clock=clock), layout)


def _looked_at(path: str, layout: Layout, clock: Clock, *, create: bool) -> Home:
    """The tree as it is, by settings that nobody made."""
    vfs = RealVfs()
    try:
        root = vfs.root(path, create=create)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"no tree of {layout.name} at {path}", hint="name its top with --home", path=path
        ) from None
    except OSError as error:
        raise from_os(error, f"opening {path}", path) from error
    return Home(path, root, Settings(timezone=local_zone()), vfs, clock)
