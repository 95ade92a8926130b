"""A small fleet that lives before your eyes: a dashboard, and agents that work, talk and crash.

    make run                                   until Ctrl-C; a second one attaches
    python examples/living.py --seconds 300

Nothing is staged: sessions are real commands under `holdfast run`, messages and tasks go through
the same verbs that you would use, and now and then somebody is killed with SIGKILL, wherever he
happens to be.  What was acknowledged is read back from the files all the time.

Now and then a job is done: a worker, and a supervisor who sends the first try back; the first job
waits for you to approve it.  All of it is on the pages of jobs.

One agent is asked things, on record.  It answers with the small real model of the extra `embedded`
as soon as that is installed, and from a script until then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

from torture import Torture, end_once, line_of, verdict

from holdfast.errors import ConfigError
from holdfast.models.embedded import INSTALL, NAME, weights

HOLDFAST = [sys.executable, "-m", "holdfast"]
PLACE = Path(__file__).resolve().parent.parent / ".living"
WORKERS = ("leo", "theseus", "astra")
TALKER = "juno"
SCRIPTED = f"scripted:{Path(__file__).resolve().with_name('answers.yaml')}"
EMBEDDED = f"embedded:{NAME}"
SHORT = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 160}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}
"""What the small model has to keep to: by itself it finds no end."""
ERRAND = {
    "description": "Tell last week in three lines",
    "prompt": "Tell what happened last week in three lines, for people who were away.",
    "phases": [
        {"name": "write", "instructions": "No names, no figures that nobody checked."},
        {"name": "review", "role": "supervisor"},
    ],
    "budget": {"max_cost": 0.12, "max_time": "10m"},
}
ANSWERS = {
    "worker": [
        ("COMPLETED", "Three lines about last week, with the names of those who did it.", 0.021),
        ("COMPLETED", "The same three lines without names.", 0.018),
    ],
    "supervisor": [
        ("RETRY", "There are names in it, which was ruled out. Leave them out.", 0.006),
        ("COMPLETED", "Three lines, no names, and all of it is in the ledger.", 0.006),
    ],
}
"""What those who do the errands say, in turn, and what it costs."""
PACE = 4.0
"""Seconds between the writes of a writer."""
WORK = """
import json, os, random, sys, time
dice = random.Random(int(sys.argv[1]))
sources = dice.randrange(2, 7)
for number in range(1, sources + 1):
    what = dice.choice(["a paper", "a thread", "a changelog"])
    print(f"source {number} of {sources}: {what}", flush=True)
    time.sleep(dice.uniform(0.6, 2.0))
said = {"cost": round(dice.uniform(0.02, 0.3), 3), "tokens": dice.randrange(2_000, 30_000),
        "sources": sources, "summary": f"read {sources} sources"}
open(os.environ["HOLDFAST_REPORT"], "w").write(json.dumps(said))
if dice.random() < 0.15:
    sys.exit("could not reach the archive")
