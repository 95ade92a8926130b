"""powercut: the power goes while processes write, on a real ext4 and a real XFS.

A case is one cut: a scenario of `cuts` on a file system of our own, the shutdown ioctl, the
journal replayed at the next mount, recovery, and everything that was acknowledged before the
cut looked for.  The same home lives through several cuts.  An acknowledgement that is read
after the ioctl counts as none: a sync in flight may return success on a dead journal.
A cut fired if the ioctl returned 0 and nothing could be written after it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.store.home import Home
from prove import frame
from prove.cuts import SCENARIOS, NotFired, Stage
from prove.disk import TOOLS, Disk, cannot_mount, leftovers
from prove.frame import Control, Harness, Result
from prove.oracle import judge
from prove.properties import Broken
from prove.victims import Nursery

HARNESS = Harness(
    name="powercut",
    proves="No write acknowledged before a power cut is lost, on ext4 and XFS.",
    targets={"quick": 60, "ci": 200, "full": 2_500},
    unit="cuts",
    tools=TOOLS,
    root=True,
    missing=lambda tier: cannot_mount(),
)
_CUTS = {
    "quick": {"ext4": 60, "xfs": 16},
    "ci": {"ext4": 180, "xfs": 40},
    "full": {"ext4": 2_000, "xfs": 500},
}
_ACKS = {"quick": 1_000, "ci": 5_000, "full": 100_000}
"""On a slow machine there are more cuts, not fewer acknowledgements."""
_LIVES_THROUGH = 8
"""How many cuts one home sees."""
_MEMORY = Path("/dev/shm")
_ALONE = ("unshare", "-m", "--propagation", "private")
_PATIENCE = 10.0


class Cut(NamedTuple):
    """What one cut showed."""

    case: str
    scenario: str
    acks: int
    """Read before the cut."""
    ioctl: int | None
    """What the shutdown returned; None if it did not come to it."""
    dead: bool
    """Whether nothing could be written after it."""
    fragments: int
    """Torn lines that it left: cut, or filled with NULs."""
    broken: list[str]

    @property
    def fired(self) -> bool:
        return self.ioctl == 0 and self.dead


# --- one process in a mount namespace of its own --------------------------------------------


def shard(order: dict[str, Any]) -> None:
    """Do the cuts that are ordered; one line of JSON for each."""
    disk = Disk(order["kind"], Path(order["place"]))
    source = Path(order["source"]) if order["source"] else None
    try:
        with Nursery(source=source) as nursery:
            for group in order["groups"]:
                name = f"{order['kind']}:{group}"
                rng = Random(frame.seed_of(f"{order['seed']} {name}"))
                for cut in _group(disk, nursery, name, rng, order):
                    print(json.dumps(cut), flush=True)
                    if cut.broken and order["until_broken"]:
                        return
    finally:
        disk.close()


def _group(
    disk: Disk, nursery: Nursery, name: str, rng: Random, order: dict[str, Any]
) -> Generator[Cut]:
    """Some cuts on one home; the first that breaks something is the last."""
    disk.renew()
    stage = Stage(nursery, disk.path / "home", rng, broken=order["broken"])
    Home.open(str(stage.home), create=True, timezone="UTC").close()
    if order["all_in_turn"]:
        program = rng.sample(list(SCENARIOS), len(SCENARIOS))
    else:
        weights = [weight for weight, _ in SCENARIOS.values()]
        program = rng.choices(list(SCENARIOS), weights, k=_LIVES_THROUGH)
    for scenario in program:
        cut = _cut(disk, stage, name, scenario)
        yield cut
        if cut.broken or not cut.fired:
            return


def _cut(disk: Disk, stage: Stage, name: str, scenario: str) -> Cut:
    history = stage.history
    before, torn = history.acks, history.fragments
    ioctl, dead, broken = None, False, list[str]()
    try:
        SCENARIOS[scenario][1](stage)
        disk.cut()
        ioctl, dead = 0, disk.is_cut()
    except NotFired as error:
        broken.append(f"the scenario did not come about: {error}")
    except OSError as error:
        broken.append(f"the power could not be cut: {error}")
    finally:
        stage.end()
    acks = history.acks - before
    disk.umount()
    disk.mount()
    if ioctl == 0:
        found = judge(str(stage.home), history) + _homes(stage.others)
        broken += [str(each) for each in found]
    return Cut(name, scenario, acks, ioctl, dead, history.fragments - torn, broken[:12])


def _homes(paths: Sequence[Path]) -> list[Broken]:
    found: list[Broken] = []
    for path in paths:
        try:
            Home.open(str(path)).close()
        except (HoldfastError, OSError) as error:
            found.append(Broken("P1", f"a home was made and is not there: {error}"))
    return found


# --- from outside ---------------------------------------------------------------------------


def cuts(
    kind: str,
    seed: int,
    groups: Sequence[int],
    *,
    source: Path | None = None,
    broken: str = "",
    until_broken: bool = False,
    all_in_turn: bool = False,
) -> Generator[Cut]:
    """Cut the power some times in each of the groups, in a process of its own.

    With `all_in_turn` every scenario is played once in each group.
    """
    with frame.scratch("powercut", _MEMORY) as place:
        order = {
            "kind": kind,
            "seed": seed,
            "groups": list(groups),
            "source": str(source) if source else None,
            "broken": broken,
            "until_broken": until_broken,
            "all_in_turn": all_in_turn,
            "place": str(place / "disk"),
        }
        (place / "disk").mkdir()
        child = subprocess.Popen(
            [*_ALONE, sys.executable, "-m", "prove.powercut", json.dumps(order)],
            stdout=subprocess.PIPE,
            text=True,
            env=frame.child_environment(),
        )
        try:
            assert child.stdout is not None
            for row in child.stdout:
                yield Cut(*json.loads(row))
            if child.wait() != 0:
                raise RuntimeError(f"the process that cuts ended with {child.returncode}")
        finally:
            child.kill()
            child.wait()
            # The kernel lets go of a mount when the last process in it has ended, not at the kill.
            patience = time.monotonic() + _PATIENCE
            while (left := leftovers(place)) and time.monotonic() < patience:
                time.sleep(0.01)
            if left:
                raise RuntimeError(f"loop devices are left: {left}")


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    scenarios: Counter[str] = Counter()
    numbers: Counter[str] = Counter()

    def some(kind: str, groups: Sequence[int]) -> None:
        for cut in cuts(kind, seed, groups):
            _count(result, cut)
            scenarios[cut.scenario] += 1
            numbers["acks"] += cut.acks
            numbers[f"cuts_{kind}"] += 1
            numbers[f"acks_{kind}"] += cut.acks
            numbers[f"torn_lines_{kind}"] += cut.fragments

    if case is not None:
        kind, _, number = case.partition(":")
        some(kind, [int(number)])
    else:
        for kind, wanted in _CUTS[tier].items():
            some(kind, range(-(-wanted // _LIVES_THROUGH)))
        first = -(-_CUTS[tier]["ext4"] // _LIVES_THROUGH)
        while numbers["acks"] < _ACKS[tier] and not result.failed:
            some("ext4", range(first, first + 10))
            first += 10
    result.details = {**numbers, "scenarios": dict(sorted(scenarios.items()))}
    return result


def _count(result: Result, cut: Cut) -> None:
    result.tried += 1
    result.fired += cut.fired
    result.lost += sum(says.startswith("P1") for says in cut.broken)
    if cut.broken:
        says = f"{cut.scenario}: {cut.broken[0]}"
        result.add_failure(cut.case, says, tuple(cut.broken[1:]))
    else:
        result.survived += 1


def control(seed: int) -> list[Control]:
    """The same without any sync loses what it acknowledged."""
    found: list[Control] = []
    for kind in ("ext4", "xfs"):
        done = list(cuts(kind, seed, range(4), broken="nosync", until_broken=True))
        lost = [says for cut in done for says in cut.broken if says.startswith("P1")]
        detail = f"{kind}, {len(done)} cuts: {lost[0] if lost else 'nothing noticed'}"
        found.append(Control(f"nosync-{kind}", bool(lost), detail))
    return found


if __name__ == "__main__":
    shard(json.loads(sys.argv[1]))
