"""Documents that people and agents edit while Holdfast changes them."""

from __future__ import annotations

import errno
import json
import os
import threading
from functools import cached_property
from pathlib import Path
from random import Random
from string import ascii_letters, digits
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.codec import decode
from holdfast.errors import Busy, Corrupt, DiskFull, Indeterminate, NotOurs, StorageError
from holdfast.store.document import revision_of
from holdfast.store.edited import BY_HAND, INSISTS_AFTER, MASKED, STALE_FOR, EditedDocument
from holdfast.store.failpoints import armed
from holdfast.store.home import Home
from holdfast.store.memory import MemorySheet
from holdfast.store.merge import merge_json
from holdfast.store.primitives import Text
from holdfast.testing import Conformance, Turner, lines_of, refused
from tests.store.backends import InMemory, OnFiles
from tests.store.faults import FaultyVfs, failing

KEY = "state/rio/memory.md"
SECRETS = "- see https://kim:sesame-open@host/x\n- rule: password=correct-horse is an example\n"


def private_key(seed: int) -> str:
    random = Random(seed)
    lines = ("".join(random.choices(ascii_letters + digits, k=64)) for _ in range(20))
    body = "".join(f"{line}\n" for line in lines)
    return f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n"


def adding(line: str) -> Any:
    return lambda text: f"{text}{line}\n"


