"""Writers that are killed: what the table says has to be true."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "torture.py"
TALLY = re.compile(r"acknowledged ([\d,]+), killed (\d+), lost (\d+)")


def _start(home: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), "--home", str(home), "--seed", "1", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def processes_of(home: Path) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(home) in entry.read_text(encoding="utf-8", errors="replace"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def test_writers_are_killed_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    process = _start(tmp_path / "home", "--seconds", "4")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    acked, killed, lost = TALLY.findall(out)[-1]
    assert int(acked.replace(",", "")) > 0
    assert int(killed) >= 3
    assert lost == "0"
    assert ", 0 problems" in out


def test_ctrl_c_ends_it_with_a_verdict_and_leaves_no_process(tmp_path: Path) -> None:
    home = tmp_path / "home"
    process = _start(home)
    assert process.stdout is not None
    begun = [process.stdout.readline(), process.stdout.readline()]
    assert TALLY.search(begun[1])
    assert len(processes_of(home)) >= 3
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert TALLY.findall(out)[-1][2] == "0"
    assert processes_of(home) == []


def test_several_signals_end_it_like_one(tmp_path: Path) -> None:
    process = _start(tmp_path / "home")
    assert process.stdout is not None
    while not TALLY.search(process.stdout.readline()):
        pass
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)  # as `make` and a terminal do, each on its own
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert ", 0 problems" in out
    assert processes_of(tmp_path / "home") == []


def test_writers_end_by_themselves_when_the_watcher_is_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    process = _start(home)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    process.kill()
    process.communicate(timeout=30)
    for pid in processes_of(home):
        # Each ends at its next acknowledgement, into a pipe that nobody reads.
        subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=30, check=True)
    assert processes_of(home) == []
