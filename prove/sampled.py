"""How many random changes of the source outside the store do a room's tests notice?

    python -m prove --name mutants --area AREA [AREA ...] [--seed S]

Nobody chose these changes, so the share that is noticed says what the tests of a room are worth.
Each runs only tests that executed the changed line, the quickest first, up to a limit of CPU time,
and stops at the first that fails.  The result is kept in `results/mutants-outside.json` beside the
commit, mutant by mutant: a run that was ended goes on where it was.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from prove.frame import REPO, RESULTS, child_environment, commit, scratch

AREAS = {
    "agents": ("tests/agents", "tests/desk"),
    "jobs": ("tests/jobs", "tests/workspace"),
    "ledger": ("tests/ledger",),
    "ops": ("tests/ops", "tests/cli"),
    "spend": ("tests/spend", "tests/agents"),
}
"""Folders of tests for each room of `src/holdfast`; one that does not exist is passed over."""
RESULT = RESULTS / "mutants-outside.json"
_COUNT = 60
_CPU, _TESTS = 10.0, 100
"""The most seconds of CPU time, and the most tests, for one mutant."""
_PATIENCE = 300.0
"""Wall time after which a mutant hangs, on a machine that may be busy."""
_FAILED, _INTERRUPTED = 1, 2
_RECORDING = 10_000.0
_BEGUN = pytest.StashKey[float]()

_COMPARED = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult}
_PASSED_OVER = (ast.JoinedStr, ast.AnnAssign, ast.arg, ast.Global, ast.Import, ast.ImportFrom)


class Change(NamedTuple):
    """One change of one file: characters `start` to `end` become `new`."""

    file: str
    """Below `src`."""
    line: int
    last: int
    kind: str
    start: int
    end: int
    new: str


class Covered(NamedTuple):
    """What the tests of a room executed when all were well."""

    lines: dict[tuple[str, int], set[str]]
    """The tests that executed a line, by file and number."""
    cpu: dict[str, float]
    """CPU time of each test that passed."""


# --- the changes ----------------------------------------------------------------------------


def changes_in(source: Path, area: str) -> list[Change]:
    """Every change that could be made in an area, in order."""
    found: list[Change] = []
    for path in sorted((source / "holdfast" / area).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found += _changes(path.relative_to(source).as_posix(), text)
    return found


def _changes(file: str, text: str) -> Iterator[Change]:
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data = text.encode()
    for node, kind, new in _mutations(ast.parse(text)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        changed = (data[:start] + new.encode() + data[end:]).decode()
        try:
            compile(changed, file, "exec")
        except SyntaxError:
            continue
        yield Change(file, node.lineno, node.end_lineno or node.lineno, kind, start, end, new)


def _mutations(tree: ast.AST) -> Generator[tuple[Any, str, str]]:  # noqa: C901 - a table
    """A node, what is done to it, and the text that takes its place."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _PASSED_OVER) or _is_for_types(node):
            continue
        match node:
            case ast.Compare(ops=[operator]) if type(operator) in _COMPARED:
                other = ast.Compare(node.left, [_COMPARED[type(operator)]()], node.comparators)
                yield node, "comparison", f"({ast.unparse(other)})"
            case ast.BoolOp():
                other = ast.BoolOp(
                    ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values
                )
                yield node, "and/or", f"({ast.unparse(other)})"
            case ast.UnaryOp(op=ast.Not()):
                yield node, "not", f"({ast.unparse(node.operand)})"
            case ast.BinOp(op=operator) if type(operator) in _COMPUTED and not _has_text(node):
                other = ast.BinOp(node.left, _COMPUTED[type(operator)](), node.right)
                yield node, "arithmetic", f"({ast.unparse(other)})"
            case ast.Constant(value=bool() as value):
                yield node, "constant", str(not value)
            case ast.Constant(value=int() | float() as value):
                yield node, "constant", str(value + 1)
            case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
                yield node, "return", "return None"
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise():
                yield node, "statement", "pass"
            case ast.Continue():
                yield node, "loop", "break"
            case ast.Break():
                yield node, "loop", "continue"
            case ast.If() | ast.While() | ast.IfExp() if not isinstance(
                node.test, ast.Compare | ast.BoolOp | ast.UnaryOp
            ):
                yield node.test, "condition", f"(not ({ast.unparse(node.test)}))"
            case _:
                pass
        yield from _mutations(node)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _has_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(each, ast.JoinedStr)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
        for each in ast.walk(node)
    )


