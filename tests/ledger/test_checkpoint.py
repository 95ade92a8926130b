"""Signed checkpoints: a rollback of a whole home is seen by who kept one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.ledger.shell import Shell


@pytest.fixture
def home(shell: Shell) -> Shell:
    shell("init", "rio")
    shell("ledger", "write", "--agent", "rio", "--event", "info", "one")
    return shell


def test_an_untouched_ledger_keeps_what_was_promised(home: Shell, tmp_path: Path) -> None:
    file = str(tmp_path / "cp")
    assert home("ledger", "checkpoint", "--out", file).code == 0
    home("ledger", "write", "--agent", "rio", "--event", "info", "two")
    assert home("ledger", "verify", "--against", file).code == 0
    assert home("ledger", "checkpoint", "--out", file).code == 2, "never overwritten"


def test_a_home_that_was_rolled_back_is_seen(home: Shell, tmp_path: Path) -> None:
    shutil.copytree(home.home, tmp_path / "old", symlinks=True)
    home("ledger", "write", "--agent", "rio", "--event", "info", "two")
    file = tmp_path / "cp"
    home("ledger", "checkpoint", "--out", str(file))
    shutil.rmtree(home.home)
    shutil.copytree(tmp_path / "old", home.home, symlinks=True)
    assert home("ledger", "verify").code == 0, "from within nothing can be seen"
    ran = home("ledger", "verify", "--against", str(file), "--json")
    assert ran.code == 6
    assert [row["state"] for row in json.loads(ran.out)["rows"]] == ["rolled back", "sound"]


@pytest.mark.parametrize("change", ["signature", "heads", "signed_at", "public_key", "json"])
def test_a_changed_checkpoint_is_refused(home: Shell, tmp_path: Path, change: str) -> None:
    file = tmp_path / "cp"
    home("ledger", "checkpoint", "--out", str(file))
    value = json.loads(file.read_bytes())
    match change:
        case "signature" | "public_key":
            value[change] = "00" + value[change][2:]
        case "heads":
            value["heads"][0]["seq"] = 7
        case "signed_at":
            value["signed_at"] = "2020-01-01T00:00:00Z"
        case _:
            value = [1]
    file.write_text(json.dumps(value), encoding="utf-8")
    ran = home("ledger", "verify", "--against", str(file))
    assert ran.code in (2, 6)
    assert "Traceback" not in ran.err


def test_the_key_is_private_and_stays_the_same(home: Shell) -> None:
    keys = [json.loads(home("ledger", "checkpoint", "--json").out)["data"] for _ in range(2)]
    assert keys[0]["public_key"] == keys[1]["public_key"]
    (file,) = home.user.rglob("checkpoint.key")
    assert file.stat().st_mode & 0o077 == 0
