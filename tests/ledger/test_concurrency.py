"""Many writers at once, some of them killed: no line is lost, doubled, mixed or glued."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import instant_of
from tests.ledger.shell import (
    PATIENCE,
    REPO,
    Shell,
    day_files,
    entries_in,
    is_entry,
    next_line,
    split,
)


@pytest.fixture
def ready(shell: Shell) -> Shell:
    """A home that all writers find."""
    assert shell("init", "--timezone", "UTC").code == 0
    return shell


def writer(shell: Shell, agent: str, name: str, count: int, *pace: float) -> Any:
    words = [str(shell.home), agent, name, str(count), *map(repr, pace)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.ledger.writer", *words],
        cwd=REPO,
        env=shell.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )


def acknowledged(process: subprocess.Popen[bytes]) -> list[str]:
    """What a writer that ends by itself said it had written."""
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return said.decode().split()


def in_order_of_writer(records: list[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in records:
        found.setdefault(each["data"]["writer"], []).append(each["data"]["n"])
    return found


def test_events_that_processes_write_at_once_are_all_there_in_order(ready: Shell) -> None:
    writers = [writer(ready, "cls", f"w{number}", 100) for number in range(6)]
    said = [text for each in writers for text in acknowledged(each)]

    records = entries_in(ready.home, "cls")
    assert len(records) == 600
    assert all(map(is_entry, records))
    assert [each["seq"] for each in records] == list(range(1, 601))
    assert len({each["hash"] for each in records}) == 600
    assert {each["summary"] for each in records} == set(said)
    assert in_order_of_writer(records) == {f"w{n}": list(range(100)) for n in range(6)}
    assert ready("ledger", "verify").code == 0
    assert ready("check").code == 0


def test_writers_of_two_agents_do_not_meet(ready: Shell) -> None:
    writers = [writer(ready, f"agent{n % 2}", f"w{n}", 60) for n in range(8)]
    for each in writers:
        acknowledged(each)
    for agent, names in (("agent0", range(0, 8, 2)), ("agent1", range(1, 8, 2))):
        records = entries_in(ready.home, agent)
        assert {each["agent"] for each in records} == {agent}
        assert [each["seq"] for each in records] == list(range(1, 241))
        assert in_order_of_writer(records) == {f"w{n}": list(range(60)) for n in names}


def test_killing_writers_at_random_costs_nothing_that_was_acknowledged(ready: Shell) -> None:
    chance = random.Random(7)
    said: list[str] = []
    for round_ in range(2):
        writers = [writer(ready, "cls", f"r{round_}w{n}", 100_000) for n in range(4)]
        for each in writers:
            said += [next_line(each) for _ in range(chance.randrange(1, 40))]
        for each in writers:
            each.kill()
        for each in writers:
            rest, _ = each.communicate(timeout=PATIENCE)
            said += rest.decode().split()
        # Whatever they left half-written, the next event stands on a line of its own.
        assert ready.write(f"after {round_}").code == 0
        said.append(f"after {round_}")

    found, broken = [], 0
    for file in day_files(ready.home, "cls"):
        for line in split(file.read_bytes()):
            try:
                record = json.loads(line)
            except ValueError:
                broken += 1
                continue
            assert is_entry(record)
            found.append(record["summary"])
    assert broken <= 2, "at most one torn line for each time that everybody was killed"
    assert len(found) == len(set(found))
    assert set(said) <= set(found)
    assert ready("ledger", "verify").code == 0


@pytest.mark.parametrize("torn", [b'{"ts":"2023', b'{"ts":"x"}', b"\0" * 50, b"x" * 9000])
def test_the_next_event_is_not_glued_to_a_torn_line(shell: Shell, torn: bytes) -> None:
    shell.write("before")
    file = day_files(shell.home, "cls")[-1]
    with file.open("ab") as appended:
        appended.write(torn)
    assert [row["summary"] for row in shell("ledger", "list", "--json").rows()] == ["before"]
    assert shell.write("after").code == 0

    first, fragment, last = split(file.read_bytes())
    assert json.loads(first)["summary"] == "before"
    assert fragment == torn
    assert json.loads(last)["summary"] == "after"
    assert shell("ledger", "verify").code == 0


def test_every_look_at_status_json_during_many_writes_sees_a_whole_and_newer_one(
    ready: Shell,
) -> None:
    assert ready.write("first").code == 0
    status = Path(ready.home, "state/cls/status.json")
    done = threading.Event()
    seen: list[list[str]] = [[], []]

    def look(into: list[str]) -> None:
        while not done.is_set():
            shown = json.loads(status.read_bytes())
            if not into or into[-1] != shown["last_heartbeat"]:
                into.append(shown["last_heartbeat"])

    failures: list[BaseException] = []

    def looking(into: list[str]) -> None:
        try:
            look(into)
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=looking, args=(each,)) for each in seen]
    for reader in readers:
        reader.start()
    try:
        # A second of theirs is a millisecond of ours: each write has a stamp of its own.
        begun = time.time()
        writers = [writer(ready, "cls", f"w{n}", 50, 1000.0, begun) for n in range(8)]
        for each in writers:
            acknowledged(each)
    finally:
        done.set()
        for reader in readers:
            reader.join(PATIENCE)

    assert not failures, failures
    for stamps in seen:
        moments = [instant_of(stamp) for stamp in stamps]
        assert len(moments) > 2, "nothing was looked at while it changed"
        assert moments == sorted(moments)
    newest = max(instant_of(each["ts"]) for each in entries_in(ready.home, "cls"))
    assert instant_of(json.loads(status.read_bytes())["last_heartbeat"]) == newest
    assert not [path for path in ready.home.rglob("*") if path.name.endswith(".tmp")]
