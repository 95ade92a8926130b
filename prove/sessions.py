"""sessions: wrapper, keeper or both killed at any instant of `holdfast run`.

The command leaves a daemon, ignores SIGTERM and writes all the time.  A case is one kill: the
wrapper stops itself at a step of its protocol, or is stopped from outside at a random time; the
disk is looked at, so the phase is known; then the victims get SIGKILL.  It fired if the wrapper's
wait status says so, and if a keeper that stood still was gone after our signal.

Afterwards every file is whole and of the old or the new version, the session is found as crashed
unless it had its end before, journal, ledger and metrics tell of exactly one end each, `check`
finds nothing, and no process of the case lives.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from prove import frame
from prove.frame import Control, Harness, Result
from prove.session_scene import (
    CHILD,
    PATIENCE,
    WORD,
    Scene,
    carrying,
    complaints,
    eventually,
    keeper_of,
)

HARNESS = Harness(
    name="sessions",
    proves="A session whose wrapper or keeper is killed has one end, and no process survives.",
    targets={"quick": 8, "ci": 60, "full": 240},
    unit="kills",
    beyond_store=True,
)
PER_HOME = 20
TRIES = 12
VICTIMS = ("wrapper", "keeper", "both")
_PHASES = (
    "before the start line",
    "between journal and ledger",
    "starting",
    "running",
    "ending",
    "between journal and ledger at the end",
    "after the end",
)


class Shot(NamedTuple):
    """One kill, as it happened."""

    phase: str
    step: bool
    """Whether the wrapper stopped at a step of its protocol, not at some time."""
    session: str | None
    """The session of the case, if it had begun by then."""
    faults: list[str]


class Case(NamedTuple):
    scene: Scene
    folder: Path
    word: str
    victim: str
    chance: Random
    broken: str = ""


# --- one kill -------------------------------------------------------------------------------


def shoot(case: Case, steps: int) -> Shot | None:
    """Run a session up to some instant and kill; None if it had ended before."""
    before = case.scene.sessions()
    stop_at = _step(case, steps)
    wrapper = _start(case, stop_at)
    try:
        if not _stand_still(case, wrapper, stop_at):
            return None
        phase, session = _phase(case, before)
        keeper = keeper_of(case.word)
        faults: list[str] = []
        if case.victim != "wrapper":
            if keeper is None and case.victim == "keeper":
                return None
            if keeper is not None and not _kill_keeper(keeper):
                faults.append(f"the keeper {keeper} did not die of SIGKILL")
        if case.victim == "keeper":
            os.kill(wrapper.pid, signal.SIGCONT)
            if _wait(wrapper) is None:
                faults.append("the wrapper hangs without its keeper")
        else:
            os.kill(wrapper.pid, signal.SIGKILL)
            status = _wait(wrapper)
            if status is None or not os.WIFSIGNALED(status):
                return None
            if os.WTERMSIG(status) != signal.SIGKILL:
                faults.append(f"the wrapper died of {os.WTERMSIG(status)}")
        return Shot(phase, stop_at > 0, session, faults + _half_written(case, before))
    finally:
        if wrapper.returncode is None:
            wrapper.kill()
            _wait(wrapper)


def _step(case: Case, steps: int) -> int:
    """At which step to stop; 0 is at some time instead."""
    if case.chance.random() < 0.4:
        return 0
    # There is a keeper only after the steps of the start.
    least = steps // 2 if case.victim == "keeper" else 1
    return case.chance.randint(least, steps)


def _start(case: Case, stop_at: int) -> subprocess.Popen[bytes]:
    seconds = str(case.chance.uniform(0.02, 0.3))
    child = [sys.executable, "-I", "-S", "-c", CHILD, str(case.folder), seconds]
    return subprocess.Popen(
        _words(case.scene, child, stop_at=stop_at, broken=case.broken),
        env={**frame.child_environment(), WORD: case.word},
        cwd=case.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _words(scene: Scene, command: list[str], **given: object) -> list[str]:
    """The words that run a command as a session, by a wrapper that stops as told."""
    told = json.dumps({"stop_at": 0, "broken": "", "steps": "", **given})
    wrapper = [sys.executable, "-m", "prove.session_wrapper", told, "--home", str(scene.home)]
    return [*wrapper, "run", "--agent", "rio", "--timeout", "60s", "--", *command]


def _stand_still(case: Case, wrapper: subprocess.Popen[bytes], stop_at: int) -> bool:
    """Whether the wrapper has stopped, at its step or because we say so, before it ended."""
    if not stop_at:
        if case.victim == "keeper" or case.chance.random() < 0.6:
            eventually((case.folder / "begun").exists)
        time.sleep(case.chance.uniform(0, 0.4))
        os.kill(wrapper.pid, signal.SIGSTOP)
    status = _wait(wrapper, stopped=True)
    return status is not None and os.WIFSTOPPED(status)


def _wait(wrapper: subprocess.Popen[bytes], *, stopped: bool = False) -> int | None:
    """Its wait status when it has ended, or also when it has `stopped`; None if it does neither."""
    found: list[int] = []

    def look() -> bool:
        pid, status = os.waitpid(wrapper.pid, os.WNOHANG | (os.WUNTRACED if stopped else 0))
        if pid:
            found.append(status)
        return bool(pid)

    if wrapper.returncode is not None or not eventually(look):
        return None
    if not os.WIFSTOPPED(found[0]):
        wrapper.returncode = os.waitstatus_to_exitcode(found[0])
    return found[0]


def _kill_keeper(pid: int) -> bool:
    """Whether it died of our signal: one that is stopped cannot have ended by itself."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        if not eventually(lambda: _state(pid) in "tTZ"):
            return False
        alive = _state(pid) != "Z"
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        ready, _, _ = select.select([handle], [], [], PATIENCE)
        return alive and bool(ready)
    finally:
        os.close(handle)


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return "Z"
    return text.rpartition(")")[2].split()[0]


