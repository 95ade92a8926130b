"""What every benchmark shares: pairs, bars, verdicts and the stored record.

A benchmark is a module `bench/NAME.py` with

    def run(setup: Setup) -> Outcome: ...

Ours and the raw limit are measured in turns, so that whatever else the machine does falls on
both; what counts is the median of the ratios of the pairs.  A bar is a number with a limit:

    a count  (fsyncs, syscalls, bytes) is the same on every machine and is always checked;
    a time   is checked in a full run only, and is inconclusive, neither passed nor failed,
             when the raw limit beside it varied by more than 30 % within the run (unless it
             is met by more than all of that), or when others had more than a quarter of the
             processors meanwhile;
    seconds  that stand alone, in no ratio, are met if they are met in spite of that: what
             disturbs us can only make them more.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

REPO = Path(__file__).resolve().parent.parent
RESULTS = REPO / "bench/results"
SCRATCH = REPO / "bench/tmp"
NAMES = (
    "append",
    "verify",
    "open",
    "mailbox",
    "cli",
    "validate",
    "status",
    "ledger",
    "turn",
    "mask",
    "jobs",
    "memory",
    "swarm",
)
BY_NAME_ONLY = ("peers", "improve", "retrieval", "recall")
"""Not part of a run of all: they take long, install what they compare with, or embed much."""
MOST_SPREAD = 0.30
MOST_OTHERS = 0.25
PAIRS, QUICK_PAIRS = 5, 3

Verdict = Literal["passed", "failed", "inconclusive", "absent", "reported"]


class Setup(NamedTuple):
    """What a benchmark is given."""

    scratch: Path
    """A directory of its own, removed afterwards."""
    seed: int
    quick: bool

    @property
    def pairs(self) -> int:
        return QUICK_PAIRS if self.quick else PAIRS

    def rng(self, purpose: str) -> Random:
        return Random(f"{self.seed} {purpose}")

    def pick(self, full: float, quick: float) -> float:
        return quick if self.quick else full


class Bar(NamedTuple):
    """One number that has to stay on the right side of a limit."""

    what: str
    value: float
    sense: Literal["<=", ">=", "<", "=="]
    limit: float
    unit: str = ""
    timed: bool = False
    of_disk: bool = False
    """A count that needs a disk to be slow: who waits for it shares the next sync."""
    alone: bool = False
    """Plain seconds, not a ratio or difference that a slow raw limit could flatter."""
    beside: tuple[float, ...] = ()
    """What the raw limit gave in each pair; its spread says whether a time can be judged."""

    def holds(self) -> bool:
        match self.sense:
            case "<=":
                return self.value <= self.limit
            case ">=":
                return self.value >= self.limit
            case "<":
                return self.value < self.limit
            case "==":
                return self.value == self.limit

    def holds_by(self, share: float) -> bool:
        """Whether it would hold, had the raw limit been slower by that share of itself."""
        return self.sense == ">=" and self.value >= self.limit * (1 + share)


class Absent(NamedTuple):
    """A bar that could not be measured here, and why."""

    what: str
    reason: str


@dataclass
class Outcome:
    """What one benchmark found."""

    bars: list[Bar] = field(default_factory=list[Bar])
    absent: list[Absent] = field(default_factory=list[Absent])
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])
    """Everything measured, counts before seconds."""


# --- judging --------------------------------------------------------------------------------


def spread(values: Sequence[float]) -> float:
    """How far the values lie apart, as a share of their median."""
    middle = statistics.median(values) if values else 0.0
    return (max(values) - min(values)) / middle if middle else 0.0


class Ground(NamedTuple):
    """What a run stood on, as far as it decides what can be judged."""

    quick: bool = False
    moved: bool = False
    """Whether the sources changed meanwhile."""
    diskless: bool = False
    """Whether a sync costs nothing here."""
    others: float = 0.0
    """The share of all processors that other processes had, or that the host took away."""


def judge(bar: Bar, ground: Ground) -> tuple[Verdict, str]:
    """The verdict on a bar, and the reason if it is not simply passed or failed."""
    if ground.moved:
        return "inconclusive", "the sources changed during the run"
    if bar.timed and ground.quick:
        return "reported", "times are not judged in a quick run"
    if ground.diskless and (bar.timed or bar.of_disk):
        return "inconclusive", "a sync costs nothing on this file system"
    if bar.timed and not (bar.alone and bar.holds()):
        varied = spread(bar.beside)
        if varied > MOST_SPREAD and not bar.holds_by(varied):
            return "inconclusive", f"the raw limit varied by {varied:.0%} within the run"
        if ground.others > MOST_OTHERS:
            return "inconclusive", f"others had {ground.others:.0%} of the processors"
    return ("passed" if bar.holds() else "failed"), ""


def judged(outcome: Outcome, ground: Ground) -> list[dict[str, Any]]:
    """Every bar with its verdict, as it is printed and stored."""
    rows: list[dict[str, Any]] = []
    for bar in outcome.bars:
        verdict, reason = judge(bar, ground)
        rows.append(
            {
                "what": bar.what,
                "value": significant(bar.value),
                "sense": bar.sense,
                "limit": bar.limit,
                "unit": bar.unit,
                "kind": "time" if bar.timed else "count",
                "raw_spread": significant(spread(bar.beside)) if bar.beside else None,
                "verdict": verdict,
                "reason": reason,
            }
        )
    rows += [
        {"what": what, "kind": "absent", "verdict": "absent", "reason": reason}
        for what, reason in outcome.absent
    ]
    return rows


def significant(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}") if abs(value) < 10**digits else round(value)


# --- measuring ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """What a number of operations cost."""

    count: int
    seconds: float
    cpu: float
    """User and system time of this process; the sum is exact, the split is not."""

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_each(self) -> float:
        """Microseconds of processor time for one operation."""
        return self.cpu / self.count * 1e6

    def __add__(self, other: Sample) -> Sample:
        return Sample(self.count + other.count, self.seconds + other.seconds, self.cpu + other.cpu)


NOTHING = Sample(0, 0.0, 0.0)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Watch:
    """How much of the processors went to others than this process and its children."""

    def __init__(self) -> None:
        self._then = self._now()

    def others(self) -> float:
        busy, total, own = (now - then for now, then in zip(self._now(), self._then, strict=True))
        return max(0.0, busy - own) / total if total else 0.0

    def _now(self) -> tuple[float, float, float]:
        try:
            row = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        except OSError:
            return 0.0, 0.0, 0.0
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user.
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in row.split()[1:9]]
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = cpu_seconds() + ended.ru_utime + ended.ru_stime
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks), own


def measured(work: Callable[[], int]) -> Sample:
    """Run `work`, which returns how many operations it did."""
    cpu, started = cpu_seconds(), time.perf_counter()
    count = work()
    return Sample(count, time.perf_counter() - started, cpu_seconds() - cpu)


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(
    ours: Callable[[], int], raw: Callable[[], int], turns: int, rng: Random
) -> tuple[Sample, Sample]:
    """One pair: both in turns, each turn in an order by chance."""
    totals = {ours: NOTHING, raw: NOTHING}
    for _ in range(turns):
        for work in rng.sample([ours, raw], 2):
            totals[work] += measured(work)
    return totals[ours], totals[raw]


def ratios(ours: Sequence[float], raw: Sequence[float]) -> list[float]:
    return [mine / theirs for mine, theirs in zip(ours, raw, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def rounded(values: Sequence[float]) -> list[float]:
    return [significant(value) for value in values]


# --- running --------------------------------------------------------------------------------


@contextlib.contextmanager
def scratch(name: str, under: Path) -> Generator[Path]:
    """A directory of its own, removed afterwards."""
    under.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=under))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            SCRATCH.rmdir()  # if it is ours and empty


def run(name: str, under: Path, *, seed: int, quick: bool) -> dict[str, Any]:
    """Run one benchmark; its whole record."""
    module = importlib.import_module(f"bench.{name}")
    sources = tree_hash(REPO / "src/holdfast")
    before, started = os.getloadavg(), time.monotonic()
    watch = Watch()
    with scratch(name, under) as path:
        kind = file_system(path)
        outcome: Outcome = module.run(Setup(path, seed, quick))
    others = watch.others()
    moved = tree_hash(REPO / "src/holdfast") != sources
    ground = Ground(quick, moved, diskless=kind in ("tmpfs", "ramfs"), others=others)
    return {
        "name": name,
        "quick": quick,
        "seed": seed,
        "bars": judged(outcome, ground),
        "numbers": outcome.numbers,
        "commit": commit(),
        "store_tree": tree_hash(REPO / "src/holdfast/store"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "file_system": kind,
        "python": platform.python_version(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(time.monotonic() - started, 1),
        "load_before": [round(each, 2) for each in before],
        "load_after": [round(each, 2) for each in os.getloadavg()],
        "others": round(others, 2),
    }


def store(record: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{record['name']}.json").write_text(text, encoding="utf-8")


def stored(name: str) -> dict[str, Any] | None:
    try:
        return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


# --- what it ran on -------------------------------------------------------------------------


def tree_hash(top: Path) -> str:
    """Hash over the names and bytes of the sources below `top`."""
    rows = [
        f"{file.relative_to(top).as_posix()} {sha256(file.read_bytes()).hexdigest()}\n"
        for file in sorted(top.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".md"
    ]
    return sha256("".join(rows).encode()).hexdigest()


def commit() -> str | None:
    """The commit checked out, or None outside git or before the first one."""
    try:
        asked = subprocess.run(
            ["git", "-C", str(REPO), "rev-parse", "--verify", "-q", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return asked.stdout.strip() or None


def file_system(path: Path) -> str:
    """The kind of file system that `path` is on."""
    best = ("", "unknown")
    with contextlib.suppress(OSError):
        for row in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            _, where, kind, *_ = row.split(" ")
            inside = str(path) == where or str(path).startswith(where.rstrip("/") + "/")
            if inside and len(where) >= len(best[0]):
                best = (where, kind)
    return best[1]


def child_environment() -> dict[str, str]:
    """The environment in which a child finds `holdfast` and `bench`, and nothing private."""
    private = ("HOLDFAST_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    return kept | {"PYTHONPATH": f"{REPO / 'src'}{os.pathsep}{REPO}"}