def sample(changes: list[Change], area: str, seed: str, count: int) -> list[Change]:
    rng = Random(f"{area}|{seed}")
    return rng.sample(changes, min(count, len(changes)))


# --- which tests execute a line -------------------------------------------------------------


def recorded(areas: Sequence[str], tree: Path) -> Covered:
    """Run the tests of some areas once, with the lines that each of them executes."""
    settings, database, log = tree / "coveragerc", tree / "coverage", tree / "passed.jsonl"
    packages = " ".join(f"holdfast.{area}" for area in areas)
    settings.write_text(
        f"[run]\nparallel = true\nsource_pkgs = {packages.replace(' ', chr(10) + '    ')}\n"
        f"data_file = {database}\npatch = _exit, subprocess\n",
        encoding="utf-8",
    )
    folders = sorted({each for area in areas for each in AREAS[area] if (REPO / each).is_dir()})
    run = ["-m", "coverage", "run", f"--rcfile={settings}"]
    _pytest(tree, folders, run, {"SAMPLED_LOG": str(log)}, _RECORDING)
    combine = [sys.executable, "-m", "coverage", "combine", "-q", f"--rcfile={settings}"]
    subprocess.run(combine, cwd=tree, check=True, env=child_environment(tree / "src"))
    cpu: dict[str, float] = {}
    failed: set[str] = set()
    for line in log.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        cpu[row["test"]] = row["cpu"]
        if not row["passed"]:
            failed.add(row["test"])
    cpu = {test: each for test, each in cpu.items() if test not in failed}
    return Covered(_lines(database, tree / "src", cpu), cpu)


def _lines(
    database: Path, source: Path, known: dict[str, float]
) -> dict[tuple[str, int], set[str]]:
    """The database of `coverage` as a table."""
    from coverage.numbits import numbits_to_nums  # noqa: PLC0415 - a tool of ours, not of users

    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    with sqlite3.connect(database) as rows:
        query = (
            "select path, context, numbits from line_bits "
            "join file on file.id = file_id join context on context.id = context_id"
        )
        for path, context, numbits in rows.execute(query):
            if context in known:
                name = Path(path).relative_to(source).as_posix()
                for number in numbits_to_nums(numbits):
                    found[name, number].add(context)
    return found


def tests_of(change: Change, area: str, covered: Covered) -> list[str]:
    """Tests of the area that executed what is changed, the quickest first.

    What is executed when a module is imported belongs to every test that executes anything of it.
    """
    every = range(change.line, change.last + 1)
    found = set[str]().union(*(covered.lines.get((change.file, line), ()) for line in every))
    if not found:
        rows = covered.lines.items()
        found = set[str]().union(*(tests for (file, _), tests in rows if file == change.file))
    chosen, left = list[str](), _CPU
    for test in sorted(found, key=lambda test: (covered.cpu[test], test)):
        if not test.startswith(tuple(f"{folder}/" for folder in AREAS[area])):
            continue
        left -= covered.cpu[test]
        if chosen and (left < 0 or len(chosen) == _TESTS):
            break
        chosen.append(test)
    return chosen


# --- running --------------------------------------------------------------------------------


