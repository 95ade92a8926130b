"""A mailbox on disk: what is written in which order, what fails, and what the dead leave."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    DiskFull,
    Indeterminate,
    LeaseLost,
    NotOurs,
    StorageError,
)
from holdfast.process import this_process
from holdfast.store.check import HARMLESS, check
from holdfast.store.failpoints import armed
from holdfast.store.home import Home
from holdfast.store.letter import Ticket, Waiting
from holdfast.store.mailbox import FileMailbox
from holdfast.store.sweep import sweep
from holdfast.store.vfs import RealDir
from holdfast.testing import Turner, refused
from holdfast.testing.mailboxes import ids_of, take
from tests.store.boxes import KEY, claims, drop, names, told
from tests.store.children import child, in_fork
from tests.store.faults import FaultyVfs, failing, first, short


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


@pytest.fixture
def mailbox(home: Home, vfs: FaultyVfs) -> FileMailbox:
    vfs.forget()
    return home.mailbox(KEY)


@pytest.fixture
def folder(path: str) -> Path:
    return Path(path, KEY)


# --- the order of steps ---------------------------------------------------------------------


def test_the_first_message_is_durable_with_all_its_directories(
    mailbox: FileMailbox, vfs: FaultyVfs, no_leak: None
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    assert vfs.order() == [
        "dir.subdir state", "dir.subdir rio", "dir.subdir inbox",
        "dir.subdir .claimed", "dir.subdir .done", "dir.subdir .bad", "dir.subdir .dead",
        "dir.sync inbox", "dir.open .ready",
        "dir.open .x.0.tmp", "try_lock .x.0.tmp", "write .x.0.tmp", "sync .x.0.tmp",
        "dir.subdir .claimed", "dir.subdir .done", "dir.link x.json", "dir.unlink .x.0.tmp",
        "dir.sync inbox",
    ]  # fmt: skip
    assert [call.size for call in vfs.seen("dir.sync")] == [3, 0]


def test_a_later_message_costs_two_syncs(mailbox: FileMailbox, vfs: FaultyVfs) -> None:
    mailbox.deliver({"n": 1})
    vfs.forget()
    mailbox.deliver({"n": 2})
    steps = [step.split()[0] for step in vfs.order() if "subdir" not in step]
    assert steps == ["dir.open", "try_lock", "write", "sync", "dir.link", "dir.unlink", "dir.sync"]
    assert [call.size for call in vfs.seen("dir.sync")] == [0]


def test_a_claim_is_one_rename_and_no_sync(mailbox: FileMailbox, vfs: FaultyVfs) -> None:
    mailbox.deliver({"n": 1})
    vfs.forget()
    claim = take(mailbox)
    assert vfs.count("dir.move") == 1
    assert vfs.count("sync") == vfs.count("dir.sync") == vfs.count("write") == 0
    vfs.forget()
    mailbox.ack(claim)
    assert [step for step in vfs.order() if "subdir" not in step] == [
        f"dir.move {claim.id}.json",
        "dir.sync .done",
        "dir.sync .claimed",
    ]


def test_the_state_of_a_message_is_its_name(mailbox: FileMailbox, folder: Path) -> None:
    mailbox.deliver({"n": 1}, id="x")
    assert (folder / "x.json").read_bytes() == b'{"n":1,"priority":"normal"}\n'
    claim = mailbox.claim("rio", fence=7, seconds=30.0, owner=this_process())[0]
    (name,) = names(folder, ".claimed")
    assert name == claim.token
    assert name.startswith(f"x.json~rio@{name[11:17]}.{os.getpid()}.")
    assert "~7~1~" in name
    mailbox.give_back(claim, "x")
    assert (folder / "x~2.json").exists()
    mailbox.ack(take(mailbox))
    assert names(folder, ".done") == ["x.json"]


# --- failures -------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["dir.open", "try_lock", "dir.stat", "write", "sync", "dir.link"])
def test_a_delivery_that_fails_leaves_nothing(
    mailbox: FileMailbox, vfs: FaultyVfs, folder: Path, op: str, no_leak: None
) -> None:
    mailbox.deliver({"n": 0}, id="before")
    vfs.fault(op, failing(errno.EIO), "*x.*")
    with refused(StorageError):
        mailbox.deliver({"n": 1}, id="x")
    vfs.heal()
    assert ids_of(mailbox.waiting()) == ["before"]
    assert sorted(claim.id for claim in claims(mailbox)) == ["before"]
    assert [name for name in os.listdir(folder) if name.endswith(".tmp")] == []
    assert mailbox.deliver({"n": 1}, id="x") == "x"


def test_a_full_disk_in_the_middle_of_a_message_leaves_nothing(
    mailbox: FileMailbox, vfs: FaultyVfs
) -> None:
    vfs.fault("write", failing(errno.ENOSPC))
    vfs.fault("write", short(5))
    with refused(DiskFull):
        mailbox.deliver({"n": "long enough"})
    assert mailbox.waiting() == []
    vfs.heal()
    vfs.fault("write", short(5))
    mailbox.deliver({"n": "in two parts"})
    assert take(mailbox).record["n"] == "in two parts"


def test_a_delivery_whose_last_sync_fails_is_undecided_and_can_be_repeated(
    mailbox: FileMailbox, vfs: FaultyVfs
) -> None:
    mailbox.deliver({"n": 0})
    vfs.fault("dir.sync", failing(errno.EIO), "inbox")
    with refused(Indeterminate, "x was delivered"):
        mailbox.deliver({"n": 1}, id="x")
    assert mailbox.deliver({"n": 1}, id="x") == "x"
    assert ids_of(mailbox.waiting()).count("x") == 1


def test_a_temporary_that_cannot_be_removed_costs_nothing(
    mailbox: FileMailbox, vfs: FaultyVfs, folder: Path
) -> None:
    vfs.fault("dir.unlink", failing(errno.EIO), ".x.0.tmp")
    mailbox.deliver({"n": 1}, id="x")
    assert (folder / ".x.0.tmp").exists()
    mailbox.ack(take(mailbox))
    assert not (folder / ".x.0.tmp").exists()
    assert names(folder, ".done") == ["x.json"]


@pytest.mark.parametrize("shelf", [".done", ".claimed"])
def test_an_acknowledgement_whose_sync_fails_is_undecided(
    mailbox: FileMailbox, vfs: FaultyVfs, shelf: str
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    claim = take(mailbox)
    vfs.fault("dir.sync", failing(errno.EIO), shelf)
    with refused(Indeterminate, "x was acknowledged"):
        mailbox.ack(claim)
    assert claims(mailbox) == []


def test_an_error_after_the_first_of_several_hands_out_what_there_is(
    mailbox: FileMailbox, vfs: FaultyVfs, clock: Turner
) -> None:
    for n in range(3):
        clock.advance(1)
        mailbox.deliver({"n": n})
    vfs.fault("pread", failing(errno.EIO), after=2)
    assert [claim.record["n"] for claim in claims(mailbox)] == [0]
    vfs.heal()
    vfs.fault("pread", failing(errno.EIO))
    with refused(StorageError):
        claims(mailbox)
    vfs.heal()
    clock.advance(60)
    assert [(claim.record["n"], claim.attempt) for claim in claims(mailbox)] == [
        (0, 2), (1, 2), (2, 2)
    ]  # fmt: skip


def test_an_id_that_we_made_ourselves_is_never_taken_for_delivered(
    mailbox: FileMailbox, vfs: FaultyVfs
) -> None:
    vfs.fault("dir.link", failing(errno.EEXIST))
    with refused(StorageError):
        mailbox.deliver({"n": 1})
    assert mailbox.waiting() == []


def test_a_mailbox_whose_shelf_is_something_else_is_left_alone(
    mailbox: FileMailbox, folder: Path, tmp_path: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / ".claimed").symlink_to(tmp_path)
    with refused(NotOurs):
        mailbox.deliver({"n": 1})
    assert sorted(os.listdir(tmp_path)) == ["home"]


def test_shelves_that_git_did_not_keep_are_made_again(
    home: Home, mailbox: FileMailbox, vfs: FaultyVfs, folder: Path
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    for shelf in (".claimed", ".done", ".bad", ".dead"):
        (folder / shelf).rmdir()
    assert mailbox.claimed() == mailbox.done() == list(check(home)) == []
    vfs.forget()
    mailbox.ack(take(mailbox))
    assert vfs.count("dir.sync", "inbox") == 2, "each new directory is durable in the mailbox"
    assert names(folder, ".done") == ["x.json"]


# --- the dead -------------------------------------------------------------------------------

SCRIPT = """
from holdfast.process import this_process
home = Home.open({path!r})
mailbox = home.mailbox({key!r})
"""


def script(path: str, text: str) -> str:
    return SCRIPT.format(path=path, key=KEY) + text


def test_what_a_dead_process_had_is_handed_out_at_once(
    mailbox: FileMailbox, path: str, no_leak: None
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    text = "say(*mailbox.claim('clay', fence=1, seconds=3600, owner=this_process()))\nlisten()"
    # The clock of this test knows another boot; by the real one the claim is a long one.
    with Home.open(path) as real, child(script(path, text)) as other:
        mine = real.mailbox(KEY)
        other.hear()
        assert claims(mine) == []
        assert [claim.claimant for claim in mine.claimed()] == ["clay"]
        other.end()
        assert [(claim.id, claim.attempt) for claim in claims(mine)] == [("x", 2)]


@pytest.mark.parametrize("step", ["mailbox.written", "mailbox.linked"])
def test_a_deliverer_killed_at_any_step_leaves_one_message_or_none(
    home: Home, mailbox: FileMailbox, path: str, folder: Path, step: str
) -> None:
    env = {"HOLDFAST_FAILPOINTS": f"{step}=kill"}
    with child(script(path, "mailbox.deliver({'n': 1}, id='x')"), env) as other:
        assert other.wait() == -9
    assert (folder / ".x.0.tmp").exists()
    assert "temporary" in {found.kind for found in check(home)}
    expected = ["x"] if step == "mailbox.linked" else []
    assert [claim.id for claim in claims(mailbox)] == expected
    assert not (folder / ".x.0.tmp").exists()
    assert mailbox.deliver({"n": 1}, id="x") == "x"


def test_a_claimant_killed_before_it_knew_leaves_a_message_for_another_try(
    mailbox: FileMailbox, path: str
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    text = "mailbox.claim('clay', fence=1, seconds=3600, owner=this_process())"
    with child(script(path, text), {"HOLDFAST_FAILPOINTS": "mailbox.claimed=kill"}) as other:
        assert other.wait() == -9
    assert [(claim.id, claim.attempt) for claim in claims(mailbox)] == [("x", 2)]


def test_sweeping_removes_the_temporaries_of_the_dead_only(
    home: Home, mailbox: FileMailbox, folder: Path, no_leak: None
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    drop(folder, ".dead.0.tmp", b"{")
    swept: list[str] = []

    def meanwhile() -> None:
        swept.extend(sweep(home, dry_run=True))
        swept.extend(sweep(home))

    with armed("mailbox.written", meanwhile):
        mailbox.deliver({"n": 2}, id="y")
    assert swept == [f"{KEY}/.dead.0.tmp"] * 2
    assert sorted(ids_of(mailbox.waiting())) == ["x", "y"]


def test_a_temporary_that_is_no_file_is_left_alone(mailbox: FileMailbox, folder: Path) -> None:
    mailbox.deliver({"n": 1}, id="x")
    (folder / ".x.0.tmp").symlink_to("/etc/passwd")
    assert len(claims(mailbox)) == 1
    mailbox.deliver({"n": 1}, id="x2")
    assert (folder / ".x.0.tmp").is_symlink()


def test_a_deliverer_whose_temporary_was_taken_for_dead_makes_another(
    home: Home, mailbox: FileMailbox, vfs: FaultyVfs, folder: Path
) -> None:
    mailbox.deliver({"n": 0}, id="before")
    # Somebody lists the mailbox just between the making of the file and its lock.
    vfs.fault("try_lock", first(lambda: home.mailbox(KEY).waiting() and claims(mailbox)))
    mailbox.deliver({"n": 1}, id="x")
    assert [claim.id for claim in claims(mailbox)] == ["x"]

    def hold() -> None:
        other = os.open(folder / ".y.0.tmp", os.O_RDONLY)
        import fcntl  # noqa: PLC0415 - only here

        fcntl.flock(other, fcntl.LOCK_EX)

    vfs.fault("try_lock", first(hold), ".y.0.tmp")
    in_fork(lambda: mailbox.deliver({"n": 2}, id="y"))
    assert [claim.id for claim in claims(mailbox)] == ["y"]


def test_a_temporary_that_was_made_anew_is_not_taken_for_the_dead_one(
    mailbox: FileMailbox, folder: Path, vfs: FaultyVfs
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    dead = drop(folder, ".y.0.tmp", b"{")

    def anew() -> None:
        dead.unlink()
        dead.write_bytes(b"{alive}")

    vfs.fault("try_lock", first(anew), ".y.0.tmp")
    claims(mailbox)
    assert dead.read_bytes() == b"{alive}"
    vfs.fault("dir.open", first(dead.unlink), ".y.0.tmp")
    assert claims(mailbox) == []


# --- a file system that cannot rename without replacing -------------------------------------


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        return -1

    monkeypatch.setattr("holdfast.store.vfs._from_libc", lambda: (refuse, lambda: errno.EINVAL))


def test_without_the_call_a_rename_is_a_link_and_an_unlink(
    plain: None, mailbox: FileMailbox, folder: Path
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    claim = take(mailbox)
    drop(folder / ".done", "x.json", b'{"n": 0}')
    with refused(LeaseLost):
        mailbox.ack(claim)
    (folder / ".done/x.json").unlink()
    mailbox.ack(mailbox.renew(claim, 60.0))
    assert claims(mailbox) == []
    assert names(folder, ".done") == ["x.json"]


def test_moving_never_replaces_and_says_what_is_wrong(tmp_path: Path) -> None:
    from holdfast.store.vfs import RealVfs  # noqa: PLC0415 - only here

    one: RealDir = RealVfs().root(str(tmp_path / "one"), create=True)
    two: RealDir = RealVfs().root(str(tmp_path / "two"), create=True)
    for name in ("one/a", "two/b"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    with pytest.raises(FileExistsError):
        one.move("a", two, "b")
    with pytest.raises(FileNotFoundError):
        one.move("x", two, "c")
    one.move("a", two, "c")
    assert (tmp_path / "two/b").read_text(encoding="utf-8") == "two/b"
    assert (tmp_path / "two/c").read_text(encoding="utf-8") == "one/a"
    one.close()
    two.close()


# --- check ----------------------------------------------------------------------------------


def test_a_sound_mailbox_has_no_findings_and_what_was_set_aside_is_named(
    home: Home, mailbox: FileMailbox, folder: Path, clock: Turner
) -> None:
    for n in range(4):
        clock.advance(1)
        mailbox.deliver({"n": n}, expires=clock.now() + 100)
    drop(folder, "foreign.json")
    assert take(mailbox).id == "foreign"
    mailbox.ack(take(mailbox))
    claims(mailbox, 2)
    clock.advance(200)
    assert [claim.id for claim in claims(mailbox)] == ["foreign"]
    assert [message.expired for message in mailbox.done()].count(True) == 3
    assert list(check(home)) == []
    mailbox.deliver({"n": 9}, id="poison")
    alone = home.mailbox(KEY, tries=1)
    assert not alone.give_back(take(alone), "no\nuse")
    drop(folder, "bad.json", b"{")
    claims(mailbox)
    found = [(each.kind, each.key) for each in check(home)]
    assert found == [
        ("bad_message", f"{KEY}/.bad/bad.json"),
        ("dead_message", f"{KEY}/.dead/poison.json"),
    ]
    assert {kind for kind, _ in found} <= HARMLESS
    assert any("'poison.json' is dead after 1 tries: no\nuse" in said for said in told(home))


def test_several_files_set_aside_at_once_are_told_of_in_one_line(
    home: Home, mailbox: FileMailbox, folder: Path
) -> None:
    for number in range(5):
        drop(folder, f"b{number}.json", b"{")
    claims(mailbox)
    assert len(names(folder, ".bad")) == 5
    assert [said for said in told(home) if "and 4 more" in said]


def test_the_tokens_of_claims_are_what_lies_there(mailbox: FileMailbox, folder: Path) -> None:
    for n in range(3):
        mailbox.deliver({"n": n}, id=f"m{n}")
    claims(mailbox)
    assert [claim.token for claim in mailbox.claimed()] == names(folder, ".claimed")
    read = [Ticket.parse(name) for name in names(folder, ".claimed")]
    assert [ticket.waiting for ticket in read if ticket] == [Waiting(f"m{n}") for n in range(3)]
