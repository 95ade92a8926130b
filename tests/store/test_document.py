"""A document on disk is the old one or the new one, whatever happens in between."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.codec import pretty
from holdfast.errors import (
    Busy,
    Corrupt,
    DiskFull,
    HoldfastError,
    Indeterminate,
    ReadOnly,
    StorageError,
)
from holdfast.store.check import check
from holdfast.store.document import FileDocument
from holdfast.store.home import Home
from holdfast.testing import Turner, data_of, refused
from tests.store.children import child
from tests.store.faults import FaultyVfs, failing, short

KEY = "state/rio/tasks.json"


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


@pytest.fixture
def document(home: Home, vfs: FaultyVfs) -> FileDocument:
    vfs.forget()
    return home.document(KEY)


def folder(path: str) -> Path:
    return Path(path, "state/rio")


def test_a_new_document_is_durable_with_all_its_directories(
    document: FileDocument, vfs: FaultyVfs, no_leak: None
) -> None:
    document.replace(b"[]")
    assert vfs.order() == [
        "dir.subdir state",
        "dir.subdir rio",
        "dir.open .tasks.json.lock",
        "try_lock .tasks.json.lock",
        "dir.open .tasks.json.tmp",
        "write .tasks.json.tmp",
        "sync .tasks.json.tmp",
        "dir.rename tasks.json",
        "dir.sync rio",
        "pwrite .tasks.json.lock",
        "unlock .tasks.json.lock",
    ]
    assert [call.size for call in vfs.seen("dir.sync")] == [2]


def test_a_replaced_document_is_synced_before_and_after_the_rename(
    document: FileDocument, vfs: FaultyVfs
) -> None:
    document.replace(b"[]")
    vfs.forget()
    document.replace(b"[1]")
    steps = [step for step in vfs.order() if "sync" in step or "rename" in step]
    assert steps == ["sync .tasks.json.tmp", "dir.rename tasks.json", "dir.sync rio"]
    assert [call.size for call in vfs.seen("dir.sync")] == [0]


def test_reading_changes_nothing(document: FileDocument, vfs: FaultyVfs, no_leak: None) -> None:
    assert document.read() is None
    document.replace(b"[]")
    vfs.forget()
    assert data_of(document) == b"[]"
    assert vfs.order() == ["dir.subdir state", "dir.subdir rio", "dir.open tasks.json"]
    document.close()
    assert document.key == KEY


@pytest.mark.parametrize(
    ("point", "content"), [("document.written", b"old"), ("document.renamed", b"new")]
)
def test_a_killed_writer_leaves_the_old_or_the_new_content(
    document: FileDocument, vfs: FaultyVfs, path: str, point: str, content: bytes
) -> None:
    document.replace(b"old")
    script = f"Home.open({path!r}).document({KEY!r}).replace(b'new')\n"
    with child(script, {"HOLDFAST_FAILPOINTS": f"{point}=kill"}) as made:
        assert made.wait() == -9
    assert data_of(document) == content
    document.replace(b"next")
    assert data_of(document) == b"next"
    assert sorted(os.listdir(folder(path))) == [".tasks.json.lock", "tasks.json"]


def test_the_directories_of_a_killed_writer_are_made_durable_by_the_next(
    document: FileDocument, vfs: FaultyVfs, path: str
) -> None:
    script = f"Home.open({path!r}).document({KEY!r}).replace(b'new')\n"
    with child(script, {"HOLDFAST_FAILPOINTS": "document.renamed=kill"}) as made:
        assert made.wait() == -9
    document.replace(b"next")
    assert [call.size for call in vfs.seen("dir.sync")] == [2]


@pytest.mark.parametrize("op", ["dir.open", "write", "sync", "dir.rename", "dir.stat", "pread"])
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EIO, StorageError),
        (errno.EROFS, ReadOnly),
        (errno.EMFILE, Busy),
    ],
)
def test_a_write_that_fails_is_not_committed(
    document: FileDocument,
    vfs: FaultyVfs,
    path: str,
    op: str,
    number: int,
    kind: type[HoldfastError],
    no_leak: None,
) -> None:
    document.replace(b"old")
    names = {"dir.open": ".tasks.json.tmp", "dir.stat": ".tasks.json.tmp", "pread": "tasks.json"}
    fault = vfs.fault(op, failing(number), names.get(op, "*"))
    with refused(kind, "writing"):
        document.replace(b"new")
    assert fault.fired == 1
    assert data_of(document) == b"old"
    document.replace(b"newer")
    assert data_of(document) == b"newer"
    assert sorted(os.listdir(folder(path))) == [".tasks.json.lock", "tasks.json"]


def test_a_half_written_temporary_that_cannot_be_removed_harms_nobody(
    document: FileDocument, vfs: FaultyVfs, path: str
) -> None:
    document.replace(b"old")
    vfs.fault("write", failing(errno.ENOSPC))
    vfs.fault("write", short(3))
    vfs.fault("dir.unlink", failing(errno.EIO))
    with refused(DiskFull):
        document.replace(b"a new text")
    assert data_of(document) == b"old"
    assert Path(folder(path), ".tasks.json.tmp").read_bytes() == b"a n"
    document.replace(b"newer")
    assert data_of(document) == b"newer"


def test_short_writes_are_finished(document: FileDocument, vfs: FaultyVfs) -> None:
    vfs.fault("write", short(3), times=None)
    document.replace(b"a longer text")
    assert data_of(document) == b"a longer text"


def test_a_replacement_that_may_not_be_durable_is_indeterminate(
    document: FileDocument, vfs: FaultyVfs, no_leak: None
) -> None:
    for content in (b"first", b"second"):
        vfs.fault("dir.sync", failing(errno.EIO))
        with refused(Indeterminate, KEY):
            document.replace(content)
        assert data_of(document) == content, "it can be seen"
    document.replace(b"third")


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("op", ["pread", "dir.open", "dir.subdir"])
def test_a_reader_gets_typed_errors_only(
    document: FileDocument, vfs: FaultyVfs, op: str, number: int, no_leak: None
) -> None:
    document.replace(b"old")
    vfs.fault(op, failing(number))
    with pytest.raises(HoldfastError) as caught:
        document.read()
    assert caught.value.hint
    assert caught.value.path == KEY
    assert data_of(document) == b"old"


@pytest.mark.parametrize("size", [(64 << 20) + 1, 1 << 40])
def test_a_file_that_is_too_large_is_refused_at_once(
    home: Home, path: str, size: int, no_leak: None
) -> None:
    Path(path, "a.json").touch()
    os.truncate(Path(path, "a.json"), size)
    start = time.monotonic()
    with refused(Corrupt, "at most"):
        home.document("a.json").read()
    with refused(Corrupt):
        home.document("a.json").replace(b"x")
    assert time.monotonic() - start < 1
    assert os.stat(Path(path, "a.json")).st_size == size


def test_a_document_that_changes_itself_is_told_to_wait_not_hung(document: FileDocument) -> None:
    def change(old: bytes | None) -> bytes:
        document.replace(b"inner")
        return b"outer"

    with refused(Busy, f"process {os.getpid()}"):
        document.update(change)
    assert document.read() is None


def test_a_document_written_for_people_is_sound(home: Home, path: str) -> None:
    home.document("a.json").replace(pretty({"b": [1], "a": "é"}))
    assert Path(path, "a.json").read_text(encoding="utf-8").splitlines()[1] == '  "b": ['
    assert list(check(home)) == []


def test_a_document_may_be_as_large_as_the_limit(home: Home) -> None:
    data = bytes(64 << 20)
    document = home.document("large.bin")
    document.replace(data)
    assert len(data_of(document)) == len(data)
