"""syscalls: every system call of every public operation fails, once or from then on, or kills.

A dry run under strace lists the calls of an operation that touch the home.  Then, for each of
them: an errno instead of the call (once, and from that call on), SIGKILL at its entry, and for
writes a part of the bytes followed by success, a full disk or SIGKILL (a preloaded shim, so the
bytes are really there).  A case fired if strace says INJECTED, the wait status says SIGKILL, or
the shim left its marker.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from prove import frame
from prove.aftermath import Outcome, inspect
from prove.frame import Control, Harness, Result
from prove.operations import OPERATIONS, Half, Operation, make_home
from prove.victims import Nursery, Stuck, Victim

HARNESS = Harness(
    name="syscalls",
    proves="A system call that fails costs no acknowledged write and tells no lie.",
    targets={"quick": 400, "ci": 1_500, "full": 5_000},
    tools=("strace", "gcc"),
    missing=lambda tier: cannot_trace(),
)
_SAMPLE = {"quick": 420, "ci": 1_600, "full": None}
_PROCESSES = 2
_MEMORY = Path("/dev/shm")
_PATIENCE = 5.0

_CHANGING = (
    *("openat", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "flock", "mkdir"),
    *("mkdirat", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat"),
)
_ERRNOS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EMFILE", "EINTR", "EFBIG")
_ONCE_ONLY = {"EINTR"}
"""Repeated for ever it means: try again for ever."""
_READING = ("EIO", "EMFILE", "EACCES")
"""What can happen to an open that makes nothing."""
_HALVES = [(mode, part) for mode in "sfxk" for part in (0, 1, -1, -2) if (mode, part) != ("s", 0)]
"""Mode of the shim, and how many bytes: none, one, half, all but one."""


class Call(NamedTuple):
    """One system call that an operation makes."""

    operation: str
    name: str
    nth: int
    """Among all calls of this name since the operation began."""
    changes: bool
    text: str


class Case(NamedTuple):
    operation: str
    call: str
    nth: int
    fault: str
    """`EIO`, `EIO+` (from then on), `KILL`, or `half-k-1`."""

    def __str__(self) -> str:
        return f"{self.operation}/{self.call}/{self.nth}/{self.fault}"


class Tried(NamedTuple):
    case: Case
    fired: bool
    complaints: list[str]


# --- one worker -----------------------------------------------------------------------------


class Bench:
    """Homes to break, and the processes to break them with."""

    def __init__(
        self, place: Path, shim: Path | None, *, broken: str = "", roles: str = "prove.operations"
    ) -> None:
        self._place, self._broken = place, broken
        self._nursery = Nursery(preload=shim, roles=roles)
        self._count = 0
        place.mkdir()

    def close(self) -> None:
        self._nursery.close()

    def home(self, operation: Operation) -> Path:
        """A new home, as the operation wants it."""
        template = self._place / f"template-{operation.name}"
        if not template.exists():
            if operation.makes_home:
                template.mkdir()
            else:
                make_home(str(template))
            if operation.prepare is not None:
                operation.prepare(str(template))
        self._count += 1
        home = self._place / f"h{self._count}"
        if not operation.makes_home:
            shutil.copytree(template, home)
        return home

    def calls(self, operation: Operation) -> list[Call]:
        """The dry run."""
        home = self.home(operation)
        trace = self._place / "dry"
        outcome = self._traced(self._start(operation, home), trace, [])
        if outcome.answer is None:
            raise RuntimeError(f"{operation.name} fails without any fault: {outcome}")
        seen: Counter[str] = Counter()
        found: list[Call] = []
        for row in trace.read_text(encoding="utf-8", errors="replace").splitlines():
            name = row.partition("(")[0]
            if name not in _CHANGING:
                continue
            seen[name] += 1
            if str(home) in row:
                changes = name != "openat" or "O_CREAT" in row
                found.append(Call(operation.name, name, seen[name], changes, row))
        shutil.rmtree(home)
        return found

    def try_case(self, case: Case) -> Tried:
        operation = OPERATIONS[case.operation]
        home = self.home(operation)
        if case.fault.startswith("half-"):
            outcome, fired, trace = self._half(case, operation, home)
        else:
            outcome, fired, trace = self.injected(case, operation, home)
        complaints = [*inspect(operation, home, outcome), *synced_again(trace)]
        shutil.rmtree(home, ignore_errors=True)
        return Tried(case, fired, complaints)

    def injected(
        self, case: Case, operation: Operation, home: Path
    ) -> tuple[Outcome, bool, list[str]]:
        trace = self._place / "trace"
        when = f"{case.nth}{'+' if case.fault.endswith('+') else ''}"
        fault = case.fault.removesuffix("+")
        how = "signal=KILL" if fault == "KILL" else f"error={fault}"
        options = ["-e", f"inject={case.call}:{how}:when={when}"]
        outcome = self._traced(self._start(operation, home), trace, options)
        rows = trace.read_text(encoding="utf-8", errors="replace").splitlines()
        fired = outcome.killed if fault == "KILL" else any("(INJECTED)" in row for row in rows)
        return outcome, fired, rows

    def _half(
        self, case: Case, operation: Operation, home: Path
    ) -> tuple[Outcome, bool, list[str]]:
        mode, part = case.fault.removeprefix("half-")[0], int(case.fault[6:])
        marker = self._place / "marker"
        marker.unlink(missing_ok=True)
        victim = self._start(operation, home, Half(str(marker), case.nth, mode, part))
        victim.channel.send(b"go")
        outcome = _outcome(victim)
        fired = marker.exists() and outcome.killed == (mode == "k")
        return outcome, fired, []

    def _start(self, operation: Operation, home: Path, half: Half | None = None) -> Victim:
        victim = self._nursery.start(
            "operate", home=str(home), name=operation.name, half=half, broken=self._broken
        )
        victim.hear(_PATIENCE)
        return victim

    def _traced(self, victim: Victim, trace: Path, options: list[str]) -> Outcome:
        """Have strace attached, the operation done, and strace gone again."""
        options = ["-o", str(trace), "-e", f"trace={','.join(_CHANGING)}", *options]
        tracer = subprocess.Popen(
            ["strace", "-y", *options, "-p", str(victim.pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert tracer.stderr is not None
            if "attached" not in (said := tracer.stderr.readline()):
                raise RuntimeError(f"strace could not be attached: {said}")
            victim.channel.send(b"go")
            return _outcome(victim, tracer)
        finally:
            tracer.terminate()
            tracer.communicate()


def _outcome(victim: Victim, tracer: subprocess.Popen[str] | None = None) -> Outcome:
    """What an operation said, or that it was killed over it, or that it hangs."""
    try:
        packet = victim.hear(_PATIENCE)
        hung = False
    except Stuck:
        packet, hung = b"", True
    if tracer is not None and packet:
        # Let go of the victim first, so that the trace ends with the operation.
        tracer.terminate()
        tracer.wait()
    gone = not packet and not hung
    status = victim.wait() if gone else victim.kill()
    victim.channel.close()
    killed = gone and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return Outcome.of(packet, killed=killed, hung=hung)


_SYNC = re.compile(r"(?:fsync|fdatasync)\(\d+<(.*?)(?: ?\(deleted\))?>\) += (.*)")


def synced_again(trace: list[str]) -> Iterator[str]:
    """A file whose sync failed with EIO is never synced again by the same process."""
    failed: set[str] = set()
    for row in trace:
        if found := _SYNC.search(row):
            path, result = found.groups()
            if path in failed and not os.path.isdir(path):
                yield f"{os.path.basename(path)} was synced again after its sync had failed"
            if "EIO" in result:
                failed.add(path)


# --- the harness ----------------------------------------------------------------------------


def cases(calls: list[Call]) -> list[Case]:
    """Every fault at every call."""
    found: list[Case] = []
    for call in calls:
        errnos = _ERRNOS if call.changes else _READING
        for name in errnos:
            found.append(Case(call.operation, call.name, call.nth, name))
            if call.changes and name not in _ONCE_ONLY:
                found.append(Case(call.operation, call.name, call.nth, f"{name}+"))
        if call.changes:
            found.append(Case(call.operation, call.name, call.nth, "KILL"))
    for operation in {call.operation for call in calls}:
        writes = sum(
            call.name in ("write", "pwrite64") for call in calls if call.operation == operation
        )
        for nth in range(1, writes + 1):
            for mode, part in _HALVES:
                found.append(Case(operation, "write", nth, f"half-{mode}{part}"))
    return sorted(found)


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    with frame.scratch("syscalls", _MEMORY) as place:
        shim = build_shim(place)
        bench = Bench(place / "dry", shim)
        try:
            calls = [call for each in OPERATIONS.values() for call in bench.calls(each)]
        finally:
            bench.close()
        every = cases(calls)
        chosen = _chosen(every, tier, seed, case)
        faults: Counter[str] = Counter()
        for tried in _in_parallel(place, shim, chosen):
            _count(result, tried)
            faults[tried.case.fault.split("-")[0].rstrip("+")] += 1
    result.details = {
        "operations": len(OPERATIONS),
        "calls": len(calls),
        "all_cases": len(every),
        "by_fault": dict(sorted(faults.items())),
    }
    return result


def _chosen(every: list[Case], tier: str, seed: int, case: str | None) -> list[Case]:
    if case is not None:
        return [each for each in every if str(each) == case]
    size = _SAMPLE[tier]
    return every if size is None else Random(seed).sample(every, min(size, len(every)))


def _in_parallel(place: Path, shim: Path, chosen: list[Case]) -> Iterator[Tried]:
    """Two processes, each with one thread: a fork in another thread would keep locks alive."""
    children: list[subprocess.Popen[str]] = []
    for number in range(_PROCESSES):
        todo = place / f"cases{number}"
        todo.write_text(json.dumps(chosen[number::_PROCESSES]), encoding="utf-8")
        command = [sys.executable, "-m", "prove.syscalls", str(place / f"bench{number}")]
        children.append(
            subprocess.Popen(
                [*command, str(shim), str(todo)],
                stdout=subprocess.PIPE,
                text=True,
                env=frame.child_environment(),
            )
        )
    try:
        for child in children:
            assert child.stdout is not None
            for row in child.stdout:
                case, fired, complaints = json.loads(row)
                yield Tried(Case(*case), fired, complaints)
            if child.wait() != 0:
                raise RuntimeError(f"a process that tries cases ended with {child.returncode}")
    finally:
        for child in children:
            child.kill()
            child.wait()


def shard(place: str, shim: str, todo: str) -> None:
    """Try cases; one line of JSON for each."""
    bench = Bench(Path(place), Path(shim))
    try:
        for case in json.loads(Path(todo).read_text(encoding="utf-8")):
            print(json.dumps(bench.try_case(Case(*case))), flush=True)
    finally:
        bench.close()


def _count(result: Result, tried: Tried) -> None:
    result.tried += 1
    result.fired += tried.fired
    result.lost += any("acknowledged" in says for says in tried.complaints)
    if tried.complaints:
        says, *more = tried.complaints
        result.add_failure(str(tried.case), f"{tried.case}: {says}", tuple(more[:5]))
    else:
        result.survived += 1


def build_shim(place: Path) -> Path:
    shim = place / "shim.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(frame.PROVE / "shim.c")], check=True
    )
    return shim


def cannot_trace() -> str | None:
    """Whether this machine lets a process be traced."""
    sleeper = subprocess.Popen(["sleep", "10"])
    tracer = subprocess.Popen(
        ["strace", "-o", "/dev/null", "-p", str(sleeper.pid)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert tracer.stderr is not None
        said = tracer.stderr.readline()
    finally:
        sleeper.kill()
        sleeper.wait()
        tracer.communicate()
    return None if "attached" in said else f"needs ptrace: {said.strip()}"


def control(seed: int) -> list[Control]:
    """Operations that lie about a failure have to be seen lying."""
    found: list[Control] = []
    with frame.scratch("syscalls", _MEMORY) as place:
        shim = build_shim(place)
        for broken, call, fault in (
            ("swallow", "write", "ENOSPC"),
            ("untyped", "write", "EIO"),
            ("retry", "fdatasync", "EIO"),
        ):
            bench = Bench(place / broken, shim, broken=broken)
            try:
                tried = bench.try_case(Case("append", call, 1, fault))
            finally:
                bench.close()
            said = tried.complaints[0] if tried.complaints else "nothing noticed"
            found.append(Control(broken, tried.fired and bool(tried.complaints), said))
    return found


if __name__ == "__main__":
    shard(*sys.argv[1:])
