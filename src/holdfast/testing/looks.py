"""What every mailbox shows and lets be chosen; a part of `holdfast.testing.conformance`."""

from __future__ import annotations

from holdfast.process import this_process
from holdfast.store.primitives import Claim, Mailbox, Shelf
from holdfast.testing import Conformance
from holdfast.testing.mailboxes import SECONDS, ids_of, is_lost, take, taken

SHELVES: tuple[Shelf, ...] = ("waiting", "claimed", "done", "expired", "dead", "bad")


class LookConformance(Conformance):
    def test_a_look_at_a_shelf_shows_the_records_and_changes_nothing(self) -> None:
        mailbox = self.mailbox(tries=1)
        assert [mailbox.look(shelf) for shelf in SHELVES] == [[]] * len(SHELVES)
        since = self.clock.now()
        for n, name in enumerate(("done", "dead", "held", "bad")):
            mailbox.deliver({"n": n}, id=name)
        mailbox.deliver({"n": 4}, id="late", expires=since + 5)
        mailbox.ack(self.chosen(mailbox, "done"))
        assert not mailbox.give_back(self.chosen(mailbox, "dead"), "no")
        held = self.chosen(mailbox, "held", seconds=600.0)
        mailbox.set_aside(self.chosen(mailbox, "bad"), "it says nothing")
        self.clock.advance(5)
        assert taken(mailbox) == []
        mailbox.deliver({"n": 5}, id="w1")
        mailbox.deliver({"n": 6}, id="w0", priority="high")
        for other in (mailbox, self.mailbox(tries=1)):
            found = {
                shelf: [(one.id, (one.record or {})["n"]) for one in other.look(shelf)]
                for shelf in SHELVES
            }
            assert found == {
                "waiting": [("w0", 6), ("w1", 5)],
                "claimed": [("held", 2)],
                "done": [("done", 0)],
                "expired": [("late", 4)],
                "dead": [("dead", 1)],
                "bad": [("bad.json", 3)],
            }
        (claimed,) = mailbox.look("claimed")
        assert claimed.claim is not None
        assert (claimed.claim.token, claimed.attempt) == (held.token, 1)
        assert [one.attempt for one in mailbox.look("waiting")] == [1, 1]
        assert ids_of(mailbox.bad()) == ["bad.json"]

    def chosen(self, mailbox: Mailbox, name: str, seconds: float = SECONDS) -> Claim:
        claim = mailbox.take("rio", name, fence=1, seconds=seconds)
        assert claim is not None
        return claim

    def test_a_message_is_taken_by_its_id_if_it_waits(self) -> None:
        mailbox = self.mailbox()
        for n in range(3):
            mailbox.deliver({"n": n}, id=f"m{n}")
            self.clock.advance(0.01)
        claim = mailbox.take("rio", "m1", fence=7, seconds=SECONDS, owner=this_process())
        assert claim is not None
        assert (claim.id, claim.record["n"], claim.fence, claim.attempt) == ("m1", 1, 7, 1)
        for name in ("m1", "other"):
            assert mailbox.take("rio", name, fence=8, seconds=SECONDS) is None
        assert mailbox.give_back(claim, "again")
        again = mailbox.take("rio", "m1", fence=8, seconds=SECONDS)
        assert again is not None
        assert again.attempt == 2
        self.clock.advance(2 * SECONDS)
        late = mailbox.take("rio", "m1", fence=9, seconds=SECONDS)
        assert late is not None
        assert late.attempt == 3
        mailbox.ack(late)
        assert mailbox.take("rio", "m1", fence=9, seconds=SECONDS) is None
        assert taken(mailbox) == [0, 2]

    def test_what_is_set_aside_is_neither_handed_out_nor_settled(self) -> None:
        mailbox = self.mailbox()
        mailbox.deliver({"n": 1}, id="x")
        claim = take(mailbox)
        mailbox.set_aside(claim, "it says nothing")
        mailbox.set_aside(claim, "it says nothing")
        is_lost(mailbox, claim)
        assert not mailbox.waiting() and not mailbox.claimed()
        assert ids_of(mailbox.bad()) == ["x.json"]
        assert mailbox.deliver({"n": 2}, id="x") == "x"
        assert taken(mailbox) == [2]

    def test_what_is_over_can_be_removed(self) -> None:
        mailbox = self.mailbox(tries=1)
        for name in ("a", "b", "c"):
            mailbox.deliver({"n": name}, id=name)
        mailbox.ack(self.chosen(mailbox, "a"))
        mailbox.give_back(self.chosen(mailbox, "b"), "no")
        over = [*mailbox.look("done"), *mailbox.look("dead")]
        assert [one.id for one in over] == ["a", "b"]
        for _ in range(2):
            mailbox.remove(over)
            assert mailbox.done() == mailbox.dead() == []
        assert ids_of(mailbox.waiting()) == ["c"]
