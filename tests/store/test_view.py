"""Views on disk: a file for people, never the truth, never somebody's edit lost."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.codec import encode
from holdfast.errors import DiskFull, HoldfastError, Indeterminate, StorageError
from holdfast.store.check import check
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import Line, Stamp
from holdfast.store.view import Shape, View
from holdfast.testing import Turner, refused, stamp_of
from tests.store.children import child
from tests.store.faults import FaultyVfs, failing

LOG, VIEW = "state/rio/journal.jsonl", "state/rio/report.json"


def fold(state: list[Any], line: Line) -> list[Any]:
    return [*state, line.record["n"]]


SHAPE = Shape(version=1, initial=list[Any], fold=fold, render=encode)


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


@pytest.fixture
def log(home: Home) -> Iterator[FileLog]:
    made = home.log(LOG)
    yield made
    made.close()


def view_of(home: Home, log: FileLog) -> View[list[Any]]:
    return home.view(VIEW, log, SHAPE)


def refreshed(home: Home, log: FileLog) -> View[list[Any]]:
    """A view opened anew, and its file brought up to date."""
    view = view_of(home, log)
    view.refresh()
    view.close()
    return view


def file_of(path: str, name: str = "report.json") -> Path:
    return Path(path, "state/rio", name)


def audited(home: Home) -> list[Any]:
    return [line.record for line in home.log("audit").read() if isinstance(line, Line)]


def asides(path: str) -> list[str]:
    return sorted(name for name in os.listdir(file_of(path).parent) if "edited" in name)


def test_the_file_shows_the_state_and_its_stamp_is_hidden(
    home: Home, log: FileLog, path: str
) -> None:
    log.append_all([{"n": 1}, {"n": 2}])
    refreshed(home, log)
    assert file_of(path).read_bytes() == b"[1,2]"
    stamp = json.loads(file_of(path, ".report.json.view").read_bytes())
    assert (stamp["log"], stamp["state"], stamp["cursor"][0]) == (LOG, [1, 2], 2)
    assert home.keys("state") == [LOG, VIEW]


def test_a_view_is_never_synced_but_what_it_has_seen_is(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    acked = log.append({"n": 1})
    vfs.forget()
    view = view_of(home, log)
    view.refresh(acked)
    assert vfs.count("*sync") == 0
    log.append({"n": 2})
    home.clock.sleep(1)
    vfs.forget()
    view.refresh(acked)
    assert [call.name for call in vfs.seen("*sync")] == ["journal.jsonl"], "stamped, so settled"
    home.clock.sleep(1)
    vfs.forget()
    view.refresh()
    assert vfs.count("write") == vfs.count("*sync") == 0, "nothing is new"


def test_reading_a_view_writes_nothing(home: Home, log: FileLog, path: str) -> None:
    log.append({"n": 1})
    view = view_of(home, log)
    assert view.read() == [1]
    view.close()
    assert not file_of(path).exists()


def test_a_view_edited_by_hand_is_kept_aside_and_told(
    home: Home, log: FileLog, clock: Turner, path: str
) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    file_of(path).write_bytes(b'["edited"]')
    log.append({"n": 2})
    view = refreshed(home, log)
    name = "report.json.edited-20231114T120000Z"
    assert view.kept_aside == [name]
    assert file_of(path).read_bytes() == b"[1,2]"
    assert file_of(path, name).read_bytes() == b'["edited"]'
    (event,) = audited(home)
    assert event["event"] == "view_edited"
    assert name in event["detail"]
    file_of(path).write_bytes(b'["again"]')
    assert refreshed(home, log).kept_aside == [f"{name}-2"]
    file_of(path).write_bytes(b'["and again"]')
    assert refreshed(home, log).kept_aside == [f"{name}-3"]
    assert file_of(path).read_bytes() == b"[1,2]"


def test_an_edit_that_says_just_what_the_log_says_is_none(
    home: Home, log: FileLog, path: str
) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    log.append({"n": 2})
    file_of(path).write_bytes(b"[1,2]")
    assert refreshed(home, log).kept_aside == []
    assert asides(path) == []


def test_a_file_that_was_there_before_the_view_is_kept_aside(
    home: Home, log: FileLog, path: str
) -> None:
    log.append({"n": 1})
    file_of(path).write_bytes(b'{"by": "another program"}')
    assert len(refreshed(home, log).kept_aside) == 1
    assert file_of(path, asides(path)[0]).read_bytes() == b'{"by": "another program"}'


def test_a_file_that_grew_out_of_all_bounds_is_kept_aside(
    home: Home, log: FileLog, path: str
) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    os.truncate(file_of(path), 1 << 40)
    assert len(refreshed(home, log).kept_aside) == 1
    assert file_of(path).read_bytes() == b"[1]"


@pytest.mark.parametrize("content", [None, b"", b"\0" * 5, b"[1", b"\0" * 4096])
def test_what_a_power_cut_leaves_of_a_view_is_no_edit(
    home: Home, log: FileLog, path: str, content: bytes | None
) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    if content is None:
        file_of(path).unlink()
    else:
        file_of(path).write_bytes(content)
    assert view_of(home, log).read() == [1]
    assert refreshed(home, log).kept_aside == []
    assert file_of(path).read_bytes() == b"[1]"
    assert asides(path) == []


def summed(body: bytes) -> bytes:
    """A sidecar whose sum is right, whatever it says."""
    return body[:-1] + b',"sum":"%b"}\n' % sha256(body).hexdigest().encode()


def sidecars() -> dict[str, bytes]:
    good: dict[str, Any] = {
        "version": 1,
        "log": LOG,
        "cursor": [9, "0" * 64, "journal.jsonl", 900],
        "content": "0" * 64,
        "before": None,
        "state": ["wrong"],
    }
    odd = {
        "a version": {"version": "1"},
        "a log": {"log": 7},
        "a short cursor": {"cursor": [1]},
        "a cursor": {"cursor": "x"},
        "a segment": {"cursor": [1, "0" * 64, 7, 0]},
        "content": {"content": None},
        "before": {"before": 1},
    }
    made = {f"odd: {name}": summed(encode(good | change)) for name, change in odd.items()}
    for name in good:
        made[f"without {name}"] = summed(encode({k: v for k, v in good.items() if k != name}))
    return made | {
        "empty": b"",
        "NULs": b"\0" * 500,
        "text": b"hello",
        "no sum": encode(good),
        "wrong sum": encode(good)[:-1] + b',"sum":"%b"}\n' % (b"0" * 64),
        "not an object": summed(b"[1]"),
        "not JSON": summed(b"hello}"),
        "deep": summed(b'{"a":' + b"[" * 100_000 + b"}"),
    }


@pytest.mark.parametrize("name", sidecars())
def test_a_damaged_stamp_is_folded_anew(home: Home, log: FileLog, path: str, name: str) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    file_of(path, ".report.json.view").write_bytes(sidecars()[name])
    assert view_of(home, log).read() == [1]
    assert "view" in [finding.kind for finding in check(home)]
    log.append({"n": 2})
    refreshed(home, log)
    assert file_of(path).read_bytes() == b"[1,2]"
    assert list(check(home)) == []
    assert log.verify().problems == []


def test_a_stamp_out_of_all_bounds_is_folded_anew(home: Home, log: FileLog, path: str) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    os.truncate(file_of(path, ".report.json.view"), 1 << 40)
    assert view_of(home, log).read() == [1]
    refreshed(home, log)
    assert file_of(path, ".report.json.view").stat().st_size < 1_000


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_stamp_that_was_cut_is_folded_anew(home: Home, log: FileLog, path: str, cut: int) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    sidecar = file_of(path, ".report.json.view")
    os.truncate(sidecar, sidecar.stat().st_size - cut)
    assert view_of(home, log).read() == [1]


@pytest.mark.parametrize(
    "cursor",
    [
        [1, "0" * 64, "../../../holdfast.toml", 50],
        [1, "0" * 64, "/etc/passwd", 50],
        [1, "0" * 64, "a\0b", 50],
        [1, "0" * 64, "journal.jsonl", -5],
        [1, "0" * 64, "journal.jsonl", 2**63],
        [-1, "0" * 64, "journal.jsonl", 5],
        [2**63, "é", "journal.jsonl", 5],
    ],
)
def test_a_stamp_that_names_no_line_is_a_cut(
    home: Home, log: FileLog, path: str, cursor: list[Any]
) -> None:
    log.append({"n": 1})
    stamp = {"version": 1, "log": LOG, "cursor": cursor, "content": "", "before": None}
    body = encode(stamp | {"state": ["wrong"]})
    file_of(path, ".report.json.view").write_bytes(summed(body))
    assert view_of(home, log).read() == [1]
    assert "cut" in [finding.kind for finding in check(home)]
    refreshed(home, log)
    assert file_of(path).read_bytes() == b"[1]"
    assert [problem.kind for problem in log.verify().problems] == ["cut"]


def test_a_log_that_was_cut_is_told(home: Home, log: FileLog, path: str) -> None:
    first = log.append({"n": 1})
    log.append_all([{"n": 2}, {"n": 3}])
    refreshed(home, log)
    log.close()
    os.truncate(file_of(path, "journal.jsonl"), first.offset)
    assert [finding.kind for finding in check(home)] == ["cut"]
    assert view_of(home, log).read() == [1]
    refreshed(home, log)
    assert file_of(path).read_bytes() == b"[1]"
    (problem,) = log.verify().problems
    assert problem.kind == "cut"
    assert "lines up to 3" in problem.detail


def test_a_disk_that_cannot_be_read_is_not_a_cut(home: Home, log: FileLog, vfs: FaultyVfs) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    for op in ("pread", "dir.open", "size"):
        for number in (errno.EIO, errno.EMFILE, errno.EACCES):
            vfs.fault(op, failing(number), "journal.jsonl")
            with pytest.raises(HoldfastError):
                refreshed(home, log)
            vfs.heal()
    refreshed(home, log)
    assert log.verify().problems == []
    assert log.head().seq == 1


def test_a_writer_killed_between_stamp_and_file_made_no_edit(
    home: Home, log: FileLog, path: str
) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    script = f"""
from holdfast.codec import encode
from holdfast.store.view import Shape
home = Home.open({path!r})
log = home.log({LOG!r})
log.append({{"n": 2}})
shape = Shape(version=1, initial=list, fold=lambda s, l: [*s, l.record["n"]], render=encode)
home.view({VIEW!r}, log, shape).refresh()
"""
    with child(script, {"HOLDFAST_FAILPOINTS": "view.stamped=kill"}) as made:
        assert made.wait() == -9
    assert file_of(path).read_bytes() == b"[1]"
    assert view_of(home, log).read() == [1, 2]
    assert [finding.kind for finding in check(home)] == ["stale"]
    assert refreshed(home, log).kept_aside == []
    assert file_of(path).read_bytes() == b"[1,2]"
    assert list(check(home)) == []


@pytest.mark.parametrize("op", ["dir.open", "write", "dir.rename", "pread", "try_lock", "dir.stat"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_view_that_cannot_be_written_is_typed_and_heals(
    home: Home, log: FileLog, vfs: FaultyVfs, path: str, op: str, number: int, no_leak: None
) -> None:
    log.append({"n": 1})
    refreshed(home, log)
    log.append({"n": 2})
    log.close()
    kind = DiskFull if number == errno.ENOSPC else StorageError
    vfs.fault(op, failing(number), "*report*")
    with refused(kind):
        refreshed(home, log)
    assert refreshed(home, log).kept_aside == []
    assert file_of(path).read_bytes() == b"[1,2]"


def test_foreign_lines_count_at_once_and_are_stamped_when_they_are_sealed(
    home: Home, log: FileLog, path: str
) -> None:
    log.append({"n": 1})
    with open(file_of(path, "journal.jsonl"), "ab") as file:
        file.write(b'{"n":"by hand"}\n{"_log":"x","n":"not a record"}\nbad\n')
    view = view_of(home, log)
    assert view.read() == [1, "by hand"]
    assert view.read() == [1, "by hand"]
    view.refresh()
    stamp = stamp_of(home.cell(VIEW))
    assert (stamp.cursor.seq, stamp.state) == (1, [1])
    home.clock.sleep(1)
    log.append({"n": 2})
    assert view.read() == [1, "by hand", 2]
    view.refresh()
    assert stamp_of(home.cell(VIEW)).state == [1, "by hand", 2]
    view.close()


def test_lines_that_the_log_wrote_about_itself_are_not_folded(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    log.append({"n": 1})
    vfs.fault("sync", failing(errno.EIO))
    with refused(Indeterminate):
        log.append({"n": 2})
    log.append({"n": 3})
    assert view_of(home, log).read() == [1, 2, 3]


def test_nobody_goes_on_from_lines_that_a_failed_disk_may_still_lose(
    home: Home, log: FileLog, vfs: FaultyVfs, clock: Turner, path: str
) -> None:
    log.append({"n": 1})
    vfs.fault("sync", failing(errno.EIO))
    with refused(Indeterminate):
        log.append({"n": 2})
    log.append({"n": 3})
    refreshed(home, log)
    assert file_of(path).read_bytes() == b"[1,2,3]"
    assert home.cell(VIEW).load(1) is None, "its state is not to be trusted yet"
    clock.reboot()
    refreshed(home, log)
    assert stamp_of(home.cell(VIEW)).state == [1, 2, 3]


def test_a_view_may_be_shown_as_text(home: Home, log: FileLog, path: str) -> None:
    shape = Shape(
        version=1, initial=list[Any], fold=fold, render=lambda state: f"# {state}\n".encode()
    )
    log.append({"n": 1})
    view = home.view("state/rio/report.md", log, shape)
    view.refresh()
    assert file_of(path, "report.md").read_text() == "# [1]\n"
    file_of(path, "report.md").write_text("# mine\n")
    home.clock.sleep(1)
    log.append({"n": 2})
    view.refresh()
    assert len(view.kept_aside) == 1
    assert file_of(path, "report.md").read_text() == "# [1, 2]\n"
    view.close()


def test_a_stamp_can_be_looked_at_whatever_its_version(home: Home, log: FileLog) -> None:
    cell = home.cell(VIEW)
    assert cell.peek() is None
    head = log.append({"n": 1})
    cell.save(7, Stamp(LOG, head, ["seven"]), b"[7]")
    assert cell.peek() == Stamp(LOG, head, ["seven"], shown=True)
    assert cell.load(1) is None
    assert cell.key == VIEW
    cell.close()
