"""The verbs of sessions where something is odd: what they refuse, and what stops none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.testing import Turner
from tests.ledger.shell import Verbs, on_its_own


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", agent=["rio"], timezone="UTC")
    return made


def journal(verbs: Verbs, agent: str = "rio") -> list[dict[str, Any]]:
    file = Path(verbs.path, "state", agent, "journal.jsonl")
    return [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []


# --- a start that fails ---------------------------------------------------------------------


def test_a_start_that_fails_leaves_no_session_under_way(verbs: Verbs) -> None:
    blocked = Path(verbs.path, "cache", "sessions")
    blocked.parent.mkdir(exist_ok=True)
    blocked.touch()
    with pytest.raises(HoldfastError):
        verbs("session start", agent="rio")
    blocked.unlink()
    assert verbs("session start", agent="rio").applied
    first, second = verbs.rows("session list")
    assert (first["status"], first["cause"], second["status"]) == ("error", "wrapper", "running")
