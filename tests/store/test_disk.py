"""Real disks that are full, read-only or out of descriptors."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.codec import encode
from holdfast.errors import Busy, DiskFull, NotOurs, ReadOnly
from holdfast.store.check import HARMLESS, check
from holdfast.store.home import Home
from holdfast.store.view import Shape
from holdfast.testing import Turner, data_of, numbers_of, refused
from tests.store.children import in_fork


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs with the given options; it is gone after the test."""
    made: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / "disk"
        place.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
        if "remount" in options:
            command = ["mount", "-o", options, str(place)]
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
        if done.returncode:
            pytest.skip("needs root")
        if place not in made:
            made.append(place)
        return place

    if os.geteuid() != 0:
        pytest.skip("needs root")
    yield mount
    for place in made:
        subprocess.run(["umount", "-l", str(place)], timeout=20, check=True)


def fill(place: Path) -> Path:
    """Take all space that is left, byte by byte at the end."""
    filler = place / "filler"
    with open(filler, "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1 << 8, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


SHAPE = Shape(
    version=1,
    initial=lambda: [0],
    fold=lambda state, line: [state[0] + 1],
    render=lambda state: encode(["x" * 5_000, state]),
)


@pytest.mark.parametrize("size", [100, 3_000, 20_000])
def test_a_full_disk_loses_nothing_and_heals(
    mounted: Callable[[str], Path], clock: Turner, size: int
) -> None:
    place = mounted("size=400k")
    with Home.open(str(place / "home"), create=True, timezone="UTC", clock=clock) as home:
        log, document = home.log("state/a.jsonl"), home.document("a.md")
        acked = [log.append({"n": 0}).seq]
        document.replace(b"old" * 1_000)
        filler = fill(place)
        os.truncate(filler, os.path.getsize(filler) - 24_000)
        with refused(DiskFull, "appending to the log"):
            for _ in range(10_000):
                acked.append(log.append({"n": "x" * size}).seq)
        assert len(acked) > 1 or size == 20_000
        with refused(DiskFull):
            document.replace(b"new" * 10_000)
        with pytest.raises(DiskFull):
            home.view("state/v.json", log, SHAPE).refresh()
        for other in (home.log("new/b.jsonl"), home.log("ledger/rio")):
            with refused(DiskFull):
                other.append({"n": "x" * 9_000})
            other.close()
        assert log.verify().sealed == len(acked)
        assert log.verify().problems == []
        assert data_of(document) == b"old" * 1_000
        assert {finding.kind for finding in check(home)} <= HARMLESS | {"view"}
        filler.unlink()
        assert log.append({"n": "after"}).seq == len(acked) + 1
        document.replace(b"new")
        home.view("state/v.json", log, SHAPE).refresh()
        assert log.verify().problems == []
        assert {finding.kind for finding in check(home)} <= HARMLESS
        log.close()


def test_a_disk_without_inodes_still_takes_lines(
    mounted: Callable[[str], Path], clock: Turner
) -> None:
    place = mounted("size=1m,nr_inodes=12")
    with Home.open(str(place / "home"), create=True, timezone="UTC", clock=clock) as home:
        log = home.log("a.jsonl")
        log.append({"n": 0})
        with pytest.raises(OSError, match="No space"):
            for number in range(20):
                Path(place, f"filler{number}").touch()
        assert log.append({"n": 1}).seq == 2
        for act in (
            lambda: home.document("b.md").replace(b"x"),
            lambda: home.log("b.jsonl").append({"n": 1}),
            lambda: home.log("b/c/d.jsonl").append({"n": 1}),
            lambda: home.lease("b").acquire("x"),
        ):
            with refused(DiskFull):
                act()
        assert numbers_of(log) == [0, 1]
        Path(place, "filler0").unlink()
        Path(place, "filler1").unlink()
        home.document("b.md").replace(b"x")
        log.close()


def test_a_disk_that_became_read_only_is_told_and_heals(
    mounted: Callable[[str], Path], clock: Turner
) -> None:
    place = mounted("size=1m")
    with Home.open(str(place / "home"), create=True, timezone="UTC", clock=clock) as home:
        log = home.log("a.jsonl")
        log.append({"n": 0})
        log.close()
        home.document("a.md").replace(b"old")
        mounted("remount,ro")
        for act in (
            lambda: home.log("a.jsonl").append({"n": 1}),
            lambda: home.log("new.jsonl").append({"n": 1}),
            lambda: home.log("new/days").append({"n": 1}),
            lambda: home.document("a.md").replace(b"new"),
            lambda: home.lease("a").acquire("x"),
            lambda: home.view("v.json", log, SHAPE).refresh(),
        ):
            with refused(ReadOnly):
                act()
        assert numbers_of(log) == [0]
        assert data_of(home.document("a.md")) == b"old"
        assert home.view("v.json", log, SHAPE).read() == [1]
        assert list(check(home)) == []
        mounted("remount,rw")
        assert log.append({"n": 2}).seq == 2
        log.close()
    mounted("remount,ro")
    with Home.open(str(place / "home"), clock=clock) as home:
        assert numbers_of(home.log("a.jsonl")) == [0, 2], "a home can be read there"
    with refused(ReadOnly):
        Home.open(str(place / "another"), create=True)
    mounted("remount,rw")


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Nobody in this process can open another file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.dup(0)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_out_of_descriptors_is_told_and_heals(home: Home, no_leak: None) -> None:
    log, document = home.log("state/a.jsonl"), home.document("state/a.md")
    log.append({"n": 0})
    document.replace(b"old")
    lease = home.lease("state/a")
    log.close()
    for act in (
        lambda: log.append({"n": 1}),
        lambda: list(log.read()),
        log.head,
        log.settle,
        log.verify,
        log.segments,
        document.read,
        lambda: document.replace(b"new"),
        lambda: lease.acquire("x"),
        lease.holder,
        lambda: home.keys("state"),
        lambda: list(check(home)),
        lambda: home.view("state/v.json", log, SHAPE).refresh(),
        lambda: Home.open(home.path),
    ):
        with no_descriptors(), refused(Busy, "Too many open files"):
            act()
    assert log.append({"n": 2}).seq == 2
    document.replace(b"newer")
    home.view("state/v.json", log, SHAPE).refresh()
    assert numbers_of(log) == [0, 2]
    log.close()


def test_an_open_log_needs_no_more_descriptors(home: Home) -> None:
    log = home.log("state/a.jsonl")
    log.append({"n": 0})
    with no_descriptors():
        assert log.append({"n": 1}).seq == 2
    log.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_home_of_somebody_else_is_refused(home: Home, path: str) -> None:
    home.log("state/a.jsonl").append({"n": 0})
    os.chmod(path, 0o755)

    def act() -> None:
        os.setgid(65534)
        os.setuid(65534)
        other = Home(path, home.root, home.settings, home.vfs, home.clock)
        for use in (
            lambda: other.log("state/a.jsonl").append({"n": 1}),
            lambda: list(other.log("state/a.jsonl").read()),
            lambda: other.document("state/a.md").replace(b"x"),
            lambda: other.document("new.md").replace(b"x"),
            lambda: other.lease("new").acquire("x"),
            lambda: other.keys("state"),
            lambda: Home.open(path),
        ):
            with refused(NotOurs):
                use()

    in_fork(act)
    assert numbers_of(home.log("state/a.jsonl")) == [0]
