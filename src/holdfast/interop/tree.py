"""A tree of files that others made, to be read and not touched.  No link is followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

from holdfast.codec import MAX_DOCUMENT
from holdfast.errors import HoldfastError, NotFound, NotOurs, from_os
from holdfast.store.document import read_file
from holdfast.store.vfs import Dir, RealVfs


class File(NamedTuple):
    path: str
    """Below the top, with `/`."""
    size: int
    trouble: str
    """Why it cannot be read; empty if it can."""
    changed: float = 0.0
    """When its content changed last."""


class Tree:
    """What lies below a path; one file alone is a tree too."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        only = None
        if os.path.isfile(self.path):
            self.path, only = os.path.split(self.path)
        self._vfs = RealVfs()
        try:
            self._top = self._vfs.root(self.path)
        except FileNotFoundError:
            raise NotFound(f"there is no {path}", hint="look at the name", path=path) from None
        except OSError as error:
            raise from_os(error, f"reading {path}", path) from error
        try:
            self.files = list(self._below(self._top, "", only))
        except BaseException:
            self.close()
            raise

    def _below(self, directory: Dir, prefix: str, only: str | None = None) -> Iterator[File]:
        for name in sorted(directory.names()) if only is None else [only]:
            # Names with a dot are tools' and locks', ours among them.
            if name.startswith("."):
                continue
            path, found = f"{prefix}{name}", directory.stat(name)
            if found is None:
                continue
            if found.kind != "dir":
                yield _file(path, found.kind, found.size)._replace(changed=found.mtime)
                continue
            try:
                inner = directory.subdir(name)
            except (OSError, HoldfastError):
                yield _file(path, "folder that cannot be opened", 0)
                continue
            with closing(inner):
                yield from self._below(inner, f"{path}/")

    def read(self, path: str) -> bytes:
        """The bytes of a file; NotOurs says why it cannot be read."""
        *folders, name = path.split("/")
        try:
            with ExitStack() as opened:
                directory = self._top
                for folder in folders:
                    directory = opened.enter_context(closing(directory.subdir(folder)))
                data = read_file(self._vfs, directory, name)
        except OSError as error:
            raise from_os(error, f"reading {path}", path) from error
        if data is None:
            raise NotOurs(f"{path} is gone", hint="another process removed it", path=path)
        return data

    def close(self) -> None:
        self._top.close()

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _file(path: str, kind: str, size: int) -> File:
    shown = path.encode("utf-8", "backslashreplace").decode()
    if shown != path:
        return File(shown, size, "its name is not UTF-8")
    if kind != "file":
        return File(path, size, f"a {kind}, not a file")
    return File(path, size, f"larger than {MAX_DOCUMENT} bytes" if size > MAX_DOCUMENT else "")
