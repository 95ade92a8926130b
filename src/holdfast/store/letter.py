"""What a mailbox puts into the names of its files, and what it looks for in their records.

    <id>.json                a message that waits
    <id>~<try>.json          one that waits for its second try or a later one
    <id>.json~<claimant>~<fence>~<try>~<deadline>     one that somebody has

A claimant is a name, with `@<host>.<pid>.<start>` where a process has the claim.  A deadline is
`<boot>.<milliseconds of boot time>.<machine><minute>`: the minute, by the wall clock, is for
machines of another boot.  Opens nothing; both backends speak of messages this way.
"""

from __future__ import annotations

import math
import re
from base64 import b32encode
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from holdfast.clock import instant_of, utc_stamp
from holdfast.codec import Record, encode
from holdfast.errors import BadValue, LeaseLost
from holdfast.ids import (
    LOWEST_RANK,
    agent_id,
    is_message_id,
    place_in_time,
    rank_of_message,
    time_of_message,
)
from holdfast.mask import Masker
from holdfast.process import Owner, process_start
from holdfast.store.primitives import PRIORITIES, Claim, Claimed, Instant

SUFFIX = ".json"
MOST_TRIES = 99
_MOST_SECONDS = 86_400.0 * 3_650
_MOST_FENCE, _MOST_PID, _MOST_START = 10**19, 10**7, 10**11
"""As many digits as the name of a claim has room for: it is a file's, and has 255 bytes."""
_TRY = re.compile(r"[2-9]|[1-9][0-9]")
_OURS = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-8([0-9a-f])[0-9a-f]{2}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    r"(?:~(?:[2-9]|[1-9][0-9]))?\.json"
)
_RANKS = {f"{number:x}": str(min(number >> 2, LOWEST_RANK)) for number in range(16)}
_TICKET = re.compile(
    r"(.+)\.json~([A-Za-z0-9][A-Za-z0-9_-]{0,63})(?:@([0-9a-f]{6})\.([0-9]{1,10})\.([0-9]{1,16}))?"
    r"~([0-9]{1,19})~([1-9][0-9]?)~([0-9a-f]{8})\.([0-9]{1,15})"
    r"(?:\.([a-z2-7]{5})([0-9a-f]{7}))?"
)


class Waiting(NamedTuple):
    """What the name of a waiting file says."""

    id: str
    attempt: int = 1

    @property
    def file(self) -> str:
        return f"{self.id}~{self.attempt}{SUFFIX}" if self.attempt > 1 else self.id + SUFFIX

    @classmethod
    def parse(cls, file: str) -> Waiting | None:
        """None if no message can have that name."""
        name, returned, attempt = file.removesuffix(SUFFIX).partition("~")
        if not is_message_id(name) or (returned and not _TRY.fullmatch(attempt)):
            return None
        return cls(name, int(attempt or 1))

    def place(self, since: float, rank: int) -> str:
        """Text by which waiting messages are sorted; ids of ours need nothing but their name."""
        ours = rank_of_message(self.id)
        return f"{rank}{place_in_time(since)}{self.id}" if ours is None else f"{ours}{self.id}"

    def since(self, modified: float) -> float:
        return modified if rank_of_message(self.id) is None else time_of_message(self.id)


def place_of_ours(file: str) -> str | None:
    """`Waiting.place` of a file that we named, quickly: there may be 100,000 of them."""
    found = _OURS.fullmatch(file)
    return _RANKS[found[1]] + file if found else None


class Ticket(NamedTuple):
    """What the name of a claimed file says."""

    id: str
    attempt: int
    claimant: str
    process: tuple[str, int, int] | None
    """Host and pid namespace in short, number and start of the process that has it."""
    fence: int
    boot: str
    deadline: int
    machine: str = ""
    """In short; none in names of before machines shared a store."""
    minute: int = 0

    def __str__(self) -> str:
        who, until = self.claimant, f"{self.boot}.{self.deadline}"
        if self.process is not None:
            who = "{}@{}.{}.{}".format(who, *self.process)
        if self.machine:
            until += f".{self.machine}{self.minute:07x}"
        return f"{self.id}{SUFFIX}~{who}~{self.fence}~{self.attempt}~{until}"

    @classmethod
    def parse(cls, name: str) -> Ticket | None:
        found = _TICKET.fullmatch(name)
        if found is None or not is_message_id(found[1]):
            return None
        id, claimant, host, pid, start, fence, attempt, boot, *until = found.groups()
        process = (host, int(pid), int(start)) if host else None
        deadline, machine, minute = int(until[0]), until[1] or "", int(until[2] or "0", 16)
        ticket = cls(
            id, int(attempt), claimant, process, int(fence), boot, deadline, machine, minute
        )
        return ticket if str(ticket) == name else None  # 007 is not 7

    def until(self, seconds: float, now: Instant) -> Ticket:
        """The same claim with another deadline."""
        if not 0 < seconds <= _MOST_SECONDS:
            raise BadValue(f"no time to have a message for: {seconds} s", hint="give it seconds")
        end, here = now.later(seconds), _in_short(now)
        deadline, minute = math.ceil(end.seconds * 1000), math.ceil(end.wall / 60)
        return self._replace(boot=here.boot, deadline=deadline, machine=here.host, minute=minute)

    def end(self, now: Instant) -> str | None:
        """Why it is over, or None as long as it holds."""
        if self.left(now) <= 0:
            here = _in_short(now)
            restarted = self.boot != here.boot and self.machine in ("", here.host)
            return "the machine was restarted" if restarted else "the deadline passed"
        if self.process is None:
            return None
        host, pid, start = self.process
        died = host == _short(now.host, 3) and process_start(pid) != start
        return "the claimant died" if died else None

    def left(self, now: Instant) -> float:
        here, wall = _in_short(now), 60.0 * self.minute
        return here.left(Instant(self.machine or here.host, self.boot, self.deadline / 1000, wall))

    def shown(self, size: int, now: Instant) -> Claimed:
        left = 0.0 if self.end(now) else self.left(now)
        return Claimed(
            self.id, size, self.claimant, self.fence, self.attempt, left, token=str(self)
        )

    def claim(self, record: Record) -> Claim:
        return Claim(
            self.id,
            record,
            self.claimant,
            self.fence,
            self.attempt,
            self.deadline / 1000,
            token=str(self),
        )

    @property
    def waiting(self) -> Waiting:
        """How it waited before it was claimed."""
        return Waiting(self.id, self.attempt)


