"""Campaigns of improvement whose process is killed, and go on.

A campaign of three rounds on a small repository is run to its end undisturbed.  Then it is run
again and again from the same files: with SIGKILL before or after one write of its journal, and at
any time.  Executors are a recorded list of patches, and programs for some of the random kills.

Whatever happened, the end has to be that of the campaign which nobody disturbed: every document
apart from times, the branch, the tags.  HEAD, branch, index, stash and files of the user are as
they were to the byte, no process is left, and no folder of a candidate.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.cli.main import main as holdfast
from holdfast.improve.steps import Steps
from holdfast.store.failpoints import armed
from holdfast.store.home import Home
from prove import frame
from prove.frame import Control, Harness, Result
from prove.session_scene import WORD, carrying, eventually

WRITES = ("improve.writing", "improve.written")
RANDOM = {"quick": 1, "ci": 4, "full": 100}
AT_WRITES = {"quick": 2, "ci": 8, "full": 10_000}
HARNESS = Harness(
    name="improve",
    proves="A campaign that is killed anywhere ends as if it had not, and nobody's files change.",
    targets={"quick": 3, "ci": 12, "full": 200},
    unit="kills",
    tools=("git",),
    beyond_store=True,
)
ROUNDS = 3
PARTS = ("a", "b", "c", "d")
"""Lines of the file that candidates change, far enough apart to be merged."""
AGENT = """
import json, os, re, sys
request = json.load(sys.stdin)
name, value = request["input"]["plan"]["hypothesis"].split()[:2]
text = open("numbers.txt").read()
open("numbers.txt", "w").write(re.sub(rf"^{name}=.*", f"{name}={value}", text, flags=re.M))
"""
PLANNER = """
import json, sys
request = json.load(sys.stdin)
place = ord(request["id"][-1]) - ord("a")
name, value = "abcd"[(request["round"] + place) % 4], request["round"] * (3 if place else 2)
print(json.dumps({
    "hypothesis": f"{name} {value} in round {request['round']}",
    "approach_family": request["input"]["families"][0],
    "target_files": ["numbers.txt"],
    "steps": [{"step": 1, "file": "numbers.txt", "change": "set it"}],
    "expected_outcome": {"metric": "primary", "estimated_impact": "1", "rationale": "more"},
    "history_reference": {"builds_on": "none", "avoids": "none"},
}))
"""
_TIMES = re.compile(
    r'"(?:timestamp|recorded_at|started_at|updated_at|completed_at)":"[^"]*"|"seconds":[0-9.e-]+'
)


Act = Callable[[ExitStack], None]
"""What a child arms before it runs."""


def _nothing(stack: ExitStack) -> None:
    pass


class End(NamedTuple):
    """What is left of a campaign, without its times."""

    documents: dict[str, str]
    branch: str
    tags: dict[str, str]
    user: dict[str, str]
    left: list[str]


class Scene:
    """One campaign, always in the same place, as its files name it."""

    def __init__(self, place: Path, word: str, *, programs: bool = False) -> None:
        self.place, self.word = place, word
        self._live, self._saved = place / "live", place / "saved"
        self.source, self.home = self._live / "source", self._live / "home"
        self.source.mkdir(parents=True)
        self._write_source()
        Home.open(str(self.home), create=True, timezone="UTC").close()
        executor = f"patches:{self._live / 'patches.json'}"
        roles = ["--executor", executor]
        if programs:
            for name, text in (("agent", AGENT), ("planner", PLANNER)):
                (self._live / f"{name}.py").write_text(text, encoding="utf-8")
            command = f"command:{sys.executable} -I -S {self._live}"
            roles = ["--executor", f"{command}/agent.py", "--planner", f"{command}/planner.py"]
        summed = "awk -F= '{ s += $2 } END { print s }' numbers.txt"
        code = self.run(
            "improve", "init", "--topic", "sum", "--repo", str(self.source), "--benchmark", summed,
            "--format", "number", "--sealed", "sealed.txt", "--planners", "2", "--trust",
            "--max-iterations", str(ROUNDS), *roles,
        )  # fmt: skip
        assert code == 0, self.told()
        shutil.copytree(self._live, self._saved, symlinks=True)

    def _write_source(self) -> None:
        text = "".join(f"{name}=1\n" + "-\n" * 5 for name in PARTS)
        for name, content in (("numbers.txt", text), ("sealed.txt", "sealed\n")):
            (self.source / name).write_text(content, encoding="utf-8")
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-qm", "start")
        (self.source / "numbers.txt").write_text("stashed\n", encoding="utf-8")
        self.git("stash", "push", "-q")
        self.git("checkout", "-q", "-b", "dev")
        (self.source / "numbers.txt").write_text("staged\n", encoding="utf-8")
        self.git("add", "numbers.txt")
        (self.source / "numbers.txt").write_text("not staged\n", encoding="utf-8")
        patches = [
            _patch("a", 5),
            _patch("b", 3),
            _patch("c", 0),
            {"hypothesis": "seal", "edits": [{"file": "sealed.txt", "replace": "s", "by": "x"}]},
            _patch("d", 9),
            _patch("c", 4),
        ]
        listed = json.dumps(patches)
        (self._live / "patches.json").write_text(listed, encoding="utf-8")

    def git(self, *words: str) -> str:
        env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        for who in ("AUTHOR", "COMMITTER"):
            env |= {f"GIT_{who}_NAME": "Rio", f"GIT_{who}_EMAIL": "rio@example.org"}
        told = subprocess.run(
            ("git", *words), cwd=self.source, env=env, capture_output=True, text=True, check=True
        )
        return told.stdout.strip()

    def anew(self) -> None:
        """Put everything back as it was after `improve init`."""
        shutil.rmtree(self._live)
        shutil.copytree(self._saved, self._live, symlinks=True)

    # -- running -----------------------------------------------------------------------

    def run(self, *words: str) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.start(*words), 0)[1])

    def start(self, *words: str, act: Act = _nothing) -> int:
        """`holdfast words…` as a child of ours, which has everything loaded already."""
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.setsid()
                os.environ[WORD] = self.word
                out = os.open(self.place / "told", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                for number in (1, 2):
                    os.dup2(out, number)
                with ExitStack() as stack:
                    act(stack)
                    code = holdfast(["--home", str(self.home), *words])
            finally:
                os._exit(code)
        return child

    def go(self, act: Act = _nothing) -> int:
        """Run the campaign to its last round; how that ended."""
        child = self.start("improve", "run", "sum", act=act)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def killed_within(self, seconds: float, share: float) -> bool:
        """Kill a run at a share of its time; earlier, if it was faster than that."""
        while seconds > 0.05:
            self.anew()
            child = self.start("improve", "run", "sum")
            time.sleep(share * seconds)
            os.kill(child, signal.SIGKILL)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL:
                return True
            seconds /= 2
        return False

    def is_over(self) -> bool:
        file = self.home / "improve/sum/journal.jsonl"
        return b'"status":"max_iterations"' in file.read_bytes()

    def told(self) -> str:
        return (self.place / "told").read_text(encoding="utf-8")[-600:]

    # -- the end -----------------------------------------------------------------------

    def end(self) -> End:
        top = self.home / "improve/sum"
        documents: dict[str, str] = {}
        for file in sorted(top.rglob("*")):
            name = str(file.relative_to(top))
            shown = name.startswith(("state/", "tracking/", "plans/", "config/"))
            if shown and file.is_file() and "/." not in name:
                documents[name] = _timeless(file.read_bytes())
        refs = self.git("for-each-ref", "--format=%(refname) %(tree)").splitlines()
        trees = {name: tree for name, _, tree in (line.partition(" ") for line in refs)}
        left = [each.name for each in (top / ".files").iterdir()]
        log = self.git("log", "--first-parent", "--format=%s %T", "improve/sum")
        return End(
            documents,
            log,
            {name: tree for name, tree in trees.items() if name.startswith("refs/tags/")},
            self._user(),
            [name for name in left if name.startswith(("round_", "measured"))],
        )

    def _user(self) -> dict[str, str]:
        ours = ("refs/heads/improve", "refs/tags", "objects", "logs/refs/heads/improve")
        found = {"stash": self.git("stash", "list"), "head": self.git("rev-parse", "HEAD")}
        for file in sorted(self.source.rglob("*")):
            name = str(file.relative_to(self.source))
            if file.is_file() and not name.startswith(tuple(f".git/{part}" for part in ours)):
                found[name] = sha256(file.read_bytes()).hexdigest()
        return found


def _patch(name: str, value: int) -> dict[str, Any]:
    edit = {"file": "numbers.txt", "replace": f"{name}=1\n", "by": f"{name}={value}\n"}
    return {"hypothesis": f"{name} is {value}", "edits": [edit]}


def _timeless(data: bytes) -> str:
    """A document without its times, laid out in one way."""
    try:
        value = json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")
    return _TIMES.sub("TIME", json.dumps(value, sort_keys=True, separators=(",", ":")))


def complaints(expected: End, found: End, scene: Scene) -> Iterator[str]:
    for name in sorted(expected.documents.keys() | found.documents.keys()):
        if expected.documents.get(name) != found.documents.get(name):
            told = str(found.documents.get(name))[:300]
            yield f"P1: {name} is not as without a kill: {told}"
    for name in ("branch", "tags", "user"):
        if getattr(expected, name) != getattr(found, name):
            yield f"P2: {name} is not as without a kill: {str(getattr(found, name))[:400]}"
    if found.left:
        yield f"P3: folders are left: {found.left}"
    if not eventually(lambda: not carrying(scene.word)):
        yield f"P4: processes are left: {carrying(scene.word)[:3]}"


# --- the harness ----------------------------------------------------------------------------


def counted(scene: Scene) -> tuple[int, float]:
    """Writes of the journal in an undisturbed run, and its seconds."""
    seen = scene.place / "seen"
    seen.write_text("", encoding="utf-8")

    def act(stack: ExitStack) -> None:
        def note() -> None:
            with open(seen, "ab") as file:
                file.write(b".")

        stack.enter_context(armed(WRITES[1], note))

    began = time.monotonic()
    assert scene.go(act) == 0, scene.told()
    return len(seen.read_bytes()), time.monotonic() - began


def dying(name: str, at: int) -> Act:
    """Kill the process at the n-th time that it comes to a place, counted from 1."""

    def act(stack: ExitStack) -> None:
        left = at

        def count() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        stack.enter_context(armed(name, count))

    return act


class Case(NamedTuple):
    name: str
    strike: Callable[[Scene], bool]


def cases(tier: str, seed: int, writes: int, seconds: float) -> list[Case]:
    rng = Random(frame.seed_of(f"{seed} improve"))
    places = [(name, at) for at in range(1, writes + 1) for name in WRITES]
    chosen = sorted(rng.sample(places, min(AT_WRITES[tier], len(places))), key=places.index)
    made = [Case(f"{name}@{at}", partial(_killed_at, name, at)) for name, at in chosen]
    for number in range(RANDOM[tier]):
        share = Random(f"{seed}/{number}").random()
        made.append(Case(f"random:{number}", partial(_killed_within, seconds, share)))
    return made


def _killed_at(name: str, at: int, scene: Scene) -> bool:
    return scene.go(dying(name, at)) == -signal.SIGKILL


def _killed_within(seconds: float, share: float, scene: Scene) -> bool:
    return scene.killed_within(seconds, share)


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    kinds = (False, True) if tier == "full" or case else (False,)
    for programs in kinds:
        with frame.scratch("improve") as place:
            scene = Scene(place, f"proof-{seed}-{os.getpid()}", programs=programs)
            writes, seconds = counted(scene)
            expected = scene.end()
            result.details["writes of programs" if programs else "writes"] = writes
            for each in cases(tier, seed, writes, seconds):
                name = f"programs/{each.name}" if programs else each.name
                if case is None or case == name:
                    _one(result, scene, expected, each, name)
    return result


def _one(result: Result, scene: Scene, expected: End, case: Case, name: str) -> None:
    scene.anew()
    result.tried += 1
    result.fired += case.strike(scene)
    says: list[str] = []
    if scene.is_over():
        scene.run("rebuild")  # shows what a dead one did not
    elif scene.go() != 0:
        says = [f"it cannot go on: {scene.told()}"]
    says = says or list(complaints(expected, scene.end(), scene))
    if says:
        result.add_failure(name, says[0], tuple(says[1:10]))
    else:
        result.survived += 1


def control(seed: int) -> list[Control]:
    """An engine that forgets what is done: it does every step again."""
    with frame.scratch("improve") as place:
        scene = Scene(place, f"proof-control-{seed}-{os.getpid()}")
        writes, _ = counted(scene)
        expected = scene.end()

        def forget(stack: ExitStack) -> None:
            real = Steps.once

            def again(
                self: Steps, step: str, phase: str, act: Callable[[], dict[str, Any]]
            ) -> dict[str, Any]:
                return self.done(step, act())

            Steps.once = again
            stack.callback(setattr, Steps, "once", real)

        for at in range(writes, 0, -1):
            scene.anew()
            scene.go(dying(WRITES[1], at))
            if not scene.is_over():
                scene.go(forget)
            for told in complaints(expected, scene.end(), scene):
                return [Control("does steps again", True, told[:200])]
    return [Control("does steps again", False, "nothing noticed")]
