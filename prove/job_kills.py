"""`holdfast job run` with programs as agents, killed with SIGKILL.

    python -m prove.job_kills asks-again WORDS…     `holdfast` with a bug on purpose

Some kills come at a named place (the process kills itself there), some at any time behind a line
of the history.  An agent knows what to do from its prompt alone: each tells the next one how often
everybody was asked.  So a prompt that lacks something after a death is seen at once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.cli.main import main as holdfast
from holdfast.jobs.job import Job
from holdfast.jobs.runner import Runner
from holdfast.store.home import Home
from prove import frame
from prove.frame import Control, Result
from prove.job_plans import Plan, answer, plan_of
from prove.job_scene import (
    LOST,
    Call,
    Effect,
    End,
    Scene,
    State,
    already_done,
    complaints,
    decided,
    end_of,
)
from prove.session_scene import PATIENCE, WORD, carrying, eventually

BROKEN = "asks-again"
PER_JOB = 6
"""Kills; after them the job may come to its end."""
MOST_ROUNDS = 120
PLACES = (
    "job.written",
    "job.claimed",
    "job.answered",
    "log.append.written",
    "log.append.synced",
    "sheet.swapped",
    "view.stamped",
    "lease.taken",
)
MOST_WAIT = 0.08
"""Seconds by chance between a line of the history and a kill."""

AGENT = """
import json, os, re, sys, time
world, phase = sys.argv[1:]
request = json.load(sys.stdin)
told = re.findall(r"summary: Asked so far: (.*)\\.", request["task_description"])
counts = {k: int(v) for k, v in (each.split("=") for each in told[-1].split())} if told else {}
index = counts.get(phase, 0)
plan = json.load(open(world + "/plan.json"))
time.sleep(0.01)
for name, text in (("txt", "%d\\n" % index), ("gate", "open\\n" if index else "")):
    with open(phase + "." + name, "w") as file:
        file.write(text)
