"""The command line: one event written by one process, against a bare interpreter."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
from pathlib import Path

from bench import trace
from bench.frame import (
    Absent,
    Bar,
    Outcome,
    Setup,
    child_environment,
    percentile,
    ratios,
    rounded,
    seconds_of,
    significant,
)

RUNS, QUICK_RUNS = 20, 6
GROUP = 4
MOST_SECONDS = 0.15
WHAT = "`holdfast ledger write` as a process"
OTHERS = {"`holdfast session beat` as a process": ["session", "beat", "--agent", "rio"]}
NEEDED = ("holdfast.cli.main", "holdfast.ops.ledger")


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        outcome.absent.append(Absent(WHAT, f"{', '.join(missing)} does not exist yet"))
        return outcome
    home = setup.scratch / "home"
    program = "import sys; from holdfast.cli.main import main; sys.exit(main())"
    holdfast = [sys.executable, "-c", program]
    call([*holdfast, "init", "rio"], home)
    write = [*holdfast, "ledger", "write", "--agent", "rio", "--event", "task_start"]
    write += ["--task", "wo-1", "Reading the logs"]
    call(write, home)
    ours: list[float] = []
    raw: list[float] = []
    for _ in range(QUICK_RUNS if setup.quick else RUNS):
        raw.append(seconds_of(lambda: call([sys.executable, "-c", "pass"], home)))
        ours.append(seconds_of(lambda: call(write, home)))
    output = setup.scratch / "trace.txt"
    untraced = trace.traced(write, output, environment(home))
    traced = None if untraced else trace.calls(output)
    groups = [statistics.median(raw[at : at + GROUP]) for at in range(0, len(raw), GROUP)]
    outcome.numbers = {
        "modules_loaded": modules_loaded(write, home),
        "syncs": traced.syncs if traced else untraced,
        "system_calls": traced.calls.total() if traced else untraced,
        "median_ms": significant(statistics.median(ours) * 1e3),
        "p90_ms": significant(percentile(ours, 0.9) * 1e3),
        "raw_median_ms": significant(statistics.median(raw) * 1e3),
        "ratio_to_bare_python": significant(statistics.median(ratios(ours, raw))),
        "ms": rounded([each * 1e3 for each in ours]),
        "raw_ms": rounded([each * 1e3 for each in raw]),
    }
    outcome.bars.append(_bar(WHAT, ours, groups))
    call([*holdfast, "session", "start", "--agent", "rio"], home)
    for what, words in OTHERS.items():
        took = [
            seconds_of(lambda words=words: call([*holdfast, *words], home))
            for _ in range(QUICK_RUNS if setup.quick else RUNS)
        ]
        outcome.bars.append(_bar(what, took, groups))
    return outcome


def _bar(what: str, seconds: list[float], beside: list[float]) -> Bar:
    median = statistics.median(seconds) * 1e3
    most = MOST_SECONDS * 1e3
    return Bar(what, median, "<", most, "ms", timed=True, alone=True, beside=tuple(beside))


def environment(home: Path) -> dict[str, str]:
    return child_environment() | {"HOLDFAST_HOME": str(home)}


def call(command: list[str], home: Path) -> str:
    ran = subprocess.run(
        command, env=environment(home), capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise AssertionError(f"{command[1:]} exits {ran.returncode}: {ran.stderr[-500:]}")
    return ran.stderr


def modules_loaded(write: list[str], home: Path) -> int:
    """How many modules one call imports: a count that no noise moves."""
    told = call([write[0], "-X", "importtime", *write[1:]], home)
    return sum(row.startswith("import time:") for row in told.splitlines())
