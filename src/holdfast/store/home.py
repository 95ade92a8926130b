"""A home: one directory that holds everything, opened as primitives by key.

The home is found in this order: the path that was given, `$HOLDFAST_HOME`, the nearest
`.holdfast/` at or above the working directory, the user's data directory.  It decides once,
when it is made, which time zone its days have.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import lru_cache

from holdfast import mask
from holdfast.clock import Clock, SystemClock, local_stamp, zone
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    NotFound,
    NotOurs,
    from_os,
    typed,
)
from holdfast.ids import key_parts
from holdfast.process import Owner
from holdfast.settings import FORMAT, SETTINGS, TEMPLATE, Settings, parse_settings
from holdfast.store import vfs as files
from holdfast.store.backend import Peek, Value
from holdfast.store.blob import FileBlob
from holdfast.store.cell import FileCell
from holdfast.store.document import FileDocument
from holdfast.store.lease import FileLease
from holdfast.store.log import FileLog
from holdfast.store.mailbox import FileMailbox
from holdfast.store.peek import peek
from holdfast.store.place import Place, Tools
from holdfast.store.primitives import START, TRIES, Instant, Line, Log
from holdfast.store.segments import log_at
from holdfast.store.sheet import FileSheet
from holdfast.store.shelves import is_mailbox
from holdfast.store.vfs import Dir, RealVfs, Stat, Vfs
from holdfast.store.view import Shape, State, View

MASK_KEY = ".mask-key"
_AUDIT = "audit"


class Home:
    """The file backend of the store; see `backend.Backend`."""

    def __init__(
        self,
        path: str,
        root: Dir,
        settings: Settings,
        vfs: Vfs,
        clock: Clock,
        seen: Stat | None = None,
        host: str = "",
    ) -> None:
        self.path, self.settings, self.clock = path, settings, clock
        self.url = f"file://{path}"
        self.root, self.vfs = root, vfs
        self._settings_seen = seen
        where = zone(settings.timezone)

        def local(instant: float) -> str:
            return local_stamp(instant, where)

        tools = Tools(vfs, clock, mask.nothing, local, _unheard)
        self.secret = lru_cache(maxsize=1)(lambda: _mask_key(Place(root, (), tools)))
        """A key of this home alone that stands in no log: of its tags, and of proofs."""
        masker = mask.by_key_name(self.secret)
        self._tools = tools._replace(mask=masker, notice=self.notice, host=host)
        self._audit = self.log(_AUDIT)
        self._noticed: set[tuple[str, str]] = set()

    @classmethod
    def open(
        cls,
        path: str | None = None,
        *,
        create: bool = False,
        timezone: str | None = None,
        clock: Clock | None = None,
        vfs: Vfs | None = None,
        host: str = "",
    ) -> Home:
        """Open the home; `create` makes it first if it is not there.

        `host` is the name by which other machines know this one, if it is not the system's.
        """
        path = os.path.abspath(path or find())
        vfs, clock = vfs or RealVfs(), clock or SystemClock()
        try:
            root = vfs.root(path, create=create)
        except FileNotFoundError:
            raise _no_home(path) from None
        except NotADirectoryError:
            raise NotOurs(
                f"{path} is not a directory",
                hint="name another place with --home, or move it away",
                path=path,
            ) from None
        except OSError as error:
            raise from_os(error, f"opening the home {path}", path) from error
        try:
            with typed("opening the home", path):
                seen = root.stat(SETTINGS)
            settings = _settings(root, vfs, clock, timezone, create=create)
            if settings is None:
                raise _no_home(path)
            return cls(path, root, settings, vfs, clock, seen, host)
        except BaseException:
            root.close()
            raise

    def current_settings(self) -> Settings:
        """The settings as they are now, for limits that hold at once; read again if changed."""
        with typed("reading", SETTINGS):
            seen = self.root.stat(SETTINGS)
        if seen not in (None, self._settings_seen):
            # Stamped before the read: a later change is seen by the next call.
            self._settings_seen = seen
            found = _settings(self.root, self.vfs, self.clock, None, create=False)
            self.settings = found or self.settings
        return self.settings

    def log(self, key: str, *, rotate_at: int | None = None) -> FileLog:
        parts, series = log_at(key)
        place = self._place(parts)
        if parts[:1] == [_AUDIT]:
            place = place._replace(tools=place.tools._replace(notice=_unheard))
        return FileLog(place, series, rotate_at=rotate_at or self.settings.rotate_at)

    def document(self, key: str) -> FileDocument:
        *parts, name = key_parts(key)
        return FileDocument(self._place(parts), name)

    def sheet(self, key: str) -> FileSheet:
        *parts, name = key_parts(key)
        return FileSheet(self._place(parts), name)

    def cell(self, key: str) -> FileCell:
        *parts, name = key_parts(key)
        return FileCell(self._place(parts), name)

    def view(self, key: str, log: Log, shape: Shape[State]) -> View[State]:
        return View(log, shape, self.clock, [(self.cell(key), shape.render)])

    def lease(self, key: str) -> FileLease:
        *parts, name = key_parts(key)
        return FileLease(self._place(parts), name)

    def mailbox(self, key: str, *, tries: int = TRIES) -> FileMailbox:
        return FileMailbox(self._place(key_parts(key)), tries=tries)

    def blob(self, key: str) -> FileBlob:
        *parts, name = key_parts(key)
        return FileBlob(self._place(parts), name)

    def peek(self, view: str, log: str, shape: Shape[State]) -> Peek[State]:
        lines = self.log(log)
        return peek(lines, self.cell(view), shape, self.clock, lines.ends_at)

    def names(self, prefix: str = "") -> list[str]:
        place = self._place(key_parts(prefix) if prefix else [])
        with typed("listing", prefix), place.opened() as directory:
            found = directory.names() if directory else []
        return [] if is_mailbox(found) else sorted(name for name in found if name[0] != ".")

    def version(self, key: str) -> str:
        *parts, name = key_parts(key)
        with typed("looking at", key):
            with self._place(parts).opened() as directory:
                found = directory.stat(name) if directory else None
            if name.endswith(".jsonl") or (found is not None and found.kind == "dir"):
                parts, series = log_at(key)
                with self._place(parts).opened() as directory:
                    newest = series.segments(directory)[-1:] if directory else []
                    found = directory.stat(newest[0].filename) if directory and newest else None
        return "" if found is None else f"{found.inode:x}.{found.size:x}.{found.mtime}"

    def scratch(self, key: str) -> str:
        place = self._place(key_parts(key))
        with typed("making", key):
            place.close(place.make())
        return f"{self.path}/{key}"

    def keys(self, prefix: str = "") -> list[str]:
        """The keys of all visible files below `prefix`, in order; messages have none."""
        place = self._place(key_parts(prefix) if prefix else [])
        with typed("listing", prefix), place.opened() as directory:
            return sorted(_walk(directory, prefix)) if directory else []

    @contextmanager
    def opened_dir(self, key: str = "") -> Generator[Dir | None]:
        """A directory of the home as it is, for `check` and `sweep`."""
        with self._place(key_parts(key) if key else []).opened() as directory:
            yield directory

    def mask(self, value: Value) -> Value:
        """The value with a tag for each secret, as the logs would show it."""
        return self._tools.mask({"text": value})["text"]

    def now(self) -> Instant:
        """This moment by the clock of the store; `clock` is for stamps and for waiting."""
        return self._tools.now()

    def alive(self, owner: Owner) -> bool | None:
        return self._tools.alive(owner)

    def day(self, instant: float | None = None) -> str:
        """The day of an instant, or today, by the home's zone."""
        return self._tools.local(self.clock.now() if instant is None else instant)[:10]

    def notice(self, word: str, detail: str) -> None:
        """Tell the audit log of something odd, once; failing to must not hurt who noticed."""
        if (word, detail) in self._noticed:
            return
        self._noticed.add((word, detail))
        with suppress(HoldfastError):
            newest = self._audit.segments()[-1:]
            known = self._audit.read(START._replace(segment=newest[0])) if newest else ()
            told = (line.record for line in known if isinstance(line, Line))
            if not any((r.get("event"), r.get("detail")) == (word, detail) for r in told):
                self._audit.append({"event": word, "detail": detail})

    def _place(self, parts: list[str]) -> Place:
        return Place(self.root, tuple(parts), self._tools)

    def close(self) -> None:
        self._audit.close()
        self.root.close()

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def find() -> str:
    """Where the home is when nobody says."""
    if given := os.environ.get("HOLDFAST_HOME"):
        return given
    here = _working_directory()
    while here:
        candidate = os.path.join(here, ".holdfast")
        if os.path.isdir(candidate):
            if not files.owned_by_us(candidate):
                raise NotOurs(
                    f"{candidate} belongs to somebody else",
                    hint="name the home you want with --home or HOLDFAST_HOME",
                    path=candidate,
                )
            return candidate
        above = os.path.dirname(here)
        if above == here:
            break
        here = above
    from platformdirs import user_data_dir  # noqa: PLC0415 - a millisecond most calls need not pay

    return user_data_dir("holdfast")


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""  # it was deleted under us


