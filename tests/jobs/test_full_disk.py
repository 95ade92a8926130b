"""No room for the files that show a job: what was decided is on record, and is said to be."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.clock import FakeClock
from holdfast.errors import DiskFull
from holdfast.jobs import steward
from holdfast.jobs.job import Job
from holdfast.jobs.queue import Queue
from tests.jobs.test_runner import Scene, said
from tests.store.faults import FaultyVfs, failing

FULL = failing(errno.ENOSPC)


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def scene(tmp_path: Path, vfs: FaultyVfs) -> Scene:
    return Scene(tmp_path / "home", FakeClock(), vfs)


@pytest.mark.parametrize(
    ("decide", "status"),
    [
        (steward.suspend, "PENDING"),
        (steward.cancel, "CANCELED"),
    ],
)
def test_a_decision_stands_although_there_is_no_room_to_show_it(
    scene: Scene, vfs: FaultyVfs, decide: Callable[[Job], object], status: str
) -> None:
    steward.activate(scene.job)
    scene.clock.advance(60)
    full = vfs.fault("write", FULL, "*manifest.json*", times=None)
    decide(scene.job)
    scene.job.close()
    assert full.fired
    vfs.heal()
    scene.again()
    assert scene.job.state()["status"] == status
    assert (scene.job.state()["hold"] == "suspended") == (status == "PENDING")


def test_the_manifest_is_written_when_there_is_room_again(scene: Scene, vfs: FaultyVfs) -> None:
    steward.activate(scene.job)
    scene.clock.advance(60)
    vfs.fault("write", FULL, "*manifest.json*", times=None)
    steward.suspend(scene.job)
    vfs.heal()
    scene.job.close()
    assert '"hold": "suspended"' in (scene.path / "jobs/j/manifest.json").read_text()


def test_a_run_goes_on_without_its_manifest(scene: Scene, vfs: FaultyVfs) -> None:
    scene.clock.advance(60)
    full = vfs.fault("write", FULL, "*manifest.json*", times=None)
    assert scene.run([said()], [said()])["status"] == "SUCCESS"
    assert full.fired


def test_a_history_without_room_is_told(scene: Scene, vfs: FaultyVfs) -> None:
    steward.activate(scene.job)
    vfs.fault("write", FULL, "*history*", times=None)
    with pytest.raises(DiskFull):
        steward.suspend(scene.job)
    vfs.heal()
    assert scene.job.state()["hold"] is None


def test_a_place_in_the_queue_stands_although_the_index_has_no_room(
    scene: Scene, vfs: FaultyVfs
) -> None:
    with Queue(scene.home) as queue:
        full = vfs.fault("write", FULL, "*index.json*", times=None)
        assert queue.enqueue("j")
        assert full.fired
    vfs.heal()
    with Queue(scene.home) as queue:
        assert queue.waiting() == ["j"]
