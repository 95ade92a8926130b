"""What people see of `holdfast ledger archive`."""

from __future__ import annotations

from pathlib import Path

from tests.ledger.shell import Shell


def test_the_table_and_the_sum_of_what_was_packed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("init", "--timezone", "UTC")
    shell.write("today", agent="rio")
    old = shell.home / "ledger/rio/2020-01-01.jsonl"
    old.write_bytes(b'{"event":"info","summary":"of another writer"}\n' * 50)

    ran = shell("ledger", "archive", "--older-than", "30d", "--dry-run")
    assert ran.code == 0
    assert ran.out.splitlines()[0].split() == ["AGENT", "FILE", "STATE", "BYTES", "PACKED_BYTES"]
    assert "would be packed" in ran.out
    assert old.exists()

    ran = shell("ledger", "archive", "--older-than", "30d")
    packed = old.with_name("2020-01-01.jsonl.zst")
    row = ran.out.splitlines()[1].split()
    assert row == ["rio", old.name, "packed", "2350", str(packed.stat().st_size)]
    assert ran.err == f"files 1, bytes 2350, packed_bytes {packed.stat().st_size}\n"
    assert not old.exists()

    assert "of another writer" in shell("ledger", "list").out
    assert shell("ledger", "archive") == (0, "", "files 0, bytes 0, packed_bytes 0\n")
