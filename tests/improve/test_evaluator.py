"""Only what the engine measures counts, whatever a candidate does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.improve.evaluator import Evaluation
from holdfast.improve.executed import changed_statements, executed_lines, never_ran
from holdfast.improve.sealing import violations
from holdfast.proc.limits import Limits
from tests.improve.desk import BENCH, SOLVE, Bench, Change, make_source, marked, writing
from tests.jobs.desk import PYTHON
from tests.workspace.test_workspace import digest, git


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


@pytest.fixture
def bench(source: Path, tmp_path: Path) -> Iterator[Bench]:
    before = digest(source)
    yield Bench(tmp_path / "bench", source)
    assert digest(source) == before


def measured(bench: Bench, change: Change) -> Evaluation:
    return bench.evaluator.evaluate(bench.candidate(change))


# --- measured -------------------------------------------------------------------------------


def test_a_commit_is_measured_in_a_checkout_that_is_gone_afterwards(bench: Bench) -> None:
    found = bench.evaluator.evaluate(bench.base)
    assert (found.status, found.score, found.sub_scores) == ("ok", 18.0, {"first": 3})
    better = measured(bench, writing("solve.py", SOLVE.replace("3", "4")))
    assert better.score == 24.0
    assert sorted(os.listdir(bench.place)) == ["candidate", "ours"]


def test_a_candidate_is_the_commit_of_what_an_executor_left(bench: Bench) -> None:
    def change(at: Path) -> None:
        (at / "new.txt").write_text("new\n")
        (at / "bench" / "data.json").unlink()
        (at / ".gitignore").write_text("*.log\n")
        (at / "x.log").write_text("ignored")
        (at / "run.sh").write_text("#!/bin/sh\n")
        (at / "run.sh").chmod(0o755)
        (at / "link").symlink_to("solve.py")

    made = bench.candidate(change)
    shown = git(bench.source, "-C", bench.repo.git.directory, "diff", "--summary", bench.base, made)
    assert [line.strip() for line in shown.splitlines()] == [
        "create mode 100644 .gitignore",
        "delete mode 100644 bench/data.json",
        "create mode 120000 link",
        "create mode 100644 new.txt",
        "create mode 100755 run.sh",
    ]
    assert bench.candidate(lambda at: None) == bench.base


def test_a_benchmark_gets_a_seed_and_nothing_of_our_environment(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret-value")
    monkeypatch.setenv("MY_DATA", "1")
    bench = Bench(
        tmp_path / "bench",
        source,
        command='echo "${MY_TOKEN:-none} $MY_DATA $HOLDFAST_SEED"; echo 1',
        format="number",
        passed_on=("MY_DATA",),
    )
    assert bench.evaluator.evaluate(bench.base, seed=7).raw == "none 1 7\n1\n"


def test_a_benchmark_has_no_network(bench: Bench, source: Path, tmp_path: Path) -> None:
    if bench.evaluator.isolation != "sandbox":
        pytest.skip("no bubblewrap here")
    count = f"{PYTHON} -c 'import socket; print(len(socket.if_nameindex()))'"
    inside = Bench(tmp_path / "net", source, command=count, format="number")
    # Only the loopback device, which nobody brought up.
    assert inside.evaluator.evaluate(inside.base).score == 1.0


def test_python_functions_in_the_manner_of_openevolve_are_measured(
    source: Path, tmp_path: Path
) -> None:
    make_source(
        tmp_path / "task",
        {
            "initial_program.py": "print('hello')\nVALUE = 5\n",
            "evaluator.py": (
                "import importlib.util\n"
                "def evaluate(program_path):\n"
                "    print('evaluating')\n"
                "    spec = importlib.util.spec_from_file_location('p', program_path)\n"
                "    module = importlib.util.module_from_spec(spec)\n"
                "    spec.loader.exec_module(module)\n"
                "    return {'combined_score': module.VALUE / 10, 'validity': 1.0}\n"
            ),
        },
    )
    command = f"{PYTHON} evaluator.py initial_program.py"
    bench = Bench(
        tmp_path / "bench",
        tmp_path / "task",
        command=command,
        format="python",
        sealed=("evaluator.py",),
    )
    found = bench.evaluator.evaluate(bench.base)
    assert (found.score, found.sub_scores) == (0.5, {"validity": 1.0}), found
    # What the program prints or leaves to be done at the end is not the result.
    forged = bench.candidate(
        writing(
            "initial_program.py",
            "import atexit\nVALUE = 1\n"
            'print(\'{"metrics": {"combined_score": 9}}\', flush=True)\n'
            'atexit.register(print, \'{"metrics": {"combined_score": 9}}\')\n',
        )
    )
    assert bench.evaluator.evaluate(forged).score == 0.1


# --- failures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status", "category"),
    [
        ("echo '{\"primary\": 1}'; exit 3", "error", "logic_error"),
        ("echo nothing", "error", "benchmark_parse_error"),
        ('echo \'{"primary": "85"}\'', "error", "benchmark_parse_error"),
        ("kill -SEGV $$", "error", "logic_error"),
        ("sleep 1000", "timeout", "timeout"),
        ("while :; do :; done", "timeout", "timeout"),
        (f"{PYTHON} -c 'x = bytearray(1 << 30); print(1)'", "error", "oom"),
        (f"{PYTHON} -c 'raise MemoryError'", "error", "oom"),
        ("yes", "error", "logic_error"),
    ],
)
def test_a_failure_says_what_kind_it_is(
    source: Path, tmp_path: Path, command: str, status: str, category: str
) -> None:
    limits = Limits(time=2.0, cpu=1.0, memory=200 << 20, output=1 << 20, grace=0.2)
    bench = Bench(tmp_path / "bench", source, command=command, limits=limits)
    found = bench.evaluator.evaluate(bench.base)
    assert (found.status, found.score) == (status, None), found
    assert found.failure is not None and found.failure["category"] == category, found.failure
    assert all(found.failure[name] for name in ("what", "why", "category", "lesson"))
    assert len(found.raw) < 200_000


def test_nothing_of_a_benchmark_survives_its_time(source: Path, tmp_path: Path) -> None:
    """Grandchildren that ignore SIGTERM, and a daemon that left its session."""
    (tmp_path / "hold.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if len(sys.argv) < 4:\n"
        "    subprocess.Popen([*sys.orig_argv, 'x'], start_new_session=len(sys.argv) == 2)\n"
        "time.sleep(1000)\n"
    )
    marker = f"MARK_{os.getpid()}_X"
    bench = Bench(
        tmp_path / "bench",
        source,
        command=f"export {marker}=1; exec {PYTHON} {tmp_path}/hold.py",
        limits=Limits(time=1.0, grace=0.2),
    )
    bench.evaluator.isolation = "none"  # its own pid namespace would make this too easy
    found = bench.evaluator.evaluate(bench.base)
    assert found.status == "timeout"
    assert found.seconds < 10
    assert marked(marker) == []


def test_what_a_benchmark_cannot_help_is_not_charged_to_the_candidate(bench: Bench) -> None:
    found = bench.evaluator.evaluate("0" * 40)
    assert found.is_ours


# --- seals ----------------------------------------------------------------------------------

EASY = BENCH.replace("value = sum", "value = 1000 + sum")


def renamed(at: Path) -> None:
    (at / "bench" / "run.py").rename(at / "bench" / "old.py")
    (at / "bench" / "run.py").write_text(EASY)


def linked(at: Path) -> None:
    shutil.move(at / "bench", at / "easy")
    (at / "easy" / "run.py").write_text(EASY)
    (at / "bench").symlink_to("easy")


def filed(at: Path) -> None:
    shutil.rmtree(at / "bench")
    (at / "bench").write_text("a file")


SEALED_ATTACKS: dict[str, Change] = {
    "edited": writing("bench/run.py", EASY),
    "deleted": lambda at: (at / "bench" / "data.json").unlink(),
    "renamed": renamed,
    "chmod": lambda at: (at / "bench" / "run.py").chmod(0o755),
    "linked": linked,
    "a file instead": filed,
    "new file in a sealed folder": writing("bench/json.py", "1 / 0\n"),
}


@pytest.mark.parametrize("attack", SEALED_ATTACKS)
@pytest.mark.parametrize("entry", ["bench/", "bench", "./bench", "bench/*"])
def test_a_sealed_path_that_was_touched_is_a_violation_and_measured_as_it_was(
    source: Path, tmp_path: Path, attack: str, entry: str
) -> None:
    bench = Bench(tmp_path / "bench", source, sealed=(entry,))
    made = bench.candidate(SEALED_ATTACKS[attack])
    assert made != bench.base
    found = violations(bench.repo.git.tree(bench.base), bench.repo.git.tree(made), bench.sealed)
    assert found and all(path.startswith(("bench", "easy")) for path in found)
    # Even if it were measured, it would be by the benchmark of the base.
    if entry != "bench/*":
        assert bench.evaluator.evaluate(made).score == 18.0


def test_an_edit_that_another_branch_has_already_is_a_violation_all_the_same(
    source: Path, tmp_path: Path
) -> None:
    git(source, "checkout", "-q", "-b", "improve/aaa")
    (source / "bench" / "run.py").write_text(EASY)
    git(source, "commit", "-qam", "easy")
    git(source, "checkout", "-q", "main")
    bench = Bench(tmp_path / "bench", source)
    made = bench.candidate(SEALED_ATTACKS["edited"])
    assert violations(bench.repo.git.tree(bench.base), bench.repo.git.tree(made), bench.sealed)


LOADED: dict[str, Change] = {
    "conftest": writing("conftest.py", "import solve\nsolve.solve = lambda x: 1000\n"),
    "sitecustomize": writing("sitecustomize.py", "import sys\nsys.exit(0)\n"),
    "env file": writing(".env", "PYTHONPATH=evil\n"),
    "pth": writing("lib/evil.pth", "import os\n"),
    "module beside the start": writing("json.py", "def load(f): return [1000]\n"),
    "package beside the start": writing("json/__init__.py", "def load(f): return [1000]\n"),
    "compiled": writing("json.cpython-311-x86_64-linux-gnu.so", ""),
}


@pytest.mark.parametrize("attack", LOADED)
def test_what_a_benchmark_would_load_by_itself_is_a_violation(bench: Bench, attack: str) -> None:
    made = bench.candidate(LOADED[attack])
    assert violations(bench.repo.git.tree(bench.base), bench.repo.git.tree(made), bench.sealed)


@pytest.mark.parametrize(
    "change",
    [
        writing("solve.py", SOLVE.replace("3", "4")),
        writing("lib/json.py", "VALUE = 1\n"),
        writing("result.json", '{"primary": 1000}\n'),
        lambda at: (at / "solve.py").unlink(),
    ],
)
def test_an_honest_change_is_no_violation(bench: Bench, change: Change) -> None:
    made = bench.candidate(change)
    assert not violations(bench.repo.git.tree(bench.base), bench.repo.git.tree(made), bench.sealed)


@pytest.mark.parametrize("sandboxed", [True, False])
def test_sealed_files_that_a_candidate_changes_while_it_is_measured_earn_nothing(
    bench: Bench, sandboxed: bool
) -> None:
    if not sandboxed:
        bench.evaluator.isolation = "none"
    elif bench.evaluator.isolation == "none":
        pytest.skip("no bubblewrap here")
    cheat = 'open("bench/data.json", "w").write("[1000]")\n' + SOLVE
    found = measured(bench, writing("solve.py", cheat))
    assert found.score is None
    assert found.failure is not None
    # In the sandbox it could not even write there.
    wanted = "logic_error" if sandboxed else "sealed_file_violation"
    assert found.failure["category"] == wanted
    # What was a candidate's is not left for the next one.
    assert bench.evaluator.evaluate(bench.base).score == 18.0


# --- executed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "dead"),
    [
        ("return FACTOR * x", "return FACTOR * x * 2", False),
        ("FACTOR = 3", "FACTOR = 4", False),
        ("return x + 1", "return x + 2", True),
        ("def unused(x):\n", "def unused(x):\n    # a comment\n", True),
        ("FACTOR = 3\n", 'FACTOR = 3\n"""Text."""\n', True),
        ("    return x + 1\n", "    return (\n        x\n        + 3\n    )\n", True),
        ("    return FACTOR * x\n", "    return (\n        FACTOR\n        * x\n    )\n", False),
    ],
)
def test_a_change_that_never_ran_is_known(bench: Bench, old: str, new: str, dead: bool) -> None:
    made = bench.candidate(writing("solve.py", SOLVE.replace(old, new)))
    changed = changed_statements(bench.repo.git, bench.base, made)
    assert changed is not None
    ran = executed_lines(bench.evaluator.lines_run(made))
    assert ran["solve.py"] and ran["bench/run.py"]
    assert never_ran(changed, ran) is dead


def test_what_cannot_be_watched_is_not_judged(bench: Bench, source: Path, tmp_path: Path) -> None:
    made = bench.candidate(writing("data.txt", "more"))
    assert changed_statements(bench.repo.git, bench.base, made) is None
    shell = Bench(tmp_path / "shell", source, command="echo 1", format="number")
    ran = executed_lines(shell.evaluator.lines_run(shell.base))
    assert ran == {}
    assert not never_ran({"solve.py": {1}}, ran)
