"""Everything that must be green, in areas, with the time of each.

    python tools/run_tests.py [--seed SEED] [--tier quick|ci] [AREA ...]

Areas of tests and fault harnesses run from one queue, the longest first.  A harness whose last
full result still holds (same store, same harness) runs its quick tier in `ci` and not at all in
`quick`; otherwise it runs the tier that is asked for.

Prints what an area printed when it ends; at the end minutes of wall and CPU time, counts, and skips
with their reasons.  Red when a check or a test fails, when an area hangs, when a test directory
belongs to no area, or when all of it takes more CPU time than two cores have in the time allowed.
The last line of standard output is `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))
from tools.workers import WORKERS, Done, Piece, in_workers, run, say  # noqa: E402

PYTHON = sys.executable
BIN = Path(PYTHON).parent
SCREENS = REPO / "build" / "screens"
MINUTES = {"quick": 6, "ci": 14}
"""What all areas may take together on two cores that have nothing else to do."""
CORES = 2
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
"""Where tests run that do not judge a disk, and what must be free there."""
MOSTLY_OURS = 0.85
"""From this share of the machine's CPU time on, nobody else was to blame."""
TALLY = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")


class Area(NamedTuple):
    """Either `tests`, run by pytest, or `checks`, each a command that counts as one test."""

    name: str
    seconds: float
    """About how long it takes: the longest are begun first."""
    minutes: float
    """After this the area is ended and red: a hang must not look like work."""
    tests: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    """Modules of which these tests must take every branch."""
    checks: tuple[tuple[str, ...], ...] = ()
    on_disk: bool = False
    """Whether these tests judge what a disk keeps; others run in memory where there is room."""
    harness: tuple[str, ...] = ()
    """Or a command of `prove`.  What it prints is counted: a last line `N passed, N failed,
    N skipped`, and for each skip a line of JSON with the reason as `skipped`."""


AREAS = (
    Area("types", 30, 4, checks=(("pyright", "--pythonpath", PYTHON),)),
    Area(
        "lint",
        20,
        4,
        checks=(
            ("ruff", "check"),
            ("ruff", "format", "--check"),
            ("lint-imports", "--no-logo", "--no-cache"),
            ("python", "tools/lint_calls.py"),
            ("python", "tools/budgets.py"),
        ),
    ),
    Area(
        "store",
        60,
        8,
        tests=("tests/store", "tests/state"),
        covers=("holdfast.store", "holdfast.codec", "holdfast.state"),
        on_disk=True,
    ),
    Area("leaves", 20, 3, tests=("tests/leaves",)),
    Area("cli+ops", 55, 10, tests=("tests/cli", "tests/ops")),
    Area("contracts", 35, 4, tests=("tests/contracts", "tests/validate")),
    Area("proc", 20, 3, tests=("tests/proc",)),
    Area("ledger", 35, 6, tests=("tests/ledger", "tests/interop")),
    Area("jobs", 80, 8, tests=("tests/jobs",)),
    Area("swarm", 20, 6, tests=("tests/swarm",)),
    Area("workspace", 30, 6, tests=("tests/workspace",)),
    Area("improve", 40, 6, tests=("tests/improve",)),
    Area("agents", 60, 10, tests=("tests/agents", "tests/calls", "tests/spend")),
    Area("desk", 30, 6, tests=("tests/desk",)),
    Area("web", 100, 10, tests=("tests/web",)),
    Area("memory", 30, 6, tests=("tests/memory",)),
    Area("models", 30, 8, tests=("tests/models",)),
    Area("docs", 35, 5, tests=("tests/docs", "tests/examples")),
    Area("peers", 20, 3, tests=("tests/peers", "tests/tools")),
)
HARNESSES = "prove"
"""The area that stands for all harnesses; `prove/NAME` is one of them."""


@dataclass
class Result:
    area: str
    seconds: float = 0.0
    cpu: float = 0.0
    passed: int = 0
    failed: int = 0
    skips: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    def fault(self, says: str) -> None:
        self.failed += 1
        self.faults.append(says)


def main() -> int:
    chosen = parse_arguments()
    start, busy = time.monotonic(), busy_seconds()
    areas = [area for area in AREAS if not chosen.areas or area.name in chosen.areas]
    results = [Result("repository")]
    for stray in unlisted_tests():
        results[0].fault(stray)
    wanted = [name for name in chosen.areas if name.partition("/")[0] == HARNESSES]
    if wanted or not chosen.areas:
        areas += harnesses(wanted, chosen, results[0])
    pieces = [
        Piece(area.name, area.seconds, lambda place, area=area: run_area(area, place, chosen.seed))
        for area in areas
    ]
    results += [result_of(done) for done in in_workers(pieces, chosen.workers)]
    took = Took(time.monotonic() - start, busy_seconds() - busy)
    return report(results, took, chosen)


