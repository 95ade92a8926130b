"""Appending: what a durable line costs over the `write` and `fdatasync` that it is made of."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path

from bench import processes, trace
from bench.frame import (
    Bar,
    Outcome,
    Sample,
    Setup,
    interleaved,
    measured,
    percentile,
    ratios,
    rounded,
    significant,
    spread,
)
from bench.material import (
    CountingVfs,
    RawWriter,
    Record,
    fill,
    home_in,
    lines_of,
    payload,
    records,
)
from holdfast.store.log import FileLog

THREADS = 64
MOST_SYNCS = 0.05
MOST_OVERHEAD = 120
"""Bytes of a line that are not the caller's: time, number, hash and line end."""
TURN = 50


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    some = records(setup.rng("records"), 500)
    trace.count_calls(setup, outcome, some)
    line_overhead(setup, outcome, some)
    many_threads(setup, outcome, some)
    one_writer(setup, outcome, some)
    many_processes(setup, outcome, some)
    return outcome


def raw_of(setup: Setup, some: list[Record], name: str) -> RawWriter:
    """A raw writer of the very bytes that a log makes of these records."""
    with home_in(setup.scratch / f"{name}-sample") as home:
        log = home.log("sample.jsonl")
        fill(log, some, len(some))
        log.close()
    lines = lines_of(setup.scratch / f"{name}-sample/sample.jsonl")
    return RawWriter(setup.scratch / f"{name}.raw", lines)


# --- one writer -----------------------------------------------------------------------------


def one_writer(setup: Setup, outcome: Outcome, some: list[Record]) -> None:
    raw = raw_of(setup, some, "one")
    vfs = CountingVfs()
    # The clock runs over the plain calls; syncs are counted in a run of their own.
    with home_in(setup.scratch / "one", vfs) as home:
        log = home.log("counted.jsonl")
        log.append(some[0])
        before = vfs.syncs
        for record in some[:100]:
            log.append(record)
        syncs = (vfs.syncs - before) / 100
        log.close()
    rng = setup.rng("turns")
    turns = int(setup.pick(40, 6))
    with home_in(setup.scratch / "one") as home:
        log = home.log("state/rio/journal.jsonl")
        ours, theirs = appending(log, some), partial(raw.write, TURN)
        ours()
        theirs()
        pairs = [interleaved(ours, theirs, turns, rng) for _ in range(setup.pairs)]
        log.close()
    raw.close()
    report_one_writer(outcome, pairs, syncs)


def appending(log: FileLog, some: list[Record]) -> Callable[[], int]:
    """A function that appends as many records as a turn has."""
    supply, append = cycle(some), log.append

    def turn() -> int:
        for _ in range(TURN):
            append(next(supply))
        return TURN

    return turn


def report_one_writer(outcome: Outcome, pairs: list[tuple[Sample, Sample]], syncs: float) -> None:
    rates = [ours.rate for ours, _ in pairs]
    raw_rates = [raw.rate for _, raw in pairs]
    cpu = [ours.cpu_each for ours, _ in pairs]
    raw_cpu = [raw.cpu_each for _, raw in pairs]
    over = [mine - theirs for mine, theirs in zip(cpu, raw_cpu, strict=True)]
    share = ratios(rates, raw_rates)
    outcome.numbers["one_writer"] = {
        "appends": sum(ours.count for ours, _ in pairs),
        "syncs_per_append": syncs,
        "cpu_us": rounded(cpu),
        "raw_cpu_us": rounded(raw_cpu),
        "cpu_us_over_raw": rounded(over),
        "ratio_to_raw": rounded(share),
        "rate": rounded(rates),
        "raw_rate": rounded(raw_rates),
    }
    outcome.bars += [
        Bar("one writer: syncs per append", syncs, "==", 1),
        Bar(
            "one writer: rate, as a share of the raw loop",
            statistics.median(share),
            ">=",
            0.75,
            "× raw",
            timed=True,
            beside=tuple(raw_rates),
        ),
        Bar(
            "one writer: processor time per append beyond the raw loop",
            statistics.median(over),
            "<=",
            60,
            "µs",
            timed=True,
            beside=tuple(max(raw_rates, raw_cpu, key=spread)),
        ),
    ]


# --- many threads ---------------------------------------------------------------------------


def many_threads(setup: Setup, outcome: Outcome, some: list[Record]) -> None:
    raw = raw_of(setup, some, "threads")
    vfs = CountingVfs()
    seconds = setup.pick(2.0, 0.4)
    raw_rates: list[float] = []
    crowds: list[Sample] = []
    waits: list[float] = []
    raw.write(TURN)
    with home_in(setup.scratch / "threads", vfs) as home:
        log = home.log("state/rio/journal.jsonl")
        log.append(some[0])
        before = vfs.syncs
        for _ in range(setup.pairs):
            half = measured(lambda: until(time.perf_counter() + seconds / 2, raw))
            crowds.append(measured(lambda: crowd(log, some, seconds, waits)))
            other = measured(lambda: until(time.perf_counter() + seconds / 2, raw))
            raw_rates.append((half + other).rate)
        syncs = vfs.syncs - before
        sealed = log.verify().sealed
        log.close()
    raw.close()
    appends = sum(each.count for each in crowds)
    if sealed != appends + 1:
        raise AssertionError(f"{appends + 1} acknowledged, {sealed} there")
    share = ratios([each.rate for each in crowds], raw_rates)
    outcome.numbers["threads"] = {
        "threads": THREADS,
        "appends": appends,
        "syncs": syncs,
        "syncs_per_append": significant(syncs / appends),
        "cpu_us": rounded([each.cpu_each for each in crowds]),
        "ratio_to_raw_one_writer": rounded(share),
        "rate": rounded([each.rate for each in crowds]),
        "raw_rate": rounded(raw_rates),
        "wait_ms": {
            "p50": significant(percentile(waits, 0.50) * 1e3),
            "p99": significant(percentile(waits, 0.99) * 1e3),
            "most": significant(max(waits) * 1e3),
        },
    }
    outcome.bars += [
        Bar(
            f"{THREADS} threads: syncs per append",
            syncs / appends,
            "<=",
            MOST_SYNCS,
            of_disk=True,
        ),
        Bar(
            f"{THREADS} threads: rate, against one raw writer",
            statistics.median(share),
            ">=",
            4,
            "× raw",
            timed=True,
            beside=tuple(raw_rates),
        ),
    ]


