"""Texts that somebody saves in place: the file is emptied, and what was meant comes later."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.codec import decode, pretty
from holdfast.errors import Corrupt
from holdfast.store.edited import BY_HAND, MASKED, EditedDocument, _unmasked, anything
from holdfast.store.merge import merge_json, merge_lines
from holdfast.testing import lines_of, refused
from tests.store.backends import OnFiles
from tests.store.test_edited import KEY, SECRETS, adding

NOTE = {"event": "note"}
PATIENCE = 5.0
AT_ONCE = 0.1


def is_json(text: str) -> None:
    decode(text.encode())


def with_task(name: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        tasks: Any = json.loads(text or "[]")
        return pretty([*tasks, {"id": name}]).decode()

    return change


def without(line: str) -> Callable[[str], str]:
    return lambda text: text.replace(f"{line}\n", "")


class Editor:
    """Has the file open, and does not ask."""

    def __init__(self, test: TestSavedInPlace) -> None:
        self._test = test
        self._file = open(test.file, "r+b", buffering=0)  # noqa: SIM115 - closed by who opens us

    def empty(self) -> None:
        self._file.truncate(0)
        self._test.touch()

    def write(self, text: str) -> None:
        self._file.seek(0)
        self._file.write(text.encode())
        self._test.touch()

    def close(self) -> None:
        self._file.close()


class TestSavedInPlace(OnFiles):
    @property
    def file(self) -> Path:
        return Path(self.path, KEY)

    def touch(self) -> None:
        """Files get the time of our clock: they have that of the machine."""
        for file in (self.file, self.file.with_name(".memory.md.next")):
            if file.exists():
                os.utime(file, (self.clock.now(), self.clock.now()))

    def save(self, data: bytes) -> None:
        self.file.write_bytes(data)
        self.touch()

    def edited(self, *, is_of_json: bool = False) -> EditedDocument:
        self.told: list[str] = []
        return self._keep(
            EditedDocument(
                self.open().sheet(KEY),
                self.log(),
                self.cell(f"{KEY}.history"),
                self.clock,
                merge=merge_json if is_of_json else merge_lines,
                check=is_json if is_of_json else anything,
                notice=lambda word, _: self.told.append(word),
            )
        )

    @contextmanager
    def editor(self) -> Generator[Editor]:
        editor = Editor(self)
        try:
            yield editor
        finally:
            editor.close()

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        due = self.clock.boottime() + seconds

        def look() -> None:
            if self.clock.boottime() >= due:
                self.clock.meanwhile = None
                act()

        self.clock.meanwhile = look

    def took(self, act: Callable[[], object]) -> float:
        began = self.clock.boottime()
        act()
        return self.clock.boottime() - began

    def by_hand(self) -> int:
        return sum(line.record.get("event") == BY_HAND for line in lines_of(self.log()))

    @pytest.mark.parametrize("pause", [0.35, 1.0, 4.0])
    def test_an_emptied_text_is_waited_for(self, pause: float) -> None:
        one = self.edited()
        loaded = one.update(lambda _: "# Notes\n\nfirst\n", NOTE)
        one.update(adding("second"), NOTE)
        with self.editor() as editor:
            editor.empty()
            self.later(pause, lambda: editor.write(loaded.replace("first", "mine\nfirst")))
            assert one.read() == "# Notes\n\nmine\nfirst\nsecond\n"
        assert self.by_hand() == 1

    @pytest.mark.parametrize("pause", [0.35, 1.0, 4.0])
    @pytest.mark.parametrize("half", ["", '[{"id":'])
    def test_json_that_ends_too_early_is_waited_for(self, pause: float, half: str) -> None:
        one = self.edited(is_of_json=True)
        loaded = one.update(with_task("first"), NOTE)
        one.update(with_task("second"), NOTE)
        with self.editor() as editor:
            editor.empty()
            editor.write(half)
            self.later(pause, lambda: editor.write(with_task("mine")(loaded)))
            text = one.update(with_task("third"), NOTE)
        assert {task["id"] for task in json.loads(text)} == {"first", "second", "third", "mine"}

    def test_a_text_that_is_cut_within_a_letter_is_waited_for(self) -> None:
        one = self.edited()
        one.update(adding("a"), NOTE)
        self.save(b"a\n\xc3")
        self.later(1.0, lambda: self.save("a\nü\n".encode()))
        assert one.read() == "a\nü\n"

    def test_what_was_exchanged_while_it_was_empty_is_waited_for(self) -> None:
        one = self.edited()
        loaded = one.update(adding("a"), NOTE)
        with self.editor() as editor:

            def rest() -> None:
                self.touch()
                self.later(1.0, lambda: editor.write(f"{loaded}mine\n"))

            def meanwhile(text: str) -> str:
                editor.empty()
                self.later(0.01, rest)
                return f"{text}b\n"

            assert one.update(meanwhile, NOTE) == "a\nmine\nb\n"
        assert self.by_hand() == 1

    def test_a_whole_text_is_believed_soon(self) -> None:
        one = self.edited()
        one.update(adding("a"), NOTE)
        self.save(b"a\nb\n")
        assert 0.2 <= self.took(one.read) < 0.4

    def test_what_has_been_empty_or_broken_for_long_keeps_nobody_waiting(self) -> None:
        one = self.edited()
        one.update(adding("a"), NOTE)
        for data in (b"\xff", b""):
            self.save(data)
            self.clock.sleep(PATIENCE)
            if data:
                with refused(Corrupt):
                    one.read()
            else:
                assert self.took(one.read) < AT_ONCE
        assert one.read() == ""

    def test_an_emptied_text_is_believed_in_the_end(self) -> None:
        one = self.edited()
        one.update(adding("a"), NOTE)
        with self.editor() as editor:
            editor.empty()
            assert PATIENCE <= self.took(one.read) < PATIENCE + 0.2
        assert one.read() == ""
        assert one.update(adding("b"), NOTE) == "b\n"
        self.clock.sleep(60)
        assert one.read() == "b\n"

    @pytest.mark.parametrize("mark", ["at the top", "at the end"])
    @pytest.mark.parametrize("into", ["what was exchanged", "the file"])
    def test_a_rest_that_comes_very_late_takes_nothing_back(self, into: str, mark: str) -> None:
        one = self.edited()
        loaded = one.update(lambda _: "# Notes\n\nfirst\nsecond\n", NOTE)
        late = f"{loaded}mine\n" if mark == "at the end" else f"mine\n{loaded}"
        with self.editor() as editor:
            editor.empty()
            assert one.read() == ""
            one.update(adding("third"), NOTE)
            if into == "the file":
                with self.editor() as another:
                    another.write(late)
            else:
                editor.write(late)
            assert one.read() == f"{late}third\n"
        assert self.file.read_text("utf-8") == one.read()

    def test_nor_one_of_a_text_that_others_had_changed(self) -> None:
        one = self.edited()
        one.update(lambda _: "# Notes\n\n", NOTE)
        loaded = one.update(adding("first"), NOTE)
        one.update(adding("second"), NOTE)
        with self.editor() as editor:
            editor.empty()
            assert "# Notes" not in (one.read() or "")
            editor.write(loaded.replace("first", "mine\nfirst"))
            assert one.read() == "# Notes\n\nmine\nfirst\nsecond\n"

    def test_nor_one_that_comes_in_many_parts(self) -> None:
        one = self.edited()
        loaded = one.update(lambda _: "# Notes\n\nfirst\nsecond\nthird\n", NOTE)
        whole = f"{loaded}mine\n"
        text = None
        for end in (0, 4, 9, 13, 20, 27, len(whole)):
            self.save(whole[:end].encode())
            text = one.read() if end else one.update(adding("new"), NOTE)
            assert "new\n" in (text or "")
        assert text == f"{whole}new\n"

    def test_half_a_text_is_no_removal_once_the_whole_has_come(self) -> None:
        one = self.edited()
        loaded = one.update(lambda _: "first\nsecond\nthird\n", NOTE)
        one.update(adding("fourth"), NOTE)
        whole = f"mine\n{loaded}"
        with self.editor() as editor:
            editor.empty()
            editor.write(whole[:11])
            assert one.read() == "mine\nfirst\nfourth\n"
            editor.write(whole)
            assert one.read() == "mine\nfirst\nsecond\nthird\nfourth\n"

    @pytest.mark.parametrize("half", ["", "first\n"])
    def test_nor_is_it_when_the_whole_is_what_was_there_before(self, half: str) -> None:
        one = self.edited()
        loaded = one.update(lambda _: "first\nsecond\nthird\n", NOTE)
        with self.editor() as editor:
            editor.empty()
            editor.write(half)
            assert one.read() == half
            editor.write(loaded)
            assert one.read() == loaded

    def test_what_somebody_cut_off_the_end_stays_away(self) -> None:
        one = self.edited()
        one.update(lambda _: "first\nsecond\nthird\n", NOTE)
        self.save(b"first\nsecond\n")
        self.clock.sleep(1)
        assert one.read() == "first\nsecond\n"
        self.clock.sleep(60)
        self.save(b"first\nsecond\nthird\nfourth\n")
        assert one.read() == "first\nsecond\nfourth\n"

    def test_who_empties_a_text_and_writes_another_one_gets_just_that(self) -> None:
        for new in ("wholly\nnew\n", "# Notes\n\nnew\n"):
            one = self.edited()
            one.update(lambda _: "# Notes\n\nfirst\nsecond\n", NOTE)
            self.clock.sleep(1000)
            self.file.write_bytes(b"")
            assert one.read() == ""
            self.file.write_bytes(new.encode())
            assert one.read() == self.file.read_text("utf-8") == new

    @pytest.mark.parametrize("removal", [without("second"), lambda _: "", lambda _: "first\n"])
    def test_what_holdfast_removed_stays_removed(self, removal: Callable[[str], str]) -> None:
        one = self.edited()
        loaded = one.update(lambda _: "first\nsecond\n", NOTE)
        left = one.update(removal, NOTE)
        with self.editor() as editor:
            editor.write(f"{loaded}mine\n")
            assert one.read() == f"{left}mine\n"

    def test_what_holdfast_removed_before_the_file_was_emptied_stays_removed(self) -> None:
        one = self.edited()
        loaded = one.update(lambda _: "first\nsecond\nthird\n", NOTE)
        one.update(without("second"), NOTE)
        with self.editor() as editor:
            editor.empty()
            one.read()
            editor.write(f"{loaded}mine\n")
            assert one.read() == "first\nthird\nmine\n"

    def test_secrets_come_back_as_they_were(self) -> None:
        one = self.edited()
        loaded = one.update(lambda _: f"# Notes\n\n{SECRETS}first\nsecond\n", NOTE)
        one.update(without("second"), NOTE)
        with self.editor() as editor:
            editor.empty()
            assert one.read() == ""
            editor.write(f"{loaded}mine\n")
            assert one.read() == f"# Notes\n\n{SECRETS}first\nmine\n"
        assert self.told == []
        assert "sesame-open" not in json.dumps([line.record for line in lines_of(self.log())])

    def test_a_secret_that_only_the_log_has_comes_back_masked_and_is_told(self) -> None:
        one = self.edited()
        loaded = one.update(lambda _: f"# Notes\n\n{'long' * 20}\n", NOTE)
        one.update(lambda _: "# Notes\n\npassword=hunter2\n", NOTE)
        with self.editor() as editor:
            editor.empty()
            assert one.update(adding("second"), NOTE) == "second\n"
            assert self.told == []
            editor.write(f"mine\n{loaded}")
            text = one.read() or ""
        assert text.startswith("mine\n# Notes\n\npassword=[SECRET:")
        assert text.endswith("]\nsecond\n")
        assert self.told == [MASKED]


def test_texts_of_other_lengths_lend_each_other_nothing() -> None:
    """A patch written by another version may have cut the same text elsewhere."""
    assert _unmasked(["[SECRET]\n"], ["one\n", "two\n"]) == ["[SECRET]\n"]
