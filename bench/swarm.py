"""A tick of a swarm whose models answer at once: what recording it costs, early and late.

And a tick of 64 agents whose model takes 200 ms: how much of the time is ours.
"""

from __future__ import annotations

import resource
import statistics
import time
from array import array
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.frame import Bar, Outcome, Setup, rounded, significant
from bench.material import CountingVfs, RawWriter, home_in
from holdfast.agents.agent import Agent
from holdfast.agents.lifecycle import bootstrap
from holdfast.codec import Record
from holdfast.models.embedders import Hashed
from holdfast.models.scripted import Line, Scripted
from holdfast.swarm.router import Router
from holdfast.swarm.run import Run
from holdfast.swarm.runner import Runner, first_plan
from holdfast.swarm.spec import Spec, check
from holdfast.swarm.state import State

EARLY, LATE, QUICK_LATE = 100, 5_000, 300
SAMPLE, SAMPLES = 25, 4
REPLY = "Water the beds in the evening, and sow beans once the nights are warm. " * 4
GOAL = "Plan the garden: water, seeds and a budget"
MOST_APPENDS, MOST_MS, MOST_GROWTH = 12, 2.0, 1.1
CROWD, DELAY, MOST_TICK = 64, 0.2, 0.32
CROWD_TICKS, QUICK_CROWD_TICKS = 10, 3
LONG, QUICK_LONG, MOST_MEGABYTES = 1_000, 100, 8.0


class Cost(NamedTuple):
    """Of one tick, on the average."""

    seconds: float
    cpu_ms: float
    syncs: float
    bytes_read: float


class Meter:
    """Told of each tick; keeps what some of them in a row cost."""

    def __init__(self, vfs: CountingVfs, at: Sequence[int], between: Callable[[], None]) -> None:
        self._vfs, self._at, self._between = vfs, at, between
        self.costs: dict[int, Cost] = {}
        """By the tick before the first one."""
        self._since = self._now()

    def _now(self) -> Cost:
        vfs = self._vfs
        return Cost(time.perf_counter(), time.process_time() * 1e3, vfs.syncs, vfs.bytes_read)

    def watch(self, line: Record, _: State) -> None:
        tick = line["tick"]
        if tick - SAMPLE in self._at:
            pairs = zip(self._now(), self._since, strict=True)
            self.costs[tick - SAMPLE] = Cost(*((now - then) / SAMPLE for now, then in pairs))
            self._between()
        if tick in self._at:
            self._since = self._now()


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    ticks(setup, outcome)
    crowd(setup, outcome)
    long_run(setup, outcome)
    return outcome


# --- a tick ---------------------------------------------------------------------------------


def ticks(setup: Setup, outcome: Outcome) -> None:
    late = QUICK_LATE if setup.quick else LATE
    before = [
        first + SAMPLE * n for first in (EARLY, late - SAMPLE * SAMPLES) for n in range(SAMPLES)
    ]
    vfs, raw_seconds = CountingVfs(), list[float]()
    raw = RawWriter(setup.scratch / "raw", [b"x" * 999 + b"\n"])

    def append() -> None:
        began = time.perf_counter()
        count = raw.write(SAMPLE)
        raw_seconds.append((time.perf_counter() - began) / count)

    meter = Meter(vfs, before, append)
    names = ("ada", "ben", "cleo")
    spec = Spec(names, GOAL, ticks=late, model="scripted:at-once", summarizer=names[0])
    with runner_of(setup.scratch / "home", spec, vfs, meter=meter) as runner:
        runner.go()
    raw.close()
    early, end = (
        [meter.costs[tick] for tick in some] for some in (before[:SAMPLES], before[SAMPLES:])
    )
    first, last = median(early), median(end)
    appends = [
        (cost.seconds - MOST_MS / 1e3) / append
        for cost, append in zip([*early, *end], raw_seconds, strict=True)
    ]
    outcome.numbers["tick"] = {
        "ticks_before": {"early": EARLY, "late": before[SAMPLES]},
        "early": {name: significant(value) for name, value in first._asdict().items()},
        "late": {name: significant(value) for name, value in last._asdict().items()},
        "raw_append_ms": rounded([each * 1e3 for each in raw_seconds]),
    }
    beside = tuple(raw_seconds)
    outcome.bars += [
        Bar("tick: syncs", max(first.syncs, last.syncs), "<=", MOST_APPENDS),
        Bar(
            "tick: processor time", last.cpu_ms, "<=", MOST_MS, "ms",
            timed=True, beside=tuple(cost.cpu_ms for cost in end),
        ),
        Bar(
            f"tick: time beyond {MOST_MS:g} ms, in raw appends", statistics.median(appends), "<=",
            MOST_APPENDS, "appends", timed=True, beside=beside,
        ),
        Bar(
            f"tick {late:,}: processor time, against tick {EARLY}", last.cpu_ms / first.cpu_ms,
            "<=", MOST_GROWTH, "×", timed=True, beside=tuple(cost.cpu_ms for cost in early),
        ),
    ]  # fmt: skip


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(column) for column in zip(*costs, strict=True)))


