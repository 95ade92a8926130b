"""No verb is a promise: each is run once here, and has to change a byte or show a row.

A verb of the table without a deed below is red.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.ops.table import TABLE
from tests.ledger.shell import PROGRAM

EVENT: dict[str, Any] = {
    "ts": "2026-11-15T10:00:00Z",
    "agent": "rio",
    "session_id": "2026-11-15_rio_001",
    "event": "info",
    "task_id": "system",
    "source": "user",
    "summary": "Hello",
    "data": {},
}


class Place:
    """A home with an agent and an event in it, and the files beside it."""

    def __init__(self, path: Path) -> None:
        self.path, self.home = path, path / "home"
        self.environment = {**os.environ, "HOLDFAST_HOME": str(self.home)}
        self.run("init", "rio", "--timezone", "UTC")
        self.run("ledger", "write", "--agent", "rio", "--event", "info", "Hello")

    def run(self, *words: str) -> Any:
        """What the verb answers in JSON."""
        done = subprocess.run(
            [PROGRAM, *words, "--json"],
            env=self.environment,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[0])

    def bytes(self) -> str:
        """A digest of every file there is."""
        found = sha256()
        for file in sorted(self.path.rglob("*")):
            if file.is_file() and not file.is_symlink():
                found.update(f"{file.relative_to(self.path)}\n".encode() + file.read_bytes())
        return found.hexdigest()


Deed = Callable[[Place], None]
DEEDS: dict[str, Deed] = {}


def deed(verb: str) -> Callable[[Deed], Deed]:
    def keep(function: Deed) -> Deed:
        assert verb not in DEEDS
        DEEDS[verb] = function
        return function

    return keep


def shows(verb: str, *words: str) -> None:
    """A deed whose answer has rows, or data."""

    @deed(verb)
    def look(place: Place) -> None:
        answer = place.run(*verb.split(), *words)
        assert answer.get("rows") or answer.get("data") or answer.get("summary")


def changes(verb: str, *words: str) -> None:
    """A deed that changes a byte."""

    @deed(verb)
    def act(place: Place) -> None:
        before = place.bytes()
        assert place.run(*verb.split(), *words)["applied"]
        assert place.bytes() != before


changes("init", "clay")
shows("status")
shows("doctor")
shows("path", "rio")
shows("schema")
changes("ledger write", "--agent", "rio", "--event", "info", "Again")
shows("ledger list")
shows("ledger tail")
shows("ledger verify")


@deed("check")
def check(place: Place) -> None:
    place.run("check")
    (file,) = (place.home / "ledger/rio").glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"Hello", b"Jello"))
    with pytest.raises(AssertionError):
        place.run("check")


@deed("rebuild")
def rebuild(place: Place) -> None:
    status = place.home / "state/rio/status.json"
    place.run("status")
    before = status.read_bytes()
    status.unlink()
    place.run("rebuild")
    assert status.read_bytes() == before


@deed("ledger archive")
def archive(place: Place) -> None:
    (file,) = (place.home / "ledger/rio").glob("*.jsonl")
    file.rename(file.with_name("2026-01-01.jsonl"))
    place.run("ledger", "write", "--agent", "rio", "--event", "info", "Later")
    place.run("ledger", "archive")
    assert list((place.home / "ledger/rio").glob("*.zst"))


@pytest.mark.parametrize("verb", TABLE.names())
def test_every_verb_does_something(verb: str, tmp_path: Path) -> None:
    assert verb in DEEDS, f"write a deed for `holdfast {verb}`"
    DEEDS[verb](Place(tmp_path))


def test_no_deed_is_for_a_verb_that_is_gone() -> None:
    assert DEEDS.keys() <= set(TABLE.names())
