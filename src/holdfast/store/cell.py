"""Where a view lives on files: `NAME` for people and `.NAME.view` for us.

Neither is ever synced.  The sidecar is written first and names the hash of the file that
goes with it and of the one before, so that a crash in between is not taken for an edit.  A
file that somebody edited is kept aside under `NAME.edited-<time>`, never overwritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.clock import utc_stamp
from holdfast.codec import MAX_DOCUMENT, DecodeError, decode, encode
from holdfast.errors import Corrupt, typed
from holdfast.store.document import lock_name, read_file, revision_of, write_temporary
from holdfast.store.failpoints import hit
from holdfast.store.lock import Lock
from holdfast.store.primitives import Cursor, Stamp

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir

_SUM = b',"sum":"'


def fingerprint(data: bytes) -> str:
    """The hash of a view's file; one that a crash cut just before its last LF has the same."""
    return revision_of(data.removesuffix(b"\n"))


class _Sidecar(NamedTuple):
    version: int
    stamp: Stamp
    content: str
    """Hash of the file that goes with it."""
    before: str | None
    """Hash of the file that was there when it was written."""


class FileCell:
    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, name
        self._vfs = place.tools.vfs
        self._sidecar = f".{name}.view"

    @property
    def key(self) -> str:
        return "/".join((*self._place.parts, self._name))

    def load(self, version: int) -> Stamp | None:
        found = self._load()
        return found[1] if found is not None and found[0] == version else None

    def peek(self) -> Stamp | None:
        """The stamp whatever its version, for `check`; None if it is damaged."""
        found = self._load()
        return None if found is None else found[1]

    def _load(self) -> tuple[int, Stamp] | None:
        with typed("reading", self.key), self._place.opened() as directory:
            found = self._read(directory) if directory else None
            if directory is None or found is None:
                return None
            shown = self._shown(directory) == found.content
        return found.version, found.stamp._replace(shown=shown)

    def stranger(self) -> str | None:
        with typed("reading", self.key), self._place.opened() as directory:
            if directory is None:
                return None
            shown = self._shown(directory)
            return None if shown in _accounted(self._read(directory)) else shown

    def save(
        self,
        version: int,
        stamp: Stamp,
        data: bytes,
        *,
        over: Cursor | None = None,
        ours: str | None = None,
    ) -> str | None:
        with typed("writing", self.key):
            directory = self._place.make()
            lock = Lock(directory, lock_name(self._name), self._vfs, self._place.tools.clock)
            try:
                with lock:
                    return self._save(directory, version, stamp, data, over, ours)
            finally:
                lock.close()
                self._place.close(directory)

    def _save(
        self,
        directory: Dir,
        version: int,
        stamp: Stamp,
        data: bytes,
        over: Cursor | None,
        ours: str | None,
    ) -> str | None:
        found = self._read(directory)
        seen = found.stamp.cursor if found and found.version == version else None
        if seen is not None and seen != over and seen.seq > stamp.cursor.seq:
            return None  # somebody was faster and saw more
        shown = self._shown(directory)
        aside = None
        if shown not in {*_accounted(found), ours, fingerprint(data)}:
            aside = self._keep_aside(directory)
        record = {
            "version": version,
            "log": stamp.log,
            "cursor": list(stamp.cursor),
            "content": fingerprint(data),
            "before": shown,
            "state": stamp.state,
        }
        self._put(directory, self._sidecar, _summed(encode(record, limit=MAX_DOCUMENT)))
        hit("view.stamped")
        self._put(directory, self._name, data)
        return aside

    def _put(self, directory: Dir, name: str, data: bytes) -> None:
        directory.rename(write_temporary(self._vfs, directory, name, data, durable=False), name)

    def _read(self, directory: Dir) -> _Sidecar | None:
        """The sidecar, if it is whole."""
        try:
            data = read_file(self._vfs, directory, self._sidecar) or b""
            body = data[: data.rfind(_SUM)] + b"}"
            found = decode(body, limit=MAX_DOCUMENT) if _summed(body) == data else None
        except (Corrupt, DecodeError):
            return None
        match found:
            case {
                "version": int(version),
                "log": str(log),
                "cursor": [int(seq), str(digest), str(segment), int(offset)],
                "content": str(content),
                "before": str() | None as before,
                "state": state,
            }:
                cursor = Cursor(seq, digest, segment, offset)
                return _Sidecar(version, Stamp(log, cursor, state), content, before)
            case _:
                return None

    def _shown(self, directory: Dir) -> str | None:
        """The hash of the file that people see; None if there is nothing in it."""
        try:
            data = read_file(self._vfs, directory, self._name)
        except Corrupt:
            return "too large to be ours"
        # A power cut can leave a file that was never synced empty, cut or full of NULs.
        if data is None or not data.strip(b"\0") or self._is_cut(data):
            return None
        return fingerprint(data)

    def _is_cut(self, data: bytes) -> bool:
        if not self._name.endswith(".json"):
            return False
        try:
            decode(data.rstrip(b"\n"), limit=MAX_DOCUMENT)
        except DecodeError:
            return True
        return False

    def _keep_aside(self, directory: Dir) -> str:
        when = utc_stamp(self._place.tools.clock.now()).replace(":", "").replace("-", "")
        name, count = f"{self._name}.edited-{when}", 1
        while directory.stat(name) is not None:
            count += 1
            name = f"{self._name}.edited-{when}-{count}"
        directory.link(self._name, name)
        self._place.tools.notice("view_edited", f"{self.key} was edited by hand, kept as {name}")
        return name

    def close(self) -> None:
        """Nothing is kept open between calls."""


def _accounted(found: _Sidecar | None) -> set[str | None]:
    """What may be shown without anybody having edited it; None is nothing at all."""
    return {None, found.content, found.before} if found else {None}


def _summed(body: bytes) -> bytes:
    """The sidecar's bytes: the record with the hash of itself as the last field."""
    return b'%b%b%b"}\n' % (body[:-1], _SUM, revision_of(body).encode())