def _phase(case: Case, before: list[str]) -> tuple[str, str | None]:
    """How far the session had come when the wrapper stood still."""
    new = [name for name in case.scene.sessions() if name not in before]
    if not new:
        return _PHASES[0], None
    (session,) = new
    told = {each["event"] for each in case.scene.ledger() if each["session_id"] == session}
    said = {each["event"] for each in case.scene.journal() if each["session_id"] == session}
    if "session_end" in said:
        return _PHASES[6] if "task_result" in told else _PHASES[5], session
    if (case.folder / "done").exists():
        return _PHASES[4], session
    if (case.folder / "begun").exists():
        return _PHASES[3], session
    return _PHASES[2] if "task_start" in told else _PHASES[1], session


def _half_written(case: Case, before: list[str]) -> list[str]:
    """Views that are neither what they were nor what they become."""
    found: list[str] = []
    known = {*before, *case.scene.sessions()}
    for file in sorted((case.scene.home / "state/rio").glob("*.json")):
        try:
            view = json.loads(file.read_bytes())
        except ValueError as error:
            found.append(f"{file.name} does not parse after the kill: {error}")
            continue
        if file.name.startswith("session") and view["session_id"] not in {*known, None}:
            found.append(f"{file.name} is about {view['session_id']}, which nobody began")
    if before:
        total = case.scene.view("metrics.json")["lifetime"]["sessions_total"]
        if total not in (len(before), len(before) + 1):
            found.append(f"metrics.json counts {total} sessions after {len(before)}")
    return found


# --- what comes of it -----------------------------------------------------------------------


def recover(case: Case, shot: Shot) -> tuple[list[str], str]:
    """What went wrong, and who put the crash on record."""
    found, by = list(shot.faults), "its wrapper"
    if case.victim != "both" and not eventually(lambda: not carrying(case.word)):
        found.append(f"{case.victim} killed: alive are {carrying(case.word)}")
    if shot.session is not None and _end_of(case, shot.session) is None:
        by = "the next start"
        listed = json.loads(case.scene.holdfast("--json", "session", "list").stdout)["rows"]
        status = {row["session_id"]: row["status"] for row in listed}.get(shot.session)
        if _end_of(case, shot.session) is not None:
            by = "the keeper"  # just then: whom it starts for that shows no word for a moment
        elif status != "crashed":
            found.append(f"{shot.session} is listed as {status}, and its wrapper is gone")
    elif shot.session is not None and shot.phase in _PHASES[:5] and case.victim == "wrapper":
        by = "the keeper"
    if case.victim == "both":
        found += _start_again(case)
    elif by == "the next start":
        case.scene.holdfast("session", "sweep")
    # A process that is just being replaced by another program shows no environment: one look more.
    if not eventually(lambda: not carrying(case.word)):
        found.append(f"{case.victim} killed: alive are {carrying(case.word)}")
    if shot.session is not None and shot.session not in case.scene.sessions():
        found.append(f"P1: {shot.session} had begun and is gone")
    found += _wrong_end(case, shot)
    return found + complaints(case.scene), by