class Edited(Conformance):
    def save(self, text: str) -> None:
        """What somebody does who does not ask."""
        raise NotImplementedError

    def shown(self) -> str:
        found = self.open().sheet(KEY).read()
        assert found is not None
        return found.data.decode()

    def edited(self) -> EditedDocument:
        backend = self.open()
        cell, told = self.cell(f"{KEY}.history"), self.told
        return self._keep(
            EditedDocument(
                backend.sheet(KEY),
                self.log(),
                cell,
                self.clock,
                notice=lambda word, detail: told.append((word, detail)),
            )
        )

    @cached_property
    def told(self) -> list[tuple[str, str]]:
        return []

    def logged(self) -> str:
        return json.dumps([line.record for line in lines_of(self.log())])

    def events(self) -> list[Any]:
        return [line.record.get("event") for line in lines_of(self.log())]

    def test_a_change_is_a_line_and_then_the_file(self) -> None:
        one = self.edited()
        assert one.read() is None
        assert one.update(adding("a"), {"event": "note"}) == "a\n"
        assert one.update(adding("b"), {"event": "note"}) == "a\nb\n"
        assert one.read() == self.edited().read() == self.shown() == "a\nb\n"
        assert self.events() == ["note", "note"]
        old, new = (line.record for line in lines_of(self.log()))
        assert old["new"] == new["old"]
        assert new["patch"] == [[1, [], ["b\n"]]]

    def test_nothing_is_noted_where_nothing_changed(self) -> None:
        one = self.edited()
        one.update(adding("a"), {"event": "note"})
        assert one.update(lambda text: text, {"event": "note"}) == "a\n"
        assert self.events() == ["note"]

    def test_a_text_that_was_there_before_us_is_taken_in(self) -> None:
        self.save("old\n")
        assert self.edited().read() == "old\n"
        assert self.edited().update(adding("new"), {"event": "note"}) == "old\nnew\n"
        assert self.events() == [BY_HAND, "note"]

    def test_an_edit_stays_byte_for_byte(self) -> None:
        one = self.edited()
        one.update(lambda _: "a\nb\nc\n", {"event": "note"})
        for text in ("a\nB\nc\n", "a\nB\nc", "", "x", "\r\n\u2028"):
            self.clock.sleep(STALE_FOR + 1)
            self.save(text)
            assert one.read() == self.shown() == text
        assert self.events() == ["note", *[BY_HAND] * 5]

    def test_a_stale_buffer_does_not_take_back_what_was_added_meanwhile(self) -> None:
        one = self.edited()
        loaded = one.update(lambda _: "# Notes\n\nfirst\n", {"event": "note"})
        one.update(adding("second"), {"event": "note"})
        one.update(adding("third"), {"event": "note"})
        self.save(loaded.replace("# Notes", "# My notes"))
        assert one.read() == self.shown() == "# My notes\n\nfirst\nsecond\nthird\n"
        self.save(loaded)
        assert "third" in (one.read() or "")

    def test_who_goes_on_from_their_own_stale_text_loses_nothing_either(self) -> None:
        one = self.edited()
        loaded = one.update(lambda _: "# Notes\n\nfirst\n", {"event": "note"})
        one.update(adding("second"), {"event": "note"})
        mine = loaded.replace("first", "mine\nfirst")
        self.save(mine)
        assert one.read() == "# Notes\n\nmine\nfirst\nsecond\n"
        self.save(mine.replace("mine", "mine\nmine too"))
        assert one.read() == self.shown() == "# Notes\n\nmine\nmine too\nfirst\nsecond\n"

    def test_who_saves_the_same_again_has_seen_it_and_gets_it(self) -> None:
        one = self.edited()
        before = one.update(adding("a"), {"event": "note"})
        one.update(adding("b"), {"event": "note"})
        for _ in range(3):
            self.save(before)
            assert one.read() == self.shown() == "a\nb\n"
        self.clock.sleep(INSISTS_AFTER)
        self.save(before)
        assert one.read() == self.shown() == "a\n"
        assert one.update(adding("c"), {"event": "note"}) == "a\nc\n"

    def test_what_was_added_long_ago_can_be_taken_out(self) -> None:
        one = self.edited()
        before = one.update(adding("a"), {"event": "note"})
        one.update(adding("b"), {"event": "note"})
        self.save(f"0\n{before}")
        assert one.read() == "0\na\nb\n"
        self.clock.sleep(STALE_FOR + 1)
        self.save(before)
        assert one.read() == self.shown() == "a\n"

    def test_an_edit_in_the_middle_of_a_change_is_merged(self) -> None:
        one = self.edited()
        one.update(lambda _: "a\nb\nc\n", {"event": "note"})

        def meanwhile(text: str) -> str:
            self.save(text.replace("a", "A"))
            return f"{text}d\n"

        assert one.update(meanwhile, {"event": "note"}) == "A\nb\nc\nd\n"
        assert self.shown() == "A\nb\nc\nd\n"
        assert self.events() == ["note", "note", BY_HAND]

    def test_the_log_alone_tells_every_text(self) -> None:
        one = self.edited()
        for number in range(50):
            one.update(adding(str(number)), {"event": "note"})
        self.cell(f"{KEY}.history").close()
        again = self.edited()
        assert again.read() == "".join(f"{number}\n" for number in range(50))

    def test_what_looks_like_a_secret_stays_in_the_file_and_is_masked_in_the_log(self) -> None:
        one = self.edited()
        one.update(adding("# Notes"), {"event": "note"})
        self.save(f"# Notes\n{SECRETS}")
        assert one.update(adding("x"), {"event": "note"}) == f"# Notes\n{SECRETS}x\n"
        assert one.update(adding("password=hunter2"), {"event": "note"}).endswith("=hunter2\n")
        assert self.edited().read() == self.shown() == f"# Notes\n{SECRETS}x\npassword=hunter2\n"
        for secret in ("sesame-open", "correct-horse", "hunter2"):
            assert secret not in self.logged()
        assert self.told == []

    def test_a_stale_buffer_brings_no_masked_line_into_the_file(self) -> None:
        one = self.edited()
        loaded = one.update(adding("# Notes"), {"event": "note"})
        self.save(f"{loaded}{SECRETS}")
        one.update(adding("x"), {"event": "note"})
        self.save(f"mine\n{loaded}")
        assert one.read() == self.shown() == f"mine\n# Notes\n{SECRETS}x\n"
        one.update(adding("y"), {"event": "note"})
        self.save(f"mine\nmine too\n{loaded}")
        assert one.read() == self.shown() == f"mine\nmine too\n# Notes\n{SECRETS}x\ny\n"
        assert self.told == []

    def test_a_private_key_is_in_no_log_in_clear(self) -> None:
        one, keys = self.edited(), [private_key(seed) for seed in (1, 2)]
        one.update(adding("a"), {"event": "note"})
        texts = [f"a\n{keys[0]}b\n", f"a\n{keys[1]}b\n", f"a\n{keys[1]}b\n\n{keys[0]}", "a\n"]
        for number, text in enumerate(texts):
            self.clock.sleep(STALE_FOR + 1)
            self.save(text)
            assert one.read() == self.shown() == text
            assert one.update(adding("z"), {"event": "note"}) == self.shown() == f"{text}z\n"
            assert len(lines_of(self.log())) == 3 + 2 * number
        for line in "".join(keys).split("\n"):
            assert not line or line not in self.logged()

    def test_what_tells_a_secret_may_stand_lines_before_it(self) -> None:
        one = self.edited()
        secret = "kind: Secret\ndata:\n  name: cm9ib3RzLXJ1bi10aGUtd29ybGQ=\n"
        for word in ("cm9ib3RzLXJ1bi10aGUtd29ybGQ=", "cGVvcGxlLXJ1bi1pdC1hZnRlci1hbGw="):
            self.save(f"a\n{secret.replace('cm9ib3RzLXJ1bi10aGUtd29ybGQ=', word)}b\n")
            assert word in (one.read() or "")
            assert word not in self.logged()

    def test_a_line_that_a_stale_buffer_has_overwritten_is_masked_and_told(self) -> None:
        one = self.edited()
        loaded = one.update(adding("# Notes"), {"event": "note"})
        one.update(adding("password=number-one"), {"event": "note"})
        both = one.update(adding("password=number-two"), {"event": "note"})
        self.save(f"mine\n{loaded}")
        first, second, third, fourth, _ = (one.read() or "").split("\n")
        # The first is in the text that stood there before; the last one was only in the file.
        assert [first, second, third] == ["mine", "# Notes", "password=number-one"]
        assert fourth.startswith("password=[SECRET:")
        assert [word for word, _ in self.told] == [MASKED]
        message = lines_of(self.log())[-1].record["message"]
        assert message == self.told[0][1]
        self.clock.sleep(INSISTS_AFTER)
        self.save(both)
        assert "password=number-two" in (one.read() or "")

    def test_lines_about_other_files_do_not_matter(self) -> None:
        one = self.edited()
        one.update(adding("a"), {"event": "note"})
        self.log().append({"event": "note", "file": "x.md", "patch": [[0, [], ["x"]]]})
        self.log().append({"event": "note", "file": KEY})
        assert one.read() == "a\n"

    def test_a_text_that_nobody_lets_rest_is_given_up(self) -> None:
        one = self.edited()
        one.update(adding("a"), {"event": "note"})
        count = 0

        def again(_: str) -> None:
            nonlocal count
            count += 1
            self.save(f"{count}\n")

        restless = EditedDocument(
            self.open().sheet(KEY), self.log(), self.cell(f"{KEY}.history"), self.clock, check=again
        )
        self.save("b\n")
        with refused(Busy):
            restless.read()
        restless.close()


