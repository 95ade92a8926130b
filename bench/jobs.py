"""A job of many steps with a model that answers at once: what it costs to put them on record.

Beside the raw limit (one `write` and `fdatasync` of as many bytes as a step has) and beside
LangGraph and DBOS, which keep the same texts in turns with us.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from bench import trace
from bench.frame import (
    Absent,
    Bar,
    Outcome,
    Sample,
    Setup,
    child_environment,
    interleaved,
    ratios,
    rounded,
    significant,
)
from bench.job_steps import NAME, Lockstep, new_text, reply
from bench.material import CountingVfs, RawWriter
from bench.peers import environment
from bench.peers.comparison import DBOS, GRAPH, GRAPH_SYNC, PLAIN, per_step
from bench.peers.race import race
from bench.peers.talk import Peer, Task

EARLY, LATE, QUICK_LATE = 100, 50_000, 300
PEER_STEPS = 5_000
"""With more of them the growing ones would take hours."""
TURN = 50
LEAST_SHARE, LEAST_SMALLER = 0.35, 100
MOST_RESUME, MOST_SIZE = 200, 2
TRACED, RESUMES = 40, 5
PEER_TEXT = 2_000
OURS = Peer("Holdfast job", "holdfast_job", "run", "one job, one call of its worker for each step")


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    early, late = setup.scratch / "early", setup.scratch / "late"
    steps(setup, outcome, late, early)
    resume(setup, outcome, late)
    count_calls(setup, outcome, early, late)
    if not setup.quick:  # they have to be installed first, and take their time
        beside_peers(setup, outcome)
    return outcome


# --- steps ----------------------------------------------------------------------------------


def steps(setup: Setup, outcome: Outcome, place: Path, early: Path) -> None:
    """Steps against raw appends, in turns, and the size of what they leave."""
    last = QUICK_LATE if setup.quick else LATE
    with Lockstep(place) as ours:
        ours.take(EARLY)
    shutil.copytree(place, early)
    size = size_of(place) / EARLY
    raw = RawWriter(setup.scratch / "raw", [b"x" * (int(size) - 1) + b"\n"])
    turns = max(1, (last - EARLY) // (setup.pairs * TURN))
    rng = setup.rng("turns")
    done = EARLY + 1  # one more ends a run
    with Lockstep(place) as ours:
        take, theirs = partial(ours.take, TURN), partial(raw.write, TURN)
        pairs = [interleaved(take, theirs, turns, rng) for _ in range(setup.pairs)]
        done += sum(mine.count for mine, _ in pairs)
        done += ours.take(max(1, last - done)) + 1
    raw.close()
    text = sum(len(reply(new_text(number), number)) for number in range(done))
    share = ratios([mine.rate for mine, _ in pairs], [other.rate for _, other in pairs])
    outcome.numbers["steps"] = {
        "steps": done,
        "new_text_each": significant(text / done),
        "bytes_each": significant(size_of(place) / done),
        "syncs_each": syncs_of_steps(setup.scratch / "counted"),
        "cpu_us": rounded([mine.cpu_each for mine, _ in pairs]),
        "ratio_to_raw": rounded(share),
        "rate": rounded([mine.rate for mine, _ in pairs]),
        "raw_rate": rounded([other.rate for _, other in pairs]),
    }
    outcome.bars += [
        Bar(
            f"{done:,} steps: rate, as a share of raw appends",
            statistics.median(share),
            ">=",
            LEAST_SHARE,
            "× raw",
            timed=True,
            beside=raw_rates(pairs),
        ),
        Bar(
            f"{done:,} steps: history, against the new text",
            size_of(place) / text,
            "<=",
            MOST_SIZE,
            "×",
        ),
    ]


def raw_rates(pairs: list[tuple[Sample, Sample]]) -> tuple[float, ...]:
    return tuple(other.rate for _, other in pairs)


def size_of(place: Path) -> int:
    """The history, with all texts that its prompts are made of."""
    return sum(file.stat().st_size for file in (place / f"jobs/{NAME}").glob("history*"))


def syncs_of_steps(place: Path) -> float:
    vfs = CountingVfs()
    with Lockstep(place, vfs) as ours:
        ours.take(2)
        before = vfs.syncs
        ours.take(20)
        return (vfs.syncs - before) / 20


# --- a new process --------------------------------------------------------------------------


def resume(setup: Setup, outcome: Outcome, place: Path) -> None:
    """Seconds until a new process, its imports done, could ask the next question."""
    found = [resumed(place) for _ in range(int(setup.pick(RESUMES, 1)))]
    milliseconds = statistics.median(found) * 1e3
    outcome.numbers["resume_ms"] = rounded([each * 1e3 for each in found])
    outcome.bars.append(
        Bar(
            "resume: home opened, state read, ready to ask",
            milliseconds,
            "<",
            MOST_RESUME,
            "ms",
            timed=True,
            alone=True,
        )
    )


def command(place: Path, steps: int) -> list[str]:
    return [sys.executable, "-m", "bench.job_steps", str(place), str(steps)]


def resumed(place: Path) -> float:
    ran = subprocess.run(
        command(place, 0), env=child_environment(), capture_output=True, text=True, check=True
    )
    return float(ran.stdout.split()[0])


# --- system calls ---------------------------------------------------------------------------


def count_calls(setup: Setup, outcome: Outcome, early: Path, late: Path) -> None:
    """What a step asks of the kernel, early and late, as strace sees it."""
    found: list[trace.Cost] = []
    for place in (early, late):
        output = setup.scratch / f"{place.name}.trace"
        variables = child_environment() | {"TZ": "UTC"}
        if reason := trace.traced(command(place, TRACED), output, variables):
            outcome.absent.append(Absent("system calls of a step", reason))
            return
        found.append(usual(output))
    first, last = found
    outcome.numbers["system_calls"] = {
        "early": first.each(1),
        "late": last.each(1),
    }
    at = f"step {EARLY} and step {QUICK_LATE if setup.quick else LATE:,}"
    outcome.bars += [
        Bar(
            f"system calls that differ between {at}",
            trace.apart(first.calls, last.calls),
            "==",
            0,
        ),
        Bar(
            f"bytes read that differ between {at}",
            abs(first.bytes_read - last.bytes_read),
            "<=",
            MOST_DIGITS,
            "bytes",
        ),
    ]


MOST_DIGITS = 64
"""Bytes of a step that depend on how many digits the numbers in its lines have."""


def usual(output: Path) -> trace.Cost:
    """The step that most steps are like: in some of them the manifest is written as well, which
    happens by time and not by number."""
    costs = [cost for _, cost in sorted(trace.marked(output).items())]
    kinds = Counter(tuple(sorted(cost.calls.items())) for cost in costs)
    kind, _ = kinds.most_common(1)[0]
    alike = [cost for cost in costs if tuple(sorted(cost.calls.items())) == kind]
    read = statistics.median_low(cost.bytes_read for cost in alike)
    return next(cost for cost in alike if cost.bytes_read == read)


# --- others ---------------------------------------------------------------------------------


def beside_peers(setup: Setup, outcome: Outcome) -> None:
    if reason := environment.build():
        outcome.absent.append(Absent("the same steps kept by the peers", reason))
        return
    task = Task(setup.seed, PEER_STEPS, PEER_TEXT)
    peers = [OURS, PLAIN, DBOS, GRAPH_SYNC, GRAPH]
    kept = race(setup, peers, task)
    outcome.numbers["peers"] = {
        peer.name: {
            "configuration": peer.about,
            "steps": kept[peer].total.count,
            "bytes_per_step": significant(per_step(kept[peer])),
            "cpu_us": significant(kept[peer].total.cpu_each),
            "rate": significant(kept[peer].total.rate),
        }
        for peer in peers
    }
    beside = tuple(kept[PLAIN].fifths())
    outcome.numbers["rates_of_plain"] = [significant(each) for each in beside]
    for peer, least in ((GRAPH_SYNC, 5), (DBOS, 2)):
        ratio = kept[OURS].total.rate / kept[peer].total.rate
        what = f"{task.steps:,} steps: durable steps per second, against {peer.name}"
        outcome.bars.append(Bar(what, ratio, ">=", least, "×", timed=True, beside=beside))
    smaller = per_step(kept[GRAPH]) / per_step(kept[OURS])
    what = f"{task.steps:,} steps: bytes on disk, {GRAPH.name}, against ours"
    outcome.bars.append(Bar(what, smaller, ">=", LEAST_SMALLER, "×"))
