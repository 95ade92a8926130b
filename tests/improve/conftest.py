"""What tests of campaigns share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.improve.campaigns import Campaigns
from tests.ledger.shell import on_its_own


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaigns:
    on_its_own(monkeypatch, tmp_path)
    return Campaigns(tmp_path)
