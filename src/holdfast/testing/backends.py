"""What a store offers beside its primitives; a part of `holdfast.testing.conformance`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256

from holdfast.codec import encode
from holdfast.errors import BadName, BadValue
from holdfast.store.primitives import START, Blob, Cursor, Line, Stamp
from holdfast.store.view import Shape
from holdfast.testing import (
    BAD_KEYS,
    DAY,
    DAYS,
    LOG,
    NOON,
    VIEW,
    Conformance,
    lines_of,
    passing_on,
    refused,
)

BLOB = "jobs/a/files.tar"


class BackendConformance(Conformance):
    def blob(self, key: str = BLOB) -> Blob:
        return self._keep(self.open().blob(key))

    def shape(self, version: int = 1) -> Shape[list[int]]:
        def fold(state: list[int], line: Line) -> list[int]:
            return [*state, line.record["n"]]

        return Shape(version=version, initial=list[int], fold=fold, render=encode)

    # -- blobs -------------------------------------------------------------------------

    def test_a_blob_is_put_in_pieces_and_read_from_anywhere(self) -> None:
        one, two = self.blob(), self.blob()
        assert (one.size(), list(one.read())) == (None, [])
        pieces = [b"", b"x" * 3_000_000, b"", b"the end"]
        whole = b"".join(pieces)
        assert one.put(iter(pieces)) == sha256(whole).hexdigest()
        assert two.size() == len(whole)
        for start in (0, 1, 2_999_999, len(whole) - 1, len(whole), len(whole) + 9):
            assert b"".join(two.read(start)) == whole[start:]
        assert two.put([]) == sha256().hexdigest()
        assert (one.size(), list(one.read())) == (0, [])

    def test_a_blob_whose_source_fails_stays_as_it_was(self) -> None:
        blob = self.blob()
        for content in (None, b"kept"):
            if content is not None:
                blob.put([content])

            def broken() -> Iterator[bytes]:
                yield b"half"
                raise ZeroDivisionError

            with passing_on(ZeroDivisionError):
                blob.put(broken())
            assert b"".join(blob.read()) == (content or b"")
            assert (self.open().keys("jobs") == [BLOB]) == (content is not None)

    # -- looking -----------------------------------------------------------------------

    def test_a_look_at_a_view_is_current_and_writes_nothing(self) -> None:
        log, before = self.log(), self.open().keys()
        assert self.open().peek(VIEW, LOG, self.shape()) == ([], False, [])
        first, second = log.append_all([{"n": 1}, {"n": 2}])
        assert self.open().peek(VIEW, LOG, self.shape()) == ([1, 2], False, [])
        assert self.open().keys() == [*before, LOG]
        self.cell().save(1, Stamp(LOG, first, [7]), b"[7]")
        assert self.open().peek(VIEW, LOG, self.shape()) == ([7, 2], True, [])
        assert self.open().peek(VIEW, LOG, self.shape(2)) == ([1, 2], False, [])
        lost = Cursor(9, "ab" * 32, second.segment, second.offset + 900)
        self.cell().save(1, Stamp(LOG, lost, [8, 9]), b"[8,9]", over=first)
        found = self.open().peek(VIEW, LOG, self.shape())
        assert (found.state, found.warnings) == ([1, 2], ["lines lost"])
        assert len(lines_of(log)) == 2

    def test_a_look_at_lines_that_cannot_be_folded_has_a_state_and_says_why(self) -> None:
        self.log().append({"n": 1})

        def fold(state: list[int], line: Line) -> list[int]:
            raise BadValue("no such number", hint="none")

        shape = Shape(version=1, initial=list[int], fold=fold, render=encode)
        found = self.open().peek(VIEW, LOG, shape)
        assert found == ([], False, ["unreadable: no such number"])

    def test_a_version_changes_with_what_stands_under_a_key(self) -> None:
        store, days, log = self.open(), self.log(DAYS), self.log()
        document, cell, blob = self.document("a.md"), self.cell(), self.blob()
        sheet = self._keep(self.open().sheet("b.md"))

        def show(data: bytes) -> None:
            cell.save(1, Stamp(LOG, START, []), data)

        def put(data: bytes) -> None:
            with sheet.locked():
                sheet.put(data)

        changes: dict[str, Callable[[int], object]] = {
            LOG: lambda n: log.append({"n": n}),
            DAYS: lambda n: (self.clock.advance(DAY), days.append({"n": n})),
            "a.md": lambda n: document.replace(b"%d" % n),
            "b.md": lambda n: put(b"%d" % n),
            VIEW: lambda n: show(b"%d" % n),
            BLOB: lambda n: blob.put([b"%d" % n]),
        }
        for key, change in changes.items():
            seen = [store.version(key)]
            assert seen == [""]
            for n in range(3):
                change(n)
                assert store.version(key) == self.open().version(key)
                seen.append(store.version(key))
            assert len({*seen}) == 4, key
        assert store.version("state") == store.version("none/such") == ""

    def test_names_are_what_stands_directly_below_a_prefix(self) -> None:
        store = self.open()
        assert store.names("ledger") == store.names("state") == []
        for key in ("state/rio/journal.jsonl", "state/ada/journal.jsonl", "ledger/rio"):
            self.log(key).append({"n": 1})
        self.document("state/index.json").replace(b"{}")
        self.blob("state/rio/old.zst").put([b"x"])
        self.mailbox("state/rio/inbox").deliver({"n": 1})
        assert {"ledger", "state"} <= {*store.names()}
        assert store.names("state") == ["ada", "index.json", "rio"]
        assert store.names("state/rio") == ["inbox", "journal.jsonl", "old.zst"]
        assert store.names("state/rio/inbox") == store.names("state/ri") == []
        assert store.names("ledger/rio") == ["2023-11-14.jsonl"]

    def test_keys_of_everything_are_checked(self) -> None:
        store = self.open()
        for key in filter(None, BAD_KEYS):
            for look in (store.blob, store.names, store.version, store.scratch, store.sheet):
                with refused(BadName):
                    look(key)

    # -- the rest ----------------------------------------------------------------------

    def test_scratch_is_a_folder_of_this_machine(self) -> None:
        here, far = self.open(), self.elsewhere()
        folder = here.scratch("jobs/a/workspace")
        assert folder == here.scratch("jobs/a/workspace")
        assert os.listdir(folder) == []
        for store in (here, far):
            assert os.path.isdir(store.scratch("cache/x"))

    def test_days_are_those_of_the_logs(self) -> None:
        store = self.open()
        assert store.day() == "2023-11-14"
        assert store.day(NOON + DAY / 2) == "2023-11-15"
        self.clock.advance(DAY)
        assert f"{store.day()}.jsonl" == self.log(DAYS).append({"n": 1}).segment

    def test_a_notice_is_recorded_once(self) -> None:
        store = self.open()
        for detail in ("one", "two", "one"):
            store.notice("odd", detail)
        told = [
            (line.record["event"], line.record["detail"]) for line in lines_of(self.log("audit"))
        ]
        assert told == [("odd", "one"), ("odd", "two")]

    def test_a_store_says_where_it_is_and_what_it_was_told(self) -> None:
        here, far = self.open(), self.elsewhere()
        assert here.url == far.url != ""
        assert here.settings == far.settings
        assert here.secret() == here.secret() == far.secret()
        assert len(here.secret()) >= 16
        assert here.clock is self.clock
