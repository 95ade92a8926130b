"""Pieces of work in processes of their own, a few at a time, the longest first.

What a piece prints is kept and printed whole when it ends, so that pieces do not mix.  Nothing
that a piece started survives it, and its CPU time is that of everything it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

WORKERS = 3
"""On two cores: most pieces wait for a disk or for processes."""


class Piece(NamedTuple):
    name: str
    seconds: float
    """About how long it takes; the longest is begun first."""
    work: Callable[[Path], Any]
    """Called in a process of its own with a scratch folder; what it gives can be pickled."""


class Done(NamedTuple):
    name: str
    value: Any
    """What the work gave; None if its process ended before it."""
    seconds: float
    cpu: float


def in_workers(pieces: Sequence[Piece], workers: int = WORKERS) -> Iterator[Done]:
    """Run every piece; each is given as it ends, when what it printed has been printed."""
    waiting = sorted(pieces, key=lambda piece: piece.seconds)
    running: dict[int, tuple[Piece, Path, float]] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-work-") as top:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    piece = waiting.pop()
                    place = Path(tempfile.mkdtemp(dir=top))
                    say(f"... {piece.name}")
                    if (child := os.fork()) == 0:
                        _run_piece(piece, place)
                    running[child] = (piece, place, time.monotonic())
                child, status, used = os.wait4(-1, 0)
                piece, place, start = running.pop(child)
                print_file(place / "output")
                value = None
                with contextlib.suppress(FileNotFoundError):
                    value = pickle.loads((place / "value").read_bytes())
                if code := os.waitstatus_to_exitcode(status):
                    say(f"{piece.name}: its process ended with {code}")
                seconds, cpu = time.monotonic() - start, used.ru_utime + used.ru_stime
                yield Done(piece.name, value, seconds, cpu)
        finally:
            for child, (_, place, _) in running.items():
                os.kill(child, signal.SIGTERM)
                os.waitpid(child, 0)
                print_file(place / "output")


def _run_piece(piece: Piece, place: Path) -> NoReturn:
    adopt_orphans()
    # Ending the run ends its pieces, and they end what they started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM, 0, 0, 0)
    status = 1
    try:
        output = os.open(place / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        value = piece.work(place)
        (place / "value").write_bytes(pickle.dumps(value))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        end_survivors()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def print_file(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        say(path.read_text(encoding="utf-8", errors="replace").rstrip("\n"))


def run(command: Sequence[str], env: Mapping[str, str], cwd: Path, seconds: float) -> int | None:
    """Run a command to its end; its exit status, or None when time ran out.

    Nothing that was started survives.
    """
    program = shutil.which(command[0], path=env["PATH"]) or command[0]
    process = subprocess.Popen(
        (program, *command[1:]), cwd=cwd, env=env, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()
        process.wait()
        end_survivors()


def adopt_orphans() -> None:
    """Become the parent of whatever our children leave running, so that it can be ended."""
    if sys.platform == "linux":
        set_child_subreaper = 36
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def end_survivors() -> None:
    for _ in range(20):
        survivors = descendants(os.getpid())
        if not survivors:
            break
        for pid, name in survivors.items():
            say(f"left running, ended: {name} ({pid})")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        reap()
    reap()


def descendants(ancestor: int) -> dict[int, str]:
    """Living processes below `ancestor`, with their names."""
    parents: dict[int, tuple[int, str]] = {}
    # Not Path.glob: it looks at what it found, and raises when a process has just ended.
    for number in filter(str.isdecimal, os.listdir("/proc")):
        try:
            text = Path("/proc", number, "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        pid, _, rest = text.partition(" (")
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


def say(line: str) -> None:
    print(line, flush=True)
