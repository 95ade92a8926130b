"""What a store offers beside its primitives, what it does with keys, and what holds when machines
share it; parts of `holdfast.testing.conformance`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256

from holdfast.codec import encode
from holdfast.errors import BadName, BadValue, Busy
from holdfast.process import this_process
from holdfast.store.primitives import CLOCKS_DIFFER, START, Blob, Cursor, Line, Stamp
from holdfast.store.view import Shape
from holdfast.testing import (
    BAD_KEYS,
    DAY,
    DAYS,
    LEASE,
    LOG,
    NOON,
    VIEW,
    Conformance,
    all_refused,
    lines_of,
    numbers_of,
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


class KeyConformance(Conformance):
    def test_keys_are_listed_in_order_below_whole_components(self) -> None:
        assert self.open().keys("state") == []
        assert self.open().keys("state/rio") == []
        for key in ("state/rio/journal.jsonl", "state/rio.x/journal.jsonl", "ledger/rio"):
            self.log(key).append({"n": 1})
        self.document("state/rio/tasks.json").replace(b"[]")
        self.document("state/index.json").replace(b"{}")
        self.cell("state/rio/report.json").save(1, Stamp(LOG, START, []), b"[]")
        self.lease("state/rio/session").acquire("run")
        self.mailbox("state/rio/inbox").deliver({"n": 1})
        rio = ["journal.jsonl", "report.json", "tasks.json"]
        assert self.open().keys("state/rio") == [f"state/rio/{name}" for name in rio]
        assert self.open().keys("ledger") == ["ledger/rio/2023-11-14.jsonl"]
        beside = ["state/index.json", "state/rio.x/journal.jsonl"]
        assert sorted(beside + self.open().keys("state/rio")) == self.open().keys("state")
        assert self.open().keys("stat") == self.open().keys("state/ri") == []
        assert {*beside, *self.open().keys("ledger")} <= set(self.open().keys())

    def test_opening_and_reading_leaves_no_key_behind(self) -> None:
        before = self.open().keys()
        list(self.log("a/b.jsonl").read())
        list(self.log("a/days").read())
        self.document("a/c.md").read()
        self.cell("a/d.json").load(1)
        self.lease("a/e").holder()
        mailbox = self.mailbox("a/f")
        assert mailbox.waiting() == mailbox.done() == mailbox.dead() == mailbox.bad() == []
        assert mailbox.claimed() == []
        assert self.open().keys() == before

    def test_a_key_that_could_leave_its_place_is_refused(self) -> None:
        backend = self.open()
        kinds = (
            *(backend.log, backend.document, backend.cell, backend.lease),
            *(backend.mailbox, backend.keys),
        )
        for key in BAD_KEYS:
            for kind in kinds:
                if key or kind != backend.keys:
                    with refused(BadName):
                        kind(key)

    def test_a_log_is_not_named_like_a_part_of_another(self) -> None:
        backend = self.open()
        keys = ("state/journal.1.jsonl", "ledger/rio/2023-11-14.jsonl", "2023-11-14.2.jsonl")
        all_refused(BadName, backend.log, keys)
        for key in ("state/v1.0.jsonl", "state/journal-1.jsonl", "state/1.jsonl", "2023-11-14"):
            self.log(key).append({"n": 1})
            assert numbers_of(self.log(key)) == [1]


class MachineConformance(Conformance):
    """What a store knows of time and of processes, here and on another machine."""

    def test_a_process_is_known_to_live_or_to_be_gone_only_where_it_can_be_seen(self) -> None:
        here, far, me = self.open(), self.elsewhere(), this_process()
        assert here.alive(me) is True
        assert here.alive(me._replace(started=me.started + 1)) is False
        assert here.alive(me._replace(boot="before")) is False
        for stranger in (me._replace(host="other/1", boot="b"), me._replace(host="other/1")):
            assert here.alive(stranger) is far.alive(stranger) is None
        assert far.alive(me) is far.alive(me._replace(started=me.started + 1)) is None

    def test_deadlines_are_measured_by_the_clock_of_the_store(self) -> None:
        here, far = self.open(), self.elsewhere()
        deadline = here.now().later(60.0)
        self.clock.step(3_600)
        assert here.now().left(deadline) == 60.0
        assert 60.0 <= far.now().left(deadline) + 30.0 <= 60.0 + 2 * CLOCKS_DIFFER
        self.clock.advance(61)
        self.far_clock.advance(61 + 2 * CLOCKS_DIFFER)
        assert here.now().left(deadline) < 0
        assert far.now().left(deadline) < 0

    def test_another_machine_is_told_who_has_a_lease(self) -> None:
        here, far = self.lease(), self._keep(self.elsewhere().lease(LEASE))
        fence = here.acquire("index")
        held = far.holder()
        assert held is not None
        assert (held.alive, held.fence, held.owner) == (True, fence, this_process())
        with refused(Busy, "index"):
            far.acquire("x")
        self.clock.reboot()
        self.far_clock.reboot()
        with refused(Busy, "index"):
            far.acquire("x")
        here.release()
        assert far.acquire("x") == fence + 1

    def test_lines_of_two_machines_have_one_order(self) -> None:
        here, far = self.log(), self._keep(self.elsewhere().log(LOG))
        acked = [here.append({"n": 0}), far.append({"n": 1}), here.append({"n": 2})]
        assert [cursor.seq for cursor in acked] == [1, 2, 3]
        assert numbers_of(far) == numbers_of(here) == [0, 1, 2]
        assert far.verify().problems == []
