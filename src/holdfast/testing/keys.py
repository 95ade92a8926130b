"""What every store backend has to do with keys; a part of `holdfast.testing.conformance`."""

from __future__ import annotations

from holdfast.errors import BadName
from holdfast.store.primitives import START, Stamp
from holdfast.testing import BAD_KEYS, LOG, Conformance, numbers_of, refused


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
        for key in ("state/journal.1.jsonl", "ledger/rio/2023-11-14.jsonl", "2023-11-14.2.jsonl"):
            with refused(BadName):
                backend.log(key)
        for key in ("state/v1.0.jsonl", "state/journal-1.jsonl", "state/1.jsonl", "2023-11-14"):
            self.log(key).append({"n": 1})
            assert numbers_of(self.log(key)) == [1]
