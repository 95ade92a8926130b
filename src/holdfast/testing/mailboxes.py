"""What every mailbox has to do; a part of `holdfast.testing.conformance`."""

from __future__ import annotations

import os
from typing import Any

from holdfast.codec import MAX_LINE, Record, encode
from holdfast.errors import BadName, BadValue, LeaseLost
from holdfast.process import Owner, this_process
from holdfast.store.primitives import CLOCKS_DIFFER, PRIORITIES, TRIES, Claim, Mailbox, Message
from holdfast.testing import (
    BAD_VALUES,
    JSON_VALUES,
    MAILBOX,
    Conformance,
    all_refused,
    nested,
    refused,
    together,
)

SECONDS = 30.0
BAD_IDS = (
    "", ".", "..", ".x", "-x", "a/b", "a~b", "~", "a\nb", "a\0", "\u202ea", "\udcff", "é" * 51,
)  # fmt: skip
"""Names that no message may have."""
GOOD_IDS = ("x", "a.json", "a b", "ünï", "\U0001f980", "…", "x" * 100, "é" * 50, "a:2,S", "_")


def take(
    mailbox: Mailbox, *, fence: int = 1, seconds: float = SECONDS, owner: Owner | None = None
) -> Claim:
    """Claim one message, which must be there."""
    (claim,) = mailbox.claim("rio", fence=fence, seconds=seconds, owner=owner)
    return claim


def taken(mailbox: Mailbox, limit: int = 100) -> list[Any]:
    claims = mailbox.claim("rio", fence=1, seconds=SECONDS, limit=limit)
    return [claim.record["n"] for claim in claims]


