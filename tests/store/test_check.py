"""`check` names every broken invariant, and nothing else; `sweep` removes what the dead left."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.codec import encode
from holdfast.errors import StorageError
from holdfast.store.check import HARMLESS, REPAIRS, Finding, check
from holdfast.store.home import Home
from holdfast.store.sweep import sweep
from holdfast.store.view import Shape
from holdfast.testing import Turner, refused
from tests.store.faults import FaultyVfs, failing

SHAPE = Shape(
    version=1,
    initial=lambda: [0],
    fold=lambda state, line: [state[0] + 1],
    render=encode,
)


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def full(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    """A home with one of everything."""
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as home:
        for key in ("state/rio/journal.jsonl", "ledger/rio", "top.jsonl"):
            log = home.log(key, rotate_at=300)
            for number in range(6):
                log.append({"n": number, "password": "x"})
                clock.advance(20_000)
            log.close()
        home.document("state/rio/tasks.json").replace(b'{"a": 1}\n')
        home.document("state/rio/notes.md").replace(b"not json")
        home.view("state/rio/v.json", home.log("state/rio/journal.jsonl"), SHAPE).refresh()
        lease = home.lease("state/rio/session")
        lease.acquire("x")
        lease.release()
        home.notice("odd", "this")
        yield home


def found(home: Home) -> list[tuple[str, str]]:
    findings = list(check(home))
    for finding in findings:
        assert finding.repair == REPAIRS[finding.kind]
        assert finding.detail
    return [(finding.kind, finding.key) for finding in findings]


def test_a_sound_home_has_no_findings(full: Home, no_leak: None) -> None:
    assert found(full) == []


def test_checking_changes_nothing(full: Home, vfs: FaultyVfs) -> None:
    vfs.forget()
    list(check(full))
    looks = {
        "dir.subdir",
        "dir.open",
        "dir.stat",
        "dir.names",
        "dir.close",
        "close",
        "pread",
        "size",
    }
    assert {call.op for call in vfs.calls} <= looks


def test_every_finding_says_what_to_do() -> None:
    assert all(REPAIRS.values())
    assert set(REPAIRS) >= HARMLESS
    assert Finding._fields == ("kind", "key", "detail", "repair")


def segment(path: str) -> Path:
    return Path(path, "state/rio/journal.jsonl")


def test_an_edited_line_is_found_with_its_place(full: Home, path: str) -> None:
    text = segment(path).read_bytes()
    segment(path).write_bytes(text.replace(b'"n":1', b'"n":7'))
    findings = list(check(full))
    assert [finding.kind for finding in findings] == ["edited"]
    assert findings[0].key == "state/rio/journal.jsonl"
    assert findings[0].detail.startswith("journal.jsonl:2 (byte ")


def test_missing_and_repeated_lines_are_found(full: Home, path: str) -> None:
    one, two, *_ = segment(path).read_bytes().splitlines(keepends=True)
    segment(path).write_bytes(two)
    assert ("missing", "state/rio/journal.jsonl") in found(full)
    segment(path).write_bytes(one + two + two)
    assert ("misplaced", "state/rio/journal.jsonl") in found(full)
    segment(path).write_bytes(b"")
    assert ("empty", "state/rio/journal.jsonl") in found(full)


def test_a_removed_day_is_found(full: Home, path: str) -> None:
    day = sorted(Path(path, "ledger/rio").glob("2*.jsonl"))[1]
    day.unlink()
    assert found(full) == [("missing", "ledger/rio")]


def test_bad_lines_are_found_and_harmless(full: Home, path: str) -> None:
    with open(segment(path), "ab") as file:
        file.write(b"bad\n")
    kinds = {kind for kind, _ in found(full)}
    assert "bad_line" in kinds
    assert "bad_line" in HARMLESS


def test_a_cut_log_is_found_by_its_view(full: Home, path: str) -> None:
    for file in Path(path, "state/rio").glob("journal.[1-9]*.jsonl"):
        file.unlink()
    assert found(full) == [("cut", "state/rio/journal.jsonl")]


def test_a_damaged_view_is_found(full: Home, path: str) -> None:
    key = "state/rio/v.json"
    Path(path, key).write_bytes(b"[99]")
    assert found(full) == [("view", key)]
    Path(path, key).unlink()
    assert found(full) == [("stale", key)], "it may be deleted at any time"
    Path(path, "state/rio/.v.json.view").write_bytes(b"x")
    assert found(full) == [("view", key)]


def test_a_view_of_a_log_that_is_no_log_is_found(full: Home) -> None:
    log = full.log("state/rio/journal.jsonl")
    stamp = full.cell("state/rio/v.json").peek()
    assert stamp is not None
    full.cell("x.json").save(1, stamp._replace(log="../../etc"), b"[1]")
    assert found(full) == [("view", "x.json")]
    log.close()


@pytest.mark.parametrize(
    "text", [b"", b"\0" * 10, b'{"a":1', b"NaN", b'{"a":1,"a":2}', b"\xef\xbb\xbf{}"]
)
def test_a_document_that_is_no_json_is_found(full: Home, path: str, text: bytes) -> None:
    Path(path, "state/rio/tasks.json").write_bytes(text)
    assert found(full) == [("corrupt", "state/rio/tasks.json")]


def test_a_document_out_of_all_bounds_is_found(full: Home, path: str) -> None:
    os.truncate(Path(path, "state/rio/tasks.json"), 1 << 40)
    assert found(full) == [("corrupt", "state/rio/tasks.json")]


def test_names_that_are_not_ours_are_found(full: Home, path: str) -> None:
    Path(path, "state/a b").write_bytes(b"")
    Path(path, "state/é.jsonl").write_bytes(b"")
    Path(path, "state/.dir").mkdir()
    Path(path, "state/c d").mkdir()
    names = ["state/.dir", "state/a b", "state/c d", "state/é.jsonl"]
    assert sorted(found(full)) == [("alien", name) for name in names]


def test_a_file_that_goes_while_we_look_is_no_finding(
    full: Home, path: str, vfs: FaultyVfs
) -> None:
    vfs.fault("dir.stat", lambda real, name: None, "tasks.json")
    assert found(full) == []


def test_a_document_that_goes_while_we_look_is_no_finding(full: Home, vfs: FaultyVfs) -> None:
    vfs.fault("dir.open", failing(errno.ENOENT), "tasks.json")
    assert found(full) == []


def test_days_without_a_directory_are_no_log(full: Home, path: str) -> None:
    Path(path, "2023-11-14.jsonl").write_bytes(b'{"n":1}\n')
    assert [kind for kind, _ in found(full)] == ["alien"]


def test_a_disk_that_cannot_be_read_is_typed(full: Home, vfs: FaultyVfs, no_leak: None) -> None:
    vfs.fault("dir.names", failing(errno.EIO))
    with refused(StorageError, "checking"):
        list(check(full))
    vfs.fault("pread", failing(errno.EIO), "journal.jsonl")
    assert ("corrupt", "state/rio/journal.jsonl") in found(full)
    vfs.fault("pread", failing(errno.EIO), "v.json")
    assert found(full) == [("corrupt", "state/rio/v.json")]


LEFT = (
    "state/rio/.journal.9.jsonl.tmp",
    "state/rio/.tasks.json.tmp",
    "state/rio/.v.json.tmp",
    "state/rio/..v.json.view.tmp",
    "ledger/rio/.2023-11-20.jsonl.tmp",
    ".holdfast.toml.tmp",
)


@pytest.fixture
def littered(full: Home, path: str) -> Home:
    for key in LEFT:
        Path(path, key).write_bytes(b"half")
    return full


def test_what_the_dead_left_is_found_and_swept(littered: Home, path: str, no_leak: None) -> None:
    assert sorted(found(littered)) == sorted(("temporary", key) for key in LEFT)
    assert "temporary" in HARMLESS
    assert sorted(sweep(littered, dry_run=True)) == sorted(LEFT)
    assert len(found(littered)) == len(LEFT)
    assert sorted(sweep(littered)) == sorted(LEFT)
    assert found(littered) == []
    assert list(sweep(littered)) == []


@pytest.mark.parametrize(
    ("lock", "kept"),
    [
        ("state/rio/.journal.jsonl.lock", [LEFT[0]]),
        ("state/rio/.tasks.json.lock", [LEFT[1]]),
        ("state/rio/.v.json.lock", [LEFT[2], LEFT[3]]),
        ("ledger/rio/.lock", [LEFT[4]]),
        (".holdfast.toml.lock", [LEFT[5]]),
    ],
)
def test_what_the_living_write_is_left_to_them(
    littered: Home, path: str, lock: str, kept: list[str]
) -> None:
    fd = os.open(Path(path, lock), os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    swept = list(sweep(littered))
    assert sorted(swept) == sorted(set(LEFT) - set(kept))
    assert all(Path(path, key).exists() for key in kept)
    os.close(fd)


def test_what_goes_by_itself_meanwhile_is_not_swept(littered: Home, path: str) -> None:
    sweeping = sweep(littered)
    first = next(sweeping)
    for key in LEFT:
        Path(path, key).unlink(missing_ok=True)
    assert list(sweeping) == []
    assert first in LEFT


def test_a_directory_that_goes_meanwhile_is_not_swept(littered: Home, path: str) -> None:
    sweeping = sweep(littered)
    assert next(sweeping) == ".holdfast.toml.tmp"
    Path(path, "ledger").rename(Path(path, "moved"))
    assert sorted(sweeping) == sorted(key for key in LEFT if key.startswith("state"))


def test_sweeping_a_failing_disk_is_typed(littered: Home, vfs: FaultyVfs, no_leak: None) -> None:
    vfs.fault("dir.unlink", failing(errno.EIO))
    with refused(StorageError):
        list(sweep(littered))
