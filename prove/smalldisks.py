"""Real disks that are full or read-only, for `diskfull`: run it in a mount namespace of its own.

| kind | the disk | at |
|---|---|---|
| `tmpfs-pages` | a tmpfs filled up | so many free pages |
| `tmpfs-inodes` | a tmpfs with all inodes taken | so many free inodes |
| `ext4-blocks` | an ext4 image filled up | so many free blocks |
| `erofs-remount` | a tmpfs remounted read-only before the deed, and writable after it | 0 |
| `erofs-error` | an ext4 that goes read-only, with files open for writing | the call it goes at |

The kernel refuses to remount what somebody has open for writing, so before `erofs-remount` the
handles let go of their files.  After `erofs-error` only a new mount helps: there the same handles
cannot go on, and what was acknowledged is looked for after it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from prove.disk import cannot_mount
from prove.handles import DEEDS, Deed, Endured, Handles, attempt, endure, in_sight, judge
from prove.strained import Strain, StrainedVfs

KINDS = ("tmpfs-pages", "tmpfs-inodes", "ext4-blocks", "erofs-remount", "erofs-error")
_PAGE, _BLOCK = 4096, 1024
_TMPFS = "size=2m,nr_inodes=256"
_MOST = 40
"""No deed takes more pages, blocks, inodes or calls than this leaves."""
_UNREFUSED = 2
"""After so many fills in a row that refuse nothing, none will."""
_PATIENCE, _PAUSE = 2_000, 0.01


class Tried(NamedTuple):
    """What one case showed."""

    case: str
    fired: bool
    complaints: list[str]


def cannot_have() -> str | None:
    """Why there are no such disks here."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    return f"needs {', '.join(absent)}" if absent else cannot_mount()


class Ballast(Strain):
    """Leaves `free` units of a real disk when it is armed, and goes when it is relieved."""

    def __init__(self, disk: Path, kind: str, free: int) -> None:
        super().__init__()
        self._disk, self._kind, self._free = disk, kind, free
        self._place = disk / "ballast"

    def arm(self) -> None:
        self._place.mkdir()
        if self._kind == "tmpfs-inodes":
            self._take_inodes()
        else:
            self._take_space(_PAGE if self._kind == "tmpfs-pages" else _BLOCK)
        super().arm()

    def relieve(self) -> None:
        super().relieve()
        shutil.rmtree(self._place, ignore_errors=True)

    def _take_space(self, unit: int) -> None:
        # What is freed in ext4 is given back when its transaction is committed.
        _run("sync", "-f", str(self._place))
        names = [self._place / f"{number}" for number in range(self._free)]
        for name in names:
            name.write_bytes(bytes(unit))
        with open(self._place / "rest", "wb", buffering=0) as file:
            for size in (1 << 16, unit):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
            os.fsync(file.fileno())
        for name in names:
            name.unlink()
        _run("sync", "-f", str(self._place))

    def _take_inodes(self) -> None:
        made: list[Path] = []
        with contextlib.suppress(OSError):
            while True:
                made.append(self._place / f"{len(made)}")
                made[-1].touch()
        for name in made[:-1][: self._free]:
            name.unlink()


class Remounted(Strain):
    """A file system that is read-only as long as it is armed."""

    def __init__(self, disk: Path) -> None:
        super().__init__()
        self._disk = disk

    def arm(self) -> None:
        _run("mount", "-o", "remount,ro", str(self._disk))
        super().arm()

    def relieve(self) -> None:
        if self.armed:
            _run("mount", "-o", "remount,rw", str(self._disk))
        super().relieve()


class Erring(Strain):
    """At the nth call that changes something the kernel takes the file system for broken."""

    _CHANGES = frozenset(
        {"write", "pwrite", "sync", "create", "mkdir", "link", "rename", "unlink", "dirsync"}
    )

    def __init__(self, trigger: Path, nth: int) -> None:
        super().__init__()
        self._trigger, self._left = trigger, nth

    def before(self, op: str, path: str) -> None:
        super().before(op, path)
        if self.armed and op in self._CHANGES:
            if self._left == 0:
                self._trigger.write_text("1", encoding="utf-8")
            self._left -= 1


