"""eio: the disk fails a read, a write or a sync, and nobody is told a lie.

Deeds of `handles`, with EIO

- `vfs`: at every call that a deed makes, once or from there on, through a wrapper;
- `strace`: at every write and sync of a real process, instead of the system call;
- `block`: on a real ext4 over a device (`badblocks`) that fails the writes which hold the
  deed's data, once or always, behind so many lines before it, or the write of a number, whatever
  it holds.  Afterwards what reached the device is mounted without any cache.

Whatever was acknowledged is there; no file is synced again whose sync failed; the log goes on in
the next segment, whose first line names the failed one; other files are served; the same handles
go on.  A case fired if the EIO was given.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.store.primitives import CONTROL, FAILED
from prove import frame
from prove.aftermath import Outcome, inspect
from prove.badblocks import BadDisk, cannot_fail
from prove.diskfull import ALONE, SOURCE, Desk, from_each
from prove.frame import Control, Harness, Result
from prove.handles import (
    BETWEEN,
    DEEDS,
    Deed,
    Handles,
    attempt,
    endure,
    ids,
    in_sight,
    judge,
    replace,
)
from prove.operations import FIRST_FENCE, JOURNAL, LEDGER, Operation
from prove.smalldisks import Tried
from prove.strained import StrainedVfs, Watch, refusal
from prove.syscalls import Bench, cannot_trace, synced_again
from prove.syscalls import Case as CallCase

HARNESS = Harness(
    name="eio",
    proves="A disk that fails is never taken for one that keeps what it was given.",
    targets={"quick": 200, "ci": 900, "full": 1_800},
)
_SAMPLE = {
    "quick": {"vfs": 200, "strace": 24, "block": 16},
    "ci": {"vfs": 900, "strace": 120, "block": 100},
    "full": {"vfs": None, "strace": None, "block": None},
}
_LEAST_ON_BLOCKS = 500
"""In the full tier."""
_CALLS = ("write", "pwrite64", "fsync", "fdatasync")
_MEMORY = Path("/dev/shm")
_BEHIND = 12
"""Behind so many lines, of some 800 bytes each, the data of a deed stands at most."""
_LINE = "b" * 680
_MOST_WRITES = 30
_OTHER = "state/other/journal.jsonl"


class Case(NamedTuple):
    kind: str
    deed: str
    at: str
    how: str

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def of(cls, text: str) -> Case:
        kind, deed, at, how = text.split("/")
        return cls(kind, deed, at, how)


# --- through the vfs ------------------------------------------------------------------------


class Failing(Watch):
    """EIO at the nth call, or from there on; None: count only."""

    def __init__(self, nth: int | None, *, lasting: bool = False) -> None:
        super().__init__()
        self._nth, self._lasting = nth, lasting
        self.made = 0

    def before(self, op: str, path: str) -> None:
        super().before(op, path)
        if not self.armed:
            return
        self.made += 1
        since = self.made - 1 - self._nth if self._nth is not None else -1
        if since == 0 or (since > 0 and self._lasting):
            error = refusal(errno.EIO)
            self.note(op, path, error)
            raise error


class VfsBench:
    def __init__(self, place: Path, *, broken: str = "") -> None:
        self._desk = Desk(place)
        self._retries = broken == "retry"

    def close(self) -> None:
        """Nothing is kept."""

    def cases(self) -> Iterator[Case]:
        for name, deed in DEEDS.items():
            home, strain = self._desk.home(deed), Failing(None)
            done = endure(deed, home, StrainedVfs(strain), resumes=False)
            shutil.rmtree(home)
            if done.first.answer is None:
                raise RuntimeError(f"{name} fails without any fault: {done.first}")
            for nth in range(strain.made):
                yield Case("vfs", name, str(nth), "once")
                yield Case("vfs", name, str(nth), "lasting")

    def try_all(self, case: Case) -> Iterator[Tried]:
        yield self.try_case(case)

    def try_case(self, case: Case) -> Tried:
        deed = DEEDS[case.deed]
        home = self._desk.home(deed)
        strain = Failing(int(case.at), lasting=case.how == "lasting")
        vfs = Retrying(strain) if self._retries else StrainedVfs(strain)
        done = endure(deed, home, vfs)
        complaints = [*done.complaints, *_of_syncs(strain, home), *judge(deed, home)]
        strain.close()
        shutil.rmtree(home, ignore_errors=True)
        return Tried(str(case), strain.fired > 0, complaints)


class Retrying(StrainedVfs):
    """What one must not do, for the control."""

    def sync(self, fd: int) -> None:
        try:
            super().sync(fd)
        except OSError:
            super().sync(fd)


def _of_syncs(watch: Watch, home: Path) -> Iterator[str]:
    """What is wrong about files whose sync failed."""
    for path in watch.again:
        yield f"{path} was synced again after its sync had failed"
    for path in watch.failed.values():
        name = Path(path).name
        if name.endswith(".jsonl") and not any(_names(name, file) for file in _segments(home)):
            yield f"no segment begins with a line that names {name}, whose sync failed"


def _segments(home: Path) -> Iterator[Path]:
    yield from home.rglob("*.jsonl")


def _names(failed: str, segment: Path) -> bool:
    """Whether a segment begins with the line that tells of the failed one."""
    with open(segment, "rb") as file:
        first = file.readline()
    try:
        record = json.loads(first)
    except ValueError:
        return False
    return record.get(CONTROL) == FAILED and record.get("segment") == failed


# --- instead of system calls ----------------------------------------------------------------


class CallBench:
    def __init__(self, place: Path, *, broken: str = "") -> None:
        self._bench = Bench(place, None, broken=broken, roles="prove.handles")

    def close(self) -> None:
        self._bench.close()

    def cases(self) -> Iterator[Case]:
        for name, deed in DEEDS.items():
            for call in self._bench.calls(deed.operation):
                if BETWEEN in call.text:
                    break
                if call.name in _CALLS:
                    yield Case("strace", name, f"{call.name}.{call.nth}", "EIO")

    def try_all(self, case: Case) -> Iterator[Tried]:
        yield self.try_case(case)

    def try_case(self, case: Case) -> Tried:
        deed = DEEDS[case.deed]
        call, _, nth = case.at.partition(".")
        home = self._bench.home(deed.operation)
        order = CallCase(case.deed, call, int(nth), case.how)
        outcome, fired, trace = self._bench.injected(order, deed.operation, home)
        complaints = [*inspect(_unseen(deed), home, outcome), *_but_new(synced_again(trace))]
        shutil.rmtree(home, ignore_errors=True)
        return Tried(str(case), fired, complaints)


def _but_new(complaints: Iterable[str]) -> list[str]:
    """What is made anew has the name of the old one; `vfs` tells the two apart."""
    anew = (".tmp was synced again", ".lease was synced again")
    return [says for says in complaints if not any(word in says for word in anew)]


# --- under a real file system ---------------------------------------------------------------


def _token(deed: Deed) -> bytes | None:
    """Bytes that only the data of the first attempt holds."""
    if deed.operation.lines:
        return b'"id":"%b"' % deed.operation.lines[0].encode()
    if deed.name in ("first_document", "replace", "update"):
        return b'"text":"new"'
    if "lease" in deed.name:
        return b"%020d\n" % (1 if deed.name == "first_lease" else FIRST_FENCE + 1)
    return None


class BlockBench:
    def __init__(self, place: Path, *, broken: str = "") -> None:
        self._desk = Desk(place / "templates")
        self._disk = BadDisk(place / "disk")
        self._retries = broken == "retry"

    def close(self) -> None:
        self._disk.close()

    @staticmethod
    def cases() -> Iterator[Case]:
        for name, deed in DEEDS.items():
            if _token(deed) is not None:
                for behind in range(_BEHIND):
                    yield Case("block", name, str(behind), "once")
                    yield Case("block", name, str(behind), "always")
        for name in DEEDS:
            # Which numbers are reached is seen when they are tried.
            yield Case("block", name, "*", "number")

    def try_all(self, case: Case) -> Iterator[Tried]:
        if case.at != "*":
            yield self.try_case(case)
            return
        for number in range(_MOST_WRITES):
            tried = self.try_case(case._replace(at=str(number)))
            if not tried.fired and not tried.complaints:
                return
            yield tried

    def try_case(self, case: Case) -> Tried:
        deed, disk = DEEDS[case.deed], self._disk
        disk.renew()
        home = self._desk.home(deed, disk.path)
        before = int(case.at) if case.how != "number" and not deed.operation.makes_home else 0
        _write_before(home, before)
        watch = Watch()
        vfs = Retrying(watch) if self._retries else StrainedVfs(watch)
        handles = Handles(str(home), vfs)
        complaints: list[str] = []
        try:
            if not deed.operation.makes_home and deed.name != "make_home_again":
                handles.home()
            if deed.warm is not None:
                deed.warm(handles)
            disk.settle()
            self._order(case, deed)
            first, wrong = attempt(deed, handles, 0)
            complaints += [wrong] if wrong else []
            if case.how != "always":
                disk.orders.fail_no_more()
            second = attempt(deed, handles, 1)[0] if disk.writable() else None
            if second is not None and second.answer is None and disk.writable():
                complaints.append(f"refused when the fault is gone: {second.error}")
            served = self._serve_others(handles, complaints) if disk.writable() else False
            complaints += _of_syncs(watch, home) if disk.writable() else []
        finally:
            handles.close()
            watch.close()
        fired = disk.orders.failed > 0
        disk.look_at_image()
        complaints += _but_damage(self._after(deed, home, (first, second), before, served=served))
        return Tried(str(case), fired, complaints)

    def _order(self, case: Case, deed: Deed) -> None:
        if case.how == "number":
            self._disk.orders.fail_number(int(case.at))
        else:
            token = _token(deed)
            assert token is not None
            self._disk.orders.fail_holding(token, once=case.how == "once")

    def _serve_others(self, handles: Handles, complaints: list[str]) -> bool:
        """Another log and another document are written as ever."""
        try:
            handles.log(_OTHER).append({"id": "other"})
            handles.home().document("state/other/note.json").replace(b"{}")
        except HoldfastError as error:
            if self._disk.writable():
                complaints.append(f"other files are not served: {error}")
            return False
        return True

    def _after(
        self,
        deed: Deed,
        home: Path,
        outcomes: tuple[Outcome, Outcome | None],
        before: int,
        *,
        served: bool,
    ) -> Iterator[str]:
        """What is on the device, and what the next process makes of it."""
        first, second = outcomes
        # A document that was replaced again no longer shows what became of the first attempt.
        known = deed.operation.lines or second is None or second.answer is None
        yield from in_sight(deed if known else replace(deed, operation=_unseen(deed)), home, first)
        handles = Handles(str(home))
        try:
            if second is not None and second.answer is not None:
                says = deed.check(handles, second.answer)
                yield from [says] if says else []
            for key in (JOURNAL, LEDGER) if before else ():
                wanted = [f"x{number}" for number in range(before)]
                there = [name for name in ids(handles.home(), key) if name in wanted]
                if there != wanted:
                    yield f"{wanted} were acknowledged before, {key} holds {there}"
            if second is None or second.answer is None:
                # The file system was lost until now: new handles do it again.
                third, _ = attempt(deed, handles, 2)
                if third.answer is None:
                    yield f"refused after a new mount: {third.error or third.untyped}"
            if served and ids(handles.home(), _OTHER) != ["other"]:
                yield f"{_OTHER} was acknowledged and is gone"
        finally:
            handles.close()
        yield from judge(deed, home)


def _unseen(deed: Deed) -> Operation:
    return replace(deed.operation, look=None)


def _write_before(home: Path, count: int) -> None:
    """Lines in front of the deed's: they stand in the same pages, and are acknowledged."""
    handles = Handles(str(home))
    try:
        for key in (JOURNAL, LEDGER) if count else ():
            for number in range(count):
                handles.log(key).append({"id": f"x{number}", "pad": _LINE})
    finally:
        handles.close()


