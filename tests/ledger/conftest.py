"""What the tests of the ledger share."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing import Turner
from tests.ledger.shell import Shell, Verbs, on_its_own


@pytest.fixture(autouse=True)
def _stranger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_its_own(monkeypatch, tmp_path)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def verbs(path: str, clock: Turner) -> Verbs:
    return Verbs(path, clock)
