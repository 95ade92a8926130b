"""What is written in every benchmark, and the raw limit it is compared with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from holdfast.codec import encode
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.vfs import RealVfs

Record = dict[str, Any]

_TEXT = (
    "agent read wrote the a log file of and retry job result merged branch test failed passed "
    "in with plan step cost budget token message inbox lease held by session until waiting"
)
_WORDS = _TEXT.split()
_EVENTS = ("task_start", "task_result", "heartbeat", "decision", "error")
CROWD = 2_000
"""Lines written with one sync when a log is only made to be read."""


def records(rng: Random, count: int) -> list[Record]:
    """Events as agents write them: 150 to 250 bytes each."""
    return [
        {
            "agent": f"agent-{rng.randrange(16):02d}",
            "event": rng.choice(_EVENTS),
            "task_id": f"wo-{rng.randrange(10**6):06d}",
            "source": "user",
            "summary": " ".join(rng.choices(_WORDS, k=rng.randrange(12, 25))),
        }
        for _ in range(count)
    ]


def payload(record: Record) -> int:
    """The bytes of a record as a plain JSON line without its end."""
    return len(encode(record))


def fill(log: FileLog, some: Sequence[Record], count: int) -> None:
    """Bring a log to `count` lines more."""
    supply = cycle(some)
    for start in range(0, count, CROWD):
        log.append_all([next(supply) for _ in range(min(CROWD, count - start))])


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


class CountingVfs(RealVfs):
    """The real calls, counting what reaches the disk."""

    def __init__(self) -> None:
        self.syncs = 0
        self.bytes_read = 0

    def sync(self, fd: int, /) -> None:
        # Not atomic, and need not be: of one log only one thread at a time is here.
        self.syncs += 1
        os.fdatasync(fd)

    def pread(self, fd: int, count: int, offset: int, /) -> bytes:
        data = os.pread(fd, count, offset)
        self.bytes_read += len(data)
        return data


class RawWriter:
    """The raw limit: `write` and `fdatasync` of the same lines, and nothing else."""

    def __init__(self, path: Path, lines: Sequence[bytes]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._supply: Iterator[bytes] = cycle(lines)

    def write(self, count: int) -> int:
        fd, supply, write, sync = self._fd, self._supply, os.write, os.fdatasync
        for _ in range(count):
            write(fd, next(supply))
            sync(fd)
        return count

    def close(self) -> None:
        os.close(self._fd)


def home_in(path: Path, vfs: RealVfs | None = None) -> Home:
    return Home.open(str(path), create=True, timezone="UTC", vfs=vfs)