# --- many agents ----------------------------------------------------------------------------


class Counted:
    """Counts what it embeds."""

    name, weight = "hash:384", 0.2

    def __init__(self) -> None:
        self.texts = 0
        self._hashed = Hashed(384)

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        self.texts += len(texts)
        return self._hashed.embed(texts)


def crowd(setup: Setup, outcome: Outcome) -> None:
    """All of them are experts; the summariser, who can only follow them, answers at once."""
    names, count = crowd_of(), QUICK_CROWD_TICKS if setup.quick else CROWD_TICKS
    spec = Spec(
        names, GOAL, ticks=count, topk=CROWD, model="scripted:slow", router="embedding",
        summarizer=names[0], summarizer_model="scripted:at-once",
    )  # fmt: skip
    embedder, seconds = Counted(), list[float]()
    router = Router(spec, embedder.embed)
    told = embedder.texts
    with runner_of(
        setup.scratch / "crowd",
        spec,
        router=router,
        watch=lambda line, _: seconds.append(line["seconds"]),
    ) as runner:
        runner.go()
    outcome.numbers["crowd"] = {"agents": CROWD, "tick_ms": rounded([s * 1e3 for s in seconds])}
    outcome.bars += [
        Bar(
            f"{CROWD} agents, {DELAY * 1e3:g} ms each: a tick",
            statistics.median(seconds) * 1e3, "<=", MOST_TICK * 1e3, "ms", timed=True, alone=True,
        ),
        Bar(f"{CROWD} agents: texts embedded in a tick", (embedder.texts - told) / count, "<=", 1),
    ]  # fmt: skip


def crowd_of() -> tuple[str, ...]:
    return tuple(f"agent-{number:02d}" for number in range(CROWD))


def long_run(setup: Setup, outcome: Outcome) -> None:
    """What the process keeps of a long run: nothing that grows with the ticks."""
    count = QUICK_LONG if setup.quick else LONG
    names = crowd_of()
    spec = Spec(
        names, GOAL, ticks=count, explore=0.5, model="scripted:at-once", summarizer=names[0]
    )
    peaks: dict[int, float] = {}

    def watch(line: Record, _: State) -> None:
        peaks[line["tick"]] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    with runner_of(setup.scratch / "long", spec, watch=watch) as runner:
        runner.go()
    grown = peaks[count] - peaks[count // 2]
    outcome.numbers["long"] = {"ticks": count, "peak_mb": significant(peaks[count])}
    what = f"{CROWD} agents: memory that ticks {count // 2:,} to {count:,} add"
    outcome.bars.append(Bar(what, grown, "<=", MOST_MEGABYTES, "MB"))


@contextmanager
def runner_of(
    place: Path,
    spec: Spec,
    vfs: CountingVfs | None = None,
    *,
    router: Router | None = None,
    meter: Meter | None = None,
    watch: Callable[[Record, State], None] = lambda _, __: None,
) -> Generator[Runner]:
    check(spec)
    router = router or Router(spec)
    with home_in(place, vfs) as home:
        for name in spec.agents:
            with Agent(home, name) as agent:
                bootstrap(home, agent, name)
        with Run(home, "bench") as made:
            made.create(spec, first_plan(spec, router))
            made.own()
            told = meter.watch if meter else watch
            runner = Runner(made, opened, router=router, watch=told)
            try:
                yield runner
            finally:
                runner.close()
                made.disown()


def opened(_: str, ref: str) -> Scripted:
    delay = DELAY if ref.endswith("slow") else 0.0
    return Scripted(lambda _: Line(REPLY, delay=delay), ref=ref)
