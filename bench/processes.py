"""Many processes on one log: started once, let go together for each round."""

from __future__ import annotations

import multiprocessing
import time
from itertools import cycle
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

from bench.material import Record, home_in

COUNT = 16
KEY = "state/rio/journal.jsonl"
PATIENCE = 60.0


class Round(NamedTuple):
    counts: list[int]
    """Appends acknowledged, for each process."""
    longest: float
    """Seconds of the slowest single append."""
    seconds: float
    """From the common start until the last process had its last acknowledgement."""

    @property
    def rate(self) -> float:
        return sum(self.counts) / self.seconds


class Crowd:
    """Processes that wait at a barrier, append for a fixed time, and report."""

    def __init__(self, path: Path, some: list[Record], seconds: float) -> None:
        # A spawned process shares nothing with us, as agents share nothing.
        context = multiprocessing.get_context("spawn")
        self._gate = context.Barrier(COUNT + 1)
        with home_in(path) as home:
            log = home.log(KEY)
            log.append(some[0])
            log.close()
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for index in range(COUNT):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work, args=(path, some, index, seconds, self._gate, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            _receive(pipe)

    def round(self) -> Round:
        for pipe in self._pipes:
            pipe.send(True)
        self._gate.wait(PATIENCE)
        started = time.monotonic()
        reports: list[tuple[int, float, float]] = [_receive(pipe) for pipe in self._pipes]
        ended = max(report[2] for report in reports)
        counts = [report[0] for report in reports]
        return Round(counts, max(report[1] for report in reports), ended - started)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *exc: object) -> None:
        for pipe in self._pipes:
            try:
                pipe.send(False)
            except OSError:
                pass  # it is gone already; that is what we want
        for process in self._processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def _receive(pipe: Connection) -> tuple[int, float, float]:
    if not pipe.poll(PATIENCE):
        raise TimeoutError("a writing process does not answer")
    return pipe.recv()


def work(
    path: Path, some: list[Record], index: int, seconds: float, gate: Barrier, pipe: Connection
) -> None:
    supply = cycle(some[index * 7 :] + some[: index * 7])
    # `monotonic` is one clock for all processes; `perf_counter` promises that to nobody.
    now = time.monotonic
    with home_in(path) as home:
        log = home.log(KEY)
        log.head()
        pipe.send((0, 0.0, 0.0))
        while pipe.recv():
            count, longest = 0, 0.0
            gate.wait(PATIENCE)
            began = now()
            deadline = began + seconds
            while began < deadline:
                log.append(next(supply))
                ended = now()
                longest = max(longest, ended - began)
                began = ended
                count += 1
            pipe.send((count, longest, began))
        log.close()


def verified(path: Path) -> int:
    """How many sealed lines the log has; it has no problem."""
    with home_in(path) as home:
        found = home.log(KEY).verify()
    if found.problems or found.bad:
        raise AssertionError(f"the log is not sound: {found.problems[:3]} {found.bad[:3]}")
    return found.sealed
