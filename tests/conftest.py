"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from holdfast.store.home import Home
from holdfast.testing import Turner

# Started in the background, we would have inherited that Ctrl-C is ignored, and so would every
# process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A failing example is printed in a form that can be run again; time is no criterion here,
# since the machine may be busy with other things.
settings.register_profile(
    "holdfast",
    deadline=None,
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("holdfast")


def pytest_collection_finish() -> None:
    """What was imported stays: nobody need look through it for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture
def clock() -> Turner:
    return Turner()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the home of a test is."""
    return str(tmp_path / "home")


@pytest.fixture
def home(path: str, clock: Turner) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock) as made:
        yield made


@pytest.fixture
def no_leak() -> Iterator[None]:
    """The test must close every descriptor that it opened."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert set(os.listdir("/proc/self/fd")) <= before