def until(deadline: float, raw: RawWriter) -> int:
    count = 0
    while time.perf_counter() < deadline:
        count += raw.write(10)
    return count


def crowd(log: FileLog, some: list[Record], seconds: float, waits: list[float]) -> int:
    """All threads append for some seconds; how many lines were acknowledged."""
    gate = threading.Barrier(THREADS + 1)
    results: list[list[float]] = []
    failures: list[BaseException] = []

    def work(offset: int) -> None:
        mine: list[float] = []
        now = time.perf_counter
        supply = cycle(some[offset:] + some[:offset])
        gate.wait()
        deadline = now() + seconds
        try:
            while (started := now()) < deadline:
                log.append(next(supply))
                mine.append(now() - started)
        except BaseException as error:
            failures.append(error)
        results.append(mine)

    workers = [threading.Thread(target=work, args=(index * 7,)) for index in range(THREADS)]
    for worker in workers:
        worker.start()
    gate.wait()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    for mine in results:
        waits += mine
    return sum(map(len, results))


# --- many processes -------------------------------------------------------------------------


def many_processes(setup: Setup, outcome: Outcome, some: list[Record]) -> None:
    raw = raw_of(setup, some, "processes")
    seconds = setup.pick(3.0, 0.7)
    raw_rates: list[float] = []
    raw.write(TURN)
    with processes.Crowd(setup.scratch / "processes", some, seconds) as together:
        rounds: list[processes.Round] = []
        for _ in range(setup.pairs):
            half = measured(lambda: until(time.perf_counter() + seconds / 4, raw))
            rounds.append(together.round())
            other = measured(lambda: until(time.perf_counter() + seconds / 4, raw))
            raw_rates.append((half + other).rate)
    raw.close()
    appends = sum(sum(each.counts) for each in rounds)
    sealed = processes.verified(setup.scratch / "processes")
    if sealed != appends + 1:
        raise AssertionError(f"{appends + 1} acknowledged, {sealed} there")
    rates = [each.rate for each in rounds]
    share = ratios(rates, raw_rates)
    unfair = [max(each.counts) / max(1, min(each.counts)) for each in rounds]
    longest = max(each.longest for each in rounds)
    outcome.numbers["processes"] = {
        "processes": processes.COUNT,
        "appends": appends,
        "fastest_to_slowest": rounded(unfair),
        "longest_append_s": significant(longest),
        "ratio_to_raw_one_writer": rounded(share),
        "rate": rounded(rates),
        "raw_rate": rounded(raw_rates),
        "counts": [each.counts for each in rounds],
    }
    beside = tuple(raw_rates)
    who = f"{processes.COUNT} processes"
    outcome.bars += [
        Bar(
            f"{who}: rate together, against one raw writer",
            statistics.median(share),
            ">=",
            1.2,
            "× raw",
            timed=True,
            beside=beside,
        ),
        Bar(
            f"{who}: longest append", longest, "<=", 1.0, "s", timed=True, alone=True, beside=beside
        ),
        Bar(
            f"{who}: fastest process, against the slowest",
            statistics.median(unfair),
            "<=",
            2.0,
            "×",
            timed=True,
            beside=beside,
        ),
    ]


# --- bytes ----------------------------------------------------------------------------------


def line_overhead(setup: Setup, outcome: Outcome, some: list[Record]) -> None:
    """What a line has beyond the caller's bytes, in a named log and in a log by days."""
    found: dict[str, float] = {}
    with home_in(setup.scratch / "bytes") as home:
        for key in ("state/rio/journal.jsonl", "ledger"):
            log = home.log(key)
            fill(log, some, 50_000)
            before = size_of(setup.scratch / "bytes" / key)
            for record in some:
                log.append(record)
            grown = size_of(setup.scratch / "bytes" / key) - before
            log.close()
            found[key] = (grown - sum(map(payload, some))) / len(some)
    mean = statistics.mean(map(payload, some))
    outcome.numbers["bytes"] = {
        "payload_mean": significant(mean),
        "beyond_payload": {
            "named log, after 50,000 lines": found["state/rio/journal.jsonl"],
            "log by days, after 50,000 lines": found["ledger"],
        },
    }
    outcome.bars.append(
        Bar("bytes of a line beyond its payload", max(found.values()), "<=", MOST_OVERHEAD, "bytes")
    )


def size_of(path: Path) -> int:
    """The size of a log: one file, or all files of a directory."""
    files = [path] if path.is_file() else path.glob("*.jsonl")
    return sum(file.stat().st_size for file in files)
