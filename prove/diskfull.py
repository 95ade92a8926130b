"""diskfull: no room at every byte, at every new name, and on real disks that are full.

A case is one deed of `handles` under one refusal, and the same deed again, by the same open
handles, when there is room.  Through the vfs, at every byte that a deed writes: what still fits
is written, the rest is refused (ENOSPC, at some bytes EDQUOT), as is every write after it; and
at every name that it makes, as a disk without inodes or a used-up quota does.  On real disks
(`smalldisks`): a tmpfs with so many free pages or inodes, an ext4 with so many free blocks, a
disk remounted read-only, and an ext4 that goes read-only in the middle of a deed.

A case fired if the refusal was given.  Real disks are filled less and less until a deed is no
longer refused; the last fill, which refuses nothing, is not a case.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import holdfast
from prove import frame
from prove.frame import Control, Harness, Result
from prove.handles import DEEDS, Deed, endure, judge
from prove.operations import make_home
from prove.smalldisks import KINDS, SmallDisks, Tried, cannot_have
from prove.strained import Strain, StrainedVfs, refusal

HARNESS = Harness(
    name="diskfull",
    proves="A full or read-only disk costs nothing acknowledged, and the same handles go on.",
    targets={"quick": 320, "ci": 2_500, "full": 40_000},
)
_SAMPLE = {"quick": 320, "ci": 2_500, "full": None}
_DEEDS_ON_DISKS = {"quick": 2, "ci": 10, "full": None}
"""How many deeds are done on each kind of real disk."""
_EDQUOT_EVERY = 16
_PROCESSES = 2
_MEMORY = Path("/dev/shm")
SOURCE = Path(holdfast.__file__).resolve().parent.parent
"""The tree under test: ours, or one with a bug in it."""
AnyCase = TypeVar("AnyCase")
ALONE = ("unshare", "-m", "--propagation", "private")


class Quota(Strain):
    """So many bytes and so many new names, and no more until it is relieved."""

    def __init__(self, *, size: int | None = None, names: int | None = None, says: int) -> None:
        super().__init__()
        self._bytes, self._names, self._says = size, names, says
        self.written = self.made = 0

    def before(self, op: str, path: str) -> None:
        super().before(op, path)
        if self.armed and op in ("create", "mkdir", "link"):
            self.made += 1
            if self._names is not None and self.made > self._names:
                raise self._refuse(op, path)

    def room(self, path: str, size: int) -> int:
        if not self.armed:
            return size
        left = size if self._bytes is None else max(0, self._bytes - self.written)
        self.written += min(size, left)
        if left < size:
            self._refuse("write", path)
        if left == 0 < size:
            raise refusal(self._says)
        return min(size, left)

    def _refuse(self, op: str, path: str) -> OSError:
        error = refusal(self._says)
        self.note(op, path, error)
        return error

    def saw(self, op: str, path: str, error: OSError) -> None:
        """It refused that itself."""


class Case(NamedTuple):
    kind: str
    """`bytes`, `names`, or a kind of real disk."""
    deed: str
    at: int
    """How much fits: bytes, names, pages, blocks; for `erofs-error`, at which call."""
    says: str

    def __str__(self) -> str:
        return "/".join(map(str, self))

    @classmethod
    def of(cls, text: str) -> Case:
        kind, deed, at, says = text.split("/")
        return cls(kind, deed, int(at), says)


# --- through the vfs ------------------------------------------------------------------------


class Desk:
    """Homes for the deeds, copied from one that was prepared."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)

    def home(self, deed: Deed, under: Path | None = None) -> Path:
        template = self.place / f"template-{deed.name}"
        if not template.exists():
            if deed.operation.makes_home:
                template.mkdir()
            else:
                make_home(str(template))
            if deed.operation.prepare is not None:
                deed.operation.prepare(str(template))
        home = (under or self.place) / "home"
        if not deed.operation.makes_home:
            shutil.copytree(template, home)
        return home

    def needs(self, deed: Deed) -> Quota:
        """A dry run: how many bytes and names the deed takes."""
        quota = Quota(says=errno.ENOSPC)
        home = self.home(deed)
        done = endure(deed, home, StrainedVfs(quota), resumes=False)
        shutil.rmtree(home)
        if done.first.answer is None or done.complaints:
            raise RuntimeError(f"{deed.name} fails with room: {done.first} {done.complaints}")
        return quota

    def try_case(self, case: Case, *, ignores_short_writes: bool = False) -> Tried:
        deed = DEEDS[case.deed]
        says = int(getattr(errno, case.says))
        limit = {"size" if case.kind == "bytes" else "names": case.at}
        quota = Quota(**limit, says=says)
        home = self.home(deed)
        vfs = StrainedVfs(quota, ignores_short_writes=ignores_short_writes)
        done = endure(deed, home, vfs)
        complaints = [*done.complaints, *judge(deed, home)]
        shutil.rmtree(home, ignore_errors=True)
        return Tried(str(case), quota.fired > 0, complaints)


def cases(desk: Desk) -> list[Case]:
    """A refusal at every byte and at every name of every deed."""
    found: list[Case] = []
    for name, deed in DEEDS.items():
        needed = desk.needs(deed)
        for at in range(needed.written):
            found.append(Case("bytes", name, at, "ENOSPC"))
            if at % _EDQUOT_EVERY == 0:
                found.append(Case("bytes", name, at, "EDQUOT"))
        for at in range(needed.made):
            found += [Case("names", name, at, says) for says in ("ENOSPC", "EDQUOT")]
    return found


