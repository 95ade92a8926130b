"""A blob on files, and looks at a store that is damaged."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.codec import encode
from holdfast.errors import DiskFull, HoldfastError, Indeterminate
from holdfast.store.blob import FileBlob
from holdfast.store.check import check
from holdfast.store.home import Home
from holdfast.store.primitives import Line, Stamp
from holdfast.store.sweep import sweep
from holdfast.store.view import Shape
from holdfast.testing import refused
from tests.store.children import child
from tests.store.faults import FaultyVfs, failing, short

KEY = "jobs/a/files.tar"


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(tmp_path: Path, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(str(tmp_path), create=True, timezone="UTC", vfs=vfs) as home:
        yield home


@pytest.fixture
def blob(home: Home) -> FileBlob:
    return home.blob(KEY)


def content(blob: FileBlob) -> bytes:
    return b"".join(blob.read())


def test_a_blob_is_durable_before_it_can_be_seen_and_its_name_before_the_answer(
    blob: FileBlob, vfs: FaultyVfs, no_leak: None
) -> None:
    blob.put([b"old"])
    vfs.forget()
    vfs.fault("write", short(3))
    blob.put([b"one, ", b"two"])
    steps = [step for step in vfs.order() if "sync" in step or "rename" in step]
    assert steps == ["sync .files.tar.tmp", "dir.rename files.tar", "dir.sync a"]
    assert content(blob) == b"one, two"
    assert blob.key == KEY
    blob.close()


@pytest.mark.parametrize("op", ["write", "sync", "dir.rename", "dir.open"])
def test_a_disk_that_fails_leaves_the_old_content(
    blob: FileBlob, vfs: FaultyVfs, op: str, no_leak: None
) -> None:
    blob.put([b"old"])
    vfs.fault(op, failing(errno.ENOSPC))
    with pytest.raises(DiskFull):
        blob.put([b"new"])
    assert content(blob) == b"old"
    blob.put([b"next"])
    assert content(blob) == b"next"


def test_a_disk_that_fails_last_leaves_it_open_whether_the_blob_is_there(
    blob: FileBlob, vfs: FaultyVfs
) -> None:
    vfs.fault("dir.sync", failing(errno.EIO))
    with refused(Indeterminate, KEY):
        blob.put([b"new"])
    assert content(blob) == b"new", "it can be seen"


@pytest.mark.parametrize(("point", "found"), [("written", b"old"), ("renamed", b"new")])
def test_a_killed_writer_leaves_the_old_blob_or_the_new_one(
    home: Home, blob: FileBlob, tmp_path: Path, point: str, found: bytes
) -> None:
    blob.put([b"old"])
    script = f"Home.open({str(tmp_path)!r}).blob({KEY!r}).put([b'new'])\n"
    with child(script, {"HOLDFAST_FAILPOINTS": f"blob.{point}=kill"}) as made:
        assert made.wait() == -9
    assert content(blob) == found
    left = [each.key for each in check(home) if each.kind == "temporary"]
    assert left == ([] if point == "renamed" else ["jobs/a/.files.tar.tmp"])
    if left:
        blob.put([b"next"])
        assert content(blob) == b"next"
    assert list(sweep(home)) == []


def test_a_look_at_damage_has_a_state_and_says_what_is_wrong(home: Home, tmp_path: Path) -> None:
    def fold(state: list[int], line: Line) -> list[int]:
        return [*state, line.record["n"]]

    shape = Shape(version=1, initial=list[int], fold=fold, render=encode)
    log = home.log("state/a.jsonl")
    first = log.append({"n": 1})
    with open(tmp_path / "state/a.jsonl", "ab") as file:
        file.write(b"not JSON\n")
    log.append({"n": 2})
    home.cell("state/a.json").save(1, Stamp("state/a.jsonl", first, [1]), b"[1]")
    found = home.peek("state/a.json", "state/a.jsonl", shape)
    assert found == ([1, 2], True, ["1 damaged lines"])
    os.unlink(tmp_path / "state/.a.json.view")
    os.mkdir(tmp_path / "state/.a.json.view")
    with pytest.raises(HoldfastError):
        home.cell("state/a.json").load(1)
    found = home.peek("state/a.json", "state/a.jsonl", shape)
    assert found == ([1, 2], False, ["1 damaged lines"])
    log.close()
