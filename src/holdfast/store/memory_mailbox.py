"""A mailbox in memory: the same messages, names and claims without files."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.codec import Record, decode_record
from holdfast.ids import message_id, new_message_id
from holdfast.process import Owner
from holdfast.store.backend import Backend
from holdfast.store.letter import (
    SUFFIX,
    Ticket,
    Waiting,
    checked_limit,
    checked_tries,
    has_expired,
    letter,
    lost,
    ticket_for,
    ticket_of,
)
from holdfast.store.primitives import PRIORITIES, Claim, Claimed, Message, Seen, Shelf


class _Letter(NamedTuple):
    data: bytes
    rank: int
    since: float


class Slots:
    """What is in one mailbox; shared by all who open it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.waiting: dict[Waiting, _Letter] = {}
        self.claimed: dict[Ticket, _Letter] = {}
        self.done: dict[str, tuple[_Letter, bool]] = {}
        """With whether it expired."""
        self.dead: dict[str, _Letter] = {}
        self.bad: dict[str, _Letter] = {}

    def is_used(self) -> bool:
        return bool(self.waiting or self.claimed or self.done or self.dead or self.bad)

    def holds(self, id: str) -> bool:
        known = (*(each.id for each in self.waiting), *(each.id for each in self.claimed))
        return id in self.done or id in known

    def in_order(self) -> list[tuple[Waiting, _Letter]]:
        return sorted(
            self.waiting.items(), key=lambda item: item[0].place(item[1].since, item[1].rank)
        )