def run(areas: Sequence[str], seed: str) -> None:
    """Try the samples of some areas and keep what comes of each mutant."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that pytest is ended too
    with scratch("sampled") as tree:
        shutil.copytree(REPO / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
        started = time.monotonic()
        covered = recorded(areas, tree)
        print(f"{len(covered.cpu)} tests, {time.monotonic() - started:.0f} s", flush=True)
        for area in areas:
            _run_area(area, seed, tree, covered)


def _run_area(area: str, seed: str, tree: Path, covered: Covered) -> None:
    changes = changes_in(tree / "src", area)
    chosen = sample(changes, area, seed, _COUNT)
    kept = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    record: dict[str, Any] = {"commit": commit(), "seed": seed, "possible": len(changes)}
    before: dict[str, Any] = kept.get(area, {})
    rows: list[dict[str, Any]] = []
    if record.items() <= before.items():
        rows = before["mutants"]
    for number, change in enumerate(chosen[len(rows) :], len(rows) + 1):
        old = (tree / "src" / change.file).read_bytes()[change.start : change.end].decode()
        verdict, by, seconds = try_change(change, tests_of(change, area, covered), tree, number)
        row = {"file": change.file, "line": change.line, "kind": change.kind}
        row |= {"old": " ".join(old.split())[:160], "new": " ".join(change.new.split())[:160]}
        rows.append(row | {"verdict": verdict, "by": by, "seconds": round(seconds, 1)})
        caught = sum(row["verdict"] == "caught" for row in rows)
        record |= {"tried": len(rows), "caught": caught, "mutants": rows}
        RESULT.write_text(json.dumps(kept | {area: record}, indent=1) + "\n", encoding="utf-8")
        where = f"{change.file}:{change.line}"
        print(f"{area} {caught} of {number} caught; {where} {verdict}: {by}", flush=True)


def try_change(change: Change, tests: list[str], tree: Path, number: int) -> tuple[str, str, float]:
    """`caught` and by which test, or `survived` and why; and how long that took."""
    if not tests:
        return "survived", "no test executes it", 0.0
    path, started = tree / "src" / change.file, time.monotonic()
    before = path.read_bytes()
    try:
        path.write_bytes(before[: change.start] + change.new.encode() + before[change.end :])
        # Compiled code is known by the second and the size: neither may be those of another one.
        os.utime(path, (number, number))
        status, by = _chosen(tests, tree)
    finally:
        path.write_bytes(before)
        os.utime(path, (0, 0))
    seconds = time.monotonic() - started
    if status is None:
        return "caught", "it hangs", seconds
    if status in (_FAILED, _INTERRUPTED):
        return "caught", by, seconds
    return "survived", f"{len(tests)} tests, exit status {status}", seconds


def _chosen(tests: list[str], tree: Path) -> tuple[int | None, str]:
    """Run these tests, in this order, up to the first that fails; its name."""
    chosen, log = tree / "chosen.json", tree / "chosen.jsonl"
    chosen.write_text(json.dumps(tests), encoding="utf-8")
    log.write_text("", encoding="utf-8")
    files = sorted({test.partition("::")[0] for test in tests})
    extra = {"SAMPLED_LOG": str(log), "SAMPLED_TESTS": str(chosen)}
    status = _pytest(tree, ["-x", *files], [], extra, _PATIENCE)
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return status, next((row["test"] for row in rows if not row["passed"]), "it cannot be imported")


def _pytest(
    tree: Path, words: list[str], before: list[str], extra: dict[str, str], seconds: float
) -> int | None:
    """The exit status of pytest on the copy at `tree`; None when time ran out."""
    command = [sys.executable, *before, "-m", "pytest", "-q", "--no-header", "-p", "prove.sampled"]
    command += ["-p", "no:cacheprovider"]
    command += ["--override-ini", f"pythonpath={tree / 'src'} {REPO}", "--rootdir", str(REPO)]
    command += ["-c", str(REPO / "pyproject.toml"), f"--basetemp={tree / 'tmp'}"]
    command += [str(REPO / word) if word.startswith("tests/") else word for word in words]
    environment = child_environment(tree / "src") | extra
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    del environment["PYTHONDONTWRITEBYTECODE"]
    with (tree / "output").open("wb") as output:  # direct write: scratch
        process = subprocess.Popen(
            command, cwd=REPO, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()


# --- in pytest, as a plugin -----------------------------------------------------------------


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if "SAMPLED_TESTS" not in os.environ:
        return
    tests: list[str] = json.loads(Path(os.environ["SAMPLED_TESTS"]).read_text(encoding="utf-8"))
    place = {test: number for number, test in enumerate(tests)}
    items[:] = [item for item in items if item.nodeid in place]
    items.sort(key=lambda item: place[item.nodeid])


def pytest_runtest_protocol(item: Any) -> None:
    from coverage import Coverage  # noqa: PLC0415 - only where it measures

    item.stash[_BEGUN] = _cpu()
    if (measuring := Coverage.current()) is not None:
        measuring.switch_context(item.nodeid)


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    cpu = round(_cpu() - item.stash[_BEGUN], 3)
    skipped = call.excinfo is not None and call.excinfo.typename == "Skipped"
    row = {"test": item.nodeid, "cpu": cpu, "passed": call.excinfo is None or skipped}
    with Path(os.environ["SAMPLED_LOG"]).open("a", encoding="utf-8") as log:
        log.write(json.dumps(row) + "\n")


def _cpu() -> float:
    """Seconds that this process and its children have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
