"""A block device that remembers every write and every flush, and what a power cut leaves of it.

    python -m prove.blocklog MOUNTPOINT IMAGE LOG

A FUSE file system with one file, `disk`; a file system of the kernel lives on a loop device
over it.  Each request that reaches the device is put into LOG with the instant at which it was
done, on the clock that all processes share, so that an acknowledgement seen at some instant
has its place in the log.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from prove import frame
from prove.disk import umount

_HEAD = struct.Struct("<dQI")
_FLUSH = (1 << 64) - 1
"""Stands where a write has its offset."""
BLOCK = 4096
"""What a disk writes as one when the power goes; a request may be larger."""
_PDEATHSIG = 1
_NAME = "disk"


def cannot_record() -> str | None:
    """Why this machine has no such device, or None."""
    if not Path("/dev/fuse").exists():
        return "needs /dev/fuse"
    if importlib.util.find_spec("mfusepy") is None:
        return "needs the Python package mfusepy"
    return None if find_library("fuse3") else "needs libfuse3 (package fuse3)"


@dataclass
class BlockLog:
    """What reached the device, in order."""

    done: list[float] = field(default_factory=list[float])
    offsets: list[int] = field(default_factory=list[int])
    data: list[bytes] = field(default_factory=list[bytes])

    @classmethod
    def load(cls, path: Path) -> BlockLog:
        log, raw, at = cls(), path.read_bytes(), 0
        while at + _HEAD.size <= len(raw):
            done, offset, size = _HEAD.unpack_from(raw, at)
            at += _HEAD.size
            log.done.append(done)
            log.offsets.append(offset)
            log.data.append(raw[at : at + size])
            at += size
        return log

    def at(self, instant: float) -> int:
        """How many requests were done by then."""
        return bisect_right(self.done, instant)

    def flushed(self, cut: int) -> int:
        """How many of the first `cut` requests the last flush among them covers."""
        for index in range(cut - 1, -1, -1):
            if self.offsets[index] == _FLUSH:
                return index + 1
        return 0

    def prefix(self, cut: int) -> Iterator[tuple[int, bytes]]:
        """The writes of the first `cut` requests."""
        for offset, data in zip(self.offsets[:cut], self.data[:cut], strict=True):
            if offset != _FLUSH:
                yield offset, data

    def subset(self, cut: int, rng: Random) -> Iterator[tuple[int, bytes]]:
        """All that was flushed, and any blocks of what came later."""
        safe = self.flushed(cut)
        yield from self.prefix(safe)
        share = rng.choice((0.1, 0.5, 0.9))
        for offset, data in zip(self.offsets[safe:cut], self.data[safe:cut], strict=True):
            for start in range(0, len(data), BLOCK):
                if rng.random() < share:
                    yield offset + start, data[start : start + BLOCK]


class Recorder:
    """The device, as long as the block lasts: `path` is the file to mount."""

    def __init__(self, image: Path, log: Path, mountpoint: Path) -> None:
        self._command = [str(mountpoint), str(image), str(log)]
        self._mountpoint = mountpoint
        self.path = mountpoint / _NAME

    def __enter__(self) -> Recorder:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "prove.blocklog", *self._command],
            env=frame.child_environment(),
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while not self.path.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError("the recording device did not come up")
            time.sleep(0.005)
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            umount(self._mountpoint)
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()


# --- in the process that is the device ------------------------------------------------------


def serve(mountpoint: str, image: str, log: str) -> None:
    import mfusepy  # noqa: PLC0415 - only where a device is recorded

    class Device(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def __init__(self) -> None:
            self._image = os.open(image, os.O_RDWR)
            self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._size = os.fstat(self._image).st_size

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            if path == f"/{_NAME}":
                return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": self._size}
            raise mfusepy.FuseOSError(2)

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", _NAME]

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(self._image, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            os.pwrite(self._image, data, offset)
            self._note(offset, data)
            return len(data)

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            self._note(_FLUSH, b"")
            return 0

        def _note(self, offset: int, data: bytes) -> None:
            # The instant before the answer: whoever acknowledges because of it is later.
            os.write(self._log, _HEAD.pack(time.monotonic(), offset, len(data)) + data)

    ctypes.CDLL(None).prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    mfusepy.FUSE(Device(), mountpoint, foreground=True, nothreads=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