def _start_again(case: Case) -> list[str]:
    again = subprocess.run(
        _words(case.scene, ["true"], broken=case.broken),
        env=frame.child_environment(),
        cwd=case.scene.place,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    if again.returncode != 0:
        return [f"the next start gave {again.returncode}: {again.stderr.decode()[:200]}"]
    return []


def _end_of(case: Case, session: str) -> dict[str, object] | None:
    lines = [each for each in case.scene.journal() if each.get("session_id") == session]
    return next((each for each in lines if each["event"] == "session_end"), None)


def _wrong_end(case: Case, shot: Shot) -> list[str]:
    """A wrapper that died before it wrote the end leaves a crash, and nothing else."""
    if shot.session is None or case.victim == "keeper" or shot.phase in _PHASES[5:]:
        return []
    end = _end_of(case, shot.session)
    if end is None or (end["outcome"], end.get("cause")) == ("error", "crashed"):
        return []
    return [f"killed {shot.phase}, and its end is {end['outcome']}, {end.get('cause')}"]


# --- the harness ----------------------------------------------------------------------------


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    counts: dict[str, Counter[str]] = {"phase": Counter(), "victim": Counter(), "by": Counter()}
    at_steps = 0
    numbers = range(HARNESS.targets[tier]) if case is None else [int(case)]
    for batch in _batches(list(numbers)):
        with frame.scratch("sessions") as place:
            scene = Scene(place)
            steps = _prepare(scene)
            for number in batch:
                shot, found, by, victim = _one(scene, seed, number, steps)
                result.tried += 1
                if shot is None:
                    result.add_failure(str(number), "no kill came before the end of the session")
                    continue
                result.fired += 1
                at_steps += shot.step
                counts["phase"][shot.phase] += 1
                counts["victim"][victim] += 1
                counts["by"][by] += shot.session is not None
                result.lost += sum(each.startswith("P1") for each in found)
                if found:
                    says = f"{victim} killed {shot.phase}: {found[0]}"
                    result.add_failure(str(number), says, tuple(found[1:10]))
                    break  # what is broken now would be told again by every case in this home
                result.survived += 1
            checked = scene.holdfast("check")
            if checked.returncode != 0:
                result.add_failure(f"{batch[-1]}", f"check: {checked.stdout[:400]}")
                result.survived -= 1
    if case is None and len(counts["phase"]) < min(4, result.tried // 4):  # of few, few
        result.add_failure("-", f"kills in few phases only: {dict(counts['phase'])}")
    result.details = {
        "at_steps": at_steps,
        "phases": dict(counts["phase"]),
        "victims": dict(counts["victim"]),
        "recorded_by": dict(counts["by"]),
        "agents_tree": frame.tree_hash(frame.source_in_use() / "holdfast/agents"),
        "proc_tree": frame.tree_hash(frame.source_in_use() / "holdfast/proc"),
    }
    return result


def _batches(numbers: list[int]) -> Iterator[list[int]]:
    for first in range(0, len(numbers), PER_HOME):
        yield numbers[first : first + PER_HOME]


def _prepare(scene: Scene, broken: str = "") -> int:
    """A home with two sessions behind it; how many steps one takes."""
    scene.holdfast("init", "rio", "--timezone", "UTC")
    steps = scene.place / "steps"
    for _ in range(2):
        subprocess.run(
            _words(scene, ["true"], broken=broken, steps=str(steps)),
            env=frame.child_environment(),
            cwd=scene.place,
            check=True,
        )
    return int(steps.read_text(encoding="utf-8"))


def _one(
    scene: Scene, seed: int, number: int, steps: int, victim: str = "", broken: str = ""
) -> tuple[Shot | None, list[str], str, str]:
    victim = victim or VICTIMS[number % 3]
    for attempt in range(TRIES):
        chance = Random(frame.seed_of(f"{seed} {number} {attempt}"))
        word = f"proof-{chance.getrandbits(64):016x}-{os.getpid()}"
        case = Case(scene, scene.new_folder(), word, victim, chance, broken)
        shot = shoot(case, steps)
        if shot is not None:
            found, by = recover(case, shot)
            _end_all(word)
            return shot, found, by, victim
        # It had ended before, or there was no keeper yet: not a case, but no damage either.
        eventually(lambda word=word: not carrying(word))
        scene.holdfast("session", "sweep")
        _end_all(word)
    return None, [], "", victim


def _end_all(word: str) -> None:
    """Whatever a case left alive."""
    for each in carrying(word):
        os.kill(each.pid, signal.SIGKILL)


def control(seed: int) -> list[Control]:
    """A wrapper that ends twice, a start that ends no remains, one that forgets the crash."""
    found: list[Control] = []
    for broken, victim, says in (
        ("ends twice", "both", "starts, ends, results"),
        ("leaves remains", "both", "alive are"),
        ("forgets the crash", "both", "starts, ends, results"),
    ):
        with frame.scratch("sessions") as place:
            scene = Scene(place)
            steps = _prepare(scene, broken)
            said: list[str] = []
            for number in range(TRIES):
                _, told, _, _ = _one(scene, seed, number, steps, victim, broken)
                said = [each for each in told if says in each]
                if said:
                    break
        found.append(Control(broken, bool(said), said[0][:200] if said else "nothing noticed"))
    return found
