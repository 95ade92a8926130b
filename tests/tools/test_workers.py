"""The queue that tests and harnesses run from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.workers import Piece, in_workers, run

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_the_longest_piece_is_begun_first() -> None:
    pieces = [Piece(f"{seconds} s", seconds, lambda _: time.monotonic()) for seconds in (1, 3, 2)]
    begun = {done.name: done.value for done in in_workers(pieces, 1)}
    assert sorted(begun, key=lambda name: begun[name]) == ["3 s", "2 s", "1 s"]


def test_cpu_time_is_that_of_everything_a_piece_started() -> None:
    def work(_: Path) -> int:
        return subprocess.run([sys.executable, "-c", BURN], check=False).returncode

    def nothing(_: Path) -> int:
        return 0

    pieces = [Piece("busy", 1, work), Piece("idle", 1, nothing)]
    used = {done.name: done.cpu for done in in_workers(pieces)}
    assert used["busy"] >= 0.3 > used["idle"]


def test_a_piece_whose_process_dies_gives_nothing_and_the_others_run() -> None:
    pieces = [
        Piece("dies", 2, lambda _: os.kill(os.getpid(), signal.SIGKILL)),
        Piece("fails", 1, lambda _: 1 / 0),
        Piece("works", 0, lambda _: "done"),
    ]
    found = {done.name: done.value for done in in_workers(pieces, 1)}
    assert found == {"dies": None, "fails": None, "works": "done"}


def test_what_a_piece_prints_is_not_mixed_with_that_of_others(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def work(_: Path) -> int:
        for number in range(50):
            os.write(1, f"{os.getpid()} {number}\n".encode())
        return os.getpid()

    found = [done.value for done in in_workers([Piece(str(n), n, work) for n in range(3)])]
    lines = [line for line in capfd.readouterr().out.splitlines() if not line.startswith("...")]
    assert lines == [f"{pid} {number}" for pid in found for number in range(50)]


def test_nothing_that_a_piece_started_survives_it() -> None:
    def work(_: Path) -> int:
        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

    (done,) = in_workers([Piece("leaves a process", 1, work)])
    with pytest.raises(ProcessLookupError):
        os.kill(done.value, 0)


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    def work(place: Path) -> int | None:
        command = ("sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait")
        return run(command, dict(os.environ), place, 1.0)

    (done,) = in_workers([Piece("hangs", 1, work)])
    assert done.value is None
    assert done.seconds < 60
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
