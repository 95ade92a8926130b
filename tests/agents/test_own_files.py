"""What Holdfast writes is what its own contracts say, down to the last field."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.ledger.shell import Shell

REPORT = """
import json, os
said = {"cost": 0.25, "tokens": 900, "sources": 4, "pr": 12, "handoff": "go on", "next": "read"}
open(os.environ["HOLDFAST_REPORT"], "w").write(json.dumps(said))
open("new.txt", "w").write("x")
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_home_after_a_busy_day_has_nothing_to_warn_of(shell: Shell) -> None:
    def do(*words: str, code: int = 0) -> None:
        found = shell(*words)
        assert found.code == code, (words, found)

    do("init", "rio", "clay")
    settings = shell.home / "holdfast.toml"
    settings.write_text(settings.read_text() + "\n[budget]\nsession_usd = 2.0\n")
    do("run", "--agent", "rio", "--type", "research", "--", sys.executable, "-c", REPORT)
    do("run", "--agent", "rio", "--role", "extract", "--", "sh", "-c", "exit 3", code=3)
    do("run", "--agent", "rio", "--timeout", "1s", "--", "sleep", "60", code=124)
    do("session", "start", "--agent", "clay", "--type", "evaluate", "--question", "why?")
    do(
        "session",
        "note",
        "--agent",
        "clay",
        "--event",
        "my_own_word",
        "--data",
        '{"count":2}',
        "hm",
    )
    do("session", "beat", "--agent", "clay")
    do("session", "end", "--agent", "clay", "--outcome", "error", "--error", "no way")
    do("session", "set", "--agent", "clay", "--cost", "0.5", "--pr", "9", "--blocked-by", "rio")
    do("agent", "count", "--agent", "clay", "--source", "ci", "claims_accepted=3")
    do("ledger", "write", "--agent", "rio", "--event", "info", "hello")
    found = shell("--json", "validate", str(shell.home))
    assert found.code == 0, found
    assert found.json()["rows"] == []
    kinds = found.json()["counts"]
    for kind in ("journal", "ledger", "session", "report", "metrics", "status", "spend", "spent"):
        assert kinds[f"{kind}@1.0"] >= 1, kinds
