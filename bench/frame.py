"""What every benchmark shares: pairs, bars, verdicts and the stored record.

A benchmark is a module `bench/NAME.py` with

    def run(setup: Setup) -> Outcome: ...

Ours and the raw limit are measured in turns, so that whatever else the machine does falls on
both; what counts is the median of the ratios of the pairs.  A bar is a number with a limit:

    a count  (fsyncs, syscalls, bytes) is the same on every machine and is always checked;
    a time   is checked in a full run only, and is inconclusive, neither passed nor failed,
             when the raw limit beside it varied by more than 30 % within the run;
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

REPO = Path(__file__).resolve().parent.parent
RESULTS = REPO / "bench/results"
SCRATCH = REPO / "bench/tmp"
NAMES = ("append", "verify", "open", "cli")
MOST_SPREAD = 0.30
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


def judge(bar: Bar, *, quick: bool, unfit: str | None = None) -> tuple[Verdict, str]:
    """The verdict on a bar, and the reason if it is not simply passed or failed."""
    if bar.timed:
        if quick:
            return "reported", "times are not judged in a quick run"
        if unfit:
            return "inconclusive", unfit
        met_anyway = bar.alone and bar.holds()
        if (varied := spread(bar.beside)) > MOST_SPREAD and not met_anyway:
            return "inconclusive", f"the raw limit varied by {varied:.0%} within the run"
    return ("passed" if bar.holds() else "failed"), ""


def judged(outcome: Outcome, *, quick: bool, unfit: str | None = None) -> list[dict[str, Any]]:
    """Every bar with its verdict, as it is printed and stored."""
    rows: list[dict[str, Any]] = []
    for bar in outcome.bars:
        verdict, reason = judge(bar, quick=quick, unfit=unfit)
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


class Sample(NamedTuple):
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

    def __add__(self, other: object) -> Sample:
        if not isinstance(other, Sample):
            return NotImplemented
        return Sample(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NOTHING = Sample(0, 0.0, 0.0)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


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
def scratch(name: str, under: Path) -> Iterator[Path]:
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
    with scratch(name, under) as path:
        kind = file_system(path)
        outcome: Outcome = module.run(Setup(path, seed, quick))
    unfit = None
    if kind in ("tmpfs", "ramfs"):
        unfit = f"{kind} syncs nothing"
    if tree_hash(REPO / "src/holdfast") != sources:
        unfit = "the sources changed during the run"
    return {
        "name": name,
        "quick": quick,
        "seed": seed,
        "bars": judged(outcome, quick=quick, unfit=unfit),
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
