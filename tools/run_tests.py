"""Everything that must be green, in areas, with the time of each.

    python tools/run_tests.py [--seed N] [AREA ...]

Areas run in three lanes side by side: most tests wait for a disk or for processes.  Prints live; at
the end minutes, counts and skips with their reasons.  Red when a check or a test fails, when an
area hangs, when a test directory belongs to no area, or when it takes longer than 15 minutes.  The
last line of standard output is `N passed, N failed, N skipped`.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import IO, NamedTuple, NoReturn
from xml.etree import ElementTree

REPO = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
BIN = Path(PYTHON).parent
SCREENS = REPO / "build" / "screens"
MOST_MINUTES = 15.0
LATER = "TESTED_LATER"
"""Areas, with commas between, that the caller runs afterwards in a larger tier."""
TALLY = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")


class Area(NamedTuple):
    """Either `tests`, run by pytest, or `checks`, each a command that counts as one test."""

    name: str
    minutes: float
    """After this the area is ended and red: a hang must not look like work."""
    tests: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    """Modules of which these tests must take every branch."""
    checks: tuple[tuple[str, ...], ...] = ()
    package: str | None = None
    """Or a package to run, absent until it is there.  What it prints is counted: a last line
    `N passed, N failed, N skipped`, and for each skip a line of JSON with the reason as
    `skipped`."""
    arguments: tuple[str, ...] = ()
    lane: int = 0


AREAS = (
    Area(
        "lint",
        minutes=4,
        checks=(
            ("ruff", "check"),
            ("ruff", "format", "--check"),
            ("lint-imports", "--no-logo", "--no-cache"),
            ("pyright", "--pythonpath", PYTHON),
            ("python", "tools/lint_calls.py"),
        ),
    ),
    Area("store", 8, tests=("tests/store",), covers=("holdfast.store", "holdfast.codec")),
    Area("leaves", 3, tests=("tests/leaves",)),
    Area("cli+ops", 10, tests=("tests/cli", "tests/ops"), lane=1),
    Area("contracts", 4, tests=("tests/contracts",)),
    Area("proc", 3, tests=("tests/proc",)),
    Area("ledger", 6, tests=("tests/ledger",), lane=2),
    Area("jobs", 8, tests=("tests/jobs",), lane=1),
    Area("workspace", 5, tests=("tests/workspace",), lane=1),
    Area("agents", 10, tests=("tests/agents", "tests/spend"), lane=1),
    Area("desk", 6, tests=("tests/desk",), lane=2),
    Area("web", 10, tests=("tests/web",), lane=2),
    Area("models", 8, tests=("tests/models",), lane=2),
    Area("docs", 5, tests=("tests/docs", "tests/examples"), lane=2),
    Area("peers", 3, tests=("tests/peers",)),
    Area("prove", 8, package="prove", arguments=("--tier", "quick")),
    Area("bench", 5, package="bench", arguments=("--quick",)),
)


@dataclass
class Result:
    area: str
    absent: bool = False
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skips: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    def fault(self, says: str) -> None:
        self.failed += 1
        self.faults.append(says)


def main() -> int:
    chosen = parse_arguments()
    later = os.environ.get(LATER, "").split(",")
    areas = [area for area in AREAS if area.name in (chosen.areas or {each.name for each in AREAS})]
    if not chosen.areas and (left := [area.name for area in areas if area.name in later]):
        say(f"left to the caller, who runs more of it: {', '.join(left)}")
        areas = [area for area in areas if area.name not in left]
    start = time.monotonic()
    results = in_lanes(areas, chosen.seed)
    results[0].faults += (strays := list(unlisted_tests()))
    results[0].failed += len(strays)
    return report(results, time.monotonic() - start, chosen.seed)


def parse_arguments() -> argparse.Namespace:
    names = [area.name for area in AREAS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(names))
    chosen = parser.parse_args()
    if unknown := set(chosen.areas) - set(names):
        parser.error(f"no area {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return chosen


# --- running --------------------------------------------------------------------------------


def in_lanes(areas: list[Area], seed: int) -> list[Result]:
    """Run every area, each lane in a process of its own: it ends whatever its areas leave."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as scratch:
        lanes: dict[int, Path] = {}
        for lane in sorted({area.lane for area in areas}):
            place = Path(scratch) / str(lane)
            place.mkdir()
            if (child := os.fork()) == 0:
                run_lane([area for area in areas if area.lane == lane], place, seed)
            lanes[child] = place
        found: dict[str, Result] = {}
        for child, place in lanes.items():
            os.waitpid(child, 0)
            with contextlib.suppress(FileNotFoundError):
                found |= pickle.loads((place / "results").read_bytes())
    return [found.get(area.name) or lost(area) for area in areas]


def run_lane(areas: list[Area], scratch: Path, seed: int) -> NoReturn:
    adopt_orphans()
    # Whoever ends the test run ends its lanes, and they what they started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM, 0, 0, 0)
    try:
        results = {area.name: run_area(area, scratch, seed) for area in areas}
        (scratch / "results").write_bytes(pickle.dumps(results))
    finally:
        os._exit(0)


def lost(area: Area) -> Result:
    result = Result(area.name)
    result.fault("its lane ended before it")
    return result


