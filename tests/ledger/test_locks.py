"""Lock files: one left behind blocks nobody, a living holder is waited for and named."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import Busy, NotOurs
from holdfast.store.lock import PATIENCE
from holdfast.testing import Turner, refused
from tests.ledger.shell import Shell, Verbs, day_files, ended, entries_in, next_line

HOLD = """
import fcntl, sys
held = open(sys.argv[1], "r+b")
fcntl.flock(held, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(lock: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A living process that holds a lock file."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", HOLD, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with ended(process):
        assert next_line(process) == "held"
        yield process


NOBODY = 2**22 + 1
"""A process number that no process can have."""

STALE = {
    "empty": b"",
    "garbage": bytes(range(256)) * 40,
    "a dead process": json.dumps({"pid": NOBODY, "host": "elsewhere"}).encode(),
    "its own number": str(os.getpid()).encode(),
    "another day": b"1999-01-01.jsonl".ljust(255) + b"\n",
}


@pytest.mark.parametrize("content", STALE)
@pytest.mark.parametrize("when", ["before the first event", "between two events"])
def test_a_stale_lock_file_blocks_nobody_whatever_is_in_it(
    verbs: Verbs, clock: Turner, content: str, when: str
) -> None:
    texts = ["after"]
    if when == "between two events":
        verbs.write("before")
        texts = ["before", "after"]
    lock = Path(verbs.path, "ledger/rio/.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_bytes(STALE[content])
    before = clock.boottime()

    verbs.write("after")

    assert clock.boottime() == before, "it waited"
    assert verbs.texts() == texts
    assert verbs("ledger verify").exit_code == 0


def test_a_home_checked_out_of_git_with_its_lock_files_works(shell: Shell) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    shell.write("before")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    copy = shell.place / "copy"
    for words in (
        ["-C", str(shell.home), "init", "-q"],
        ["-C", str(shell.home), "add", "-A"],
        ["-C", str(shell.home), "commit", "-q", "-m", "all of it"],
        ["clone", "-q", str(shell.home), str(copy)],
    ):
        assert shell.run([*git, *words]).code == 0
    assert (copy / "ledger/cls/.lock").exists()
    shell.home = copy

    assert shell.write("after").code == 0
    assert [each["summary"] for each in entries_in(copy, "cls")] == ["before", "after"]
    assert shell("ledger", "verify").code == 0


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_something_else_in_place_of_the_lock_file_is_refused_at_once(
    verbs: Verbs, clock: Turner, tmp_path: Path, kind: str
) -> None:
    verbs.write("before")
    lock = Path(verbs.path, "ledger/rio/.lock")
    lock.unlink()
    match kind:
        case "directory":
            lock.mkdir()
        case "link":
            lock.symlink_to(tmp_path / "elsewhere")
        case _:
            os.mkfifo(lock)
    before = clock.boottime()
    with refused(NotOurs, "ledger/rio/.lock"):
        verbs.write("after")
    assert clock.boottime() == before
    assert not (tmp_path / "elsewhere").exists()
    assert verbs.texts() == ["before"]


def test_a_living_holder_is_waited_for_until_the_deadline_and_then_named(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("before")
    begun = clock.boottime()
    with holder(Path(verbs.path, "ledger/rio/.lock")) as process:
        with pytest.raises(Busy) as caught:
            verbs.write("while held")
        error = caught.value
        assert (error.exit_code, error.retryable) == (5, True)
        assert f"process {process.pid}" in error.message
        assert str(process.pid) in (error.hint or "")
        assert PATIENCE <= clock.boottime() - begun < PATIENCE + 1
        assert verbs.texts() == ["before"]

        process.kill()
        process.wait()
        verbs.write("after it died")
    assert verbs.texts() == ["before", "after it died"]


def test_a_holder_that_lets_go_in_time_is_only_waited_for(verbs: Verbs, clock: Turner) -> None:
    verbs.write("before")
    with holder(Path(verbs.path, "ledger/rio/.lock")) as process:

        def let_go() -> None:
            process.kill()
            process.wait()
            clock.meanwhile = None

        clock.meanwhile = let_go
        verbs.write("after")
    assert verbs.texts() == ["before", "after"]


def test_reading_waits_for_nobody(verbs: Verbs, clock: Turner) -> None:
    verbs.write("before")
    begun = clock.boottime()
    with holder(Path(verbs.path, "ledger/rio/.lock")):
        assert verbs.texts() == ["before"]
        assert verbs.rows("status")[0]["recorded_state"] == "idle"
        assert verbs("ledger verify").exit_code == 0
        assert verbs("check").exit_code == 0
    assert clock.boottime() == begun


def test_the_ledger_of_one_agent_does_not_wait_for_that_of_another(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("before", agent="rio")
    begun = clock.boottime()
    with holder(Path(verbs.path, "ledger/rio/.lock")):
        verbs.write("at once", agent="clay")
    assert clock.boottime() == begun


def test_best_effort_keeps_what_a_holder_does_not_let_in(verbs: Verbs) -> None:
    verbs.write("1")
    with holder(Path(verbs.path, "ledger/rio/.lock")):
        assert not verbs.write("2", best_effort=True).applied
    verbs.write("3")
    assert verbs.texts() == ["1", "2", "3"]


def test_a_process_gives_up_with_five_and_names_a_stopped_holder(shell: Shell) -> None:
    """The one test that waits as long as a user would."""
    shell.write("before")
    lock = day_files(shell.home, "cls")[0].with_name(".lock")
    with holder(lock) as process:
        process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        ran = shell.write("while held", "--json")
        waited = time.monotonic() - begun
        process.send_signal(signal.SIGCONT)
    assert (ran.code, ran.out) == (5, "")
    assert f"process {process.pid}" in ran.error()["message"]
    assert ran.error()["retryable"] is True
    assert PATIENCE <= waited < 3 * PATIENCE
    assert [each["summary"] for each in entries_in(shell.home, "cls")] == ["before"]
