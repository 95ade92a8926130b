"""An agent, as its users meet it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ledger.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "--timezone", "UTC").code == 0
    return made
