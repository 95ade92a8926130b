"""Three agents write, we kill them at random, and nothing that was acknowledged is lost.

    python examples/torture.py [--seconds 20]      until Ctrl-C

Each writer is a process that appends events to its own ledger and to one log that all three
share, and reports an id down a pipe once the append has returned.  Every moment one of them
is killed with SIGKILL, wherever it happens to be, and started again.  The table counts what
was acknowledged and reads it back from the files.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.layout import is_scratch
from holdfast.ledger.book import Event, Ledger
from holdfast.store.check import HARMLESS, check
from holdfast.store.home import Home
from holdfast.store.primitives import START, Cursor, Line, Log

AGENTS = ("rio", "clay", "vida")
SHARED = "shared/journal.jsonl"


def write(path: str, agent: str, run: int, pause: float = 0.0) -> None:
    """The victim: write, and say so only when it is on disk."""
    home = Home.open(path)
    ledger, shared = Ledger(home, agent), home.log(SHARED)
    number = 0
    while True:
        task = f"{agent}-{run}-{number}"
        ledger.write(Event("task_start", f"begin {task}", "torture", task))
        _acknowledge(f"{agent} {task}/start")
        shared.append({"agent": agent, "id": task})
        _acknowledge(f"shared {task}")
        time.sleep(pause)
        ledger.write(Event("task_result", f"done {task}", "torture", task))
        _acknowledge(f"{agent} {task}/result")
        time.sleep(pause)
        number += 1


def _acknowledge(what: str) -> None:
    try:
        os.write(1, f"{what}\n".encode())
    except BrokenPipeError:
        sys.exit(0)  # whoever watched us is gone


class Writer:
    """One agent's process, started again each time it is killed."""

    def __init__(self, home: str, agent: str, pause: float = 0.0) -> None:
        self.home, self.agent, self.pause = home, agent, pause
        self.acked: set[str] = set()
        self.killed = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, __file__, "--writer", self.agent, "--run", str(self.killed)]
        command += ["--pause", str(self.pause)]
        # The terminal's Ctrl-C goes to us alone; we end the writers ourselves.
        self.process = subprocess.Popen(
            [*command, "--home", self.home], stdout=subprocess.PIPE, start_new_session=True
        )
        self.reader = threading.Thread(target=self._listen, args=(self.process,), daemon=True)
        self.reader.start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith(b"\n"):
                self.acked.add(line.decode().strip())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.killed += 1


class Audit:
    """Reads back what is in the files, going on where it stopped."""

    def __init__(self, home: Home) -> None:
        self._logs: dict[str, Log] = {name: home.log(f"ledger/{name}") for name in AGENTS}
        self._logs["shared"] = home.log(SHARED)
        self._cursors: dict[str, Cursor] = {}
        self.found: set[str] = set()
        self.torn = 0

    def read(self) -> None:
        for name, log in self._logs.items():
            for line in log.read(self._cursors.get(name, START)):
                if not isinstance(line, Line) or line.seq is None or line.hash is None:
                    self.torn += not isinstance(line, Line)
                    continue
                self.found.add(f"{name} {_identity(line)}")
                self._cursors[name] = Cursor(line.seq, line.hash, line.segment, line.end)


def _identity(line: Line) -> str:
    record = line.record
    if "id" in record:
        return record["id"]
    return f"{record['task_id']}/{'start' if record['event'] == 'task_start' else 'result'}"


