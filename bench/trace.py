"""The system calls of an append, as strace sees them, in a short log and in a long one.

    python -m bench.trace HOME        what runs under strace: appends between marks

A mark is a `stat` of a path that does not exist; it costs nothing and shows in the trace.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.frame import Absent, Bar, Outcome, Setup, child_environment
from bench.material import Record, fill, home_in, records

KEY = "state/rio/journal.jsonl"
LENGTHS = (100, 50_000)
PHASES = {
    "first append of a process": 1,
    "append after one's own": 200,
    "append after another's": 100,
}
_MARK = "/bench-mark/"
_CALL = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+|\?)")
_MEMORY = {"brk", "mmap", "munmap", "mremap", "madvise", "mprotect"}
"""The interpreter's own; they come and go with what was allocated before."""
_READS = {"read", "pread64", "readv", "preadv", "preadv2"}
_WRITES = {"write", "pwrite64", "writev", "pwritev", "pwritev2"}
_SYNCS = {"fsync", "fdatasync", "sync_file_range", "syncfs", "sync"}


class Cost(NamedTuple):
    """What all appends of one phase asked of the kernel."""

    calls: Counter[str]
    bytes_read: int
    bytes_written: int

    @property
    def syncs(self) -> int:
        return sum(self.calls[name] for name in _SYNCS)

    def each(self, count: int) -> dict[str, Any]:
        return {
            "syncs": self.syncs / count,
            "calls": self.calls.total() / count,
            "bytes_read": self.bytes_read / count,
            "bytes_written": self.bytes_written / count,
            "by_name": {name: number / count for name, number in sorted(self.calls.items())},
        }


def count_calls(setup: Setup, outcome: Outcome, some: list[Record]) -> None:
    """Add the bars on system calls, or say why they cannot be counted here."""
    found: dict[int, dict[str, Cost]] = {}
    for length in LENGTHS:
        path = setup.scratch / f"trace-{length}"
        with home_in(path) as home:
            log = home.log(KEY)
            fill(log, some, length)
            log.close()
        traced = traced_appends(path, setup.scratch / f"trace-{length}.txt")
        if isinstance(traced, str):
            outcome.absent.append(Absent("system calls of an append", traced))
            return
        found[length] = traced
    short, long = (found[length] for length in LENGTHS)
    outcome.numbers["system_calls"] = {
        phase: {f"at {length:,} lines": found[length][phase].each(count) for length in LENGTHS}
        for phase, count in PHASES.items()
    }
    lengths = " and ".join(f"{length:,}" for length in LENGTHS)
    other_calls = sum(apart(long[each].calls, short[each].calls) for each in PHASES)
    other_bytes = sum(abs(long[each].bytes_read - short[each].bytes_read) for each in PHASES)
    own = "append after one's own"
    outcome.bars += [
        Bar(f"system calls that differ between {lengths} lines", other_calls, "==", 0),
        Bar(f"bytes read that differ between {lengths} lines", other_bytes, "==", 0, "bytes"),
        Bar("syncs per append under strace", long[own].syncs / PHASES[own], "==", 1),
    ]


def apart(some: Counter[str], others: Counter[str]) -> int:
    return (some - others).total() + (others - some).total()


def traced_appends(home: Path, output: Path) -> dict[str, Cost] | str:
    """The cost of each phase, or the reason why there is no trace."""
    # With a TZ of its own, the C library does not look at /etc/localtime now and then.
    environment = child_environment() | {"TZ": "UTC"}
    missing = traced([sys.executable, "-m", "bench.trace", str(home)], output, environment)
    return missing or costs(output)


def traced(command: list[str], output: Path, environment: dict[str, str]) -> str | None:
    """Run a command under strace; the reason if that cannot be done."""
    strace = shutil.which("strace")
    if strace is None:
        return "needs strace"
    command = [strace, "-f", "-qq", "-s", "48", "-e", "signal=none", "-o", str(output), *command]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if not output.exists() or (ran.returncode and "ptrace" in ran.stderr):
        return f"strace may not trace here: {ran.stderr.strip()[-200:]}"
    ran.check_returncode()
    return None


def rows(output: Path) -> Iterator[tuple[str, str, str]]:
    """Name, arguments and result of each call in a trace."""
    for row in output.read_text(encoding="utf-8", errors="replace").splitlines():
        if match := _CALL.match(row):
            yield match[1], match[2], match[3]


def calls(output: Path) -> Cost:
    """All calls of a trace."""
    return Cost(Counter(name for name, _, _ in rows(output)), 0, 0)


def costs(output: Path) -> dict[str, Cost]:
    """What the phases of a trace of appends cost."""
    found = marked(output)
    if set(found) != set(PHASES):
        raise AssertionError(f"the trace shows {sorted(found)} instead of {sorted(PHASES)}")
    return found


def marked(output: Path) -> dict[str, Cost]:
    """What stands between the marks of a trace."""
    found: dict[str, Cost] = {}
    calls: Counter[str] | None = None
    bytes_read = bytes_written = 0
    for name, arguments, returned in rows(output):
        if _MARK in arguments:
            if calls is not None:
                phase = arguments.partition(_MARK)[2].partition('"')[0]
                found[phase] = Cost(calls, bytes_read, bytes_written)
                calls = None
            else:
                calls, bytes_read, bytes_written = Counter[str](), 0, 0
        elif calls is not None and name not in _MEMORY:
            calls[name] += 1
            count = max(0, int(returned)) if returned != "?" else 0
            bytes_read += count if name in _READS else 0
            bytes_written += count if name in _WRITES else 0
    return found


# --- under strace ---------------------------------------------------------------------------


def mark(phase: str) -> None:
    try:
        os.stat(f"{_MARK}{phase}")
    except FileNotFoundError:
        pass  # as it should


def main(path: Path) -> None:
    some = records(Setup(path, 1, quick=True).rng("traced"), 50)
    first, own, others = PHASES
    with home_in(path) as home, home_in(path) as another:
        log, second = home.log(KEY), another.log(KEY)
        mark(first)
        log.append(some[0])
        mark(first)
        # What is loaded or cached on the way is not the cost of an append.
        for record in some:
            log.append(record)
            second.append(record)
        log.append(some[0])
        mark(own)
        for index in range(PHASES[own]):
            log.append(some[index % len(some)])
        mark(own)
        mark(others)
        for index in range(PHASES[others] // 2):
            second.append(some[index])
            log.append(some[index])
        mark(others)
        log.close()
        second.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
