"""What every harness shares: its description, its result, its verdict and the stored record.

A harness is a module `prove/NAME.py` with

    HARNESS = Harness(name="NAME", proves="…", targets={"quick": …, "ci": …, "full": …}, …)

    def run(tier: str, seed: int, case: str | None = None) -> Result: ...
    def control(seed: int) -> list[Control]: ...

`run` tries at least `targets[tier]` cases, counts only those whose fault provably fired, and
with `case` repeats that one alone.  `control` runs the same checks against something known to
be broken: a harness whose control is not caught proves nothing and fails.

A stored result belongs to the exact bytes of `src/holdfast/store` and of everything in `prove`
that the harness is made of; on any other tree it counts as absent.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import pkgutil
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

REPO = Path(__file__).resolve().parent.parent
PROVE = REPO / "prove"
RESULTS = PROVE / "results"
SCRATCH = PROVE / "tmp"
TIERS = ("quick", "ci", "full")
MOST_FAILURES_KEPT = 20
_NOT_HASHED = {"results", "tmp", "__pycache__"}


class Control(NamedTuple):
    """Something broken on purpose, and whether the harness noticed."""

    name: str
    caught: bool
    detail: str = ""


class Failure(NamedTuple):
    """One case that broke a property, with what it takes to run it again."""

    case: str
    """Given to `--case`, together with the same seed and tier, it fails again."""
    says: str
    """Property and what was seen, e.g. `P1: line w0-3 was acknowledged and is gone`."""
    trace: tuple[str, ...] = ()


@dataclass
class Result:
    """What a harness counted.  `tried` cases, of which `fired` had their fault, …"""

    name: str
    tier: str
    tried: int = 0
    fired: int = 0
    survived: int = 0
    """Cases that kept every property."""
    lost: int = 0
    """Acknowledged writes that were gone afterwards, over all cases."""
    failed: int = 0
    """Cases that broke a property, or could not be judged."""
    skipped: str | None = None
    """Why nothing was tried; None if it was."""
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    failures: list[Failure] = field(default_factory=list[Failure])
    seconds: float = 0.0

    def add_failure(self, case: str, says: str, trace: tuple[str, ...] = ()) -> None:
        """Count a failed case and keep it, unless there are plenty already."""
        self.failed += 1
        if len(self.failures) < MOST_FAILURES_KEPT:
            self.failures.append(Failure(case, says, trace))

    def add(self, other: Result) -> None:
        """Take in the counts of a part that ran in another process."""
        for name in ("tried", "fired", "survived", "lost", "failed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        room = MOST_FAILURES_KEPT - len(self.failures)
        self.failures.extend(Failure(*failure) for failure in other.failures[: max(0, room)])


@dataclass(frozen=True)
class Harness:
    """The description of a harness."""

    name: str
    proves: str
    targets: Mapping[str, int]
    """The least number of cases in each tier."""
    unit: str = "cases"
    tools: tuple[str, ...] = ()
    """Programs it cannot do without."""
    root: bool = False
    beyond_store: bool = False
    """Whether it runs code above the store: then no result holds for the store's bytes alone."""
    missing: Callable[[str], str | None] | None = None
    """For a tier: any other reason why it cannot run here, or None."""

    def reason_to_skip(self, tier: str) -> str | None:
        absent = [tool for tool in self.tools if shutil.which(tool) is None]
        if absent:
            return f"needs {', '.join(absent)}"
        if self.root and os.geteuid() != 0:
            return "needs root"
        return self.missing(tier) if self.missing else None


# --- running --------------------------------------------------------------------------------


def discover() -> dict[str, ModuleType]:
    """Every module of this package that describes a harness."""
    found: dict[str, ModuleType] = {}
    for info in pkgutil.iter_modules([str(PROVE)]):
        if info.name.startswith("_") or info.ispkg:
            continue
        module = importlib.import_module(f"prove.{info.name}")
        harness = getattr(module, "HARNESS", None)
        if isinstance(harness, Harness):
            found[harness.name] = module
    return found


def run_harness(module: ModuleType, tier: str, seed: int, case: str | None = None) -> Result:
    """Run one harness with its control; what went wrong is in `details["faults"]`."""
    harness: Harness = module.HARNESS
    result = Result(harness.name, tier)
    started = time.monotonic()
    if reason := harness.reason_to_skip(tier):
        result.skipped = reason
        return result
    controls: list[Control] = []
    try:
        if case is None:
            controls = module.control(seed)
        result = module.run(tier, seed, case=case)
    except Exception as error:
        result.add_failure("-", f"the harness itself failed: {type(error).__name__}: {error}")
        traceback.print_exc(file=sys.stderr)
    result.seconds = round(time.monotonic() - started, 1)
    result.details["controls"] = [asdict_of(control) for control in controls]
    result.details["faults"] = faults_of(harness, result, controls, single=case is not None)
    return result


