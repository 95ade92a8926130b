"""Opening: how long the first append takes on a log whose writer died in the middle of a line."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.frame import Bar, Outcome, Setup, measured, rounded, seconds_of, significant
from bench.material import CountingVfs, Record, fill, home_in, lines_of, records

KEY = "state/rio/journal.jsonl"
SIZE, QUICK_SIZE, SMALL_SIZE = 100_000_000, 10_000_000, 1_000_000
MOST_SECONDS = 0.2
ROTATE_AT = 1 << 30
"""So that a long fragment does not begin a new segment."""
_PROBES = 20
_TAIL = 4096


def run(setup: Setup) -> Outcome:
    some = records(setup.rng("records"), 500)
    size = QUICK_SIZE if setup.quick else SIZE
    large = Torn(setup.scratch / "large", some, size, setup.seed)
    small = Torn(setup.scratch / "small", some, SMALL_SIZE, setup.seed)
    outcome = Outcome()
    more = {kind: large.bytes_read(tear) - small.bytes_read(tear) for kind, tear in TEARS.items()}
    outcome.numbers["log_bytes"] = size
    outcome.numbers["bytes_read"] = {kind: large.bytes_read(tear) for kind, tear in TEARS.items()}
    label = f"{size // 1_000_000} MB"
    outcome.bars.append(
        Bar(f"bytes read more to open {label} than 1 MB", max(more.values()), "<=", 0, "bytes")
    )
    raw = RawOpen(setup.scratch / "raw", lines_of(small.path)[:2000])
    for kind, tear in TEARS.items():
        opened: list[float] = []
        heads: list[float] = []
        raw_rates: list[float] = []
        for _ in range(setup.pairs):
            probes = measured(raw.probe)
            found = large.first_append(tear)
            opened.append(found.opened)
            heads.append(found.head)
            raw_rates.append((probes + measured(raw.probe)).rate)
        outcome.numbers[kind] = {
            "open_and_append_ms": rounded([each * 1e3 for each in opened]),
            "head_ms": rounded([each * 1e3 for each in heads]),
            "raw_open_read_append_ms": rounded([1e3 / each for each in raw_rates]),
        }
        outcome.bars.append(
            Bar(
                f"open and first append, {label}, {kind}",
                statistics.median(opened) * 1e3,
                "<",
                MOST_SECONDS * 1e3,
                "ms",
                timed=True,
                alone=True,
                beside=tuple(raw_rates),
            )
        )
    large.check()
    outcome.numbers["lines_after"] = large.sealed
    outcome.numbers["warm_head_us"] = significant(large.warm_head() * 1e6)
    return outcome


# --- ways to die ----------------------------------------------------------------------------


def cut_line(line: bytes, rng: Random) -> bytes:
    return line[: rng.randrange(1, len(line) - 1)]


def zeros(line: bytes, rng: Random) -> bytes:
    """What ext4 can leave: the size is there, the data is not."""
    return bytes(rng.randrange(1, 4096))


def cut_long_line(line: bytes, rng: Random) -> bytes:
    """The longest line there may be, without its end."""
    return b'{"summary":"' + b"x" * ((8 << 20) - 100)


Tear = Callable[[bytes, Random], bytes]
TEARS: dict[str, Tear] = {
    "cut line": cut_line,
    "zeros": zeros,
    "cut line of 8 MiB": cut_long_line,
}


class Opened(NamedTuple):
    head: float
    opened: float


class Torn:
    """A log that is torn before each opening."""

    def __init__(self, home: Path, some: list[Record], size: int, seed: int) -> None:
        self._home, self._some, self._seed = home, some, seed
        self.path = home / KEY
        with home_in(home) as opened:
            log = opened.log(KEY, rotate_at=ROTATE_AT)
            fill(log, some, 2_000)
            each = self.path.stat().st_size / 2_000
            # Room for what the tears and the appends will add.
            fill(log, some, int((size - 2_000 * each) / (each + 2)))
            log.close()
        self.sealed = len(lines_of(self.path))
        self._line = lines_of(self.path)[-1]

    def _tear(self, tear: Tear) -> int:
        """Tear the tail and forget what is in memory; the size to go back to."""
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        size = os.fstat(fd).st_size
        # The same tear each time: only the length of the log may make a difference.
        os.write(fd, tear(self._line, Random(self._seed)))
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        return size

    def bytes_read(self, tear: Tear) -> int:
        size = self._tear(tear)
        vfs = CountingVfs()
        with home_in(self._home, vfs) as home:
            before = vfs.bytes_read
            log = home.log(KEY, rotate_at=ROTATE_AT)
            log.append(self._some[0])
            log.close()
        os.truncate(self.path, size)
        return vfs.bytes_read - before

    def first_append(self, tear: Tear) -> Opened:
        size = self._tear(tear)
        with home_in(self._home) as home:
            head = seconds_of(home.log(KEY, rotate_at=ROTATE_AT).head)
        os.truncate(self.path, size)
        size = self._tear(tear)
        opened = seconds_of(self._append)
        os.truncate(self.path, size)
        return Opened(head, opened)

    def _append(self) -> None:
        with home_in(self._home) as home:
            log = home.log(KEY, rotate_at=ROTATE_AT)
            log.append(self._some[0])
            log.close()

    def warm_head(self) -> float:
        with home_in(self._home) as home:
            log = home.log(KEY, rotate_at=ROTATE_AT)
            return statistics.median(seconds_of(log.head) for _ in range(200))

    def check(self) -> None:
        """The last tear once more: the chain has to go on behind it."""
        self._tear(cut_line)
        self._append()
        with home_in(self._home) as home:
            found = home.log(KEY, rotate_at=ROTATE_AT).verify()
        if found.problems or found.sealed != self.sealed + 1 or len(found.bad) != 1:
            raise AssertionError(f"{found.problems[:3]}, {found.sealed} sealed, {found.bad[:3]}")
        self.sealed = found.sealed


class RawOpen:
    """The raw limit: open, read the tail, write one line, fdatasync, close."""

    def __init__(self, path: Path, lines: list[bytes]) -> None:
        path.write_bytes(b"".join(lines))
        self._path, self._line = path, lines[0]

    def probe(self) -> int:
        for _ in range(_PROBES):
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            os.pread(fd, _TAIL, max(0, os.fstat(fd).st_size - _TAIL))
            os.write(fd, self._line)
            os.fdatasync(fd)
            os.close(fd)
        return _PROBES