class MemoryMailbox:
    def __init__(self, key: str, slots: Slots, store: Backend, tries: int) -> None:
        self.key = key
        self._slots, self._clock, self._mask = slots, store.clock, store.mask
        self._now, self._tries = store.now, checked_tries(tries)

    def deliver(
        self,
        record: Record,
        *,
        id: str | None = None,
        priority: str | None = None,
        expires: float | None = None,
    ) -> str:
        data, rank = letter(record, self._mask, priority, expires)
        now = self._clock.now()
        name = new_message_id(now, rank, secrets.randbits(62)) if id is None else message_id(id)
        with self._slots.lock:
            if not self._slots.holds(name):
                self._slots.waiting[Waiting(name)] = _Letter(data, rank, now)
        return name

    def claim(
        self,
        claimant: str,
        *,
        fence: int,
        seconds: float,
        owner: Owner | None = None,
        limit: int = 1,
    ) -> list[Claim]:
        ticket, limit = ticket_for(claimant, fence, owner), checked_limit(limit)
        with self._slots.lock:
            self.redeliver()
            taken: list[Claim] = []
            for waiting, record in self._fresh():
                mine = ticket(waiting).until(seconds, self._now())
                self._slots.claimed[mine] = self._slots.waiting.pop(waiting)
                taken.append(mine.claim(record))
                if len(taken) == limit:
                    break
            return taken

    def take(
        self,
        claimant: str,
        id: str,
        *,
        fence: int,
        seconds: float,
        owner: Owner | None = None,
    ) -> Claim | None:
        ticket, name = ticket_for(claimant, fence, owner), message_id(id)
        with self._slots.lock:
            self.redeliver()
            for waiting, record in self._fresh():
                if waiting.id == name:
                    mine = ticket(waiting).until(seconds, self._now())
                    self._slots.claimed[mine] = self._slots.waiting.pop(waiting)
                    return mine.claim(record)
        return None

    def set_aside(self, claim: Claim | Claimed, why: str) -> None:
        with self._slots.lock:
            found = self._slots.claimed.pop(ticket_of(claim), None)
            if found is not None:
                self._slots.bad[f"{claim.id}{SUFFIX}"] = found

    def remove(self, seen: Sequence[Seen]) -> None:
        with self._slots.lock:
            for each in seen:
                shelf = self._slots.dead if each.shelf == "dead" else self._slots.done
                shelf.pop(each.id, None)

    def look(self, shelf: Shelf) -> list[Seen]:
        slots = self._slots
        with slots.lock:
            if shelf == "waiting":
                return [
                    Seen(
                        shelf, each.file, each.id, decode_record(data), since, attempt=each.attempt
                    )
                    for each, (data, _, since) in slots.in_order()
                ]
            if shelf == "claimed":
                held = {each.token: each for each in self.claimed()}
                lying = [(held[str(ticket)], found) for ticket, found in slots.claimed.items()]
                return [
                    Seen(
                        *(shelf, each.token, each.id, decode_record(found.data), found.since),
                        attempt=each.attempt,
                        claim=each,
                    )
                    for each, found in sorted(lying, key=lambda one: one[0].token)
                ]
            late = {id: found for id, (found, expired) in slots.done.items() if expired}
            kept = {
                "done": {id: found for id, (found, expired) in slots.done.items() if not expired},
                "expired": late,
                "dead": slots.dead,
                "bad": slots.bad,
            }[shelf]
            return [
                Seen(
                    *(shelf, id if shelf == "bad" else f"{id}{SUFFIX}", id),
                    *(decode_record(found.data), found.since),
                )
                for id, found in sorted(kept.items())
            ]

    def _fresh(self) -> Iterator[tuple[Waiting, Record]]:
        """What can be handed out, in order; what has expired is done."""
        for waiting, found in self._slots.in_order():
            record = decode_record(found.data)
            if has_expired(record, self._clock.now()):
                self._slots.done[waiting.id] = self._slots.waiting.pop(waiting), True
            else:
                yield waiting, record

    def _taken_out(self, claim: Claim | Claimed) -> tuple[Ticket, _Letter]:
        ticket = ticket_of(claim)
        found = self._slots.claimed.pop(ticket, None)
        if found is None:
            raise lost(claim)
        return ticket, found

    def ack(self, claim: Claim | Claimed) -> None:
        with self._slots.lock:
            ticket, found = self._taken_out(claim)
            self._slots.done[ticket.id] = found, False

    def renew(self, claim: Claim, seconds: float) -> Claim:
        later = ticket_of(claim).until(seconds, self._now())
        with self._slots.lock:
            _, found = self._taken_out(claim)
            self._slots.claimed[later] = found
        return later.claim(claim.record)

    def give_back(self, claim: Claim | Claimed, reason: str) -> bool:
        with self._slots.lock:
            return self._return(*self._taken_out(claim))

    def redeliver(self) -> int:
        with self._slots.lock:
            now = self._now()
            over = [each for each in self._slots.claimed if each.end(now)]
            for ticket in over:
                self._return(ticket, self._slots.claimed.pop(ticket))
            return len(over)

    def _return(self, ticket: Ticket, found: _Letter) -> bool:
        if ticket.attempt >= self._tries:
            self._slots.dead[ticket.id] = found
            return False
        self._slots.waiting[Waiting(ticket.id, ticket.attempt + 1)] = found
        return True

    def waiting(self) -> list[Message]:
        with self._slots.lock:
            return [
                Message(each.id, len(data), since, each.attempt, PRIORITIES[rank])
                for each, (data, rank, since) in self._slots.in_order()
            ]

    def claimed(self) -> list[Claimed]:
        now = self._now()
        with self._slots.lock:
            return [
                ticket.shown(len(found.data), now)
                for ticket, found in sorted(self._slots.claimed.items(), key=lambda it: str(it[0]))
            ]

    def done(self) -> list[Message]:
        with self._slots.lock:
            return [
                Message(id, len(found.data), found.since, expired=expired)
                for id, (found, expired) in sorted(self._slots.done.items())
            ]

    def dead(self) -> list[Message]:
        with self._slots.lock:
            return [
                Message(id, len(found.data), found.since)
                for id, found in sorted(self._slots.dead.items())
            ]

    def bad(self) -> list[Message]:
        with self._slots.lock:
            return [
                Message(name, len(found.data), found.since)
                for name, found in sorted(self._slots.bad.items())
            ]

    def close(self) -> None:
        """Nothing to let go."""
