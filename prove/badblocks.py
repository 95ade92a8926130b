"""A block device that fails chosen writes with EIO, under a real ext4.

    python -m prove.badblocks MOUNTPOINT IMAGE ORDERS

A FUSE file system with one file, `disk`, which stands for IMAGE; the ext4 lives on a loop device
over it, so that an error goes the whole way: loop device, block layer, page cache, fdatasync.
What ORDERS (a few shared bytes) says is done to the writes: those that hold certain bytes fail,
or the one of a certain number does.  What a failed write held never reaches IMAGE, which is
mounted by itself afterwards: no cache can make up for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib.util
import mmap
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from ctypes.util import find_library
from pathlib import Path

from prove import frame
from prove.disk import cannot_mount

_ORDERS = struct.Struct("<BBqII64s")
"""What fails, whether once only, which write, how many failed, how many were seen, bytes."""
_NOTHING, _HOLDING, _NUMBERED = 0, 1, 2
_NAME = "disk"
_PDEATHSIG = 1
_PATIENCE, _PAUSE = 4_000, 0.005


def cannot_fail() -> str | None:
    """Why this machine has no such device, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if not Path("/dev/fuse").exists():
        return "needs /dev/fuse"
    if importlib.util.find_spec("mfusepy") is None:
        return "needs the Python package mfusepy"
    return cannot_mount() if find_library("fuse3") else "needs libfuse3 (package fuse3)"


class Orders:
    """What the device is told, and what it did."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_ORDERS.size))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _ORDERS.size)

    def fail_holding(self, data: bytes, *, once: bool) -> None:
        self._map[:] = _ORDERS.pack(_HOLDING, once, 0, 0, 0, data)

    def fail_number(self, number: int) -> None:
        self._map[:] = _ORDERS.pack(_NUMBERED, 1, number, 0, 0, b"")

    def fail_no_more(self) -> None:
        self._map[0:1] = bytes([_NOTHING])

    @property
    def failed(self) -> int:
        return _ORDERS.unpack(self._map[:])[3]

    def fails(self, data: bytes) -> bool:
        """Asked by the device at each write."""
        what, once, number, failed, seen, token = _ORDERS.unpack(self._map[:])
        token = token.rstrip(b"\0")
        bad = what == _HOLDING and token in data and not (once and failed)
        bad = bad or (what == _NUMBERED and seen == number)
        if what != _NOTHING:
            self._map[:] = _ORDERS.pack(what, once, number, failed + bad, seen + 1, token)
        return bad


class BadDisk:
    """An ext4 on the device; `path` is where it is mounted."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.path, self._fuse = place / "mnt", place / "fuse"
        self._image, self._pristine = place / "ext4.img", place / "ext4.new"
        for each in (self.path, self._fuse):
            each.mkdir(parents=True)
        _run("truncate", "-s", "16M", str(self._pristine))
        # Without a lazy initialisation, which would write whenever it likes.  Blocks of a page:
        # of smaller ones a request can reach us in pieces, and when only a later piece fails,
        # the loop device takes the short write for a whole one and tells nobody.
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        _run("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", lazy, str(self._pristine))
        _run("cp", "--sparse=always", str(self._pristine), str(self._image))
        self.orders = Orders(place / "orders")
        self._mounted = False
        self._device = subprocess.Popen(
            [sys.executable, "-m", "prove.badblocks", *map(str, self._arguments())],
            env=frame.child_environment(),
            stdout=subprocess.DEVNULL,
        )
        for _ in range(_PATIENCE):
            if (self._fuse / _NAME).exists() or self._device.poll() is not None:
                break
            time.sleep(_PAUSE)
        if not (self._fuse / _NAME).exists():
            self._device.kill()
            raise RuntimeError("the device did not come up")

    def _arguments(self) -> tuple[Path, Path, Path]:
        return self._fuse, self._image, self._place / "orders"

    def renew(self) -> None:
        """An empty file system on the device."""
        self.umount()
        self.orders.fail_no_more()
        with open(self._pristine, "rb") as new, open(self._image, "r+b") as image:
            image.write(new.read())
        self._mount(self._fuse / _NAME)

    def settle(self) -> None:
        """Everything so far is on the device."""
        _run("sync", "-f", str(self.path))

    def look_at_image(self) -> None:
        """Mount what reached the device, without the device."""
        self.umount()
        self._mount(self._image)

    def writable(self) -> bool:
        """Whether the kernel still lets anybody write."""
        with contextlib.suppress(OSError):
            (self.path / "probe").mkdir()
            (self.path / "probe").rmdir()
            return True
        return False

    def _mount(self, disk: Path) -> None:
        _run("mount", "-t", "ext4", "-o", "loop", str(disk), str(self.path))
        self._mounted = True

    def umount(self) -> None:
        if self._mounted:
            _until_done("umount", str(self.path))
            self._mounted = False

    def close(self) -> None:
        try:
            self.umount()
            _until_done("umount", str(self._fuse))
        finally:
            self._device.kill()
            self._device.wait()


def serve(mountpoint: str, image: str, orders: str) -> None:
    import mfusepy  # noqa: PLC0415 - only where there is such a device

    class Device(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def __init__(self) -> None:
            self._image = os.open(image, os.O_RDWR)
            self._size = os.fstat(self._image).st_size
            self._orders = Orders(Path(orders))

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            if path == f"/{_NAME}":
                return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": self._size}
            raise mfusepy.FuseOSError(errno.ENOENT)

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", _NAME]

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(self._image, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            if self._orders.fails(data):
                raise mfusepy.FuseOSError(errno.EIO)
            return os.pwrite(self._image, data, offset)

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            return 0

    ctypes.CDLL(None).prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    mfusepy.FUSE(Device(), mountpoint, foreground=True, nothreads=True)


def _until_done(*command: str) -> None:
    """The kernel may need a moment to let go."""
    for left in range(_PATIENCE, -1, -1):
        try:
            return _run(*command)
        except OSError:
            if not left:
                raise
            time.sleep(_PAUSE)
    return None


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(errno.EIO, f"{' '.join(command)}: {done.stderr.strip()}")


if __name__ == "__main__":
    serve(*sys.argv[1:])
