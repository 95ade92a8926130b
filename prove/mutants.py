"""Bugs put into a copy of the store on purpose: each must be noticed.

A harness that does not notice a missing fsync is no evidence for the ones that are there.
The bugs are in `mutants/*.toml`, each as exact text to be replaced and what has to notice it:
hunts through crash states, or test files.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from prove.frame import PROVE, REPO, Control, Harness, Result, child_environment, scratch
from prove.hunt import CAUGHT

DATA = PROVE / "mutants"
HELD_OUT = PROVE / "heldout"
_SAMPLE = {"quick": 6, "ci": 24, "full": None}
_PATIENCE = 240.0
_PYTEST_FAILED = 1

HARNESS = Harness(
    name="mutants",
    proves="every bug put into a copy of the store on purpose is noticed",
    targets={"quick": 6, "ci": 24, "full": 45},
    unit="mutants",
)


@dataclass(frozen=True)
class Mutant:
    """One bug.  `edits` are (file, old text, new text) with files below `src/holdfast`."""

    name: str
    why: str
    edits: tuple[tuple[str, str, str], ...]
    hunts: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def problem(self, source: Path) -> str | None:
        """Why the bug cannot be put into the tree at `source`, if so."""
        for name, old, _ in self.edits:
            path = source / "holdfast" / name
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            if text.count(old) != 1:
                found = "no such text" if old not in text else "text is there more than once"
                return f"stale mutant: {name}: {found}: {old.strip().splitlines()[0]!r}"
        return None

    def apply(self, source: Path) -> str | None:
        """Put the bug into the tree at `source`; why that is impossible, if it is."""
        if problem := self.problem(source):
            return problem
        for name, old, new in self.edits:
            path = source / "holdfast" / name
            path.write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")
        return None


def load(directory: Path = DATA) -> list[Mutant]:
    """All mutants of a directory, in order."""
    found: list[Mutant] = []
    for file in sorted(directory.glob("*.toml")):
        for entry in tomllib.loads(file.read_text(encoding="utf-8"))["mutant"]:
            found.append(parse(entry))
    names = [mutant.name for mutant in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"mutants of the same name: {', '.join(sorted(twice))}")
    return found


def parse(entry: dict) -> Mutant:  # type: ignore[type-arg]
    edits = entry.get("edit") or [entry]
    return Mutant(
        entry["name"],
        entry["why"],
        tuple((edit["file"], edit["old"], edit["new"]) for edit in edits),
        tuple(entry.get("hunts", ())),
        tuple(entry.get("tests", ())),
    )


def copy_source(target: Path) -> Path:
    """A copy of `src` without what was compiled."""
    shutil.copytree(
        REPO / "src", target / "src", ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    return target / "src"


# --- running --------------------------------------------------------------------------------


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    chosen = [one for one in load() if one.name == case] if case else sample(tier, seed)
    killed: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=2) as pool:
        for mutant, (verdict, told) in zip(chosen, pool.map(try_mutant, chosen), strict=True):
            result.tried += 1
            result.fired += verdict != "stale"
            if verdict == "killed":
                result.survived += 1
                killed[mutant.name] = told
            else:
                result.add_failure(mutant.name, f"{mutant.name} {verdict}: {told} ({mutant.why})")
    for mutant in [] if case else load() + load(HELD_OUT):
        # Whichever the seed drew: source moves under all of them.
        if (problem := mutant.problem(REPO / "src")) and mutant not in chosen:
            result.tried += 1
            result.add_failure(mutant.name, f"{mutant.name} stale: {problem}")
    if tier == "full" and case is None:
        _check_baseline(result)
    result.details["killed"] = len(killed)
    result.details["of"] = len(load())
    if tier == "full" or case:
        result.details["killed_by"] = killed
    return result


def _check_baseline(result: Result) -> None:
    """Every hunt on a copy without a bug: a hunt that always complains kills nothing."""
    hunts = sorted({hunt for mutant in load() for hunt in mutant.hunts})
    result.tried += 1
    result.fired += 1
    _, told = try_mutant(Mutant("none", "", (), tuple(hunts), ()))
    result.details["baseline"] = told
    if told.startswith("clean"):
        result.survived += 1
    else:
        result.add_failure("-", f"a copy without a bug is complained of: {told}")


def sample(tier: str, seed: int) -> list[Mutant]:
    """The mutants of a tier; the seed decides which ones if it is not all of them."""
    every = load()
    most = _SAMPLE[tier]
    if most is None or most >= len(every):
        return every
    return Random(f"mutants|{seed}").sample(every, most)


def try_mutant(mutant: Mutant) -> tuple[str, str]:
    """`killed` and by what, `alive`, or `stale` when its text is not in the source."""
    with scratch("mutant") as place:
        source = copy_source(place)
        if problem := mutant.apply(source):
            return "stale", problem
        if mutant.hunts:
            status, told = _run([sys.executable, "-m", "prove.hunt", *mutant.hunts], source)
            if status == CAUGHT:
                return "killed", told
            if status != 0:
                return "alive", f"the hunt ended with status {status}: {told}"
        if mutant.tests:
            status, told = _run(_pytest(mutant.tests, source), source)
            if status == _PYTEST_FAILED:
                return "killed", told
            return "alive", told
        return "alive", told if mutant.hunts else "nothing hunts it"


def _pytest(tests: tuple[str, ...], source: Path) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:randomly"]
    command += ["-p", "no:cacheprovider", "--override-ini", f"pythonpath={source} {REPO}"]
    return [*command, *(str(REPO / test) for test in tests)]


def _run(command: list[str], source: Path) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command,
            cwd=source.parent,
            env=child_environment(source),
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CAUGHT, f"hangs for more than {_PATIENCE:.0f} s"
    rows = (done.stdout.strip() or done.stderr.strip()).splitlines() or [""]
    named = [row for row in rows if re.match(r"FAILED|ERROR|caught", row)]
    return done.returncode, (named or rows)[-1][:300]


# --- the control ----------------------------------------------------------------------------


def control(seed: int) -> list[Control]:
    """A copy with no bug in it must not be complained of, and a stale bug must be."""
    unharmed = Mutant("none", "", ())
    hunts = sorted({hunt for mutant in load() for hunt in mutant.hunts})
    few = tuple(Random(f"control|{seed}").sample(hunts, min(3, len(hunts))))
    _, told = try_mutant(Mutant("none", "", (), few, ()))
    stale = Mutant("stale", "", (("store/log.py", "text that is nowhere\n", ""),), few)
    return [
        Control("a copy without a bug passes its hunts", told.startswith("clean"), told),
        Control("a bug that cannot be applied is stale", try_mutant(stale)[0] == "stale"),
        Control("a mutant that nothing hunts is alive", try_mutant(unharmed)[0] == "alive"),
    ]
