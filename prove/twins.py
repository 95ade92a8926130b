"""Whether the simulated file system answers as the real one does, call by call.

The same random calls go to a `SimVfs` and to the `RealVfs` on a scratch directory; results
and errors have to be equal.  Inode numbers are compared by which calls share one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.store import vfs as files
from holdfast.store.vfs import RealVfs
from prove.frame import scratch
from prove.sim import SimFs

_NAMES = ("a", "b", "c", "sub")
_FLAGS = (
    files.READ,
    files.CREATE,
    files.CREATE_NEW,
    files.APPEND,
    files.CREATE_NEW | files.APPEND,
)


class Twin:
    """One of the two: a directory, open files by number, and names for inodes."""

    def __init__(self, vfs: Any, root: Any) -> None:
        self._vfs, self._dirs, self._fds = vfs, [root], []
        self._seen: dict[int, int] = {}

    def do(self, call: str, *arguments: Any) -> Any:
        """The result of a call, or the kind of its failure."""
        try:
            return getattr(self, call)(*arguments)
        except HoldfastError as error:
            return type(error).__name__
        except OSError as error:
            return f"errno {error.errno}"

    def _inode(self, number: int) -> int:
        return self._seen.setdefault(number, len(self._seen))

    def subdir(self, where: int, name: str, create: bool) -> str:
        found = self._dirs[where % len(self._dirs)].subdir(name, create=create)
        self._dirs.append(found)
        return "directory"

    def open(self, where: int, name: str, flags: int) -> int:
        fd = self._dirs[where % len(self._dirs)].open(name, flags)
        self._fds.append(fd)
        return self._inode(self._vfs.inode(fd))

    def stat(self, where: int, name: str) -> Any:
        found = self._dirs[where % len(self._dirs)].stat(name)
        if found is None:
            return None
        return self._inode(found.inode), found.size if found.kind == "file" else 0, found.kind

    def names(self, where: int) -> list[str]:
        return sorted(self._dirs[where % len(self._dirs)].names())

    def entry(self, where: int, call: str, *names: str) -> None:
        return getattr(self._dirs[where % len(self._dirs)], call)(*names)

    def move(self, where: int, name: str, to: int, new: str) -> None:
        source, target = (self._dirs[each % len(self._dirs)] for each in (where, to))
        source.move(name, target, new)

    def sync_dir(self, where: int) -> None:
        self._dirs[where % len(self._dirs)].sync()

    def file(self, which: int, call: str, *arguments: Any) -> Any:
        if not self._fds:
            return "none open"
        result = getattr(self._vfs, call)(self._fds[which % len(self._fds)], *arguments)
        return self._inode(result) if call == "inode" else result

    def close(self, which: int) -> str:
        if not self._fds:
            return "none open"
        self._vfs.close(self._fds.pop(which % len(self._fds)))
        return "closed"

    def close_all(self) -> None:
        for fd in self._fds:
            self._vfs.close(fd)
        for directory in self._dirs[1:]:
            directory.close()


def _chance(rng: Random) -> tuple[Any, ...]:
    """One call with its arguments."""
    where, which, name = rng.randrange(4), rng.randrange(6), rng.choice(_NAMES)
    data = bytes([65 + rng.randrange(26)]) * rng.randrange(1, 20)
    calls: list[Callable[[], tuple[Any, ...]]] = [
        lambda: ("open", where, name, rng.choice(_FLAGS)),
        lambda: ("open", where, name, files.CREATE),
        lambda: ("file", which, "write", data),
        lambda: ("file", which, "pwrite", data, rng.randrange(30)),
        lambda: ("file", which, "pread", rng.randrange(40), rng.randrange(30)),
        lambda: ("file", which, rng.choice(("size", "inode", "sync", "try_lock", "unlock"))),
        lambda: ("file", which, "truncate", rng.randrange(30)),
        lambda: ("entry", where, "link", name, rng.choice(_NAMES[:3])),
        lambda: ("entry", where, "rename", rng.choice(_NAMES[:3]), rng.choice(_NAMES[:3])),
        lambda: ("entry", where, "exchange", name, rng.choice(_NAMES[:3])),
        lambda: ("move", where, rng.choice(_NAMES), rng.randrange(4), rng.choice(_NAMES)),
        lambda: ("entry", where, "unlink", name),
        lambda: ("stat", where, name),
        lambda: ("names", where),
        lambda: ("subdir", where, rng.choice(("sub", "a")), rng.random() < 0.5),
        lambda: ("sync_dir", where),
        lambda: ("close", which),
    ]
    return rng.choice(calls)()


def differences(seed: int, walks: int = 150, steps: int = 60) -> list[str]:
    """Where the two gave different answers; empty if they never did."""
    with scratch("twins", Path("/dev/shm") if Path("/dev/shm").is_dir() else None) as place:
        for walk in range(walks):
            home = place / str(walk)
            home.mkdir()
            found = _walk(Random(f"twins|{seed}|{walk}"), str(home), steps)
            if found:
                return [f"walk {walk}: {found}"]
    return []


def _walk(rng: Random, path: str, steps: int) -> str | None:
    real_vfs, sim_vfs = RealVfs(), SimFs().process()
    real = Twin(real_vfs, real_vfs.root(path))
    sim = Twin(sim_vfs, sim_vfs.root("/"))
    try:
        for step in range(steps):
            call = _chance(rng)
            ours, theirs = sim.do(*call), real.do(*call)
            if ours != theirs:
                return f"step {step}: {call}: simulated {ours!r}, real {theirs!r}"
    finally:
        real.close_all()
    return None