def run_area(area: Area, scratch: Path, seed: int) -> Result:
    result = Result(area.name)
    commands = list(commands_of(area, seed))
    if not commands:
        result.absent = True
        return result
    start = time.monotonic()
    for command in commands:
        say(f"\n==> {area.name}: {' '.join(command)}")
        left = area.minutes * 60 - (time.monotonic() - start)
        env = environment(scratch)
        failed = result.failed
        if area.tests:
            junit = scratch / f"{area.name}.xml"
            status, _ = run((*command, f"--junit-xml={junit}"), env, left)
            counted = count_cases(result, junit)
        else:
            status, printed = run(command, env, left, listen=area.package is not None)
            counted = count_printed(result, printed)
        if verdict := fault_of(status, counted, result.failed > failed):
            result.fault(f"{' '.join(command)}: {verdict}")
        elif not counted:
            result.passed += 1
    result.seconds = time.monotonic() - start
    return result


def commands_of(area: Area, seed: int) -> Iterator[tuple[str, ...]]:
    yield from area.checks
    if area.package and (REPO / area.package / "__main__.py").exists():
        yield ("python", "-m", area.package, *area.arguments)
    if there := [folder for folder in area.tests if any((REPO / folder).rglob("test_*.py"))]:
        coverage = [f"--cov={module}" for module in area.covers]
        if coverage:
            coverage += ["--cov-branch", "--cov-report=term-missing", "--cov-fail-under=100"]
        yield ("python", "-m", "pytest", *there, f"--randomly-seed={seed}", *coverage)


def environment(scratch: Path) -> dict[str, str]:
    """The caller's environment without what would make two machines differ."""
    private = ("HOLDFAST_", "XDG_", "GIT_", "PYTEST_", "PYTHON", "COV_", "COVERAGE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    return kept | {
        "HOME": str(home),
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "COVERAGE_FILE": str(scratch / "coverage"),
        # Otherwise pyright asks the network whether there is a newer one.
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }


def run(
    command: tuple[str, ...], env: dict[str, str], seconds: float, *, listen: bool = False
) -> tuple[int | None, list[str]]:
    """Exit status (None when time ran out) and, if we listen, what was printed.

    Nothing that was started survives.
    """
    program = shutil.which(command[0], path=env["PATH"]) or command[0]
    process = subprocess.Popen(
        (program, *command[1:]),
        cwd=REPO,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if listen else None,
        start_new_session=True,
    )
    printed: list[str] = []
    listener = Thread(target=repeat, args=(process.stdout, printed))
    if listen:
        listener.start()
    try:
        return process.wait(max(seconds, 1.0)), printed
    except subprocess.TimeoutExpired:
        return None, printed
    finally:
        process.kill()
        process.wait()
        end_survivors()
        if listen:
            # The pipe ends when the last process that could write to it has ended.
            listener.join()


def repeat(stream: IO[bytes], printed: list[str]) -> None:
    for raw in stream:
        line = raw.decode(errors="replace").rstrip("\n")
        printed.append(line)
        say(line)


def adopt_orphans() -> None:
    """Become the parent of whatever our children leave behind, so that it can be ended."""
    if sys.platform == "linux":
        set_child_subreaper = 36
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def end_survivors() -> None:
    for _ in range(20):
        survivors = descendants(os.getpid())
        if not survivors:
            return
        for pid, name in survivors.items():
            say(f"left running, ended: {name} ({pid})")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        reap()


def descendants(ancestor: int) -> dict[int, str]:
    """Living processes below `ancestor`, with their names."""
    parents: dict[int, tuple[int, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text(encoding="utf-8", errors="replace").partition(" (")
        except OSError:
            continue
        name, _, fields = rest.rpartition(") ")
        state, parent = fields.split(" ", 2)[:2]
        if state != "Z":
            parents[int(pid)] = (int(parent), name)
    found: dict[int, str] = {}
    frontier = {ancestor}
    while frontier:
        frontier = {pid for pid, (parent, _) in parents.items() if parent in frontier}
        found |= {pid: parents[pid][1] for pid in frontier}
    return found


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


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


def count_printed(result: Result, printed: list[str]) -> bool:
    """Count what a package of ours printed; whether it ended with a tally."""
    tally = TALLY.fullmatch(printed[-1]) if printed else None
    if tally is None:
        return False
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


def report(results: list[Result], seconds: float, seed: int) -> int:
    say(f"\n{'area':<10}{'minutes':>8}{'passed':>8}{'failed':>8}{'skipped':>9}")
    for result in results:
        if result.absent:
            say(f"{result.area:<10}{'absent':>8}")
            continue
        counts = f"{result.passed:>8}{result.failed:>8}{result.skips.total():>9}"
        say(f"{result.area:<10}{result.seconds / 60:>8.2f}{counts}")
    say(f"{'total':<10}{seconds / 60:>8.2f} of {MOST_MINUTES:.0f}; seed {seed}")

    failed = sum(result.failed for result in results)
    for result in results:
        for fault in result.faults:
            say(f"failed: {result.area}: {fault}")
    if seconds > MOST_MINUTES * 60:
        say(f"failed: total: took longer than {MOST_MINUTES:.0f} minutes")
        failed += 1

    skips = sum((result.skips for result in results), Counter[str]())
    if skips:
        reasons = ", ".join(f"{reason} ({times})" for reason, times in skips.most_common())
        say(f"skipped {skips.total()}: {reasons}")
    if any(result.area == "web" for result in results) and any(SCREENS.glob("*.png")):
        say(f"what the browser saw: {SCREENS.relative_to(REPO)}")
    passed = sum(result.passed for result in results)
    say(f"{passed} passed, {failed} failed" + (f", {skips.total()} skipped" if skips else ""))
    return 1 if failed else 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
