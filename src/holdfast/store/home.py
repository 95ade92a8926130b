"""A home: one directory that holds everything, opened as primitives by key.

The home is found in this order: the path that was given, `$HOLDFAST_HOME`, the nearest
`.holdfast/` at or above the working directory, the user's data directory.  It decides once,
when it is made, which time zone its days have.
"""

from __future__ import annotations

import os
import re
import secrets
import tomllib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import NamedTuple, cast

from holdfast import mask
from holdfast.clock import Clock, SystemClock, local_stamp, zone
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    NewerFormat,
    NotFound,
    NotOurs,
    from_os,
    typed,
)
from holdfast.ids import key_parts
from holdfast.store import vfs as files
from holdfast.store.cell import FileCell
from holdfast.store.document import FileDocument
from holdfast.store.lease import FileLease
from holdfast.store.log import ROTATE_AT, FileLog
from holdfast.store.mailbox import FileMailbox
from holdfast.store.place import Place, Tools
from holdfast.store.primitives import START, TRIES, Line, Log
from holdfast.store.segments import log_at
from holdfast.store.sheet import FileSheet
from holdfast.store.shelves import is_mailbox
from holdfast.store.vfs import Dir, RealVfs, Vfs
from holdfast.store.view import Shape, State, View

FORMAT = 1
SETTINGS = "holdfast.toml"
_MASK_KEY = ".mask-key"
_AUDIT = "audit"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"([0-9]{1,12}) ?([KMG]i?B|B?)")
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9} | {
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_LARGEST = 1 << 40


class Settings(NamedTuple):
    format: int = FORMAT
    timezone: str = "UTC"
    heartbeat: float = 60.0
    """How often a living agent is expected to be heard of, in seconds."""
    offline_after: float = 300.0
    """After how many seconds of silence it counts as offline."""
    extra_events: tuple[str, ...] = ()
    """Event types of the ledger beside the built-in ones."""
    rotate_at: int = ROTATE_AT
    """After how many bytes a log goes on in the next file."""


class Home:
    """The file backend of the store; see `primitives.Backend`."""

    def __init__(self, path: str, root: Dir, settings: Settings, vfs: Vfs, clock: Clock) -> None:
        self.path, self.settings, self.clock = path, settings, clock
        self.root, self.vfs = root, vfs
        where = zone(settings.timezone)

        def local(instant: float) -> str:
            return local_stamp(instant, where)

        tools = Tools(vfs, clock, mask.nothing, local, _unheard)
        masker = mask.by_key_name(lru_cache(maxsize=1)(lambda: _mask_key(Place(root, (), tools))))
        self._tools = tools._replace(mask=masker, notice=self.notice)
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
    ) -> Home:
        """Open the home; `create` makes it first if it is not there."""
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
            settings = _settings(root, vfs, clock, timezone, create=create)
            if settings is None:
                raise _no_home(path)
            return cls(path, root, settings, vfs, clock)
        except BaseException:
            root.close()
            raise

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
        return View(log, self.cell(key), shape, self.clock)

    def lease(self, key: str) -> FileLease:
        *parts, name = key_parts(key)
        return FileLease(self._place(parts), name)

    def mailbox(self, key: str, *, tries: int = TRIES) -> FileMailbox:
        return FileMailbox(self._place(key_parts(key)), tries=tries)

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

    def today(self) -> str:
        """The day by the home's clock and zone."""
        return self.day(self.clock.now())

    def day(self, instant: float) -> str:
        """The day that an instant belongs to, by the home's zone."""
        return self._tools.local(instant)[:10]

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
        document.update(lambda old: old or _TEMPLATE.format(FORMAT, chosen).encode())
        text = document.read()
        assert text is not None
    return parse_settings(text.data)


def parse_settings(data: bytes) -> Settings:
    """The settings in the text of holdfast.toml."""
    try:
        found = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{SETTINGS} cannot be read: {error}", hint="mend it with an editor", path=SETTINGS
        ) from None
    made_by = found.get("format")
    if type(made_by) is not int:
        raise ConfigError(
            f"{SETTINGS} has no format number", hint="add `format = 1`", path=SETTINGS
        )
    if made_by > FORMAT:
        raise NewerFormat(
            f"this home has format {_shown(made_by)}, this Holdfast knows {FORMAT}",
            hint="upgrade Holdfast; nothing was touched",
            path=SETTINGS,
        )
    standard = Settings()
    named = found.get("timezone", standard.timezone)
    timezone = named if isinstance(named, str) else _shown(named)
    try:
        zone(timezone)
    except ConfigError as error:
        raise ConfigError(f"{SETTINGS}: {error}", hint=error.hint, path=SETTINGS) from None
    return Settings(
        made_by,
        timezone,
        _seconds(found, "heartbeat", standard.heartbeat),
        _seconds(found, "offline_after", standard.offline_after),
        _words(found.get("ledger"), "extra_events"),
        _bytes(found.get("log"), "rotate_at", standard.rotate_at),
    )


def _bytes(table: object, name: str, standard: int) -> int:
    if table is None:
        return standard
    value = cast("dict[str, object]", table).get(name, standard) if isinstance(table, dict) else ""
    match = _SIZE.fullmatch(str(value))
    size = int(match[1]) * _SIZES[match[2]] if match and type(value) in (str, int) else 0
    if 0 < size <= _LARGEST:
        return size
    raise ConfigError(
        f"{SETTINGS}: {name} under [log] is not a size",
        hint=f'write it as {name} = "100MB"; KB, MB, GB, KiB, MiB and GiB are known',
        path=SETTINGS,
    )


def _shown(value: object) -> str:
    """A value of somebody's settings in a message."""
    try:
        return repr(value)
    except ValueError:
        return "an endless number"  # Python refuses to write thousands of digits


def _words(table: object, name: str) -> tuple[str, ...]:
    match table:
        case None:
            return ()
        case dict():
            values = cast("dict[str, object]", table).get(name, [])
            if isinstance(values, list) and all(
                isinstance(v, str) for v in cast("list[object]", values)
            ):
                return tuple(cast("list[str]", values))
        case _:
            pass
    raise ConfigError(
        f"{SETTINGS}: {name} under [ledger] is not a list of words",
        hint=f'write it as {name} = ["deploy", "review"]',
        path=SETTINGS,
    )


def _seconds(found: dict[str, object], name: str, standard: float) -> float:
    value = found.get(name, standard)
    number, unit = (value[:-1], value[-1:]) if isinstance(value, str) else (value, "s")
    try:
        seconds = float(str(number)) * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = 0.0
    if 0 < seconds < _UNITS["d"] * 3650:
        return seconds
    raise ConfigError(
        f"{SETTINGS}: {name} = {_shown(value)} is no duration",
        hint='write it as "300s" or "5m"',
        path=SETTINGS,
    )


def _mask_key(place: Place) -> bytes:
    """The key of the tags that stand for secrets; made anew if it is not there."""
    document = FileDocument(place, _MASK_KEY)
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
            f"{_MASK_KEY} is damaged",
            hint="restore it from a backup, or remove it: then the same secret gets another tag",
            path=_MASK_KEY,
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


_TEMPLATE = """\
# A Holdfast home.  `format` and `timezone` stay as they are once there is data.
format = {}
timezone = "{}"

# How often an agent is expected to be heard of, and when silence counts as offline.
heartbeat = "60s"
offline_after = "300s"

# Event types of the ledger beside heartbeat, task_start, task_result, error and info.
# [ledger]
# extra_events = ["deploy", "review"]

# After how much a log goes on in the next file.
# [log]
# rotate_at = "100MB"
"""