# --- the harness ----------------------------------------------------------------------------


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    kinds: Counter[str] = Counter()
    skipped = cannot_have() if case is None or case.split("/")[0] in KINDS else None
    with frame.scratch("diskfull", _MEMORY) as place:
        every = cases(Desk(place / "dry"))
        orders = [
            {"place": str(place / f"desk{number}"), "cases": each}
            for number, each in enumerate(_split(_chosen(every, tier, seed, case)))
        ]
        disks = _disk_orders(tier, seed, case) if skipped is None else []
        for tried in _done(place, orders, disks):
            kinds[tried.case.split("/")[0]] += 1
            _count(result, tried)
    result.details = {
        "deeds": len(DEEDS),
        "all_cases": len(every),
        "by_kind": dict(sorted(kinds.items())),
        "skipped_kinds": dict.fromkeys(KINDS, skipped) if skipped else {},
    }
    if case is None and skipped is None:
        for kind in KINDS:
            if not kinds[kind]:
                result.add_failure("-", f"nothing was ever refused on {kind}")
                result.tried += 1
    return result


def _chosen(every: list[Case], tier: str, seed: int, case: str | None) -> list[Case]:
    if case is not None:
        return [each for each in every if fnmatchcase(str(each), case)]
    size = _SAMPLE[tier]
    return every if size is None else from_each(every, size, Random(f"diskfull|{seed}"))


def from_each(every: list[AnyCase], size: int, rng: Random) -> list[AnyCase]:
    """So many cases, as evenly from all deeds as they have them: some write much, some little."""
    piles: dict[str, list[AnyCase]] = {}
    for case in every:
        piles.setdefault(str(case).rpartition("/")[0].rpartition("/")[0], []).append(case)
    for pile in piles.values():
        rng.shuffle(pile)
    found: list[AnyCase] = []
    while len(found) < min(size, len(every)):
        for pile in piles.values():
            if pile and len(found) < size:
                found.append(pile.pop())
    return found


def _split(chosen: Sequence[Case]) -> list[list[str]]:
    parts = [[str(each) for each in chosen[n::_PROCESSES]] for n in range(_PROCESSES)]
    return [part for part in parts if part]


def _disk_orders(tier: str, seed: int, case: str | None) -> list[list[str]]:
    """For each kind of disk the deeds to be done on it, as patterns of cases."""
    if case is not None:
        return [[case]] if case.split("/")[0] in KINDS else []
    found: list[list[str]] = []
    for kind in KINDS:
        some = _DEEDS_ON_DISKS[tier]
        names = list(DEEDS)
        if some is not None:
            names = Random(f"diskfull|{kind}|{seed}").sample(names, some)
        # An append to a new log is refused on every kind: no kind goes without a case.
        found.append([f"{kind}/{name}/*" for name in dict.fromkeys(["first_append", *names])])
    return found


def _done(place: Path, orders: list[dict[str, object]], disks: list[list[str]]) -> Iterator[Tried]:
    """Everything that was ordered: quotas in processes beside each other, then the disks."""
    base = [sys.executable, "-m", "prove.diskfull"]
    started = [_start([*base, "quota"], order) for order in orders]
    try:
        for child in started:
            yield from _heard(child)
    finally:
        for child in started:
            child.kill()
            child.wait()
    if disks:
        patterns = [pattern for each in disks for pattern in each]
        order = {"place": str(place / "disks"), "patterns": patterns}
        child = _start([*ALONE, *base, "disks"], order)
        try:
            yield from _heard(child)
        finally:
            child.kill()
            child.wait()


def _start(command: list[str], order: dict[str, object]) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=frame.child_environment(SOURCE),
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(order))
    child.stdin.close()
    return child


def _heard(child: subprocess.Popen[str]) -> Iterator[Tried]:
    assert child.stdout is not None
    for row in child.stdout:
        yield Tried(*json.loads(row))
    if child.wait() != 0:
        raise RuntimeError(f"a process that tries cases ended with {child.returncode}")


def _count(result: Result, tried: Tried) -> None:
    result.tried += 1
    result.fired += tried.fired
    result.lost += any("acknowledged" in says for says in tried.complaints)
    if tried.complaints:
        says, *more = tried.complaints
        result.add_failure(tried.case, f"{tried.case}: {says}", tuple(more[:5]))
    else:
        result.survived += 1


def control(seed: int) -> list[Control]:
    """A writer that never looks at what `write` returned has to be seen losing lines."""
    found: list[Control] = []
    with frame.scratch("diskfull", _MEMORY) as place:
        desk = Desk(place / "desk")
        for deed in ("append_warm", "append_all", "replace"):
            case = Case("bytes", deed, 40, "ENOSPC")
            tried = desk.try_case(case, ignores_short_writes=True)
            said = tried.complaints[0] if tried.complaints else "nothing noticed"
            caught = tried.fired and bool(tried.complaints)
            found.append(Control(f"ignores-short-writes-{deed}", caught, said))
    return found


def shard(kind: str, order: dict[str, list[str]]) -> None:
    """Try what is ordered; one line of JSON for each case."""
    place = Path(str(order["place"]))
    if kind == "quota":
        desk = Desk(place)
        for text in order["cases"]:
            print(json.dumps(desk.try_case(Case.of(text))), flush=True)
        return
    place.mkdir()
    disks = SmallDisks(place, Desk(place / "templates").home)
    try:
        for pattern in order["patterns"]:
            for tried in disks.try_all(pattern):
                print(json.dumps(tried), flush=True)
    finally:
        disks.close()


if __name__ == "__main__":
    shard(sys.argv[1], json.loads(sys.stdin.read()))