def parse_arguments() -> argparse.Namespace:
    names = [*(area.name for area in AREAS), HARNESSES]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(2**32)))
    parser.add_argument("--tier", choices=MINUTES, default="quick", help="of the fault harnesses")
    parser.add_argument("--workers", type=int, default=WORKERS, help="areas side by side")
    areas = f"{', '.join(names)}, {HARNESSES}/NAME"
    parser.add_argument("areas", nargs="*", metavar="AREA", help=areas)
    chosen = parser.parse_args()
    if unknown := {name for name in chosen.areas if name.partition("/")[0] not in names}:
        parser.error(f"no area {', '.join(sorted(unknown))}; there are {areas}")
    return chosen


def harnesses(wanted: list[str], chosen: argparse.Namespace, result: Result) -> Iterator[Area]:
    """An area for each harness that has to run; those that are named run in any case."""
    prove = (PYTHON, "-m", "prove")
    planned = subprocess.run(
        (*prove, "--plan", chosen.tier), cwd=REPO, capture_output=True, text=True, check=False
    )
    if planned.returncode != 0:
        result.fault(f"the harnesses cannot be planned: {planned.stderr.strip()}")
    names = {name.partition("/")[2] for name in wanted}
    rows = [json.loads(line) for line in planned.stdout.splitlines()]
    for unknown in sorted(names - {row["name"] for row in rows} - {""}):
        result.fault(f"no harness {unknown}")
    held: list[str] = []
    for row in rows:
        name, tier, seconds = row["name"], row["tier"], row["seconds"]
        if names - {""}:
            if name not in names:
                continue
            tier = tier or chosen.tier
        if tier is None:
            held.append(name)
            continue
        command = (*prove, "--name", name, "--tier", tier, "--seed", chosen.seed)
        yield Area(f"{HARNESSES}/{name}", seconds, 5 + seconds / 15, harness=command)
    if held:
        say(f"held by the last full result, not run again: {', '.join(held)}")


# --- running --------------------------------------------------------------------------------


def result_of(done: Done) -> Result:
    result = done.value
    if result is None:
        result = Result(done.name)
        result.fault("its process ended before it did")
    result.seconds, result.cpu = done.seconds, done.cpu
    verdict = f"{result.failed} failed" if result.failed else "passed"
    say(f"==> {done.name}: {verdict} in {done.seconds:.0f} s, CPU {done.cpu:.0f} s")
    return result


def run_area(area: Area, scratch: Path, seed: str) -> Result:
    if not area.tests or area.on_disk or not roomy(MEMORY):
        return run_commands(area, scratch, seed)
    with tempfile.TemporaryDirectory(prefix="hf-", dir=MEMORY) as place:
        return run_commands(area, Path(place), seed)


