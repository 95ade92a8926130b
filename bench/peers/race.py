"""All peers keep the same conversation, in turns; then each has it back in a new process."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.frame import NOTHING, Sample, Setup
from bench.peers.driver import conversation, digest
from bench.peers.talk import Peer, Talk, Task

TURN, QUICK_TURN = 1_000, 50
"""Steps at a time.  Some do things by the clock now and then: a manifest, a checkpoint.  Who was
paused does them as soon as he goes on, so short turns would be mostly that."""
MOST_SECONDS = 360.0
"""A peer that has taken longer is stopped where it is."""
RESUMES, QUICK_RESUMES = 5, 1


@dataclass
class Kept:
    """What it took a peer to keep the conversation."""

    turns: list[Sample] = field(default_factory=list[Sample])
    bytes: int = 0
    resume: list[float] = field(default_factory=list[float])
    """Seconds from the end of the imports until the state was back."""
    process: list[float] = field(default_factory=list[float])
    """The same from the start of the process."""

    @property
    def total(self) -> Sample:
        return sum(self.turns, NOTHING)

    def fifths(self) -> list[float]:
        """Rates of five stretches of the run but the first, for its spread.

        SQLite, which stands for the machine, makes its log longer in the first and writes over it
        in the others: that it is slower there is none of the machine's doing.
        """
        size = max(1, len(self.turns) // 5)
        stretches = [self.turns[at : at + size] for at in range(size, len(self.turns), size)]
        return [sum(each, NOTHING).rate for each in stretches if len(each) == size]

    def resume_ms(self) -> float:
        return statistics.median(self.resume) * 1e3

    def process_ms(self) -> float:
        return statistics.median(self.process) * 1e3


def race(setup: Setup, peers: list[Peer], task: Task) -> dict[Peer, Kept]:
    """Everybody's turns, each round in an order by chance."""
    kept = {peer: Kept() for peer in peers}
    rng = setup.rng("turns")
    running = {peer: Talk(peer, store(setup, peer), task) for peer in peers}
    try:
        for talk in running.values():
            talk.hear()
            talk.pause()
        while running:
            for peer in rng.sample(list(running), len(running)):
                # What one has left for the kernel to write shall not delay the next.
                os.sync()
                if turn(running[peer], kept[peer], task, QUICK_TURN if setup.quick else TURN):
                    del running[peer]
    finally:
        for talk in running.values():
            talk.kill()
    for peer in peers:
        kept[peer].bytes = size_of(store(setup, peer))
    return kept


def turn(talk: Talk, kept: Kept, task: Task, steps: int) -> bool:
    """Let a peer take some steps; whether it is through."""
    talk.go_on()
    before = kept.total
    steps = min(steps, task.steps - before.count)
    talk.say(f"go {steps}")
    told = talk.hear()
    kept.turns.append(Sample(steps, told["seconds"], told["cpu"]))
    if told["count"] != before.count + steps:
        raise AssertionError(f"{told['count']} steps instead of {before.count + steps}")
    if told["count"] == task.steps or before.seconds + told["seconds"] > MOST_SECONDS:
        talk.close()
        return True
    talk.pause()
    return False


def resume(setup: Setup, kept: dict[Peer, Kept], task: Task) -> None:
    """A new process for each peer: opens the store and has every message back."""
    rng = setup.rng("resumes")
    said = [message["content"] for message in conversation(*task)]
    for _ in range(QUICK_RESUMES if setup.quick else RESUMES):
        for peer in rng.sample(list(kept), len(kept)):
            with Talk(peer, store(setup, peer), task) as talk:
                told = talk.hear()
                kept[peer].process.append(time.perf_counter() - talk.started)
                talk.kill()
            count = kept[peer].total.count
            # One that was stopped in the middle may not have kept its last steps.
            there = told["count"] if count < task.steps else count
            if told["count"] != there or told["digest"] != digest(said[:there]):
                raise AssertionError(f"{peer.name} has {told['count']} of {count} steps back")
            kept[peer].resume.append(told["seconds"])


def store(setup: Setup, peer: Peer) -> Path:
    return setup.scratch / f"{peer.script}-{peer.form}"


def size_of(top: Path) -> int:
    return sum(file.stat().st_size for file in top.rglob("*") if file.is_file())