def ticket_for(claimant: str, fence: int, owner: Owner | None) -> Callable[[Waiting], Ticket]:
    """How a claimant's tickets begin."""
    if not 0 <= fence < _MOST_FENCE:
        raise BadValue(f"no fencing number: {fence}", hint="use the one that a lease gave")
    who = agent_id(claimant)
    process = None if owner is None else _process(owner)

    def ticket(waiting: Waiting) -> Ticket:
        return Ticket(waiting.id, waiting.attempt, who, process, fence, "", 0)

    return ticket


def _process(owner: Owner) -> tuple[str, int, int]:
    if not (0 < owner.pid < _MOST_PID and 0 <= owner.started < _MOST_START):
        raise BadValue(f"no process: {owner}", hint="use what `this_process` says")
    return _short(owner.host, 3), owner.pid, owner.started


def ticket_of(claim: Claim | Claimed) -> Ticket:
    """The ticket that a claim names."""
    found = Ticket.parse(claim.token)
    if found is None or found.id != claim.id:
        raise lost(claim)
    return found


def lost(claim: Claim | Claimed) -> LeaseLost:
    return LeaseLost(
        f"{claim.id} is not claimed by this claim any more",
        hint="somebody else has it now, or it is done; drop what you did with it",
    )


def letter(
    record: Record, mask: Masker, priority: str | None, expires: float | None
) -> tuple[bytes, int]:
    """The bytes of a message and its rank."""
    chosen = record.get("priority", "normal") if priority is None else priority
    if chosen not in PRIORITIES:
        raise BadValue(f"no priority: {chosen!r:.80}", hint=f"one of {', '.join(PRIORITIES)}")
    record = {**record, "priority": chosen}
    if expires is not None:
        record["expires_at"] = _stamp(expires)
    elif record.get("expires_at") is not None and _expiry(record) is None:
        raise BadValue(
            f"no time to expire at: {record['expires_at']!r:.80}",
            hint="write it as 2026-11-15T08:48:46Z",
        )
    return encode(mask(record)) + b"\n", PRIORITIES.index(chosen)


def _stamp(instant: float) -> str:
    try:
        return utc_stamp(instant)
    except (ValueError, OverflowError, OSError):
        raise BadValue(f"no time to expire at: {instant}", hint="give it an instant") from None


def rank_in(record: Record) -> int:
    """The rank that a message gives itself; of an unknown priority, the normal one."""
    found = record.get("priority")
    return PRIORITIES.index(found if found in PRIORITIES else "normal")


def has_expired(record: Record, now: float) -> bool:
    expiry = _expiry(record)
    return expiry is not None and expiry <= now


def _expiry(record: Record) -> float | None:
    """When a message expires; one that says it in no way we know does not."""
    try:
        return instant_of(record["expires_at"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def checked_limit(limit: int) -> int:
    if limit < 1:
        raise BadValue(f"no number of messages: {limit}", hint="at least 1")
    return limit


def checked_tries(tries: int) -> int:
    if not 1 <= tries <= MOST_TRIES:
        raise BadValue(f"no number of tries: {tries}", hint=f"between 1 and {MOST_TRIES}")
    return tries


def _in_short(now: Instant) -> Instant:
    """A moment whose machine and boot have names as short as those in a ticket."""
    machine = now.host.partition("/")[0]
    digest = blake2b(machine.encode(), digest_size=5).digest()
    return now._replace(
        host=b32encode(digest)[:5].decode().lower(), boot=_short(now.boot or machine, 4)
    )


def _short(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()
