"""What every sheet has to do; a part of `holdfast.testing.conformance`."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from holdfast.store.edited import EditedDocument
from holdfast.store.primitives import Sheet
from holdfast.testing import LOG, VIEW, Conformance, lines_of, passing_on, together

SHEET = "state/rio/memory.md"


class SheetConformance(Conformance):
    def sheet(self) -> Sheet:
        return self._keep(self.open().sheet(SHEET))

    def put(self, sheet: Sheet, data: bytes) -> None:
        with sheet.locked():
            sheet.put(data)

    def test_a_sheet_that_was_never_written_is_absent(self) -> None:
        sheet = self.sheet()
        assert (sheet.read(), sheet.left(), sheet.base()) == (None, None, None)
        assert sheet.changed_at() == 0.0
        assert sheet.key == SHEET

    def test_what_was_put_is_read_and_what_it_took_out_is_left(self) -> None:
        one, two = self.sheet(), self.sheet()
        texts = [b"first\n", b"", b"\xff\0 second", b"first\n"]
        before = None
        for data in texts:
            self.put(one, data)
            found = two.read()
            assert found is not None
            assert found.data == data
            assert two.left() == before
            assert two.base() in (None, found), "of a copy it is what was put"
            before = found
        revisions = {one.read(), one.left()}
        assert len(revisions) == 2

    def test_an_edit_is_read_and_the_next_text_takes_it_out(self) -> None:
        sheet = self.sheet()
        self.put(sheet, b"ours\n")
        base = sheet.base()
        self.save_by_hand(SHEET, b"theirs\n")
        found = sheet.read()
        assert found is not None
        assert found.data == b"theirs\n"
        assert sheet.base() == base, "an edit does not change what it was made from"
        assert sheet.changed_at() > 0.0
        self.put(sheet, b"both\n")
        assert sheet.left() == found

    def test_the_lock_of_a_sheet_keeps_others_out_and_is_given_back(self) -> None:
        self.clock.waits = True
        with passing_on(ZeroDivisionError), self.sheet().locked():
            raise ZeroDivisionError

        def count() -> None:
            for _ in range(5):
                with closing(self.open().sheet(SHEET)) as sheet, sheet.locked():
                    found = sheet.read()
                    sheet.put(b"%d" % (int(found.data if found else 0) + 1))

        together(*[count] * 4)
        found = self.sheet().read()
        assert found is not None
        assert found.data == b"20"

    def test_what_two_machines_write_into_a_sheet_is_all_there(self) -> None:
        here, far = (self.edited(store) for store in (self.open(), self.elsewhere()))
        here.update(lambda text: f"{text}one\n", {"event": "note"})
        assert far.update(lambda text: f"{text}two\n", {"event": "note"}) == "one\ntwo\n"
        assert here.read() == "one\ntwo\n"
        self.save_by_hand(SHEET, b"one\ntwo\nby hand\n")
        assert far.read() == here.read() == "one\ntwo\nby hand\n"
        events = [line.record["event"] for line in lines_of(self.log())]
        assert events == ["note", "note", "edited_by_hand"]

    def edited(self, store: Any) -> EditedDocument:
        log, cell = self._keep(store.log(LOG)), self._keep(store.cell(VIEW))
        return self._keep(EditedDocument(store.sheet(SHEET), log, cell, store.clock))