time.sleep(0.01)
effects = os.open(world + "/effects.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(effects, (json.dumps([phase, index]) + "\\n").encode())
time.sleep(0.01)
print(json.dumps(plan[phase][min(index, len(plan[phase]) - 1)]).replace("COUNTS", " ".join(
    "%s=%d" % each for each in sorted({**counts, phase: index + 1}.items()))))
"""
"""Does what `job_scene.Agent` does, as a program: the effect is the last of it, so whoever sees
that knows that all was done."""
MOST_ASKED = 60


class CommandScene(Scene):
    """A job whose agents are programs."""

    def __init__(self, place: Path, seed: int, number: int, word: str, broken: str = "") -> None:
        self._agent = place / "agent.py"
        command = f"{sys.executable} -I -S {self._agent} {place}"
        plan = plan_of(seed, number, command=command)
        # A person can pause the job only where a process has ended, and a kill moves that place.
        super().__init__(place, plan._replace(pause_after=None))
        self._word, self._broken = word, broken
        place.mkdir(exist_ok=True)
        self._agent.write_text(AGENT, encoding="utf-8")
        plan = self.plan
        says = {name: [said(plan, name, n) for n in range(MOST_ASKED)] for name in plan.phases()}
        (place / "plan.json").write_text(json.dumps(says), encoding="utf-8")
        (place / "job.json").write_text(json.dumps(plan.spec), encoding="utf-8")

    def next_effect(self, state: State) -> Effect:
        name = self.plan.phases()[state["phase"]]
        return Effect(name, counts_of(state).get(name, 0))

    def lost_effect(self, state: State) -> Effect:
        return self.next_effect(state)

    def start(self, at: str = "") -> subprocess.Popen[bytes]:
        """`holdfast job run`, which kills itself at a place if it is told to."""
        module = ["prove.job_kills", self._broken] if self._broken else ["holdfast"]
        extra = {WORD: self._word} | ({"HOLDFAST_FAILPOINTS": at} if at else {})
        return subprocess.Popen(
            [sys.executable, "-m", *module, "--home", str(self.home), "job", "run", self.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=frame.child_environment() | extra,
            cwd=self.place,
        )

    def holdfast(self, *words: str) -> None:
        """A command that nobody kills: a child of ours, which has everything loaded already."""
        said = self.place / "said"
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.environ[WORD] = self._word
                for number in (1, 2):
                    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
                code = holdfast(["--home", str(self.home), *words])
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code not in (0, 1):
            told = said.read_text(encoding="utf-8")[-400:]
            raise AssertionError(f"{' '.join(words)} gave {code}: {told}")

    def new(self) -> None:
        Home.open(str(self.home), create=True, timezone="UTC").close()
        self.holdfast("job", "new", str(self.place / "job.json"))

    def state(self) -> State:
        with self.open() as home, Job(home, self.name) as job:
            return job.state()

    def gone(self) -> bool:
        """Whether nothing is left of a run: before that nobody can say what it did."""
        return eventually(lambda: not carrying(self._word))


def said(plan: Plan, phase: str, index: int) -> dict[str, Any]:
    return json.loads(answer(plan, phase, index, "Asked so far: COUNTS."))


def counts_of(state: State) -> dict[str, int]:
    told = re.findall(r"(\w+)=(\d+)", str((state["former"] or {}).get("summary")))
    return {name: int(count) for name, count in told}


def response(scene: CommandScene, state: State, done: Effect) -> str:
    """What the agent would have said, had it been heard."""
    counts = counts_of(state) | {done.phase: done.index + 1}
    told = " ".join(f"{name}={count}" for name, count in sorted(counts.items()))
    return json.dumps(said(scene.plan, *done)).replace("COUNTS", told)


# --- one life, and its end ------------------------------------------------------------------


class Blow(NamedTuple):
    """When to kill: at a named place, or some time after a line of the history."""

    at: str
    lines: int
    wait: float


def blow(rng: Random) -> Blow:
    place = rng.choice(PLACES) if rng.random() < 0.5 else ""
    at = f"{place}=kill@{rng.randint(1, 6 if place.startswith('job') else 12)}" if place else ""
    return Blow(at, rng.randint(0, 12), rng.uniform(0, MOST_WAIT))


def struck(scene: CommandScene, blow: Blow) -> bool:
    """Run the job until the blow; False if it came to rest before."""
    process = scene.start(blow.at)
    try:
        if not blow.at:
            target = lines_of(scene.history) + blow.lines
            eventually(lambda: process.poll() is not None or lines_of(scene.history) >= target)
            time.sleep(blow.wait)
            process.kill()
        process.wait(PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
    return process.returncode == -signal.SIGKILL


def lines_of(history: Path) -> int:
    return history.read_bytes().count(b"\n") if history.exists() else 0


def go_on(scene: CommandScene, rng: Random, kills: int) -> int | None:
    """Whatever has to be done next, with a kill if there are any left; None at the end."""
    state = scene.state()
    if state["status"] in ("SUCCESS", "CANCELED"):
        return None
    if str(state["why"]).startswith(LOST) and not scene.gone():
        raise AssertionError("an agent goes on although its runner is dead")
    if state["status"] != "RUNNING":
        with scene.open() as home, Job(home, scene.name) as job:
            if decided(scene, job, state):
                return 0
        if (done := already_done(scene, state)) is not None:
            scene.holdfast("job", "step", scene.name, "--response", response(scene, state, done))
            return 0
    if kills:
        return int(struck(scene, blow(rng)))
    scene.holdfast("job", "run", scene.name)
    return 0


def lived(scene: CommandScene, rng: Random, kills: int) -> tuple[End, int]:
    """The end of a job, and how many of its runners were killed."""
    scene.new()
    done = 0
    for _ in range(MOST_ROUNDS):
        more = go_on(scene, rng, kills - done)
        if more is None:
            scene.holdfast("job", "run", scene.name)  # shows what a dead one did not
            return end_of(scene), done
        done += more
    raise AssertionError(f"{scene.name} does not come to an end")


# --- the harness ----------------------------------------------------------------------------


def run(result: Result, counts: Counter[str], kills: int, seed: int, case: str | None) -> None:
    """Kill so many; `case` is `kill:JOB`."""
    number, done = 0, 0
    while done < kills:
        at = number if case is None else int(case.partition(":")[2])
        fired, says = one_job(seed, at, min(PER_JOB, kills - done))
        result.tried += fired
        result.fired += fired
        counts["killed"] += fired
        counts["jobs of programs"] += 1
        if says:
            result.lost += sum(each.startswith("P1") for each in says)
            if not fired:
                result.tried, result.fired = result.tried + 1, result.fired + 1
            result.add_failure(f"kill:{at}", says[0], tuple(says[1:10]))
            result.survived += max(0, fired - 1)
        else:
            result.survived += fired
        if case is not None:
            break
        number, done = number + 1, done + fired


def one_job(seed: int, number: int, kills: int) -> tuple[int, list[str]]:
    rng = Random(frame.seed_of(f"{seed} kills {number}"))
    word = f"proof-{rng.getrandbits(64):016x}-{os.getpid()}"
    with frame.scratch("jobs") as place:
        whole = CommandScene(place / "whole", seed, number, word)
        hurt = CommandScene(place / "hurt", seed, number, word)
        fired = 0
        try:
            expected, _ = lived(whole, rng, 0)
            found, fired = lived(hurt, rng, kills)
            return fired, complaints(
                hurt.plan, told_alike(expected, whole), told_alike(found, hurt)
            )
        except Exception as error:
            return fired, [f"it cannot go on: {type(error).__name__}: {error}"]
        finally:
            for each in carrying(word):
                os.kill(each.pid, signal.SIGKILL)


def told_alike(end: End, scene: CommandScene) -> End:
    """The two have folders of their own, which stand in their prompts, and names of their own for
    the same files: those tell when they were kept."""
    text = json.dumps([end.state, end.trail, [each._asdict() for each in end.calls]])
    state, trail, calls = json.loads(text.replace(str(scene.place), "PLACE"))
    for point in state["points"]:
        point["tree"] = bool(point["tree"])
    return end._replace(state=state, trail=trail, calls=[Call(**each) for each in calls])


def control(seed: int) -> list[Control]:
    """A `holdfast` that asks again whoever it was."""
    name = "asks again, as a program"
    numbers = range(60)
    careful = (n for n in numbers if _acts_first(plan_of(seed, n, command="x")))
    for number in list(careful)[:3]:
        with frame.scratch("jobs") as place:
            word = f"proof-control-{seed}-{number}-{os.getpid()}"
            scene = CommandScene(place / "hurt", seed, number, word, broken=BROKEN)
            scene.new()
            fired = struck(scene, Blow("job.answered=kill@1", 0, 0.0))
            scene.gone()
            scene.start().wait(PATIENCE)
            twice = [each for each, count in Counter(scene.world.effects()).items() if count > 1]
            if fired and twice:
                return [Control(name, True, f"{twice[0].phase} was done twice")]
    return [Control(name, False, "nothing noticed")]


def _acts_first(plan: Plan) -> bool:
    return not plan.may_repeat(plan.phases()[0])


def main() -> int:
    assert sys.argv[1] == BROKEN
    real = Runner._lost
    Runner._lost = lambda self, state, *, again, ended: real(self, state, again=True, ended=ended)
    return holdfast(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