def roomy(folder: Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free > ROOM


def run_commands(area: Area, scratch: Path, seed: str) -> Result:
    result, start = Result(area.name), time.monotonic()
    for command in commands_of(area, seed):
        say(f"\n==> {area.name}: {' '.join(command)}")
        left = area.minutes * 60 - (time.monotonic() - start)
        failed, counted = result.failed, False
        junit = scratch / f"{len(result.faults)}.xml"
        if area.tests:
            command = (*command, f"--junit-xml={junit}")
        status = run(command, environment(scratch), REPO, left)
        if area.tests:
            counted = count_cases(result, junit)
        elif area.harness:
            counted = count_printed(result, scratch / "output")
        if verdict := fault_of(status, counted, result.failed > failed):
            result.fault(f"{' '.join(command)}: {verdict}")
        elif not counted:
            result.passed += 1
    return result


def commands_of(area: Area, seed: str) -> Iterator[tuple[str, ...]]:
    yield from area.checks
    if area.harness:
        yield area.harness
    if area.tests:
        coverage = [f"--cov={module}" for module in area.covers]
        if coverage:
            coverage += ["--cov-branch", "--cov-report=term-missing", "--cov-fail-under=100"]
        order = int(seed) if seed.isdecimal() else int(sha256(seed.encode()).hexdigest()[:8], 16)
        yield ("python", "-m", "pytest", *area.tests, f"--randomly-seed={order}", *coverage)


def environment(scratch: Path) -> dict[str, str]:
    """The caller's environment without what would make two machines differ."""
    private = ("HOLDFAST_", "XDG_", "GIT_", "PYTEST_", "PYTHON", "COV_", "COVERAGE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    return kept | {
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "COVERAGE_FILE": str(scratch / "coverage"),
        # Otherwise pyright asks the network whether there is a newer one.
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }


# --- counting -------------------------------------------------------------------------------


def count_cases(result: Result, junit: Path) -> bool:
    """Count what pytest wrote; whether there was anything."""
    try:
        cases = list(ElementTree.parse(junit).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return False
    for case in cases:
        name = f"{case.get('classname', '')}.{case.get('name', '')}".strip(".")
        if case.find("failure") is not None or case.find("error") is not None:
            result.fault(name)
        elif (skipped := case.find("skipped")) is not None:
            result.skips[skipped.get("message") or "no reason given"] += 1
        else:
            result.passed += 1
    return bool(cases)


def count_printed(result: Result, output: Path) -> bool:
    """Count what a harness printed; whether it ended with a tally."""
    printed = output.read_text(encoding="utf-8", errors="replace").splitlines()
    tallies = [tally for line in printed if (tally := TALLY.fullmatch(line))]
    if not tallies:
        return False
    tally = tallies[-1]
    passed, failed, skipped = (int(number or 0) for number in tally.groups())
    result.passed += passed
    for _ in range(failed):
        result.fault("see above")
    reasons = Counter(reason for line in printed if (reason := skip_reason(line)))
    reasons["no reason given"] += skipped - reasons.total()
    result.skips += reasons
    return True


def skip_reason(line: str) -> str | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    reason = record.get("skipped") if isinstance(record, dict) else None
    return reason if isinstance(reason, str) else None


def fault_of(status: int | None, counted: bool, failed: bool) -> str | None:
    """What is wrong with a command itself, beside the failures that were counted."""
    if status is None:
        return "took too long and was ended"
    if status == 0 or failed:
        return None
    return f"exit status {status}" + (" though nothing failed: coverage?" if counted else "")


def unlisted_tests() -> Iterator[str]:
    listed = [REPO / folder for area in AREAS for folder in area.tests]
    for file in sorted((REPO / "tests").rglob("test_*.py")):
        if not any(file.is_relative_to(folder) for folder in listed):
            yield f"{file.relative_to(REPO)}: in no area of tools/run_tests.py, so never run"


class Took(NamedTuple):
    seconds: float
    busy: float
    """CPU seconds of everything on this machine meanwhile."""


def busy_seconds() -> float:
    """CPU time that was spent on this machine since it was started."""
    first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    user, nice, system, _, _, *more = (int(number) for number in first.split()[1:9])
    return (user + nice + system + sum(more)) / os.sysconf("SC_CLK_TCK")


def report(results: list[Result], took: Took, chosen: argparse.Namespace) -> int:
    say(f"\n{'area':<22}{'wall s':>8}{'CPU s':>8}{'passed':>8}{'failed':>8}{'skipped':>9}")
    for result in sorted(results, key=lambda result: -result.cpu):
        counts = f"{result.passed:>8}{result.failed:>8}{result.skips.total():>9}"
        say(f"{result.area:<22}{result.seconds:>8.0f}{result.cpu:>8.0f}{counts}")
    cpu, limit = sum(result.cpu for result in results), MINUTES[chosen.tier]
    say(f"{'total':<22}{took.seconds:>8.0f}{cpu:>8.0f}  of {limit} min; seed {chosen.seed}")

    failed = sum(result.failed for result in results)
    for result in results:
        for fault in result.faults:
            say(f"failed: {result.area}: {fault}")
    if verdict := too_slow(cpu, took, limit):
        say(verdict)
        failed += verdict.startswith("failed")

    skips = sum((result.skips for result in results), Counter[str]())
    if skips:
        reasons = ", ".join(f"{reason} ({times})" for reason, times in skips.most_common())
        say(f"skipped {skips.total()}: {reasons}")
    if any(result.area == "web" for result in results) and any(SCREENS.glob("*.png")):
        say(f"what the browser saw: {SCREENS.relative_to(REPO)}")
    passed = sum(result.passed for result in results)
    say(f"{passed} passed, {failed} failed" + (f", {skips.total()} skipped" if skips else ""))
    return 1 if failed else 0


def too_slow(cpu: float, took: Took, limit: int) -> str | None:
    """CPU time decides; wall time too, unless other work on the machine used its cores."""
    if cpu > limit * 60 * CORES:
        return f"failed: {cpu:.0f} CPU s do not fit into {limit} minutes on {CORES} cores"
    if took.seconds <= limit * 60:
        return None
    if cpu > MOSTLY_OURS * took.busy:
        return f"failed: took longer than {limit} minutes, with the machine to itself"
    share = f"{cpu:.0f} of {took.busy:.0f} CPU s were ours"
    return f"warning: took longer than {limit} minutes, but the machine was shared: {share}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