class SmallDisks:
    def __init__(self, place: Path, home: Callable[[Deed, Path], Path]) -> None:
        self._place, self._home = place, home
        self._disk = place / "mnt"
        self._image, self._pristine = place / "ext4.img", place / "ext4.new"
        self._mounted = False
        self._disk.mkdir()

    def try_all(self, pattern: str) -> Iterator[Tried]:
        """Every case of a kind of disk and a deed that is refused; `*` stands for all of them."""
        kind, name, at, *_ = pattern.split("/")
        unrefused = 0
        for number in range(_MOST) if at == "*" else [int(at)]:
            tried = self._try(kind, DEEDS[name], number)
            if tried.fired or tried.complaints or at != "*":
                unrefused = 0
                yield tried
            else:
                unrefused += 1
            if unrefused >= _UNREFUSED or kind == "erofs-remount":
                return

    def _try(self, kind: str, deed: Deed, at: int) -> Tried:
        self._renew(kind)
        home = self._home(deed, self._disk)
        strain = self._strain(kind, at)
        resumes = kind != "erofs-error"
        if kind == "erofs-remount":
            deed = _that_lets_go(deed)
        if not resumes:
            _run("sync", "-f", str(self._disk))
        done = endure(deed, home, StrainedVfs(strain), resumes=resumes)
        if resumes:
            complaints = [*done.complaints, *judge(deed, home)]
        else:
            self._umount()
            self._mount_ext4()
            complaints = [*done.complaints, *self._after(deed, home, done)]
        return Tried(f"{kind}/{deed.name}/{at}/-", strain.fired > 0, complaints)

    def _after(self, deed: Deed, home: Path, done: Endured) -> Iterator[str]:
        """After a new mount: the truth, and new handles do it again."""
        yield from in_sight(deed, home, done.first)
        handles = Handles(str(home))
        try:
            outcome, _ = attempt(deed, handles, 1)
            if outcome.answer is None:
                yield f"refused after a new mount: {outcome.error or outcome.untyped}"
            elif "lease" in deed.name and outcome.answer <= (done.first.answer or 0):
                yield f"{done.first.answer} was acknowledged, and now {outcome.answer}"
        finally:
            handles.close()
        yield from judge(deed, home)

    def _strain(self, kind: str, at: int) -> Strain:
        if kind == "erofs-remount":
            return Remounted(self._disk)
        if kind == "erofs-error":
            source = _said("findmnt", "-no", "SOURCE", str(self._disk))
            return Erring(Path("/sys/fs/ext4") / Path(source).name / "trigger_fs_error", at)
        return Ballast(self._disk, kind, at)

    def _renew(self, kind: str) -> None:
        self._umount()
        if kind.startswith("tmpfs") or kind == "erofs-remount":
            _run("mount", "-t", "tmpfs", "-o", _TMPFS, "none", str(self._disk))
            self._mounted = True
            return
        if not self._pristine.exists():
            _run("truncate", "-s", "4M", str(self._pristine))
            _run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", str(_BLOCK), str(self._pristine))
        _run("cp", "--sparse=always", str(self._pristine), str(self._image))
        self._mount_ext4()

    def _mount_ext4(self) -> None:
        options = "loop,errors=remount-ro"
        _run("mount", "-t", "ext4", "-o", options, str(self._image), str(self._disk))
        self._mounted = True

    def _umount(self) -> None:
        """Unmount; the kernel may need a moment to let go."""
        for left in range(_PATIENCE, -1, -1):
            try:
                if self._mounted:
                    _run("umount", str(self._disk))
                self._mounted = False
                return
            except OSError:
                if not left:
                    raise
                time.sleep(_PAUSE)

    def close(self) -> None:
        self._umount()


def _that_lets_go(deed: Deed) -> Deed:
    """The same deed, with no file open for writing when it begins."""

    def warm(handles: Handles) -> None:
        if deed.warm is not None:
            deed.warm(handles)
        handles.let_go()

    return Deed(deed.operation, deed.do, deed.check, warm)


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.returncode, f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _run(*command: str) -> None:
    _said(*command)
