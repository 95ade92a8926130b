"""A new file anywhere on this machine: whole or not at all, and never over another one."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from holdfast.errors import NotFound, UsageError, typed
from holdfast.store.document import read_file, write_temporary
from holdfast.store.vfs import RealVfs


def put_new(path: str, data: bytes, *, dry_run: bool = False) -> bool:
    """Whether the file was made now; the same content being there already is no failure."""
    folder, name = os.path.split(os.path.abspath(path))
    vfs = RealVfs()
    try:
        directory = vfs.root(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"there is no folder {folder}", hint="make it first, or name another one", path=path
        ) from None
    with typed(f"writing {path}", path):
        try:
            if directory.stat(name) is not None:
                return _is_same(read_file(vfs, directory, name), data, path)
            if dry_run:
                return True
            unique = f"{name}.{secrets.token_hex(4)}"
            temporary = write_temporary(vfs, directory, unique, data, durable=True)
            try:
                directory.link(temporary, name)
            except FileExistsError:
                return _is_same(read_file(vfs, directory, name), data, path)
            finally:
                with suppress(OSError):
                    directory.unlink(temporary)
            directory.sync()
            return True
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
