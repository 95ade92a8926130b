"""A home with one agent, what its files say, and the processes that carry a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from prove import frame

PATIENCE = 90.0
WORD = "HOLDFAST_PROOF"
"""The variable by which the processes of a case are known."""

CHILD = """
import os, signal, sys, time
place, seconds = sys.argv[1], float(sys.argv[2])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            with open(place + "/daemon", "a") as file:
                file.write("still here\\n")
            time.sleep(0.02)
    os._exit(0)
os.wait()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(place + "/begun", "w").close()
end = time.monotonic() + seconds
while time.monotonic() < end:
    print("a line of output", flush=True)
    time.sleep(0.01)
open(place + "/done", "w").close()
"""
"""Leaves a daemon that ignores SIGTERM, as it does itself, and writes all the time."""


class Scene:
    """What is on disk, as anybody could read it."""

    def __init__(self, place: Path) -> None:
        self.place, self.home = place, place / "home"
        self._cases = 0

    def holdfast(
        self, *words: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", "--home", str(self.home), *words],
            capture_output=True,
            text=True,
            env={**frame.child_environment(), **(env or {})},
            cwd=self.place,
            timeout=PATIENCE,
            check=False,
        )

    def new_folder(self) -> Path:
        """For the files of one case."""
        self._cases += 1
        made = self.place / f"case-{self._cases}"
        made.mkdir()
        return made

    def journal(self) -> list[dict[str, Any]]:
        file = self.home / "state/rio/journal.jsonl"
        return [line for line in _lines(file) if "event" in line]

    def ledger(self) -> list[dict[str, Any]]:
        files = sorted((self.home / "ledger/rio").glob("*.jsonl"))
        return [line for file in files for line in _lines(file)]

    def view(self, name: str) -> dict[str, Any]:
        return json.loads((self.home / "state/rio" / name).read_bytes())

    def sessions(self) -> list[str]:
        return [each["session_id"] for each in self.journal() if each["event"] == "session_start"]


def _lines(file: Path) -> list[dict[str, Any]]:
    """The whole lines; one that a kill cut off is no line yet."""
    if not file.exists():
        return []
    *whole, _ = file.read_bytes().split(b"\n")
    found: list[dict[str, Any]] = []
    for line in whole:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # `check` tells whether it may be so
    return found


class Process(NamedTuple):
    pid: int
    command: str


def carrying(word: str) -> list[Process]:
    """Living processes that have the word in their environment."""
    found: list[Process] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if word.encode() not in Path(f"/proc/{name}/environ").read_bytes():
                continue
            command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        found.append(Process(int(name), command.decode("utf-8", "replace")))
    return found


def keeper_of(word: str) -> int | None:
    return next((each.pid for each in carrying(word) if "holdfast-keeper" in each.command), None)


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# --- the verdict ----------------------------------------------------------------------------


def complaints(scene: Scene) -> list[str]:
    """Whatever is wrong with a home in which no session runs."""
    found: list[str] = []
    journal, ledger = scene.journal(), scene.ledger()
    begun = Counter(scene.sessions())
    ends = [each for each in journal if each["event"] == "session_end"]
    ended = Counter(each["session_id"] for each in ends)
    results = [each for each in ledger if each["event"] == "task_result"]
    told = Counter(each["session_id"] for each in results)
    for name, count in (begun + ended + told).items():
        numbers = begun[name], ended[name], told[name]
        if numbers != (1, 1, 1):
            found.append(f"{name}: {numbers} starts, ends, results; seen {count} times")
    for each in results:
        lacking = {"status", "exit_code", "duration_sec"} - each["data"].keys()
        found += [f"{each['session_id']}: a result without {name}" for name in sorted(lacking)]
    found += _miscounted(scene, ends)
    if scene.view("report.json")["last_session"]["id"] != max(begun, default=None):
        found.append("report.json is not about the newest session")
    return found


def _miscounted(scene: Scene, ends: list[dict[str, Any]]) -> list[str]:
    counted = scene.view("metrics.json")["lifetime"]
    outcomes = Counter(each["outcome"] for each in ends)
    expected = {f"sessions_{name}": outcomes[name] for name in ("completed", "timeout", "error")}
    expected["sessions_total"] = len(ends)
    expected["sessions_crashed"] = sum(each.get("cause") == "crashed" for each in ends)
    return [
        f"metrics.json has {name} {counted[name]}, the journal {number}"
        for name, number in expected.items()
        if counted[name] != number
    ]