"""
QUESTIONS = (
    "Who decides about fees?",
    "Does the queue drain after a restart?",
    "Which of last week's claims were challenged?",
    "Is the cache worth its memory?",
)


class Fleet:
    """Workers whose sessions are real commands."""

    def __init__(self, home: Path, seed: int | None) -> None:
        self.home, self.dice = home, random.Random(seed)
        self.over = threading.Event()
        self.crashes = 0
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._threads = [threading.Thread(target=self._work, args=(name,)) for name in WORKERS]

    def start(self) -> None:
        self._call("init", *WORKERS, TALKER)
        for thread in self._threads:
            thread.start()

    def _call(self, *words: str) -> str:
        done = subprocess.run(
            [*HOLDFAST, "--home", str(self.home), "--json", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def _work(self, name: str) -> None:
        while not self.over.wait(self.dice.uniform(1, 8)):
            question = self.dice.choice(QUESTIONS)
            task = self._new_task(name, question)
            words = ["run", "--agent", name, "--type", "research", "--question", question]
            words += ["--task", task, "--timeout", "60s", "--quiet", "--"]
            words += [sys.executable, "-c", WORK, str(self.dice.randrange(10**6))]
            self._running[name] = process = subprocess.Popen(
                [*HOLDFAST, "--home", str(self.home), *words],
                cwd=self.home,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            code = process.wait()
            if code == 0:
                self._call("task", "done", "--agent", name, task, "--outcome", "read and noted")
                self._talk(name, question)

    def _new_task(self, name: str, question: str) -> str:
        added = self._call("task", "add", "--agent", name, "--type", "research", question)
        task = str(json.loads(added)["data"]["id"])
        self._call("task", "start", "--agent", name, task)
        return task

    def _talk(self, name: str, question: str) -> None:
        other = self.dice.choice([each for each in WORKERS if each != name])
        words = ["inbox", "send", "--from", name, "--to", other, "--type", "flag"]
        words += ["--priority", self.dice.choice(["high", "normal"]), "--expires", "10m"]
        self._call(*words, "--subject", question, f"I read up on it: {question}")

    def crash(self) -> None:
        """Kill the wrapper of a session, as the kernel does when memory runs out."""
        alive = [each for each in self._running.values() if each.poll() is None]
        if alive:
            self.dice.choice(alive).kill()
            self.crashes += 1

    def stop(self) -> None:
        self.over.set()
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        for thread in self._threads:
            thread.join()


class Talker:
    """An agent that is asked something now and then, whoever answers."""

    def __init__(self, home: Path, seed: int | None) -> None:
        self.home, self.dice = home, random.Random(seed)
        self.over = threading.Event()
        self.model = ""
        self._asking: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._talk)

    def start(self) -> None:
        self._thread.start()

    def _talk(self) -> None:
        pause = 1.0
        while not self.over.wait(pause):
            self._choose()
            words = ["agent", "chat", TALKER, self.dice.choice(QUESTIONS), "--timeout", "60s"]
            if self.model == EMBEDDED:
                words += ["--schema", json.dumps(SHORT), "--max-tokens", "120"]
            self._asking = subprocess.Popen(
                [*HOLDFAST, "--home", str(self.home), *words],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            if self.over.is_set():
                self._asking.terminate()
            self._asking.wait()
            pause = self.dice.uniform(15, 30)

    def _choose(self) -> None:
        """Tell the settings who answers, for the box on the page of an agent as well."""
        model = EMBEDDED if is_installed() else SCRIPTED
        if model == self.model:
            return
        settings = self.home / "holdfast.toml"
        text = settings.read_text("utf-8").partition("\n[models]")[0]
        fresh = settings.with_name("holdfast.toml.new")
        fresh.write_text(f"{text}\n[models]\ndefault = {json.dumps(model)}\n", "utf-8")
        fresh.replace(settings)
        self.model = model
        how = f"{model}, a small real model on this processor"
        if model == SCRIPTED:
            how = f"a script; for a real model: {INSTALL}"
        print(f"{TALKER} answers with {how}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        self.over.set()
        asking = self._asking
        if asking is not None and asking.poll() is None:
            asking.terminate()
        self._thread.join()


class Clerk:
    """Has jobs done, one after the other; the first waits for a person at its end."""

    def __init__(self, home: Path) -> None:
        self.home, self.over = home, threading.Event()
        self._running: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work)

    def start(self) -> None:
        self._thread.start()

    def _work(self) -> None:
        number, pause = 0, 3.0
        while not self.over.wait(pause):
            number, pause = number + 1, 75.0
            self._run("job", "new", self._spec(approval=number == 1), "--id", f"errand-{number}")
            self._run("job", "run", f"errand-{number}")
            self._run("job", "run")  # what a person let go on

    def _spec(self, *, approval: bool) -> str:
        place = self.home / "cache" / "errand"
        place.mkdir(parents=True, exist_ok=True)
        models: dict[str, str] = {}
        for role, answers in ANSWERS.items():
            said = [
                {
                    "reply": json.dumps(
                        {"action": action, "evidence_files": [], "summary_for_supervisor": text}
                    ),
                    "cost_usd": cost,
                    "delay": 4.0,
                }
                for action, text, cost in answers
            ]
            (place / f"{role}.json").write_text(json.dumps({"replies": said}), "utf-8")
            models[role] = f"scripted:{place / role}.json"
        work, review = ERRAND["phases"]
        phases = [work, {**review, "approval": approval}]
        spec = place / "spec.json"
        spec.write_text(json.dumps({**ERRAND, "phases": phases, "models": models}), "utf-8")
        return str(spec)

    def _run(self, *words: str) -> None:
        if self.over.is_set():
            return
        self._running = subprocess.Popen(
            [*HOLDFAST, "--home", str(self.home), *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self.over.is_set():
            self._running.terminate()
        self._running.wait()

    def stop(self) -> None:
        self.over.set()
        running = self._running
        if running is not None and running.poll() is None:
            running.terminate()
        self._thread.join()


def is_installed() -> bool:
    """Whether the embedded model is there; it may come while we run."""
    invalidate_caches()
    try:
        weights()
    except ConfigError:
        return False
    return find_spec("xllamacpp") is not None


def is_up(home: Path) -> bool:
    record = home / "cache" / "dashboard.json"
    return record.exists() and "url" in record.read_text(encoding="utf-8")


def attached(home: Path) -> bool:
    """Whether a fleet lives here already; then its dashboard hands out another link."""
    if not is_up(home):
        return False
    done = subprocess.run(
        [*HOLDFAST, "--home", str(home), "up", "--attach"], check=False, timeout=30
    )
    return done.returncode == 0


def once_up(home: Path, board: subprocess.Popen[bytes], command: str) -> subprocess.Popen[bytes]:
    """Run a command beside the page, and not before there is one to look at."""
    while not is_up(home) and board.poll() is None:
        time.sleep(0.1)
    return subprocess.Popen([command], start_new_session=True)


def live(home: Path, seconds: float | None, seed: int | None, then: str | None) -> int:
    running, fleet, talker = Torture(str(home), seed, PACE), Fleet(home, seed), Talker(home, seed)
    clerk = Clerk(home)
    board = subprocess.Popen([*HOLDFAST, "--home", str(home), "up"], start_new_session=True)
    beside = [board] if then is None else [board, once_up(home, board, then)]
    fleet.start()
    talker.start()
    clerk.start()
    crashed = time.monotonic()
    try:
        for _ in running.rounds(seconds, apart=(8.0, 16.0)):
            acked, killed, lost = running.tally()
            proof = {"acknowledged": acked, "killed": killed + fleet.crashes, "lost": lost}
            running.home.document("cache/proof.json").replace(json.dumps(proof).encode())
            print(line_of((acked, killed + fleet.crashes, lost)), flush=True)
            if time.monotonic() - crashed > 55:
                crashed = time.monotonic()
                fleet.crash()
    except KeyboardInterrupt:
        print()
    finally:
        clerk.stop()
        talker.stop()
        fleet.stop()
        running.stop()
        for process in beside:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    return verdict(running, fleet.crashes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, help="how long; until Ctrl-C if not given")
    parser.add_argument("--home", type=Path, default=PLACE, help="where; it is made anew")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--then", help="a program to run beside the page, once it is up")
    asked = parser.parse_args()
    if attached(asked.home):
        return 0
    shutil.rmtree(asked.home, ignore_errors=True)
    os.environ.pop("HOLDFAST_HOME", None)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end_once)
    return live(asked.home, asked.seconds, asked.seed, asked.then)


if __name__ == "__main__":
    sys.exit(main())
