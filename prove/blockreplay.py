"""blockreplay: what the disk itself held at any instant, under a real ext4 and a real XFS.

Writers work on a file system whose device remembers every write and flush (`blocklog`).  The
power is cut afterwards, on paper: a prefix of the log, or all that was flushed and random
blocks of the rest, becomes an image, which is mounted (the journal is replayed) and judged.
Every acknowledgement that was given before the cut has to be kept; its place in the log is
known from the instants that both were given.

A case is one image.  It fired if the cut lies behind the making of the home, requests of the
device were left out that came after it, and the image could be mounted.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.store.home import Home
from prove import frame
from prove.actors import ACK
from prove.blocklog import BlockLog, Recorder, cannot_record
from prove.disk import TOOLS, Disk, cannot_mount, leftovers
from prove.frame import Control, Harness, Result
from prove.oracle import History, judge
from prove.victims import Nursery

HARNESS = Harness(
    name="blockreplay",
    proves="Every image that a power cut may leave of the disk keeps what was acknowledged.",
    targets={"quick": 15, "ci": 150, "full": 6_000},
    unit="images",
    tools=TOOLS,
    root=True,
    missing=lambda tier: cannot_mount() or cannot_record(),
)
_IMAGES = {
    "quick": {"ext4": 10, "xfs": 5},
    "ci": {"ext4": 120, "xfs": 40},
    "full": {"ext4": 5_000, "xfs": 1_000},
}
_FROM_ONE = 40
"""Images of one recording."""
WRITERS = (4, 7)
_MIX = {
    "shared": 20,
    "batch": 4,
    "transact": 4,
    "own": 8,
    "days": 20,
    "count": 20,
    "view": 6,
    "lease": 4,
}
_ACKS = {"quick": 60, "ci": 200, "full": 300}
"""How many acknowledgements one recording has at least."""
_PATIENCE = 60.0
_MEMORY = Path("/dev/shm")
_KEPT = frame.SCRATCH / "blockreplay"
"""Recordings of which an image broke something: the writers would not do the same again."""
_ALONE = ("unshare", "-m", "--propagation", "private")


class Image(NamedTuple):
    """What one image showed."""

    case: str
    how: str
    """`prefix` or `subset`."""
    acks: int
    """Given before the cut."""
    fired: bool
    fragments: int
    broken: list[str]


Packet = tuple[int, bytes]
"""Writer, and what it sent."""


@dataclass
class Recording:
    """One run of the writers: what reached the device, and what they said."""

    log: BlockLog
    writers: int
    packets: list[Packet]
    since: float
    """When the home was there."""
    until: float

    def cuts(self, count: int, rng: Random) -> Iterator[tuple[float, str]]:
        """Instants to cut at: half of them just behind an acknowledgement."""
        first, last = self.log.at(self.since), self.log.at(self.until)
        busy = self.log.done[first:last] or [self.until]
        told = [done for _, data in self.packets if (done := _span(data)[1]) < self.until]
        for number in range(count):
            yield rng.choice(told if number % 2 else busy), rng.choice(("prefix", "subset"))

    def history(self, cut: float) -> History:
        """What had been acknowledged at an instant."""
        history = History()
        # One that never said anything may have written all the same.
        lives = [history.born(me, me + 1) for me in range(self.writers)]
        for me, data in self.packets:
            began, told = _span(data)
            if began <= cut:
                # Of one that was told later, it is known that it was on its way.
                history.take(lives[me], data, late=told > cut)
        return history

    def keep(self, place: Path, disk: Disk, source: Path) -> None:
        """Put everything aside that it takes to make the same images again."""
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place / "log")
        disk.copy_to(place / "image")
        rows = [(me, data.hex()) for me, data in self.packets]
        said = {"since": self.since, "until": self.until, "writers": self.writers}
        text = json.dumps({**said, "packets": rows})
        (place / "said.json").write_text(text, encoding="utf-8")

    @classmethod
    def kept(cls, place: Path) -> Recording:
        said = json.loads((place / "said.json").read_text(encoding="utf-8"))
        said["packets"] = [(me, bytes.fromhex(data)) for me, data in said["packets"]]
        return cls(BlockLog.load(place / "log"), **said)


def _span(packet: bytes) -> tuple[float, float]:
    """When a writer began what it tells of, and when it told; complaints belong to all images."""
    return (0.0, 0.0) if packet.startswith(b"!") else ACK.unpack(packet)[3:]


# --- one process in a mount namespace of its own --------------------------------------------


def shard(order: dict[str, Any]) -> None:
    """Record and replay as ordered; one line of JSON for each image."""
    place, kind = Path(order["place"]), order["kind"]
    for number in order["recordings"]:
        name = f"{kind}:{number}"
        rng = Random(frame.seed_of(f"{order['seed']} {name}"))
        kept = _KEPT / f"{order['seed']}-{kind}-{number}"
        again = order["only"] is not None and kept.is_dir()
        here = place / name
        here.mkdir()
        disk = Disk(kind, here, kept / "image" if again else None)
        try:
            seeds = [rng.getrandbits(48) for _ in range(rng.randint(*WRITERS))]
            taken = Recording.kept(kept) if again else _record(disk, here, seeds, order)
            bad = False
            for image in _replay(disk, taken, name, order["images"], rng, order["only"]):
                print(json.dumps(image), flush=True)
                bad = bad or bool(image.broken)
            if bad and not again and not order["broken"] and _ours():
                taken.keep(kept, disk, here / "log")
        finally:
            disk.close()


def _ours() -> bool:
    return frame.source_in_use() == frame.REPO / "src"


def _record(disk: Disk, place: Path, seeds: Sequence[int], order: dict[str, Any]) -> Recording:
    device, log = place / "device", place / "log"
    disk.copy_to(device)
    (place / "fuse").mkdir()
    with Recorder(device, log, place / "fuse") as recorder:
        disk.mount(recorder.path)
        try:
            home = str(disk.path / "home")
            Home.open(home, create=True, timezone="UTC").close()
            since = time.monotonic()
            packets, until = _work(home, seeds, order)
        finally:
            disk.umount()
    return Recording(BlockLog.load(log), len(seeds), packets, since, until)


def _work(home: str, seeds: Sequence[int], order: dict[str, Any]) -> tuple[list[Packet], float]:
    """Let writers work until there are acknowledgements enough; what they said, and when."""
    packets: list[Packet] = []
    common = {"home": home, "mix": order["mix"], "broken": order["broken"]}
    with Nursery() as nursery:
        crowd = [
            nursery.start("writer", me=me, life=me + 1, seed=seed, **common)
            for me, seed in enumerate(seeds)
        ]
        deadline = time.monotonic() + _PATIENCE
        while len(packets) < order["acks"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(packets)} acknowledgements in {_PATIENCE:.0f} s")
            select.select([victim.channel for victim in crowd], [], [], 0.1)
            for me, victim in enumerate(crowd):
                packets += [(me, packet) for packet in victim.packets()]
        until = time.monotonic()
        for me, victim in enumerate(crowd):
            packets += [(me, packet) for packet in victim.end()]
    return packets, until


def _replay(
    disk: Disk, taken: Recording, name: str, count: int, rng: Random, only: int | None
) -> Iterator[Image]:
    for number, (cut, how) in enumerate(taken.cuts(count, rng)):
        mine = Random(rng.getrandbits(48))
        if only is None or only == number:
            yield _image(disk, taken, f"{name}:{number}", (cut, how), mine)


def _image(disk: Disk, taken: Recording, case: str, way: tuple[float, str], rng: Random) -> Image:
    (instant, how), log = way, taken.log
    history, cut = taken.history(instant), log.at(instant)
    acks, broken, mounted = history.acks, list[str](), False
    try:
        disk.renew(log.prefix(cut) if how == "prefix" else log.subset(cut, rng))
        mounted = True
        broken = [str(each) for each in judge(str(disk.path / "home"), history)]
    except OSError as error:
        broken.append(f"the image cannot be mounted: {error}")
    finally:
        disk.umount()
    fired = mounted and log.at(taken.since) <= cut < len(log.done)
    return Image(case, how, acks, fired, history.fragments, broken[:12])


# --- from outside ---------------------------------------------------------------------------


def images(
    kind: str,
    seed: int,
    recordings: Sequence[int],
    *,
    count: int = _FROM_ONE,
    acks: int = 100,
    mix: dict[str, int] | None = None,
    broken: str = "",
    only: int | None = None,
) -> Iterator[Image]:
    """The images of some recordings, made in a process of its own."""
    with frame.scratch("blockreplay", _MEMORY) as place:
        order = {
            "kind": kind,
            "seed": seed,
            "recordings": list(recordings),
            "images": count,
            "acks": acks,
            "mix": mix or _MIX,
            "broken": broken,
            "only": only,
            "place": str(place),
        }
        child = subprocess.Popen(
            [*_ALONE, sys.executable, "-m", "prove.blockreplay", json.dumps(order)],
            stdout=subprocess.PIPE,
            text=True,
            env=frame.child_environment(),
        )
        try:
            assert child.stdout is not None
            for row in child.stdout:
                yield Image(*json.loads(row))
            if child.wait() != 0:
                raise RuntimeError(f"the process that replays ended with {child.returncode}")
        finally:
            child.kill()
            child.wait()
            if left := leftovers(place):
                raise RuntimeError(f"loop devices are left: {left}")


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    numbers: Counter[str] = Counter()
    if case is not None:
        kind, recording, *number = case.split(":")
        count, only = _share(tier, kind)[1], int(number[0]) if number else None
        for image in images(kind, seed, [int(recording)], count=count, acks=_ACKS[tier], only=only):
            _count(result, numbers, image)
    else:
        with ThreadPoolExecutor(_workers(tier)) as pool:
            for done in pool.map(lambda part: list(images(**part)), _parts(tier, seed)):
                for image in done:
                    _count(result, numbers, image)
    result.details = dict(sorted(numbers.items()))
    return result


def _workers(tier: str) -> int:
    return 1 if tier == "quick" else len(os.sched_getaffinity(0))


def _share(tier: str, kind: str) -> tuple[int, int]:
    """How many recordings, and images of each."""
    wanted = _IMAGES[tier][kind]
    recordings = -(-wanted // _FROM_ONE)
    return recordings, -(-wanted // recordings)


def _parts(tier: str, seed: int) -> Iterator[dict[str, Any]]:
    for kind in _IMAGES[tier]:
        recordings, count = _share(tier, kind)
        for first in range(recordings):
            yield {
                "kind": kind,
                "seed": seed,
                "recordings": [first],
                "count": count,
                "acks": _ACKS[tier],
            }


def _count(result: Result, numbers: Counter[str], image: Image) -> None:
    result.tried += 1
    result.fired += image.fired
    result.lost += sum(says.startswith("P1") for says in image.broken)
    kind = image.case.partition(":")[0]
    numbers[f"images_{kind}"] += 1
    numbers[f"{image.how}_images"] += 1
    numbers["acks_checked"] += image.acks
    numbers[f"torn_lines_{kind}"] += image.fragments
    if image.broken:
        says = f"{image.how}: {image.broken[0]}"
        result.add_failure(image.case, says, tuple(image.broken[1:]))
    else:
        result.survived += 1


def control(seed: int) -> list[Control]:
    """Writers that leave out all syncs, or those of directories, lose what they acknowledged."""
    return [_control("nosync", _MIX, seed), _control("nodirsync", {"count": 1}, seed)]


def _control(broken: str, mix: dict[str, int], seed: int) -> Control:
    says, lost, tried = "nothing noticed", 0, 0
    for recording in range(3):
        for image in images("ext4", seed, [recording], count=6, acks=40, mix=mix, broken=broken):
            tried += 1
            gone = [each for each in image.broken if each.startswith("P1")]
            lost += bool(gone)
            says = gone[0] if gone else says
        if lost:
            break
    return Control(broken, lost > 0, f"{lost} of {tried} images: {says}")


if __name__ == "__main__":
    shard(json.loads(sys.argv[1]))
