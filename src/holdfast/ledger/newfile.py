"""A file anywhere on this machine, put there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from holdfast.errors import NotFound, UsageError, typed
from holdfast.store.document import read_file, write_temporary
from holdfast.store.vfs import Dir, RealVfs


def put_new(path: str, data: bytes, *, dry_run: bool = False) -> bool:
    """Whether the file was made now; the same content being there already is no failure."""
    with _folder(path) as (vfs, directory, name):
        if directory.stat(name) is not None:
            return _is_same(read_file(vfs, directory, name), data, path)
        if dry_run:
            return True
        temporary = write_temporary(vfs, directory, _unique(name), data, durable=True)
        try:
            directory.link(temporary, name)
        except FileExistsError:
            return _is_same(read_file(vfs, directory, name), data, path)
        finally:
            with suppress(OSError):
                directory.unlink(temporary)
        directory.sync()
        return True


def put_over(path: str, data: bytes, before: Callable[[bytes], None]) -> None:
    """Make the file, or make it anew after `before` has seen what is there."""
    with _folder(path) as (vfs, directory, name):
        old = read_file(vfs, directory, name)
        if old is not None:
            before(old)
        if old != data:
            temporary = write_temporary(vfs, directory, _unique(name), data, durable=True)
            directory.rename(temporary, name)
            directory.sync()


def _unique(name: str) -> str:
    return f"{name}.{secrets.token_hex(4)}"


@contextmanager
def _folder(path: str) -> Generator[tuple[RealVfs, Dir, str]]:
    """The open folder that a file is in, and the name of the file there."""
    folder, name = os.path.split(os.path.abspath(path))
    vfs = RealVfs()
    try:
        directory = vfs.root(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"there is no folder {folder}", hint="make it first, or name another one", path=path
        ) from None
    try:
        with typed(f"writing {path}", path):
            yield vfs, directory, name
    finally:
        directory.close()


def _is_same(there: bytes | None, data: bytes, path: str) -> bool:
    """False, since it is there already; UsageError if it holds something else."""
    if there == data:
        return False
    raise UsageError(
        f"{path} is there already and holds something else",
        hint="nothing is overwritten: name another file with --out, or move it away",
        path=path,
    )
