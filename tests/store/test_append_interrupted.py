"""Appends that Ctrl-C breaks into: the log goes on working, and the others are told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.errors import Indeterminate
from holdfast.store import failpoints
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.testing import Turner, numbers_of
from tests.store.batches import as_one_batch
from tests.store.faults import FaultyVfs, then

pytestmark = pytest.mark.usefixtures("way")
KEY = "state/a.jsonl"


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


@pytest.fixture
def log(home: Home) -> Iterator[FileLog]:
    made = home.log(KEY)
    made.append({"n": 0})
    yield made
    made.close()


def sound(log: FileLog, numbers: list[object]) -> None:
    """The log holds just these lines, and verifies."""
    assert numbers_of(log) == numbers
    assert log.verify().problems == []


POINTS = (
    "log.append.written",
    "log.append.unlocked",
    "log.append.synced",
    "segment.written",
    "segment.linked",
    "segment.durable",
)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("point", POINTS)
def test_an_interrupted_append_leaves_a_log_that_works(
    home: Home, log: FileLog, point: str
) -> None:
    log = home.log(KEY, rotate_at=1 if point.startswith("segment") else 1_000)
    with failpoints.armed(point, interrupt), pytest.raises(KeyboardInterrupt):
        log.append({"n": 1})
    seen = numbers_of(log)
    assert seen in ([0], [0, 1])
    assert log.append({"n": 2}).seq == len(seen) + 1
    assert home.log(KEY).append({"n": 3}).seq == len(seen) + 2
    sound(log, [*seen, 2, 3])
    log.close()


def test_an_interrupted_write_is_indeterminate_to_the_others(log: FileLog, vfs: FaultyVfs) -> None:
    one, two, three = as_one_batch(
        log,
        *(lambda n=n: log.append({"n": n}) for n in range(1, 4)),
        before=lambda: vfs.fault("write", then(interrupt), after=0),
    )
    assert isinstance(one, KeyboardInterrupt)
    assert isinstance(two, Indeterminate)
    assert isinstance(three, Indeterminate)
    assert two.hint
    log.append({"n": 4})
    sound(log, [0, "leader", 1, 2, 3, 4])