class TestInMemory(InMemory, Edited):
    def save(self, text: str) -> None:
        self.memory.sheet(KEY).save(text.encode())


class Copied(MemorySheet):
    """The copy of a machine: nobody but `put` renews it, so it knows what an edit began with."""

    def __init__(self, key: str, clock: Clock) -> None:
        super().__init__(key, clock)
        self._put: bytes | None = None

    def put(self, data: bytes) -> None:
        super().put(data)
        self._put = data

    def base(self) -> Text | None:
        return None if self._put is None else Text(self._put, revision_of(self._put))


class TestCopies(InMemory):
    """One log, and a copy of the text on each machine."""

    def copied(self, name: str) -> tuple[EditedDocument, Copied]:
        sheet = Copied(KEY, self.clock)
        cell = self.cell(f"{KEY}.{name}")
        return self._keep(EditedDocument(sheet, self.log(), cell, self.clock)), sheet

    def shown(self, sheet: Copied) -> str:
        found = sheet.read()
        assert found is not None
        return found.data.decode()

    def test_an_edit_of_an_old_copy_takes_out_nothing_that_was_added_elsewhere(self) -> None:
        (here, _), (far, copy) = self.copied("here"), self.copied("far")
        here.update(lambda _: "one\n", {"event": "note"})
        assert far.read() == "one\n"
        for n in range(100):
            here.update(adding(f"{n}, here"), {"event": "note"})
        self.clock.advance(4 * STALE_FOR)
        copy.save(b"one\nby hand\n")
        text = far.read()
        assert text is not None
        assert {"one", "by hand", "0, here", "99, here"} <= {*text.splitlines()}
        assert here.read() == text == self.shown(copy)
        assert lines_of(self.log())[-1].record["base"] == revision_of(b"one\n")

    def test_what_was_taken_out_of_an_old_copy_stays_out(self) -> None:
        (here, _), (far, copy) = self.copied("here"), self.copied("far")
        here.update(lambda _: "one\ntwo\n", {"event": "note"})
        assert far.read() == "one\ntwo\n"
        here.update(adding("three"), {"event": "note"})
        self.clock.advance(4 * STALE_FOR)
        copy.save(self.shown(copy).replace("one\n", "").encode())
        text = far.read() or ""
        assert here.read() == text == "two\nthree\n"

    def test_an_old_copy_that_nobody_edited_is_brought_up_to_date(self) -> None:
        (here, _), (far, copy) = self.copied("here"), self.copied("far")
        here.update(lambda _: "0\n", {"event": "note"})
        far.update(adding("far"), {"event": "note"})
        for n in range(100):
            here.update(adding(str(n)), {"event": "note"})
            self.clock.advance(STALE_FOR)
        assert far.read() == here.read() == self.shown(copy)
        events = {line.record["event"] for line in lines_of(self.log())}
        assert events == {"note"}, "nothing was edited by hand"

    def test_a_copy_is_right_also_where_its_machine_cannot_write(self) -> None:
        (here, _), (far, copy) = self.copied("here"), self.copied("far")
        here.update(lambda _: "one\n", {"event": "note"})
        far.read()
        here.update(adding("two"), {"event": "note"})
        self.clock.advance(4 * STALE_FOR)

        def fail(data: bytes) -> None:
            raise StorageError("the disk failed", hint="none")

        copy.put = fail  # type: ignore[method-assign]
        assert far.read() == "one\ntwo\n"
        copy.save(b"one\nby hand\n")
        assert sorted((far.read() or "").splitlines()) == ["by hand", "one", "two"]