def _but_damage(complaints: Iterable[str]) -> list[str]:
    """That a failed disk lost what nobody was promised is said, and is no fault."""
    said = ("kind='damaged'", "check says damaged")
    return [says for says in complaints if not any(word in says for word in said)]


# --- the harness ----------------------------------------------------------------------------


AnyBench = VfsBench | CallBench | BlockBench
_BENCHES = {"vfs": VfsBench, "strace": CallBench, "block": BlockBench}


def _missing(kind: str) -> str | None:
    if kind == "strace":
        return "needs strace" if shutil.which("strace") is None else cannot_trace()
    return cannot_fail() if kind == "block" else None


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    numbers: Counter[str] = Counter()
    skipped: dict[str, str] = {}
    for kind in _BENCHES:
        if case is not None and case.split("/")[0] != kind:
            continue
        if reason := _missing(kind):
            skipped[kind] = reason
            continue
        order = {"kind": kind, "case": case, "seed": seed, "sample": _SAMPLE[tier][kind]}
        for tried in _done(order):
            numbers[kind] += 1
            _count(result, tried)
    result.details = {"by_kind": dict(numbers), "skipped_kinds": skipped}
    if tier == "full" and case is None and not skipped and numbers["block"] < _LEAST_ON_BLOCKS:
        result.tried += 1
        result.add_failure("-", f"only {numbers['block']} errors of a block device")
    return result


