"""A user with a home of their own."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

from tests.jobs.desk import Desk
from tests.ledger.shell import on_its_own


@pytest.fixture(scope="session")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home without jobs, made once: a copy is had for less."""
    place = tmp_path_factory.mktemp("settled")
    desk = Desk(place)
    assert desk("init", "--timezone", "UTC").code == 0
    return desk.home


@pytest.fixture
def desk(tmp_path: Path, settled: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    on_its_own(monkeypatch, tmp_path)
    made = Desk(tmp_path)
    copytree(settled, made.home)
    monkeypatch.chdir(made.cwd)
    return made