class TestOnFiles(OnFiles, Edited):
    @property
    def file(self) -> Path:
        return Path(self.path, KEY)

    def save(self, text: str) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        copy = self.file.with_suffix(".swp")
        copy.write_bytes(text.encode())
        os.rename(copy, self.file)

    def test_a_deleted_file_comes_back(self) -> None:
        one = self.edited()
        one.update(adding("a"), {"event": "note"})
        self.file.unlink()
        assert one.read() == "a\n"
        assert self.shown() == "a\n"
        assert self.events() == ["note"]

    def test_a_deleted_file_comes_back_as_far_as_its_secrets_are_at_hand(self) -> None:
        one = self.edited()
        self.save(f"{SECRETS}{private_key(1)}a\n")
        text = one.update(adding("b"), {"event": "note"})
        self.file.unlink()
        assert one.read() == self.shown() == text
        self.file.unlink()
        self.file.with_name(".memory.md.next").unlink(missing_ok=True)
        masked = one.read() or ""
        assert self.told == [(MASKED, self.told[0][1])]
        assert masked.count("[SECRET:") == 3
        assert masked.endswith("\na\nb\n")
        assert one.update(adding("c"), {"event": "note"}) == self.shown() == f"{masked}c\n"
        assert self.events() == [BY_HAND, "note", MASKED, "note"]

    def test_a_death_before_the_file_masks_nothing_but_what_the_log_alone_has(self) -> None:
        one = self.edited()
        self.save(SECRETS)
        one.update(adding("a"), {"event": "note"})

        def die() -> None:
            raise KeyboardInterrupt

        with armed("log.append.synced", die), pytest.raises(KeyboardInterrupt):
            one.update(adding("password=lost"), {"event": "note"})
        text = self.edited().read() or ""
        assert text.startswith(f"{SECRETS}a\npassword=[SECRET:")
        assert self.shown() == text
        with armed("sheet.written", die), pytest.raises(KeyboardInterrupt):
            one.update(adding("password=found"), {"event": "note"})
        assert self.edited().read() == f"{text}password=found\n"

    def test_who_writes_into_the_old_file_late_is_heard(self) -> None:
        one = self.edited()
        one.update(lambda _: "a\nb\n", {"event": "note"})
        with open(self.file, "r+b") as late:
            one.update(adding("c"), {"event": "note"})
            late.write(b"A")
        assert one.read() == self.shown() == "A\nb\nc\n"

    def test_a_file_that_is_being_written_is_waited_for(self) -> None:
        one = self.edited()
        one.update(lambda _: "a\nb\n", {"event": "note"})
        self.clock.sleep(STALE_FOR + 1)
        now = self.clock.now()
        self.file.write_bytes(b"a\n")
        os.utime(self.file, (now, now))

        def rest() -> None:
            self.clock.meanwhile = None
            self.file.write_bytes(b"a\nb\nc\n")
            os.utime(self.file, (now, now))

        self.clock.meanwhile = rest
        assert one.read() == "a\nb\nc\n"

    def test_a_file_that_never_rests_is_taken_as_it_is(self) -> None:
        one = self.edited()
        one.update(adding("a"), {"event": "note"})
        self.save("a\nb\n")

        def busy() -> None:
            os.utime(self.file, (self.clock.now(),) * 2)

        self.clock.meanwhile = busy
        busy()
        assert one.read() == "a\nb\n"

    @pytest.mark.parametrize("data", [b"\xff\xfe", b"{", b'{"a":1,"a":2}'])
    def test_a_text_that_cannot_be_read_is_left_alone(self, data: bytes) -> None:
        one = EditedDocument(
            self.open().sheet(KEY),
            self.log(),
            self.cell(f"{KEY}.history"),
            self.clock,
            merge=merge_json,
            check=lambda text: decode(text.encode()),
        )
        one.update(lambda _: "[]\n", {"event": "note"})
        self.file.write_bytes(data)
        for act in (one.read, lambda: one.update(adding("x"), {"event": "note"})):
            with refused(Corrupt, "cannot be read"):
                act()
        assert self.file.read_bytes() == data
        self.file.write_bytes(b'[{"id":1}]')
        assert decode((one.read() or "").encode()) == [{"id": 1}]
        one.close()

    def test_a_link_in_its_place_is_refused(self, tmp_path: Path) -> None:
        victim = tmp_path / "victim"
        victim.write_bytes(b"precious")
        self.file.parent.mkdir(parents=True)
        self.file.symlink_to(victim)
        with refused(NotOurs):
            self.edited().update(adding("a"), {"event": "note"})
        assert victim.read_bytes() == b"precious"

    @pytest.mark.parametrize("step", ["log.append.synced", "sheet.written", "sheet.swapped"])
    def test_a_death_between_any_two_steps_is_made_good(self, step: str) -> None:
        one = self.edited()
        one.update(adding("a"), {"event": "note"})
        one.update(adding("b"), {"event": "note"})

        def die() -> None:
            raise KeyboardInterrupt

        with armed(step, die), pytest.raises(KeyboardInterrupt):
            one.update(adding("c"), {"event": "note"})
        assert self.edited().read() == "a\nb\nc\n"
        assert self.shown() == "a\nb\nc\n"
        assert self.events() == ["note"] * 3

    def test_many_writers_and_editors_lose_nothing(self) -> None:
        self.clock.waits = True
        first = self.edited()
        first.update(lambda _: "# Notes\n", {"event": "note"})
        done = threading.Event()

        def edit() -> None:
            while not done.is_set():
                text = self.file.read_text(encoding="utf-8")
                self.save(text.replace("# Notes", "# Notes!") if "!" not in text else text)

        editor = threading.Thread(target=edit)
        editor.start()

        def write(who: int) -> None:
            mine = self.edited()
            for number in range(10):
                while True:
                    try:
                        mine.update(adding(f"{who}.{number}"), {"event": "note"})
                        break
                    except Busy:
                        continue  # the editor saves without a pause: nobody waits for ever

        writers = [threading.Thread(target=write, args=(who,)) for who in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        done.set()
        editor.join()
        lines = (first.read() or "").splitlines()
        assert {f"{who}.{number}" for who in range(3) for number in range(10)} <= set(lines)


def home_with(path: Path, vfs: FaultyVfs) -> tuple[Home, EditedDocument]:
    clock = Turner()
    home = Home.open(str(path), create=True, timezone="UTC", clock=clock, vfs=vfs)
    sheet, log, cell = home.sheet(KEY), home.log("state/a.jsonl"), home.cell(f"{KEY}.history")
    return home, EditedDocument(sheet, log, cell, clock)


def test_a_file_system_that_cannot_exchange_will_do(tmp_path: Path) -> None:
    vfs = FaultyVfs()
    home, one = home_with(tmp_path, vfs)
    one.update(adding("a"), {"event": "note"})
    vfs.fault("dir.exchange", failing(errno.ENOSYS), times=2)
    one.update(adding("b"), {"event": "note"})
    assert one.update(adding("c"), {"event": "note"}) == "a\nb\nc\n"
    assert (tmp_path / KEY).read_bytes() == b"a\nb\nc\n"
    assert (tmp_path / "state/rio/.memory.md.next").read_bytes() == b"a\nb\n"
    home.close()


@pytest.mark.parametrize(
    ("call", "number", "kind"),
    [
        ("write", errno.ENOSPC, DiskFull),
        ("dir.exchange", errno.EIO, Indeterminate),
        ("dir.sync", errno.EIO, Indeterminate),
    ],
)
def test_a_disk_that_refuses_the_file_is_made_good_later(
    tmp_path: Path, call: str, number: int, kind: type[Exception]
) -> None:
    vfs = FaultyVfs()
    home, one = home_with(tmp_path, vfs)
    one.update(adding("a"), {"event": "note"})
    vfs.fault(call, failing(number))
    with pytest.raises(kind):
        one.update(adding("b"), {"event": "note"})
    again = one.read()
    assert again == ("a\n" if kind is DiskFull else "a\nb\n")
    assert (tmp_path / KEY).read_text(encoding="utf-8") == again
    home.close()


def test_a_change_behind_one_that_is_not_in_the_file_yet_is_not_said_to_be_on_record(
    tmp_path: Path,
) -> None:
    vfs = FaultyVfs()
    home, one = home_with(tmp_path, vfs)
    one.update(adding("a"), {"event": "note"})
    vfs.fault("dir.exchange", failing(errno.ENOSPC), times=None)
    with refused(Indeterminate, "on record"):
        one.update(adding("b"), {"event": "note"})
    with refused(DiskFull):
        one.update(adding("c"), {"event": "note"})
    assert one.read() == "a\nb\n"
    vfs.heal()
    vfs.fault("dir.sync", failing(errno.EIO), times=None)
    with pytest.raises(StorageError) as unwell:
        one.update(adding("c"), {"event": "note"})
    assert not isinstance(unwell.value, Indeterminate)
    vfs.heal()
    assert one.update(adding("d"), {"event": "note"}) == "a\nb\nd\n"
    home.close()


def test_a_full_disk_keeps_nobody_from_reading_what_somebody_saved(tmp_path: Path) -> None:
    vfs = FaultyVfs()
    home, one = home_with(tmp_path, vfs)
    one.update(adding("a"), {"event": "note"})
    one.update(adding("b"), {"event": "note"})
    vfs.fault("write", failing(errno.ENOSPC), times=None)
    (tmp_path / KEY).write_bytes(b"mine\na\n")
    assert one.read() == "mine\na\nb\n"
    with refused(DiskFull):
        one.update(adding("c"), {"event": "note"})
    (tmp_path / KEY).unlink()
    assert one.read() == "a\nb\n"
    home.close()


def test_what_is_on_record_does_not_fail_any_more(tmp_path: Path) -> None:
    vfs = FaultyVfs()
    home, one = home_with(tmp_path, vfs)
    one.update(adding("a"), {"event": "note"})

    def spoilt(real: Any, *arguments: Any) -> Any:
        (tmp_path / KEY).write_bytes(b"\xff")
        return real(*arguments)

    vfs.fault("dir.exchange", spoilt)
    assert one.update(adding("b"), {"event": "note"}) == "a\nb\n"
    with refused(Corrupt):
        one.read()
    (tmp_path / "state/rio/.memory.md.next").unlink()
    assert one.read() == "a\nb\n"
    vfs.fault("write", failing(errno.ENOSPC), name="*history*", times=None)
    home.clock.sleep(1)
    assert one.update(adding("c"), {"event": "note"}) == "a\nb\nc\n"
    vfs.heal()
    home.close()