def _done(order: dict[str, object]) -> Iterator[Tried]:
    """What is ordered, in a process of its own; with mounts of its own where there are some."""
    with frame.scratch("eio", _MEMORY) as place:
        alone = ALONE if order["kind"] == "block" else ()
        text = json.dumps({**order, "place": str(place / "bench")})
        child = subprocess.Popen(
            [*alone, sys.executable, "-m", "prove.eio", text],
            stdout=subprocess.PIPE,
            text=True,
            env=frame.child_environment(SOURCE),
        )
        try:
            assert child.stdout is not None
            for row in child.stdout:
                yield Tried(*json.loads(row))
            if child.wait() != 0:
                raise RuntimeError(f"a process that tries cases ended with {child.returncode}")
        finally:
            child.kill()
            child.wait()


def _count(result: Result, tried: Tried) -> None:
    result.tried += 1
    result.fired += tried.fired
    result.lost += any("acknowledged" in says for says in tried.complaints)
    if tried.complaints:
        says, *more = tried.complaints
        result.add_failure(tried.case, f"{tried.case}: {says}", tuple(more[:5]))
    else:
        result.survived += 1


def shard(order: Mapping[str, Any]) -> None:
    """Try what is ordered; one line of JSON for each case."""
    broken = str(order.get("broken", ""))
    place = Path(str(order["place"]))
    bench: AnyBench = _BENCHES[str(order["kind"])](place, broken=broken)
    try:
        for case in _chosen(bench, order):
            for tried in bench.try_all(case):
                print(json.dumps(tried), flush=True)
    finally:
        bench.close()


