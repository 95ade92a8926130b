"""A mailbox on disk: what others put there, what crashes leave, and who is faster."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.codec import MAX_LINE
from holdfast.errors import (
    LeaseLost,
)
from holdfast.store.check import check
from holdfast.store.home import Home
from holdfast.store.mailbox import FileMailbox
from holdfast.store.primitives import Claim
from holdfast.testing import Turner, refused
from holdfast.testing.mailboxes import ids_of, take
from tests.store.boxes import KEY, OLD, claims, drop, names, told
from tests.store.faults import FaultyVfs, failing, first, then


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


# --- foreign files --------------------------------------------------------------------------


def test_a_file_that_somebody_drops_is_a_message(mailbox: FileMailbox, folder: Path) -> None:
    drop(folder, "note.json", b'{\n  "text": "hi"\n}\n')
    drop(folder, "urgent.json", b'{"priority": "high"}')
    drop(folder, "odd.json", b'{"priority": ["high"], "expires_at": "never"}')
    found = claims(mailbox)
    assert [claim.id for claim in found] == ["urgent", "note", "odd"]
    assert found[1].record == {"text": "hi"}
    for claim in found:
        mailbox.ack(claim)
    assert sorted(ids_of(mailbox.done())) == ["note", "odd", "urgent"]


def test_a_foreign_file_is_read_once_as_long_as_it_does_not_change(
    mailbox: FileMailbox, folder: Path, vfs: FaultyVfs
) -> None:
    for number in range(3):
        drop(folder, f"low{number}.json", b'{"priority": "low"}')
    mailbox.deliver({"n": 1})
    take(mailbox)
    vfs.forget()
    mailbox.deliver({"n": 2})
    assert take(mailbox).record["n"] == 2
    assert vfs.count("dir.open", "low*") == 0
    file = drop(folder, "low1.json", b'{"priority": "high"}')
    os.utime(file, (OLD[0] + 1, OLD[1] + 1))
    assert take(mailbox).id == "low1"
    assert vfs.count("dir.open", "low*") == 2, "once for its priority, once when handed out"


def test_foreign_messages_stand_in_line_by_their_age(
    mailbox: FileMailbox, folder: Path, clock: Turner
) -> None:
    mailbox.deliver({"n": 0})
    clock.advance(100)
    mailbox.deliver({"n": 2})
    file = drop(folder, "between.json", b'{"n": 1}')
    os.utime(file, (clock.now() - 50, clock.now() - 50))
    assert [message.id for message in mailbox.waiting()][1] == "between"
    assert [claim.record["n"] for claim in claims(mailbox)] == [0, 1, 2]


BAD_TEXT = {
    "empty.json": b"",
    "torn.json": b'{"n": 1',
    "list.json": b"[1]",
    "twice.json": b'{"a": 1, "a": 2}',
    "nul.json": bytes(20),
    "latin.json": b'{"a": "\xe9"}',
    "nan.json": b'{"a": NaN}',
    "two.json": b'{"a": 1}\n{"a": 2}\n',
    "01234567-89ab-8400-8000-000000000000.json": b"named like one of ours",
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_a_file_that_is_no_message_is_set_aside_when_it_is_old_enough(
    home: Home, mailbox: FileMailbox, folder: Path, clock: Turner, name: str
) -> None:
    file = drop(folder, name, BAD_TEXT[name])
    os.utime(file, (clock.now() - 1.5, clock.now() - 1.5))
    mailbox.deliver({"n": 1}, id="good")
    assert [claim.id for claim in claims(mailbox)] == ["good"]
    assert file.exists(), "somebody may still be writing it"
    assert [found.kind for found in check(home)] == ["bad_message"]
    clock.advance(1)
    assert claims(mailbox) == []
    assert not file.exists()
    assert (folder / ".bad" / name).read_bytes() == BAD_TEXT[name]
    assert [(bad.id, bad.size) for bad in mailbox.bad()] == [(name, len(BAD_TEXT[name]))]
    assert any(name in said and "is bad" in said for said in told(home))
    assert mailbox.dead() == []


def test_a_file_whose_writer_needs_a_moment_becomes_a_message(
    mailbox: FileMailbox, folder: Path, clock: Turner
) -> None:
    for name in ("slow.json", "01234567-89ab-8400-8000-000000000000.json"):
        file = drop(folder, name, b'{"n": ')
        os.utime(file, (clock.now(), clock.now()))
        assert claims(mailbox) == []
        with file.open("ab") as more:
            more.write(b"1}")
        assert [claim.attempt for claim in claims(mailbox)] == [1]


def test_a_time_of_modification_far_in_the_future_keeps_no_bad_file(
    mailbox: FileMailbox, folder: Path
) -> None:
    os.utime(drop(folder, "x.json", b"{"), (4e9, 4e9))
    assert claims(mailbox) == []
    assert names(folder, ".bad") == ["x.json"]


def test_a_message_may_be_as_long_as_a_line_and_no_longer(
    mailbox: FileMailbox, folder: Path
) -> None:
    pad = MAX_LINE - len(b'{"x":""}')
    drop(folder, "fits.json", b'{"x":"%b"}' % (b"x" * pad))
    drop(folder, "not.json", b'{"x":"%b"}' % (b"x" * (pad + 1)))
    assert [claim.id for claim in claims(mailbox)] == ["fits"]
    assert names(folder, ".bad") == ["not.json"]


@pytest.mark.parametrize("name", ["x.json", "01234567-89ab-8400-8000-000000000000.json"])
@pytest.mark.parametrize("kind", ["fifo", "link", "loop", "directory", "socket"])
def test_what_is_no_regular_file_is_set_aside_and_never_opened_or_followed(
    mailbox: FileMailbox, folder: Path, tmp_path: Path, kind: str, name: str
) -> None:
    folder.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_bytes(b'{"secret": 1}')
    made = folder / name
    bound = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    match kind:
        case "fifo":
            os.mkfifo(made)
        case "link":
            made.symlink_to(secret)
        case "loop":
            made.symlink_to(made.name)
        case "directory":
            made.mkdir()
        case _:
            os.chdir(folder)
            bound.bind(name)
            os.chdir(here)
    os.utime(made, OLD, follow_symlinks=False)
    assert claims(mailbox) == []
    assert names(folder, ".bad") == [name]
    assert secret.read_bytes() == b'{"secret": 1}'
    bound.close()


@pytest.mark.parametrize(
    "name",
    [".hidden.json", "x~.json", "a~b.json", "x~1.json", "~.json", "-rf.json", "x" * 101 + ".json",
     "x" * 250 + ".json", "a\nb.json", "a\x1b[31m.json", "\udcff.json", "\u202ea.json", ".json"],
)  # fmt: skip
def test_a_name_that_no_message_can_have_is_set_aside(
    home: Home, mailbox: FileMailbox, folder: Path, name: str
) -> None:
    mailbox.redeliver()
    for number in range(1, 4):
        drop(folder, name)
        assert [found.kind for found in check(home)] == ["bad_message"] * number
        assert claims(mailbox) == []
    assert name in names(folder, ".bad")
    assert len(names(folder, ".bad")) == 3, "no bad file takes the place of another"


def test_files_that_do_not_end_in_json_are_nobodys_business(
    home: Home, mailbox: FileMailbox, folder: Path
) -> None:
    for name in ("x.txt", "x.json.part", "x.json~", ".x.json.swp"):
        drop(folder, name)
    assert claims(mailbox) == []
    assert len(os.listdir(folder)) == 4 + 5
    assert {found.kind for found in check(home)} == {"alien"}


def test_what_others_put_among_the_claims_is_set_aside(
    home: Home, mailbox: FileMailbox, folder: Path
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    for name in ("x.json", "x.json~rio~007~1~00000000.5"):
        drop(folder / ".claimed", name)
    assert [found.kind for found in check(home)] == ["alien", "alien"]
    assert mailbox.claimed() == []
    assert [claim.id for claim in claims(mailbox)] == ["x"]
    assert names(folder, ".bad") == ["x.json", "x.json~rio~007~1~00000000.5"]


def test_a_foreign_file_that_says_how_often_it_was_tried_is_believed(
    mailbox: FileMailbox, folder: Path
) -> None:
    drop(folder, "x~5.json")
    drop(folder, "y~9.json")
    assert sorted((claim.id, claim.attempt) for claim in claims(mailbox)) == [("x", 5), ("y", 9)]
    assert [mailbox.give_back(claim, "no") for claim in mailbox.claimed()] == [False, False]
    assert ids_of(mailbox.dead()) == ["x", "y"]


def test_a_second_file_with_the_id_of_one_that_is_done_is_set_aside(
    home: Home, mailbox: FileMailbox, folder: Path
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    claim = take(mailbox)
    drop(folder, "x.json", b'{"n": 2}')
    assert claims(mailbox) == [], "as long as the first is claimed the second waits"
    assert (folder / "x.json").exists()
    assert [found.kind for found in check(home)] == ["double"]
    mailbox.ack(claim)
    assert claims(mailbox) == []
    assert (folder / ".bad/x.json").read_bytes() == b'{"n": 2}'
    assert b'"n":1' in (folder / ".done/x.json").read_bytes()


def test_of_two_waiting_files_with_one_id_the_one_tried_more_often_stays(
    mailbox: FileMailbox, folder: Path
) -> None:
    for n, name in enumerate(("x.json", "x~2.json", "x~4.json")):
        drop(folder, name, b'{"n": %d}' % n)
    (claim,) = claims(mailbox)
    assert (claim.record["n"], claim.attempt) == (2, 4)
    assert names(folder, ".bad") == ["x.json", "x~2.json"]


def test_a_double_is_kept_if_the_other_one_vanishes_meanwhile(
    mailbox: FileMailbox, folder: Path, vfs: FaultyVfs
) -> None:
    name = "01234567-89ab-8400-8000-000000000000"
    drop(folder, f"{name}.json")
    later = drop(folder, f"{name}~2.json")
    vfs.fault("dir.stat", first(later.unlink), f"{name}~2.json")
    assert claims(mailbox) == []
    assert [(claim.id, claim.attempt) for claim in claims(mailbox)] == [(name, 1)]


def test_giving_back_finds_another_number_if_its_own_is_taken(
    mailbox: FileMailbox, folder: Path
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    claim = take(mailbox)
    drop(folder, "x~2.json", b'{"n": 2}')
    assert mailbox.give_back(claim, "x")
    assert (folder / "x~3.json").read_bytes() == b'{"n":1,"priority":"normal"}\n'
    assert (folder / "x~2.json").read_bytes() == b'{"n": 2}'


# --- names that a crash leaves --------------------------------------------------------------


@pytest.mark.parametrize("half", ["waiting", "returned", "done"])
def test_a_claimed_message_that_also_stands_elsewhere_loses_the_older_name(
    home: Home, mailbox: FileMailbox, folder: Path, clock: Turner, half: str
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    claim = take(mailbox)
    other = {"waiting": "x.json", "returned": "x~2.json", "done": ".done/x.json"}[half]
    os.link(folder / ".claimed" / claim.token, folder / other)
    assert [found.kind for found in check(home)] == ["double"]
    clock.reboot()
    found = claims(mailbox)
    attempts = {"waiting": [1], "returned": [2], "done": []}[half]
    assert [each.attempt for each in found] == attempts
    assert list(check(home)) == []
    assert names(folder, ".bad") == []
    if half != "done":
        mailbox.ack(found[0])
        assert list(check(home)) == []


def test_a_done_message_that_waits_again_after_a_crash_is_not_handed_out(
    home: Home, mailbox: FileMailbox, folder: Path
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    mailbox.ack(take(mailbox))
    os.link(folder / ".done/x.json", folder / "x.json")
    assert claims(mailbox) == []
    assert list(check(home)) == []
    assert names(folder, ".bad") == []


def test_two_waiting_names_of_one_file_become_one(
    home: Home, mailbox: FileMailbox, folder: Path
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    os.link(folder / "x.json", folder / "x~2.json")
    assert [claim.attempt for claim in claims(mailbox)] == [2]
    assert names(folder, ".bad") == []
    assert list(check(home)) == []


def test_a_bad_file_that_has_a_second_name_already_is_not_kept_twice(
    mailbox: FileMailbox, folder: Path
) -> None:
    drop(folder, "x.json", b"{")
    mailbox.redeliver()
    os.link(folder / "x.json", folder / ".bad/x.json")
    assert claims(mailbox) == []
    assert names(folder, ".bad") == ["x.json"]
    assert not (folder / "x.json").exists()


# --- races ----------------------------------------------------------------------------------


def test_two_who_want_the_same_message_do_not_both_get_it(
    home: Home, mailbox: FileMailbox, vfs: FaultyVfs
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    other = home.mailbox(KEY)
    got: list[Claim] = []
    vfs.fault("dir.move", first(lambda: got.extend(claims(other))))
    assert claims(mailbox) == []
    assert [claim.id for claim in got] == ["x"]


def test_a_claim_taken_back_before_it_was_read_is_not_handed_out(
    home: Home, mailbox: FileMailbox, vfs: FaultyVfs, clock: Turner
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    other = home.mailbox(KEY)

    def late() -> None:
        clock.advance(60)
        other.redeliver()

    vfs.fault("dir.open", first(late), "x.json~*")
    assert claims(mailbox) == []
    assert [message.attempt for message in mailbox.waiting()] == [2]


def test_a_message_redelivered_by_two_comes_back_once(
    home: Home, mailbox: FileMailbox, vfs: FaultyVfs, clock: Turner
) -> None:
    for tries, expected in ((5, "waiting"), (1, "dead")):
        mine, other = home.mailbox(KEY, tries=tries), home.mailbox(KEY, tries=tries)
        mine.deliver({"n": 1}, id=expected)
        take(mine)
        clock.advance(60)
        vfs.fault("dir.move", first(other.redeliver))
        assert mine.redeliver() == 0
        found = [*ids_of(mine.waiting()), *ids_of(mine.dead())]
        assert found.count(expected) == 1
        for claim in claims(mine):
            mine.ack(claim)


def test_a_claim_given_back_and_taken_back_at_once_is_lost_for_one(
    home: Home, mailbox: FileMailbox, vfs: FaultyVfs, clock: Turner
) -> None:
    for tries in (5, 1):
        mine = home.mailbox(KEY, tries=tries)
        mine.deliver({"n": 1}, id=f"x{tries}")
        claim = take(mine)
        clock.advance(60)
        vfs.fault("dir.move", first(mine.redeliver))
        with refused(LeaseLost):
            mine.give_back(claim, "x")
        for again in claims(mine):
            mine.ack(again)


def test_an_acknowledgement_of_an_id_that_is_done_meanwhile_replaces_nothing(
    mailbox: FileMailbox, folder: Path
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    claim = take(mailbox)
    drop(folder / ".done", "x.json", b'{"n": 0}')
    with refused(LeaseLost):
        mailbox.ack(claim)
    assert (folder / ".done/x.json").read_bytes() == b'{"n": 0}'
    assert names(folder, ".claimed") == [claim.token]


def test_a_foreign_file_that_vanishes_while_it_is_looked_at_is_no_matter(
    mailbox: FileMailbox, folder: Path, vfs: FaultyVfs
) -> None:
    for op in ("dir.stat", "dir.open"):
        file = drop(folder, "x.json")
        vfs.fault(op, first(file.unlink), "x.json")
        assert claims(mailbox) == []
        file = drop(folder, "x.json")
        vfs.fault(op, first(file.unlink), "x.json")
        assert mailbox.waiting() == []
        vfs.heal()
    bad = drop(folder, "y.json", b"{")
    vfs.fault("dir.move", first(bad.unlink), "y.json")
    assert claims(mailbox) == []
    assert mailbox.bad() == []


def test_a_bad_file_that_was_claimed_and_vanishes_is_no_matter(
    mailbox: FileMailbox, folder: Path, vfs: FaultyVfs
) -> None:
    name = "01234567-89ab-8400-8000-000000000000.json"
    drop(folder, name, b"{")

    def vanish() -> None:
        (folder / ".claimed" / names(folder, ".claimed")[0]).unlink()

    vfs.fault("dir.move", first(vanish), name)
    assert claims(mailbox) == []
    assert os.listdir(folder / ".bad") == []


def test_checking_a_message_that_is_claimed_meanwhile_finds_nothing(
    home: Home, mailbox: FileMailbox, vfs: FaultyVfs
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    other = home.mailbox(KEY)
    vfs.fault("dir.open", first(lambda: claims(other)), "x.json")
    assert list(check(home)) == []


def test_an_id_that_is_given_back_while_it_is_looked_for_is_found(
    home: Home, mailbox: FileMailbox, vfs: FaultyVfs
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    claim = take(mailbox)
    vfs.fault("dir.names", first(lambda: mailbox.give_back(claim, "now")), ".claimed")
    assert mailbox.deliver({"n": 2}, id="x") == "x"
    assert [(each.id, each.record["n"]) for each in claims(mailbox)] == [("x", 1)]


def test_two_who_deliver_the_same_id_at_once_store_it_once(
    home: Home, mailbox: FileMailbox, vfs: FaultyVfs
) -> None:
    mailbox.deliver({"n": 0}, id="before")
    other = home.mailbox(KEY)
    vfs.fault("dir.link", first(lambda: other.deliver({"n": 1}, id="x")), "x.json")
    assert mailbox.deliver({"n": 2}, id="x") == "x"
    assert {claim.id: claim.record["n"] for claim in claims(mailbox)} == {"before": 0, "x": 1}


# --- a listing serves for a while -----------------------------------------------------------


def test_a_listing_that_took_long_is_used_again(
    mailbox: FileMailbox, vfs: FaultyVfs, clock: Turner
) -> None:
    for n in range(4):
        clock.advance(1)
        mailbox.deliver({"n": n})
    vfs.fault("dir.names", then(lambda: clock.advance(0.2)), "inbox", times=None)
    vfs.forget()
    assert [take(mailbox).record["n"] for _ in range(2)] == [0, 1]
    assert vfs.count("dir.names", "inbox") == 1
    mailbox.deliver({"n": 9}, priority="high")
    assert take(mailbox).record["n"] == 2, "not seen yet"
    clock.advance(2.1)
    assert take(mailbox).record["n"] == 9
    assert vfs.count("dir.names", "inbox") == 2


def test_an_older_listing_that_is_used_up_is_followed_by_a_new_one(
    mailbox: FileMailbox, vfs: FaultyVfs, clock: Turner
) -> None:
    mailbox.deliver({"n": 0})
    vfs.fault("dir.names", then(lambda: clock.advance(0.2)), "inbox", times=None)
    assert len(claims(mailbox, 1)) == 1
    mailbox.deliver({"n": 1})
    assert [claim.record["n"] for claim in claims(mailbox)] == [1]
    assert claims(mailbox) == []


def test_a_look_shows_what_is_no_message_and_leaves_it_where_it_is(
    mailbox: FileMailbox, folder: Path
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    drop(folder, "broken.json", b"{")
    drop(folder, "~.json")
    drop(folder, "notes.txt")
    drop(folder / ".claimed", "no claim")
    drop(folder / ".bad", "old.json", b"[]")
    drop(folder, ".hidden.json")
    os.symlink("nowhere", folder / "link.json")
    waiting = [(one.id, one.record is None, bool(one.note)) for one in mailbox.look("waiting")]
    assert sorted(waiting) == [
        ("broken", True, True),
        ("link", True, True),
        ("x", False, False),
    ]
    assert [one.name for one in mailbox.look("bad")] == ["old.json", "notes.txt", "~.json"]
    assert mailbox.look("claimed") == []
    assert mailbox.take("rio", "broken", fence=1, seconds=30.0) is None
    assert names(folder, ".bad") == ["broken.json", "no claim", "old.json"]


def test_a_message_that_goes_while_it_is_looked_at_has_no_record(
    home: Home, mailbox: FileMailbox, folder: Path, vfs: FaultyVfs
) -> None:
    mailbox.deliver({"n": 1}, id="x")
    vfs.fault("dir.open", failing(errno.ENOENT))
    (seen,) = mailbox.look("waiting")
    assert (seen.record, seen.note) == (None, "it went while we looked")
    (seen,) = mailbox.look("waiting")
    assert seen.record is not None
