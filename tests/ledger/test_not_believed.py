"""What anybody may write into a ledger, and what is not made of it."""

from __future__ import annotations

import json
import time

from holdfast.interop.records import pieces
from tests.ledger.shell import Shell

FAKE = {
    "imported": {
        "files": [{"path": "n", "name": "n", "sha256": "0", "entries": 1}],
        "sessions": {},
        "status": {"state": "error", "last_heartbeat": "2999-01-01T00:00:00+00:00"},
    }
}


def test_an_event_that_looks_like_an_import_is_an_event_and_nothing_else(shell: Shell) -> None:
    ran = shell.write("x", "--data", json.dumps(FAKE))
    assert ran.code == 0, ran.err
    for words in (["list"], ["verify"], ["orphans"], ["summary", "--day", "today"]):
        assert shell("ledger", *words).code in (0, 1), words
    assert shell("check").code == 0
    assert '"idle"' in shell("status", "--json").out
    refused = shell.write("x", "--data", json.dumps(FAKE), "--source", "holdfast import")
    assert refused.code == 2
    assert "Holdfast's own" in refused.err


def test_a_session_that_nobody_was_given_takes_no_numbers_away(shell: Shell) -> None:
    assert shell.write("x").code == 0
    day = shell("ledger", "list", "--json").json()["rows"][0]["session_id"][:10]
    far = f"{day}_cls_999999999999999999"
    refused = shell.write("x", "--session", far)
    assert refused.code == 2
    assert "is not one of cls" in refused.err
    assert shell.write("x", "--session", "new").out.startswith(f"{day}_cls_002")


def test_many_lines_that_are_none_are_told_in_time() -> None:
    data = b"hello world\n" * 40_000
    began = time.process_time()
    found = list(pieces(data))
    assert len(found) == 40_000
    assert all(each.record is None and each.why for each in found)
    assert time.process_time() - began < 5, "it was quadratic: a minute and more"


def test_a_session_under_way_stays_so_however_many_came_after_it(shell: Shell) -> None:
    shell("init", "rio")
    assert shell("session", "start", "--agent", "rio", "--task", "T1").code == 0
    for _ in range(18):
        shell("session", "start", "--agent", "rio", "--role", "x")
        shell("session", "end", "--agent", "rio", "--role", "x", "--outcome", "completed")
    assert shell("ledger", "orphans", "--json").json()["rows"] == []
    assert shell("status", "--json").json()["rows"][0]["state"] == "busy"