def _chosen(bench: AnyBench, order: Mapping[str, Any]) -> list[Case]:
    if order["case"] is not None and "*" not in order["case"]:
        return [Case.of(order["case"])]
    every = list(bench.cases())
    if order["case"] is not None:
        return [each for each in every if fnmatchcase(str(each), order["case"])]
    size = order["sample"]
    if size is None:
        return every
    return from_each(every, size, Random(f"eio|{order['kind']}|{order['seed']}"))


def control(seed: int) -> list[Control]:
    """A writer that syncs again and believes the second answer has to be seen."""
    tries = {"vfs": "vfs/append_warm/*/once", "block": "block/append_all_warm/1/once"}
    tries["strace"] = "strace/append_warm/fdatasync.1/EIO"
    found: list[Control] = []
    for kind, case in tries.items():
        if _missing(kind):
            continue
        order = {"kind": kind, "case": case, "seed": seed, "sample": None, "broken": "retry"}
        said = [says for tried in _done(order) if tried.fired for says in tried.complaints]
        if kind == "block":
            # Here what was acknowledged has to be really gone.
            said = [says for says in said if "acknowledged" in says]
        detail = said[0] if said else "nothing noticed"
        found.append(Control(f"retries-{kind}", bool(said), detail))
    return found


if __name__ == "__main__":
    shard(json.loads(sys.argv[1]))
