"""`holdfast swarm run` with programs as agents that edit one note, killed at random instants.

A program that is asked looks up which call it is, adds a line to the note, waits a little, notes
the effect, and answers with its line.  What counts is the note and the effects, never the status
that was recorded.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

from holdfast.cli.main import main as holdfast
from holdfast.swarm.experts import Expert
from prove import frame
from prove.frame import Control, Result
from prove.jobs import broken
from prove.session_scene import eventually
from prove.swarm_scene import (
    LOST,
    NAME,
    Plan,
    Scene,
    call_of,
    end_of,
    plan_of,
    ticks_of,
)

PER_RUN = 2
"""Kills; after them the run may come to its end."""
MOST_WAIT = 0.6
"""Seconds after which a kill comes at the latest; a run that was over by then counts as none."""
MOST_ROUNDS = 60

AGENT = """
import json, os, sys, time
world, agent = sys.argv[1:]
with open(world + "/home/state/" + agent + "/memory.jsonl", "rb") as file:
    lines = [json.loads(line) for line in file.read().split(b"\\n")[:-1] if line.strip()]
turn = [line for line in lines if line.get("role") == "user"][-1]["meta"]["turn"]
def add(name, text):
    file = os.open(world + "/" + name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, text.encode())
    os.close(file)
add("note.md", "- " + turn + "\\n")
time.sleep(0.03)
add("effects.jsonl", json.dumps(turn) + "\\n")
print("I added: " + turn)
"""


@contextmanager
def settled_home(agents: Sequence[str]) -> Generator[Path]:
    """A home with these agents, made once: a copy is had for less."""
    with frame.scratch("swarm") as place:
        assert command(place / "said", place / "home", "init", *agents, "--timezone", "UTC") == 0
        yield place / "home"


def command(said: Path, home: Path, *words: str, until: Callable[[], object] | None = None) -> int:
    """`holdfast` in a child of ours, killed when `until` returns, if given; its exit code."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            for number in (1, 2):
                os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            code = holdfast(["--home", str(home), *words])
        finally:
            os._exit(code)
    if until is not None:
        until()
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Programs(Scene):
    """A run whose agents are programs."""

    def __init__(self, place: Path, plan: Plan, template: Path) -> None:
        super().__init__(place, plan, template)
        script = place / "agent.py"
        script.write_text(AGENT, encoding="utf-8")
        self.note = place / "note.md"
        spec = plan.spec
        each = f"command:{sys.executable} -I -S {script} {place}"
        self._words = [
            "--agents", ",".join(spec.agents), "--goal", spec.goal, "--ticks", str(spec.ticks),
            "--topology", spec.topology, "--topk", str(spec.topk), "--seed", str(spec.seed),
            "--summarizer", spec.summarizer, "--switch-after", str(spec.switch_after),
            *(part for agent in spec.agents
              for part in ("--agent-model", f"{agent}={each} {agent}")),
        ]  # fmt: skip

    def go(self, until: Callable[[], object] | None = None) -> int:
        """Run it, or go on with it."""
        begun = any(line.get("event") == "new" for line in self.read(f"swarms/{NAME}.jsonl"))
        words = ["resume", NAME] if begun else ["run", "--name", NAME, *self._words]
        return command(self.place / "said", self.home, "swarm", *words, until=until)

    def notes(self) -> list[str]:
        text = self.note.read_text(encoding="utf-8") if self.note.exists() else ""
        return [line.removeprefix("- ") for line in text.splitlines()]


def complaints(scene: Programs) -> list[str]:
    """Judged by the note and the effects."""
    found = end_of(scene)
    says = ticks_of(scene, found)
    notes, effects = Counter(scene.notes()), Counter(scene.asked())
    says += [f"P3: {turn} is in the note {n} times" for turn, n in notes.items() if n > 1]
    calls = Counter(map(call_of, notes))
    says += [f"P3: {call} was made {n} times" for call, n in calls.items() if n > 1]
    says += [f"P1: {turn} is in no note" for turn in effects - notes]
    told = [e for e in found.document["events"] if e["type"] not in ("input_goal", "error")]
    answered = {event["reply"].removeprefix("I added: ") for event in told}
    says += [f"P1: {turn} counts as answered without an effect" for turn in answered - {*effects}]
    lost = [e for e in found.document["events"] if LOST in str(e.get("error"))]
    if len(notes) > len(answered) + len(lost):
        says.append(f"P3: {len(notes)} edits, {len(answered)} answers and {len(lost)} lost calls")
    if len(lost) > len(scene.plan.spec.agents) * len(scene.seen):
        says.append(f"P1: {len(lost)} calls count as lost after {len(scene.seen)} kills")
    return says


def run(
    result: Result, counts: Counter[str], kills: int, seed: int, case: str | None, template: Path
) -> None:
    """Kill so many; `case` is `kill:RUN`."""
    number, done = 0, 0
    while done < kills:
        at = number if case is None else int(case.partition(":")[2])
        fired, says = one_run(seed, at, min(PER_RUN, kills - done), template)
        counts["killed"] += fired
        counts["runs of programs"] += 1
        failed = bool(says)
        result.tried += max(fired, failed)
        result.fired += max(fired, failed)
        result.survived += fired - (failed and fired > 0)
        if failed:
            result.lost += sum(each.startswith("P1") for each in says)
            result.add_failure(f"kill:{at}", says[0], tuple(says[1:10]))
        if case is not None:
            break
        number, done = number + 1, done + fired


def one_run(seed: int, number: int, kills: int, template: Path) -> tuple[int, list[str]]:
    rng = Random(frame.seed_of(f"{seed} kills {number}"))
    with frame.scratch("swarm") as place:
        scene = Programs(place, plan_of(seed, number), template)
        fired = 0
        try:
            for _ in range(MOST_ROUNDS):
                wait = rng.uniform(0, MOST_WAIT)
                code = scene.go(partial(time.sleep, wait) if fired < kills else None)
                if code == -signal.SIGKILL:
                    fired += 1
                    scene.look()
                elif code in (0, 1):
                    return fired, complaints(scene)
                else:
                    said = (place / "said").read_text(encoding="utf-8")[-400:]
                    return fired, [f"it cannot go on: {code}: {said}"]
            return fired, ["it does not come to an end"]
        except Exception as error:
            return fired, [f"it cannot go on: {type(error).__name__}: {error}"]


def never(self: Expert, call: object) -> None:
    """Neither recorded nor something that may have had an effect, whatever it was."""


def control(seed: int, template: Path) -> list[Control]:
    """A `holdfast` that asks a program again, killed while one is at work."""
    name = "asks a program again, as a command"
    with broken(Expert, "acts", never), frame.scratch("swarm") as place:
        scene = Programs(place, plan_of(seed, 0), template)
        scene.go(lambda: eventually(scene.notes))
        scene.look()
        scene.go()
        told = [each for each in complaints(scene) if each.startswith("P3")]
    return [Control(name, bool(told), told[0] if told else "nothing noticed")]
