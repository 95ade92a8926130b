"""A turn with a model that answers at once: what putting it on record costs, early and late."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import NamedTuple

from bench.frame import Bar, Outcome, Setup, rounded, significant
from bench.material import CountingVfs, home_in
from holdfast.agents.chat import Question, turn
from holdfast.calls.conversation import Conversation
from holdfast.layout import HOLDFAST, Part
from holdfast.models.scripted import Scripted

SESSION = "2026-11-15_rio_001"
EARLY, LATE, QUICK_LATE = 100, 10_000, 4_000
SAMPLE, SAMPLES = 200, 10
REPLY, PROMPT, PERSONA = 1_000, 200, 4_000
MOST_SYNCS, MOST_MS = 2, 1.0
MOST_GROWTH = 1.1
"""Of what a late turn reads, against an early one: other marks, the same number of them."""
MOST_OVERHEAD = 1_500
"""Bytes of a turn that are neither question nor answer."""


class Cost(NamedTuple):
    """Of one turn, on the average."""

    syncs: float
    cpu_ms: float
    bytes_read: float
    bytes_written: float


def key(part: Part) -> str:
    return HOLDFAST.path(part, "rio")


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    late = QUICK_LATE if setup.quick else LATE
    vfs = CountingVfs()
    place = setup.scratch / "home"
    model = Scripted(lambda _: "r" * REPLY)
    with home_in(place, vfs) as home, Conversation(home, key) as said:
        number = 0

        def ask(count: int) -> None:
            nonlocal number
            for _ in range(count):
                number += 1
                question = Question(f"{number:06d}".ljust(PROMPT, "q"), "p" * PERSONA)
                turn(said, model, question, SESSION, limit_usd=100.0)

        def cost() -> Cost:
            before = (vfs.syncs, vfs.bytes_read, size_of(place))
            began = time.process_time()
            ask(SAMPLE)
            spent = time.process_time() - began
            after = (vfs.syncs, vfs.bytes_read, size_of(place))
            syncs, read, written = (b - a for a, b in zip(before, after, strict=True))
            return Cost(syncs / SAMPLE, spent / SAMPLE * 1e3, read / SAMPLE, written / SAMPLE)

        ask(EARLY)
        earlies = [cost() for _ in range(SAMPLES)]
        ask(late - number)
        lates = [cost() for _ in range(SAMPLES)]
    early, middle = (
        Cost(*(statistics.median(column) for column in zip(*each, strict=True)))
        for each in (earlies, lates)
    )
    # By chance a line lies in one block or in two: of the reads the mean tells more.
    reads = [statistics.mean(each.bytes_read for each in some) for some in (earlies, lates)]
    outcome.numbers["turn"] = {
        "turns_before": {"early": EARLY, "late": late},
        "early": {name: significant(value) for name, value in early._asdict().items()},
        "late": {name: significant(value) for name, value in middle._asdict().items()},
        "late_cpu_ms": rounded([each.cpu_ms for each in lates]),
    }
    beside = tuple(each.cpu_ms for each in lates)
    outcome.bars += [
        Bar("turn: syncs", max(early.syncs, middle.syncs), "<=", MOST_SYNCS),
        Bar("turn: processor time", middle.cpu_ms, "<=", MOST_MS, "ms", timed=True, beside=beside),
        Bar(
            f"turn {late:,}: bytes read, against turn {EARLY}",
            reads[1] / reads[0],
            "<=",
            MOST_GROWTH,
            "×",
        ),
        Bar(
            "turn: bytes written beyond question and answer",
            middle.bytes_written - REPLY - PROMPT,
            "<=",
            MOST_OVERHEAD,
            "bytes",
        ),
    ]
    return outcome


def size_of(place: Path) -> int:
    return (place / key("conversation")).stat().st_size