def faults_of(
    harness: Harness, result: Result, controls: list[Control], *, single: bool = False
) -> list[str]:
    """Every reason why a result does not pass."""
    faults: list[str] = []
    if not single:
        target = harness.targets[result.tier]
        if result.tried < target:
            faults.append(f"tried {result.tried} of at least {target} {harness.unit}")
        if not controls:
            faults.append("no control was run")
        faults += [
            f"control {name} was not caught ({detail})"
            for name, caught, detail in controls
            if not caught
        ]
    if result.tried == 0:
        faults.append("nothing was tried")
    if result.fired != result.tried:
        faults.append(f"the fault fired in {result.fired} of {result.tried} cases")
    if result.lost:
        faults.append(f"{result.lost} acknowledged writes lost")
    if result.failed:
        faults.append(f"{result.failed} cases failed")
    if result.survived + result.failed != result.tried:
        counted = f"{result.survived} survived + {result.failed} failed"
        faults.append(f"{counted} is not {result.tried} tried")
    return faults


def seed_of(text: str | int | None) -> int:
    """A number as it stands; any other text, such as a commit, by its hash."""
    if isinstance(text, int):
        return text
    if text is None:
        text = commit() or tree_hash(REPO / "src/holdfast/store")
    if text.isdecimal():
        return int(text)
    return int.from_bytes(sha256(text.encode()).digest()[:6], "big")


# --- the record -----------------------------------------------------------------------------


def tree_hash(top: Path) -> str:
    """Hash over the names and bytes of all files below `top` that decide what runs."""
    rows: list[str] = []
    for file in sorted(top.rglob("*")):
        relative = file.relative_to(top)
        if not file.is_file() or _NOT_HASHED & set(relative.parts) or file.suffix == ".md":
            continue
        rows.append(f"{relative.as_posix()} {sha256(file.read_bytes()).hexdigest()}\n")
    return sha256("".join(rows).encode()).hexdigest()


def trees(harness: str) -> dict[str, str]:
    """What a result belongs to: the store, and all that the harness is made of."""
    rows = [
        f"{file.relative_to(PROVE).as_posix()} {sha256(file.read_bytes()).hexdigest()}\n"
        for file in made_of(harness)
    ]
    return {
        "store_tree": tree_hash(REPO / "src/holdfast/store"),
        "harness_tree": sha256("".join(rows).encode()).hexdigest(),
    }


def made_of(harness: str) -> list[Path]:
    """The files of `prove` that a harness imports, runs or reads, by their names in its text."""
    modules = {file.stem: file for file in PROVE.glob("*.py")}
    data = [each for each in PROVE.iterdir() if each.suffix != ".py"]
    found: set[Path] = set()
    waiting = [Path(str(discover()[harness].__file__))]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        text = file.read_text(encoding="utf-8")
        named = set(re.findall(r"\bprove\.(\w+)", text))
        for names in re.findall(r"^\s*from prove import (.+)$", text, re.MULTILINE):
            named |= set(re.findall(r"\w+", names))
        waiting += [modules[name] for name in named & modules.keys()]
        if file.stem == "hunt":
            waiting += modules.values()  # it hunts with whatever harness a mutant names
        for each in data:
            if f'"{each.name}"' in text and each.name not in _NOT_HASHED:
                found |= {inner for inner in (each, *each.rglob("*")) if inner.is_file()}
    return sorted(found)


def commit() -> str | None:
    """The commit checked out, or None outside git or before the first one."""
    try:
        asked = subprocess.run(
            ["git", "-C", str(REPO), "rev-parse", "--verify", "-q", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return asked.stdout.strip() or None


def file_system(path: Path) -> str:
    """The kind of file system that `path` is on."""
    best = ("", "unknown")
    with contextlib.suppress(OSError):
        for row in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            _, where, kind, *_ = row.split(" ")
            inside = str(path) == where or str(path).startswith(where.rstrip("/") + "/")
            if inside and len(where) >= len(best[0]):
                best = (where, kind)
    return best[1]


def surroundings() -> dict[str, Any]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "file_system": file_system(SCRATCH),
        "python": platform.python_version(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def record_of(result: Result, seed: int | str, load: tuple[float, float]) -> dict[str, Any]:
    """Everything that is stored about one run."""
    return {
        **asdict(result),
        "failures": [asdict_of(failure) for failure in result.failures],
        "seed": seed,
        "commit": commit(),
        **trees(result.name),
        **surroundings(),
        "load_before": load[0],
        "load_after": load[1],
    }


def store(record: Mapping[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{record['name']}.{record['tier']}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def stored(name: str, tier: str) -> dict[str, Any] | None:
    """The stored result of a harness if it belongs to the tree as it is now."""
    try:
        record = json.loads((RESULTS / f"{name}.{tier}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if trees(name).items() <= record.items() else None


def asdict_of(value: Any) -> dict[str, Any]:
    return dict(value._asdict())


# --- help for harnesses ---------------------------------------------------------------------


@contextlib.contextmanager
def scratch(name: str, under: Path | None = None) -> Iterator[Path]:
    """A directory of its own, removed afterwards."""
    base = under or SCRATCH
    base.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def source_in_use() -> Path:
    """The tree that this process has `holdfast` from: ours, or a copy with a bug in it."""
    found = importlib.util.find_spec("holdfast")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent.parent


def child_environment(source: Path | None = None) -> dict[str, str]:
    """The environment in which a child finds `holdfast` (from `source`) and `prove`.

    Without `source` it is the one that this process has: a mutant's children are mutants.
    """
    private = ("HOLDFAST_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    return kept | {
        "PYTHONPATH": f"{source or source_in_use()}{os.pathsep}{REPO}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