def local_zone() -> str:
    """The machine's zone by name, for a home that is being made."""
    name = os.environ.get("TZ") or os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    try:
        zone(name)
    except ConfigError:
        return "UTC"
    return name.replace("Etc/UTC", "UTC")


def _settings(
    root: Dir, vfs: Vfs, clock: Clock, timezone: str | None, *, create: bool
) -> Settings | None:
    plain = Tools(vfs, clock, mask.nothing, str, _unheard)
    place = Place(root, (), plain)
    document = FileDocument(place, SETTINGS)
    text = document.read()
    if text is None:
        if not create:
            return None
        chosen = local_zone() if timezone is None else timezone
        zone(chosen)
        document.update(lambda old: old or TEMPLATE.format(FORMAT, chosen).encode())
        text = document.read()
        assert text is not None
    return parse_settings(text.data)


def _mask_key(place: Place) -> bytes:
    """The key of the tags that stand for secrets; made anew if it is not there."""
    document = FileDocument(place, MASK_KEY)
    text = document.read()
    if text is None:
        document.update(lambda old: old or secrets.token_hex(32).encode())
        text = document.read()
    try:
        key = bytes.fromhex(text.data.decode() if text else "")
    except ValueError:
        key = b""
    if len(key) < 16:
        raise ConfigError(
            f"{MASK_KEY} is damaged",
            hint="restore it from a backup, or remove it: then the same secret gets another tag",
            path=MASK_KEY,
        )
    return key


def _unheard(word: str, detail: str) -> None:
    """The notice of a store that has no audit log yet."""


def _walk(directory: Dir, prefix: str) -> list[str]:
    found: list[str] = []
    names = directory.names()
    if is_mailbox(names):
        return []
    for name in names:
        entry = None if name.startswith(".") else directory.stat(name)
        key = f"{prefix}/{name}" if prefix else name
        if entry is None:
            continue
        if entry.kind == "dir":
            inner = directory.subdir(name)
            try:
                found += _walk(inner, key)
            finally:
                inner.close()
        elif entry.kind == "file":
            found.append(key)
    return found


def _no_home(path: str) -> NotFound:
    return NotFound(f"no Holdfast home at {path}", hint="make one with `holdfast init`", path=path)