def ids_of(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def is_lost(mailbox: Mailbox, claim: Claim) -> None:
    """Nothing can be done with this claim."""
    with refused(LeaseLost):
        mailbox.ack(claim)
    with refused(LeaseLost):
        mailbox.give_back(claim, "x")
    with refused(LeaseLost):
        mailbox.renew(claim, 9.0)


class MailboxConformance(Conformance):
    def deliver(self, mailbox: Mailbox, n: object, **options: Any) -> str:
        """Deliver a message a little later than the one before."""
        self.clock.advance(0.01)
        return mailbox.deliver({"n": n}, **options)

    def claimed(self, **options: Any) -> tuple[Mailbox, Claim]:
        """A mailbox with one message, which is claimed."""
        mailbox = self.mailbox()
        mailbox.deliver({"n": 1})
        return mailbox, take(mailbox, **options)

    def nothing_left(self, mailbox: Mailbox) -> bool:
        return not mailbox.waiting() and not mailbox.claimed()

    # -- one message -------------------------------------------------------------------

    def test_a_mailbox_that_nobody_wrote_to_is_empty(self) -> None:
        mailbox = self.mailbox()
        assert mailbox.claim("rio", fence=1, seconds=SECONDS) == []
        assert mailbox.redeliver() == 0
        assert self.nothing_left(mailbox)
        assert mailbox.done() == mailbox.dead() == mailbox.bad() == []

    def test_a_message_waits_is_claimed_and_is_done(self) -> None:
        mailbox = self.mailbox()
        name = mailbox.deliver({"text": "hello"})
        (waiting,) = self.mailbox().waiting()
        size = len(encode({"text": "hello", "priority": "normal"})) + 1
        assert waiting == Message(name, size, self.clock.now(), 1, "normal")
        claim = take(mailbox, fence=7)
        assert claim.record == {"text": "hello", "priority": "normal"}
        assert (claim.id, claim.claimant, claim.fence, claim.attempt) == (name, "rio", 7, 1)
        assert not claim.redelivered
        (claimed,) = self.mailbox().claimed()
        assert (claimed.id, claimed.size, claimed.claimant, claimed.fence) == (name, size, "rio", 7)
        assert (claimed.attempt, claimed.token) == (1, claim.token)
        assert abs(claimed.left - SECONDS) < 0.01
        assert mailbox.waiting() == []
        mailbox.ack(claim)
        assert self.nothing_left(mailbox)
        assert [(one.id, one.expired) for one in self.mailbox().done()] == [(name, False)]
        assert mailbox.claim("rio", fence=8, seconds=SECONDS) == []

    def test_every_json_value_comes_back_as_it_was_delivered(self) -> None:
        mailbox = self.mailbox()
        for value in JSON_VALUES:
            given: Record = {"value": value, "deep": [{"again": value}]}
            mailbox.deliver(given)
            assert set(given) == {"value", "deep"}, "the caller's record was changed"
            found = take(mailbox)
            assert encode(found.record) == encode(given | {"priority": "normal"})
            mailbox.ack(found)

    def test_what_the_codec_refuses_is_not_delivered(self) -> None:
        mailbox = self.mailbox()
        values = (*BAD_VALUES, nested(70), "x" * MAX_LINE)
        all_refused(BadValue, lambda value: mailbox.deliver({"value": value}), values)
        assert mailbox.waiting() == []

    def test_secrets_are_masked_before_they_are_stored(self) -> None:
        mailbox = self.mailbox()
        mailbox.deliver({"password": "hunter2", "n": [{"api_key": "k"}]})
        shown = encode(take(mailbox).record)
        assert b"hunter2" not in shown
        assert shown.count(b"[SECRET:") == 2

    # -- order -------------------------------------------------------------------------

    def test_urgent_messages_come_first_and_then_the_oldest(self) -> None:
        mailbox = self.mailbox()
        given = ["low", "normal", "high", "normal", "high", "low"]
        for n, priority in enumerate(given):
            self.deliver(mailbox, n, priority=priority)
        expected = sorted(range(6), key=lambda n: (PRIORITIES.index(given[n]), n))
        shown = [message.priority for message in mailbox.waiting()]
        assert shown == [given[n] for n in expected]
        assert [taken(mailbox, 1)[0] for _ in range(2)] == expected[:2]
        assert taken(mailbox) == expected[2:]

    def test_a_message_with_an_id_of_its_own_has_its_priority_too(self) -> None:
        mailbox = self.mailbox()
        for n, priority in enumerate(PRIORITIES[::-1]):
            mailbox.deliver({"n": n}, id=f"m{n}", priority=priority)
        mailbox.deliver({"n": 3, "priority": "high"}, id="m3")
        assert ids_of(mailbox.waiting()) == ["m2", "m3", "m1", "m0"]
        assert taken(mailbox) == [2, 3, 1, 0]

    def test_a_priority_that_is_none_is_refused(self) -> None:
        mailbox = self.mailbox()
        words = ("", "urgent", "HIGH")
        all_refused(BadValue, lambda word: mailbox.deliver({"n": 1}, priority=word), words)
        others = list[Any]([7, None, [], {}])
        all_refused(BadValue, lambda other: mailbox.deliver({"n": 1, "priority": other}), others)
        assert mailbox.waiting() == []

    # -- identity ----------------------------------------------------------------------

    def test_delivering_an_id_again_stores_nothing_wherever_the_message_is(self) -> None:
        mailbox = self.mailbox()
        for named in (True, False):
            name = mailbox.deliver({"n": 1}, id="task-1" if named else None)
            assert mailbox.deliver({"n": 2}, id=name) == name
            assert ids_of(mailbox.waiting()) == [name]
            claim = take(mailbox)
            assert mailbox.deliver({"n": 3}, id=name) == name
            assert mailbox.waiting() == []
            assert mailbox.give_back(claim, "again")
            assert mailbox.deliver({"n": 4}, id=name) == name
            assert ids_of(mailbox.waiting()) == [name]
            claim = take(mailbox)
            assert claim.record["n"] == 1
            mailbox.ack(claim)
            assert mailbox.deliver({"n": 5}, id=name) == name
            assert self.nothing_left(mailbox)
            assert ids_of(mailbox.done()).count(name) == 1

    def test_ids_may_be_any_printable_name(self) -> None:
        mailbox = self.mailbox()
        for name in GOOD_IDS:
            assert mailbox.deliver({"n": name}, id=name) == name
        assert sorted(ids_of(mailbox.waiting())) == sorted(GOOD_IDS)
        claims = mailbox.claim(
            "x" * 64, fence=2**62, seconds=SECONDS, limit=99, owner=this_process()
        )
        assert sorted(claim.id for claim in claims) == sorted(GOOD_IDS)
        for claim in claims:
            assert claim.record["n"] == claim.id
            mailbox.ack(claim)
        assert sorted(ids_of(mailbox.done())) == sorted(GOOD_IDS)

    def test_an_id_that_could_be_mistaken_is_refused(self) -> None:
        mailbox = self.mailbox()
        names = (*BAD_IDS, "x" * 101)
        all_refused(BadName, lambda name: mailbox.deliver({"n": 1}, id=name), names)
        assert mailbox.waiting() == []

    def test_mailboxes_of_different_keys_share_nothing(self) -> None:
        one, two = self.mailbox("state/a/inbox"), self.mailbox("state/b/inbox")
        one.deliver({"n": 1}, id="x")
        two.deliver({"n": 2}, id="x")
        assert (taken(one), taken(two)) == ([1], [2])

    # -- claims ------------------------------------------------------------------------

    def test_a_claimed_message_is_handed_out_to_nobody_else(self) -> None:
        mailbox = self.mailbox()
        for n in range(5):
            self.deliver(mailbox, n)
        assert taken(mailbox, 2) == [0, 1]
        assert taken(self.mailbox(), 9) == [2, 3, 4]
        assert taken(mailbox) == []

    def test_threads_share_the_messages_between_them(self) -> None:
        mailbox, got = self.mailbox(), list[Any]()
        for n in range(60):
            self.deliver(mailbox, n)

        def work() -> None:
            while claims := mailbox.claim("rio", fence=1, seconds=SECONDS, limit=4):
                for claim in claims:
                    mailbox.ack(claim)
                    got.append(claim.record["n"])

        together(*[work] * 4)
        assert sorted(got) == list(range(60))
        assert self.nothing_left(mailbox)

    def test_a_claim_that_cannot_be_is_refused(self) -> None:
        mailbox = self.mailbox()
        mailbox.deliver({"n": 1})
        for claimant in ("", "a b", "../x", "a~b", "a@1.2.3", "x" * 65, "\n"):
            with refused(BadName):
                mailbox.claim(claimant, fence=1, seconds=1.0)
        wrong: dict[str, tuple[float, ...]] = {
            "fence": (-1, 10**19),
            "seconds": (0.0, -1.0, float("nan"), float("inf")),
            "limit": (0, -3),
        }
        for name, values in wrong.items():
            for value in values:
                options: dict[str, Any] = {"fence": 1, "seconds": 1.0, name: value}
                with refused(BadValue):
                    mailbox.claim("rio", **options)
        all_refused(BadValue, lambda tries: self.mailbox(tries=tries), (0, 100))
        assert len(mailbox.waiting()) == 1

    def test_a_message_is_done_once(self) -> None:
        mailbox, claim = self.claimed()
        mailbox.ack(claim)
        is_lost(mailbox, claim)
        assert len(mailbox.done()) == 1

    def test_a_claim_that_was_never_given_out_counts_for_nothing(self) -> None:
        mailbox = self.mailbox()
        for name in ("x", "y"):
            mailbox.deliver({"n": 1}, id=name)
        one = take(mailbox)
        forged = [
            one._replace(token="../../x"),
            one._replace(token=""),
            one._replace(id="y"),
            one._replace(token=one.token.replace("~1~", "~2~", 1)),
        ]
        for claim in forged:
            is_lost(mailbox, claim)
        assert len(mailbox.claimed()) == len(mailbox.waiting()) == 1

    def test_whoever_sees_a_claim_can_settle_it(self) -> None:
        mailbox = self.mailbox()
        for n in range(2):
            self.deliver(mailbox, n)
        taken(mailbox)
        one, two = mailbox.claimed()
        mailbox.ack(one)
        assert mailbox.give_back(two, "by hand")
        assert (len(mailbox.done()), len(mailbox.waiting())) == (1, 1)

    # -- tries -------------------------------------------------------------------------

    def test_a_message_given_back_is_handed_out_again_as_redelivered(self) -> None:
        mailbox = self.mailbox()
        self.deliver(mailbox, 0)
        self.deliver(mailbox, 1)
        first = take(mailbox)
        assert mailbox.give_back(first, "not now")
        assert [message.attempt for message in mailbox.waiting()] == [2, 1]
        again = take(mailbox)
        assert (again.id, again.record, again.attempt) == (first.id, first.record, 2)
        assert again.redelivered
        with refused(LeaseLost):
            mailbox.ack(first)
        mailbox.ack(again)
        assert taken(mailbox) == [1]

    def test_a_message_that_nobody_can_deal_with_is_dead_after_its_tries(self) -> None:
        for tries in (1, 3, TRIES):
            mailbox = self.mailbox(f"state/t{tries}/inbox", tries=tries)
            mailbox.deliver({"n": 1}, id="poison")
            for attempt in range(1, tries + 1):
                claim = take(mailbox)
                assert claim.attempt == attempt
                assert mailbox.give_back(claim, "it broke") == (attempt < tries)
            assert self.nothing_left(mailbox)
            assert taken(mailbox) == []
            assert ids_of(mailbox.dead()) == ["poison"]

    def test_a_dead_message_can_be_delivered_again(self) -> None:
        mailbox = self.mailbox(tries=1)
        for n in range(3):
            mailbox.deliver({"n": n}, id="x")
            claim = take(mailbox)
            assert claim.record["n"] == n
            assert not mailbox.give_back(claim, "no")
        assert set(ids_of(mailbox.dead())) == {"x"}

    def test_a_message_comes_back_when_its_deadline_has_passed(self) -> None:
        mailbox, stale = self.claimed()
        self.clock.advance(SECONDS - 0.1)
        assert taken(mailbox) == []
        self.clock.advance(0.2)
        assert [one.left for one in mailbox.claimed()] == [0.0]
        fresh = take(mailbox, fence=2)
        assert (fresh.id, fresh.attempt) == (stale.id, 2)
        is_lost(mailbox, stale)
        mailbox.ack(fresh)
        assert self.nothing_left(mailbox)

    def test_a_late_claim_that_nobody_took_back_can_still_be_acknowledged(self) -> None:
        mailbox, claim = self.claimed()
        self.clock.advance(10 * SECONDS)
        mailbox.ack(claim)
        assert taken(mailbox) == []
        assert len(mailbox.done()) == 1

    def test_a_renewed_claim_holds_from_now_on(self) -> None:
        mailbox, claim = self.claimed()
        assert mailbox.renew(claim, SECONDS) == claim, "at the same instant it is the same"
        self.clock.advance(SECONDS - 1)
        renewed = mailbox.renew(claim, SECONDS)
        assert renewed.record == claim.record
        assert renewed.deadline > claim.deadline
        self.clock.advance(SECONDS - 1)
        assert taken(mailbox) == []
        with refused(LeaseLost):
            mailbox.ack(claim)
        with refused(BadValue):
            mailbox.renew(renewed, 0)
        mailbox.ack(renewed)

    def test_stepping_the_wall_clock_ends_no_claim(self) -> None:
        mailbox, claim = self.claimed()
        self.clock.step(10 * SECONDS)
        assert taken(mailbox) == []
        self.clock.step(-20 * SECONDS)
        assert taken(mailbox) == []
        mailbox.ack(claim)

    def test_a_restart_of_the_machine_ends_every_claim(self) -> None:
        mailbox, claim = self.claimed(seconds=86_400.0)
        self.clock.reboot()
        assert [one.left for one in mailbox.claimed()] == [0.0]
        assert take(mailbox).attempt == 2
        with refused(LeaseLost):
            mailbox.ack(claim)

    def test_the_death_of_its_owner_ends_a_claim_at_once(self) -> None:
        here = this_process()
        mailbox, alive = self.claimed(owner=here)
        assert taken(mailbox) == []
        mailbox.give_back(alive, "x")
        dead = take(mailbox, owner=here._replace(started=here.started + 1))
        assert [one.left for one in mailbox.claimed()] == [0.0]
        assert mailbox.redeliver() == 1
        assert mailbox.redeliver() == 0
        with refused(LeaseLost):
            mailbox.ack(dead)
        assert take(mailbox).attempt == 3

    def test_nobody_knows_whether_an_owner_elsewhere_is_alive(self) -> None:
        elsewhere = Owner("another host", "boot", os.getpid(), 1)
        mailbox, _ = self.claimed(owner=elsewhere)
        assert taken(mailbox) == []
        self.clock.advance(SECONDS)
        assert take(mailbox).attempt == 2

    def test_another_machine_leaves_a_claim_to_its_claimant(self) -> None:
        here, far = self.mailbox(), self._keep(self.elsewhere().mailbox(MAILBOX))
        here.deliver({"n": 1})
        claims = {None: 1, this_process(): 2}
        for owner, attempt in claims.items():
            claim = take(here, seconds=600.0, owner=owner)
            self.far_clock.advance(599)
            assert claim.attempt == attempt
            assert far.claim("clay", fence=2, seconds=SECONDS) == []
            assert far.redeliver() == 0
            assert [each.left > 0 for each in far.claimed()] == [True]
            claim = here.renew(claim, 1_200.0)
            self.far_clock.reboot()
            assert far.redeliver() == 0
            assert here.give_back(claim, "next")
            self.far_clock.advance(-599)

    def test_a_restart_ends_the_claims_of_that_machine_only(self) -> None:
        here, far = self.mailbox(), self._keep(self.elsewhere().mailbox(MAILBOX))
        self.deliver(here, 0)
        self.deliver(here, 1)
        ours = take(here, seconds=600.0)
        (theirs,) = far.claim("clay", fence=1, seconds=600.0)
        self.clock.reboot()
        assert far.redeliver() == 0
        assert here.redeliver() == 1
        is_lost(here, ours)
        far.ack(theirs)
        assert [each.attempt for each in here.waiting()] == [2]

    def test_a_claim_of_a_machine_that_never_comes_back_ends_with_its_deadline(self) -> None:
        here, far = self.mailbox(), self._keep(self.elsewhere().mailbox(MAILBOX))
        here.deliver({"n": 1})
        stale = take(here, seconds=600.0, owner=this_process())
        self.far_clock.advance(600 + 3 * CLOCKS_DIFFER)
        assert [each.left for each in far.claimed()] == [0.0]
        (claim,) = far.claim("clay", fence=2, seconds=SECONDS)
        assert claim.attempt == 2
        is_lost(here, stale)
        far.ack(claim)

    def test_what_the_late_had_is_dead_after_its_tries_too(self) -> None:
        mailbox = self.mailbox(tries=2)
        mailbox.deliver({"n": 1}, id="x")
        for _ in range(2):
            take(mailbox)
            self.clock.advance(2 * SECONDS)
        assert taken(mailbox) == []
        assert self.nothing_left(mailbox)
        assert ids_of(mailbox.dead()) == ["x"]

    # -- expiry ------------------------------------------------------------------------

    def test_an_expired_message_is_never_handed_out(self) -> None:
        mailbox, now = self.mailbox(), self.clock.now()
        for name, soon in (("a", 5), ("b", 10), ("c", 15)):
            mailbox.deliver({"n": name}, id=name, expires=now + soon)
        mailbox.deliver({"n": "d", "expires_at": "2023-11-14T13:00:10+01:00"}, id="d")
        mailbox.deliver({"n": "e", "expires_at": None}, id="e")
        self.clock.advance(10)
        assert taken(mailbox) == ["c", "e"]
        expired = [message.id for message in mailbox.done() if message.expired]
        assert expired == ["a", "b", "d"]
        assert mailbox.deliver({"n": 1}, id="a") == "a"
        assert mailbox.waiting() == []

    def test_a_message_says_when_it_expires(self) -> None:
        mailbox = self.mailbox()
        mailbox.deliver({"n": 1}, expires=self.clock.now() + 60)
        assert take(mailbox).record["expires_at"] == "2023-11-14T12:01:00Z"

    def test_a_time_that_is_none_is_refused(self) -> None:
        mailbox = self.mailbox()
        times = list[Any](["tomorrow", "2023-11-14T12:00:00", 7, [], ""])
        all_refused(BadValue, lambda time: mailbox.deliver({"expires_at": time}), times)
        instants = (float("nan"), float("inf"), 1e18)
        all_refused(BadValue, lambda instant: mailbox.deliver({}, expires=instant), instants)
        assert mailbox.waiting() == []

    def test_expiry_meets_a_message_that_was_given_back(self) -> None:
        mailbox = self.mailbox()
        mailbox.deliver({"n": 1}, expires=self.clock.now() + 60)
        claim = take(mailbox)
        self.clock.advance(60)
        assert mailbox.give_back(claim, "too slow")
        assert taken(mailbox) == []
        assert [message.expired for message in mailbox.done()] == [True]

    def test_closing_a_mailbox_loses_nothing(self) -> None:
        mailbox, claim = self.claimed()
        mailbox.close()
        mailbox.close()
        self.mailbox().ack(claim)
        assert len(mailbox.done()) == 1
