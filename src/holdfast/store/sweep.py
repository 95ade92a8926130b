"""Remove temporaries whose writers died.

Every writer makes its temporary under the lock of what it writes, so whoever gets that lock
knows that the temporary beside it belongs to nobody.  In a mailbox, where many deliver at the
same time, the temporary itself is locked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.errors import Busy, typed
from holdfast.store.appender import lock_name as log_lock
from holdfast.store.archive import lock_name as archive_lock
from holdfast.store.check import check
from holdfast.store.document import lock_name as document_lock
from holdfast.store.lock import Lock
from holdfast.store.segments import plain_name, series_of
from holdfast.store.shelves import is_mailbox, remove_if_dead

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.vfs import Dir


def sweep(home: Home, *, dry_run: bool = False) -> Iterator[str]:
    """The keys of what was removed."""
    for each in [found for found in check(home) if found.kind == "temporary"]:
        prefix, _, name = each.key.rpartition("/")
        with typed("removing a temporary", each.key), home.opened_dir(prefix) as directory:
            if directory is not None and _remove(home, directory, name, dry_run=dry_run):
                yield each.key


def _remove(home: Home, directory: Dir, name: str, *, dry_run: bool) -> bool:
    if is_mailbox(directory.names()):
        return remove_if_dead(home.vfs, directory, name, dry_run=dry_run)
    lock = Lock(directory, _lock_of(name), home.vfs, home.clock)
    try:
        lock.acquire(0.0)
        found = directory.stat(name) is not None
        if found and not dry_run:
            directory.unlink(name)
        return found
    except Busy:
        return False  # its writer lives
    finally:
        lock.close()


def _lock_of(temporary: str) -> str:
    written = temporary.removeprefix(".").removesuffix(".tmp")
    if plain_name(written) != written:
        return archive_lock(series_of(plain_name(written)))
    if written.endswith(".jsonl"):
        return log_lock(series_of(written))
    if written.endswith(".lease"):
        return f".{written}"
    return document_lock(written.lstrip(".").removesuffix(".view"))