class Torture:
    def __init__(self, path: str, seed: int | None, pause: float = 0.0) -> None:
        self.home = Home.open(path, create=True)
        self.audit = Audit(self.home)
        self.chance = random.Random(seed)
        self.began = time.monotonic()
        self.writers = [Writer(path, agent, pause) for agent in AGENTS]

    @property
    def killed(self) -> int:
        return sum(writer.killed for writer in self.writers)

    def acked(self) -> set[str]:
        return set().union(*(set(writer.acked) for writer in self.writers))

    def rounds(
        self, seconds: float | None, apart: tuple[float, float] = (0.2, 0.7)
    ) -> Iterator[None]:
        """Kill one writer after the other, a moment apart."""
        while seconds is None or time.monotonic() - self.began < seconds:
            time.sleep(self.chance.uniform(*apart))
            victim = self.chance.choice(self.writers)
            victim.kill()
            victim.start()
            yield

    def tally(self) -> tuple[int, int, int]:
        # Acknowledgements first, then the files: what was acknowledged has to be there.
        acked = self.acked()
        self.audit.read()
        return len(acked), self.killed, len(acked - self.audit.found)

    def stop(self) -> None:
        for writer in self.writers:
            writer.kill()
            writer.killed -= 1  # this one was not at random


def line_of(tally: tuple[int, int, int]) -> str:
    return "acknowledged {:,}, killed {}, lost {}".format(*tally)


def show_table(torture: Torture, seconds: float | None) -> None:
    # Not at the top: the writers, which are started often, have no use for it.
    from rich.live import Live  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    def table() -> Table:
        tally = torture.tally()
        rate = tally[0] / (time.monotonic() - torture.began)
        shown = Table(title=line_of(tally), caption=f"{rate:,.0f} durable writes/s · Ctrl-C ends")
        for column in ("agent", "process", "acknowledged", "killed"):
            shown.add_column(column, justify="left" if column == "agent" else "right")
        for writer in torture.writers:
            pid, acked = str(writer.process.pid), f"{len(writer.acked):,}"
            shown.add_row(writer.agent, pid, acked, str(writer.killed))
        return shown

    with Live(table(), refresh_per_second=4) as live:
        for _ in torture.rounds(seconds):
            live.update(table())


def show_lines(torture: Torture, seconds: float | None) -> None:
    said = 0.0
    for _ in torture.rounds(seconds):
        if time.monotonic() - said > 2:
            said = time.monotonic()
            print(line_of(torture.tally()), flush=True)


def verdict(torture: Torture, others_killed: int = 0) -> int:
    tally = torture.tally()
    found = [each for each in check(torture.home) if not is_scratch(each.key)]
    problems = [each for each in found if each.kind not in HARMLESS]
    print(line_of((tally[0], tally[1] + others_killed, tally[2])))
    print(f"chain: {len(torture.audit.found):,} lines, {len(problems)} problems;", end=" ")
    print(f"{torture.audit.torn} half-written lines kept as evidence and skipped")
    for problem in problems:
        print(f"  {problem.key}: {problem.detail}")
    return 1 if tally[2] or problems else 0


def torture(path: str, seconds: float | None, seed: int | None) -> int:
    running = Torture(path, seed)
    print(f"home: {path}   (look at it: holdfast --home {path} status)", flush=True)
    try:
        (show_table if sys.stdout.isatty() else show_lines)(running, seconds)
    except KeyboardInterrupt:
        print()
    finally:
        running.stop()
    return verdict(running)


def end_once(number: int, frame: object) -> None:
    """The first signal ends it; `make` and a terminal may each send another while we tidy up."""
    for each in (signal.SIGINT, signal.SIGTERM):
        # Not SIG_IGN: Python complains of a signal that came just before it was set.
        signal.signal(each, _deaf)
    raise KeyboardInterrupt


def _deaf(number: int, frame: object) -> None:
    pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, help="how long; until Ctrl-C if not given")
    parser.add_argument("--home", help="where; a temporary directory that is removed if not given")
    parser.add_argument("--seed", type=int, help="for the same kills again")
    parser.add_argument("--writer", help=argparse.SUPPRESS)
    parser.add_argument("--run", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--pause", type=float, default=0.0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.writer:
        write(asked.home, asked.writer, asked.run, asked.pause)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end_once)
    path = asked.home or tempfile.mkdtemp(prefix="holdfast-torture-")
    try:
        return torture(str(Path(path)), asked.seconds, asked.seed)
    finally:
        if not asked.home:
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
