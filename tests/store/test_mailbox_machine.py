"""Messages in any order of deliveries, claims, deaths and restarts, against a model."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from holdfast.errors import LeaseLost
from holdfast.process import this_process
from holdfast.store.backend import Backend
from holdfast.store.check import check
from holdfast.store.home import Home
from holdfast.store.memory import Memory
from holdfast.store.primitives import PRIORITIES, Claim, Mailbox
from holdfast.testing import Turner
from holdfast.testing.mailboxes import ids_of

KEY = "state/rio/inbox"
TRIES = 3
SECONDS = 60.0


class Expected:
    """One message of the model."""

    def __init__(self, n: int, priority: str, since: float, expires: float | None) -> None:
        self.n, self.priority, self.since, self.expires = n, priority, since, expires
        self.attempt = 1
        self.state = "waiting"
        self.claim: Claim | None = None
        self.until = 0.0
        self.boot = ""
        self.dies = False


class MailboxMachine(RuleBasedStateMachine):
    """What can be done to every backend."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Turner()
        self.model: dict[str, Expected] = {}
        self.stale: list[Claim] = []
        self.number = 0
        self.mailbox: Mailbox

    def start(self) -> Backend:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.mailbox = self.start().mailbox(KEY, tries=TRIES)

    def those(self, state: str) -> list[str]:
        return [id for id, each in self.model.items() if each.state == state]

    def claims(self) -> list[Claim]:
        return [each.claim for each in self.model.values() if each.claim is not None]

    # -- what the model knows of time --------------------------------------------------

    def take_back(self) -> int:
        """What every claim does first: the dead and the late lose what they have."""
        count = 0
        for id in self.those("claimed"):
            each = self.model[id]
            late = self.clock.boottime() >= each.until or self.clock.boot() != each.boot
            if late or each.dies:
                self.put_back(each)
                count += 1
        return count

    def put_back(self, each: Expected) -> None:
        assert each.claim is not None
        self.stale.append(each.claim)
        each.claim = None
        each.state = "waiting" if each.attempt < TRIES else "dead"
        each.attempt += 1

    def due(self) -> list[str]:
        """The ids to be handed out, in order; those that have expired are done."""

        def place(id: str) -> tuple[Any, ...]:
            each = self.model[id]
            return PRIORITIES.index(each.priority), each.since

        found: list[str] = []
        for id in sorted(self.those("waiting"), key=place):
            expires = self.model[id].expires
            if expires is None or expires > self.clock.now():
                found.append(id)
        return found

    # -- rules -------------------------------------------------------------------------

    @rule(
        priority=st.sampled_from(PRIORITIES),
        expires=st.sampled_from([None, None, None, 30, 500]),
    )
    def deliver(self, priority: str, expires: int | None) -> None:
        self.clock.advance(0.01)
        self.number += 1
        until = None if expires is None else float(int(self.clock.now()) + expires)
        name = self.mailbox.deliver({"n": self.number}, priority=priority, expires=until)
        assert name not in self.model
        self.model[name] = Expected(self.number, priority, self.clock.now(), until)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def deliver_an_id_again(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        if self.model[name].state == "dead":
            return
        assert self.mailbox.deliver({"n": -1}, id=name) == name

    @rule(limit=st.integers(1, 4), owned=st.booleans(), dies=st.booleans())
    def claim(self, limit: int, owned: bool, dies: bool) -> None:
        self.clock.advance(0.01)
        owner = this_process()
        if dies:
            owner = owner._replace(started=owner.started + 1)
        claims = self.mailbox.claim(
            "rio",
            fence=self.number,
            seconds=SECONDS,
            owner=owner if owned else None,
            limit=limit,
        )
        self.take_back()
        due = self.due()
        assert [claim.id for claim in claims] == due[:limit]
        self.forget_expired(everything=len(due) < limit, claims=claims)
        for claim in claims:
            each = self.model[claim.id]
            assert (claim.record["n"], claim.attempt) == (each.n, each.attempt)
            assert claim.redelivered == (each.attempt > 1)
            each.state, each.claim, each.dies = "claimed", claim, owned and dies
            each.until, each.boot = self.clock.boottime() + SECONDS, self.clock.boot()

    def forget_expired(self, *, everything: bool, claims: list[Claim]) -> None:
        """Those that stood before the last one handed out are done; of the rest nobody knows."""
        expired = {message.id for message in self.mailbox.done() if message.expired}
        for id in self.those("waiting"):
            expires = self.model[id].expires
            over = expires is not None and expires <= self.clock.now()
            if id in expired:
                assert over
                self.model[id].state = "done"
            else:
                assert not (over and everything)

    @precondition(lambda self: self.claims())
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims()))
        self.mailbox.ack(claim)
        each = self.model[claim.id]
        each.state, each.claim = "done", None
        self.stale.append(claim)

    @precondition(lambda self: self.claims())
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims()))
        each = self.model[claim.id]
        assert self.mailbox.give_back(claim, "not now") == (each.attempt < TRIES)
        self.put_back(each)

    @precondition(lambda self: self.claims())
    @rule(data=st.data(), seconds=st.sampled_from([10.0, 100.0]))
    def renew(self, data: st.DataObject, seconds: float) -> None:
        claim = data.draw(st.sampled_from(self.claims()))
        each = self.model[claim.id]
        each.claim = self.mailbox.renew(claim, seconds)
        if each.claim.token != claim.token:
            self.stale.append(claim)
        each.until, each.boot = self.clock.boottime() + seconds, self.clock.boot()

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def use_a_stale_claim(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.stale))
        for act in (
            lambda: self.mailbox.ack(claim),
            lambda: self.mailbox.renew(claim, 5.0),
            lambda: self.mailbox.give_back(claim, "late"),
        ):
            try:
                act()
            except LeaseLost:
                continue
            raise AssertionError("a stale claim was accepted")

    @rule()
    def redeliver(self) -> None:
        assert self.mailbox.redeliver() == self.take_back()

    @rule()
    def reopen(self) -> None:
        self.mailbox.close()
        self.mailbox = self.start().mailbox(KEY, tries=TRIES)

    @rule(seconds=st.sampled_from([1.0, 25.0, 61.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def restart_the_machine(self) -> None:
        self.clock.reboot()

    # -- invariants --------------------------------------------------------------------

    @invariant()
    def every_message_is_in_one_place_and_it_is_the_right_one(self) -> None:
        if not hasattr(self, "mailbox"):
            return
        assert sorted(ids_of(self.mailbox.waiting())) == sorted(self.those("waiting"))
        assert sorted(c.id for c in self.mailbox.claimed()) == sorted(self.those("claimed"))
        assert sorted(ids_of(self.mailbox.done())) == sorted(self.those("done"))
        assert sorted(ids_of(self.mailbox.dead())) == sorted(self.those("dead"))

    @invariant()
    def what_is_shown_of_claims_is_true(self) -> None:
        if not hasattr(self, "mailbox"):
            return
        for shown in self.mailbox.claimed():
            each = self.model[shown.id]
            assert each.claim is not None
            assert (shown.token, shown.attempt) == (each.claim.token, each.attempt)


class MemoryMachine(MailboxMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory(self.clock)

    def start(self) -> Memory:
        return self.memory


class HomeMachine(MailboxMachine):
    """What can happen to files besides."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.mkdtemp(prefix="holdfast-mailbox-", dir=_memory())
        self.homes: list[Home] = []
        self.bad = 0

    def start(self) -> Home:
        home = Home.open(self.place, create=True, timezone="UTC", clock=self.clock)
        self.homes.append(home)
        return home

    def teardown(self) -> None:
        for home in self.homes:
            home.close()
        shutil.rmtree(self.place)

    @property
    def folder(self) -> Path:
        path = Path(self.place, KEY)
        path.mkdir(parents=True, exist_ok=True)
        return path

    @rule(data=st.sampled_from([b"", b"{", b"[]", b'{"n": NaN}']))
    def somebody_drops_what_is_no_message(self, data: bytes) -> None:
        self.bad += 1
        file = self.folder / f"bad{self.bad}.json"
        file.write_bytes(data)
        os.utime(file, (1_600_000_000, 1_600_000_000))

    @precondition(lambda self: self.claims())
    @rule(data=st.data(), where=st.sampled_from(["before", "after"]))
    def a_power_cut_leaves_a_claimed_message_under_two_names(
        self, data: st.DataObject, where: str
    ) -> None:
        claim = data.draw(st.sampled_from(self.claims()))
        each = self.model[claim.id]
        attempt = each.attempt + (where == "after")
        if attempt > TRIES:
            return
        file = f"{claim.id}~{attempt}.json" if attempt > 1 else f"{claim.id}.json"
        os.link(self.folder / ".claimed" / claim.token, self.folder / file)
        self.clock.reboot()
        self.mailbox.redeliver()
        self.take_back()
        each.state, each.attempt = "waiting", attempt

    @precondition(lambda self: self.those("done"))
    @rule(data=st.data())
    def a_power_cut_lets_a_done_message_wait_again(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.those("done"))))
        done = self.folder / ".done" / f"{name}.json"
        if not done.exists() or self.those("waiting"):
            return
        os.link(done, self.folder / f"{name}.json")
        self.clock.reboot()
        assert self.take_back() == len(self.mailbox.claimed())
        for claim in self.mailbox.claim("rio", fence=1, seconds=SECONDS, limit=99):
            assert claim.id != name
            each = self.model[claim.id]
            each.state, each.claim = "claimed", claim
            each.until, each.boot = self.clock.boottime() + SECONDS, self.clock.boot()
            each.dies = False
        self.forget_expired(everything=True, claims=[])

    @rule()
    def check_everything(self) -> None:
        kinds = {finding.kind for finding in check(self.homes[-1])}
        assert kinds <= {"bad_message", "dead_message"} | ({"corrupt"} if self.bad else set())


def _memory() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestHome = HomeMachine.TestCase
TestHome.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
