"""An agent, as its users meet it."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

from tests.ledger.shell import Shell


@pytest.fixture(scope="session")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one agent; each test has a copy of it."""
    made = Shell(tmp_path_factory.mktemp("settled"))
    assert made("init", "rio", "--timezone", "UTC").code == 0
    return made.home


@pytest.fixture
def shell(tmp_path: Path, settled: Path) -> Shell:
    made = Shell(tmp_path)
    copytree(settled, made.home, symlinks=True)
    return made
