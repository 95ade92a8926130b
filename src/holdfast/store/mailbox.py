"""A mailbox on files: a directory in which each file is a message and its name says how it is.

    deliver   temporary · fdatasync · link into place · fsync of the directory · answer
    claim     one rename into `.claimed/`, to a name that says who, until when and which try
    ack       one rename of exactly that name into `.done/` · fsync of both directories · answer

Nobody holds a lock: of two renames of one name the kernel lets one succeed.  A crash may leave
two names of one file.  One of them is further on the way (waiting, claimed, waiting for the
next try, done), and only the other one is ever removed, by whoever comes across it.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.codec import Record
from holdfast.errors import Indeterminate, typed
from holdfast.ids import message_id, new_message_id
from holdfast.process import Owner
from holdfast.store.failpoints import hit
from holdfast.store.letter import (
    SUFFIX,
    Ticket,
    Waiting,
    checked_limit,
    checked_tries,
    has_expired,
    letter,
    lost,
    place_of_ours,
    rank_in,
    ticket_for,
    ticket_of,
)
from holdfast.store.primitives import PRIORITIES, TRIES, Claim, Claimed, Message, Seen, Shelf
from holdfast.store.shelves import (
    BAD,
    CLAIMED,
    DEAD,
    DONE,
    EXPIRED,
    Box,
    NoMessage,
    is_temporary,
    read_message,
    remove_if_dead,
    same,
)

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir, Stat

_FOLDERS: dict[str, str] = {
    "claimed": CLAIMED,
    "done": DONE,
    "expired": DONE,
    "dead": DEAD,
    "bad": BAD,
}
_REUSED = 10.0
"""A listing serves for so many times as long as it took: of 100,000 files, about two seconds."""


class _Foreign(NamedTuple):
    """What was read of a file that somebody else named."""

    inode: int
    modified: float
    rank: int


class FileMailbox:
    def __init__(self, place: Place, *, tries: int = TRIES) -> None:
        self._place, self._tries = place, checked_tries(tries)
        self._vfs, self._clock, self._now = place.tools.vfs, place.tools.clock, place.tools.now
        self._foreign: dict[str, _Foreign] = {}
        self._queue: list[str] = []
        """Waiting files as they were listed, the next one last."""
        self._listed_until = 0.0

    @property
    def key(self) -> str:
        return "/".join(self._place.parts)

    @contextmanager
    def _opened(self, doing: str) -> Generator[Box]:
        with typed(doing, self.key):
            inbox = self._place.make()
            box = Box(inbox, self._vfs, self._clock)
            try:
                box.make_ready(len(self._place.parts))
                yield box
            finally:
                box.close()
                self._place.close(inbox)
        if box.set_aside:
            first, *rest = box.set_aside
            more = f" and {len(rest)} more" if rest else ""
            self._place.tools.notice("message_set_aside", f"{self.key}: {first}{more}")

    # -- delivering --------------------------------------------------------------------

    def deliver(
        self,
        record: Record,
        *,
        id: str | None = None,
        priority: str | None = None,
        expires: float | None = None,
    ) -> str:
        data, rank = letter(record, self._place.tools.mask, priority, expires)
        if id is None:
            name = new_message_id(self._clock.now(), rank, secrets.randbits(62))
        else:
            name = message_id(id)
        with self._opened("delivering") as box:
            self._deliver(box, Waiting(name), data, named=id is not None)
        return name

    def _deliver(self, box: Box, letter: Waiting, data: bytes, *, named: bool) -> None:
        temporary, fd = box.temporary(letter.id)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._vfs.write(fd, rest) :]
            self._vfs.sync(fd)
            hit("mailbox.written")
            # Asked last, so that somebody who delivers the same is hardly ever overlooked.
            if not (named and self._is_there(box, letter.id)):
                box.inbox.link(temporary, letter.file)
            hit("mailbox.linked")
        except FileExistsError:
            if not named:
                raise
        finally:
            with suppress(OSError):
                box.inbox.unlink(temporary)
            self._vfs.close(fd)
        try:
            box.inbox.sync()
        except OSError as error:
            raise self._undecided(f"{letter.id} was delivered", error) from error

    def _is_there(self, box: Box, id: str) -> bool:
        """Whether a message of that id waits, is claimed or done; then it is durable."""
        if self._waits(box, id):
            return True
        claimed = any(name.startswith(f"{id}{SUFFIX}~") for name in box.claimed.names())
        # Once more: it may have been given back just after we had looked.
        if not claimed and not self._waits(box, id) and box.finished(id) is None:
            return False
        box.claimed.sync()
        box.done.sync()
        return True

    def _waits(self, box: Box, id: str) -> bool:
        tries = range(1, self._tries + 1)
        return any(box.inbox.stat(Waiting(id, each).file) is not None for each in tries)

    # -- claiming ----------------------------------------------------------------------

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
        taken: list[Claim] = []
        with self._opened("claiming") as box:
            held, _ = self._take_back(box)
            for letter in self._supply(box):
                if letter.id in held:
                    continue
                try:
                    claim = self._take(box, ticket(letter).until(seconds, self._now()))
                except OSError:
                    if not taken:
                        raise
                    break  # what we have must be handed out
                if claim is not None:
                    taken.append(claim)
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
        with self._opened("claiming") as box:
            self._take_back(box)
            for attempt in range(1, self._tries + 1):
                letter = Waiting(name, attempt)
                if box.inbox.stat(letter.file) is not None:
                    claim = self._take(box, ticket(letter).until(seconds, self._now()))
                    if claim is not None:
                        return claim
        return None

    def _supply(self, box: Box) -> Iterator[Waiting]:
        """What waits, in order; at the end of an older listing from a new one."""
        fresh = self._clock.boottime() >= self._listed_until
        if fresh:
            self._list(box)
        while True:
            try:
                letter = Waiting.parse(self._queue.pop())
            except IndexError:
                if fresh:
                    return
                self._list(box)
                fresh = True
            else:
                assert letter is not None, "listed, so parsed before"
                yield letter

    def _list(self, box: Box) -> None:
        started = self._clock.boottime()
        self._queue = [file for _, file in sorted(self._in_order(box), reverse=True)]
        now = self._clock.boottime()
        self._listed_until = now + _REUSED * (now - started)

    def _in_order(self, box: Box) -> list[tuple[str, str]]:
        """Each waiting file behind the text it is sorted by; what is none is dealt with."""
        found: list[tuple[str, str]] = []
        others: list[str] = []
        names = box.inbox.names()
        for name in names:
            place = place_of_ours(name)
            if place is not None:
                found.append((place, name))
            elif name.endswith(SUFFIX):
                others.append(name)
            elif is_temporary(name):
                remove_if_dead(self._vfs, box.inbox, name)
        known, self._foreign = self._foreign, {}
        for name in others:
            place = self._place_of(box, name, known.get(name))
            if place is not None:
                found.append((place, name))
        doubles = self._drop_doubles(box, names)
        return [each for each in found if each[1] not in doubles] if doubles else found

    def _place_of(self, box: Box, file: str, known: _Foreign | None) -> str | None:
        """Where a file that somebody else named stands in the order, if it is a message."""
        letter, entry = Waiting.parse(file), box.inbox.stat(file)
        if letter is None:
            box.quarantine(box.inbox, file, file, "not a name that a message can have")
            return None
        if entry is None:
            return None
        if known is None or (known.inode, known.modified) != (entry.inode, entry.mtime):
            try:
                rank = rank_in(read_message(self._vfs, box.inbox, file))
            except NoMessage as why:
                box.quarantine(box.inbox, file, file, str(why))
                return None
            except FileNotFoundError:
                return None  # claimed meanwhile
            known = _Foreign(entry.inode, entry.mtime, rank)
        self._foreign[file] = known
        return letter.place(entry.mtime, known.rank)

    def _drop_doubles(self, box: Box, names: list[str]) -> set[str]:
        """Of one message with several tries only the latest waits."""
        latest: dict[str, int] = {}
        for name in names:
            if "~" in name and name.endswith(SUFFIX) and (letter := Waiting.parse(name)):
                latest[letter.id] = max(letter.attempt, latest.get(letter.id, 1))
        doubles = {
            Waiting(id, attempt).file: Waiting(id, most).file
            for id, most in latest.items()
            for attempt in range(1, most)
        }
        found = doubles.keys() & names
        for file in found:
            box.drop(box.inbox, file, box.inbox.stat(doubles[file]), file)
        return found

    def _take(self, box: Box, ticket: Ticket) -> Claim | None:
        """Claim one message, if nobody was faster and there is something to hand out."""
        name = str(ticket)
        try:
            box.inbox.move(ticket.waiting.file, box.claimed, name)
        except (FileNotFoundError, FileExistsError):
            return None
        hit("mailbox.claimed")
        done = box.finished(ticket.id)
        if done is not None:
            # A crash can undo the rename that took it out, but not the one that made it done.
            box.drop(box.claimed, name, done, ticket.id + SUFFIX)
            return None
        try:
            record = read_message(self._vfs, box.claimed, name)
        except FileNotFoundError:
            return None  # so late that somebody has taken it back
        except NoMessage as why:
            if not box.quarantine(box.claimed, name, ticket.id + SUFFIX, str(why)):
                with suppress(FileNotFoundError, FileExistsError):
                    box.claimed.move(name, box.inbox, ticket.waiting.file)
            return None
        if has_expired(record, self._clock.now()):
            with suppress(FileNotFoundError, FileExistsError):
                box.claimed.move(name, box.done, ticket.id + SUFFIX + EXPIRED)
            return None
        return ticket.claim(record)

    # -- what becomes of a claim -------------------------------------------------------

    def ack(self, claim: Claim | Claimed) -> None:
        ticket = ticket_of(claim)
        with self._opened("acknowledging") as box:
            try:
                box.claimed.move(str(ticket), box.done, ticket.id + SUFFIX)
            except (FileNotFoundError, FileExistsError):
                raise lost(claim) from None
            hit("mailbox.acked")
            try:
                box.done.sync()
                box.claimed.sync()
            except OSError as error:
                raise self._undecided(f"{ticket.id} was acknowledged", error) from error

    def renew(self, claim: Claim, seconds: float) -> Claim:
        ticket = ticket_of(claim)
        later = ticket.until(seconds, self._now())
        with self._opened("renewing") as box:
            try:
                box.claimed.move(str(ticket), box.claimed, str(later))
            except FileNotFoundError:
                raise lost(claim) from None
            except FileExistsError:
                pass  # of one claim at one instant there is one renewal
        return later.claim(claim.record)

    def give_back(self, claim: Claim | Claimed, reason: str) -> bool:
        ticket = ticket_of(claim)
        with self._opened("giving back") as box:
            try:
                return self._return(box, ticket, reason)
            except FileNotFoundError:
                raise lost(claim) from None

    def set_aside(self, claim: Claim | Claimed, why: str) -> None:
        with self._opened("setting aside") as box:
            box.put_aside(box.claimed, claim.token, BAD, claim.id + SUFFIX, f"is bad: {why}")

    def remove(self, seen: Sequence[Seen]) -> None:
        with self._opened("removing") as box:
            for each in seen:
                with suppress(FileNotFoundError):  # somebody has tidied up by hand
                    box.shelf(_FOLDERS[each.shelf]).unlink(each.name)

    def redeliver(self) -> int:
        with self._opened("redelivering") as box:
            _, returned = self._take_back(box)
        return returned

    def _take_back(self, box: Box) -> tuple[set[str], int]:
        """Return what the dead and the late had; the ids of the rest, and how many came back."""
        held: set[str] = set()
        returned, now = 0, None
        for name in box.claimed.names():
            ticket = Ticket.parse(name)
            if ticket is None:
                box.quarantine(box.claimed, name, name, "no claim of ours")
            elif why := ticket.end(now := now or self._now()):
                with suppress(FileNotFoundError):
                    self._return(box, ticket, why)
                    returned += 1
            else:
                held.add(ticket.id)
        return held, returned

    def _return(self, box: Box, ticket: Ticket, why: str) -> bool:
        """Let a claimed message wait for its next try; False if there is none."""
        name = str(ticket)
        mine = box.claimed.stat(name)
        if same(box.finished(ticket.id), mine) or same(box.inbox.stat(ticket.waiting.file), mine):
            box.claimed.unlink(name)  # a crash has undone one half of a rename
            return True
        for attempt in range(ticket.attempt + 1, self._tries + 1):
            file = Waiting(ticket.id, attempt).file
            try:
                box.claimed.move(name, box.inbox, file)
                return True
            except FileExistsError:
                if same(box.inbox.stat(file), mine):
                    box.claimed.unlink(name)
                    return True
        died = f"is dead after {ticket.attempt} tries: {why}"
        if not box.put_aside(box.claimed, name, DEAD, ticket.id + SUFFIX, died):
            raise FileNotFoundError(name)
        return False

    def _undecided(self, what: str, error: OSError) -> Indeterminate:
        return Indeterminate(
            f"the disk failed after {what}: {error.strerror}",
            hint="look whether it is there, and at the disk",
            path=self.key,
        )

    # -- looking -----------------------------------------------------------------------

    def waiting(self) -> list[Message]:
        found: list[tuple[str, Message]] = []
        for file, entry, inbox in self._entries(None):
            letter = Waiting.parse(file) if file.endswith(SUFFIX) else None
            if letter is None:
                continue
            place = place_of_ours(file)
            try:
                if place is None:
                    rank = rank_in(read_message(self._vfs, inbox, file))
                    place = letter.place(entry.mtime, rank)
            except (NoMessage, FileNotFoundError):
                continue
            since, priority = letter.since(entry.mtime), PRIORITIES[int(place[0])]
            message = Message(letter.id, entry.size, since, letter.attempt, priority)
            found.append((place, message))
        return [message for _, message in sorted(found)]

    def claimed(self) -> list[Claimed]:
        entries = list(self._entries(CLAIMED))
        now = self._now() if entries else None
        return [
            ticket.shown(entry.size, now)
            for name, entry, _ in entries
            if now and (ticket := Ticket.parse(name))
        ]

    def done(self) -> list[Message]:
        return [
            Message(
                name.removesuffix(EXPIRED).removesuffix(SUFFIX),
                entry.size,
                entry.mtime,
                expired=name.endswith(EXPIRED),
            )
            for name, entry, _ in self._entries(DONE)
        ]

    def dead(self) -> list[Message]:
        return [
            Message(name.partition("~")[0].removesuffix(SUFFIX), entry.size, entry.mtime)
            for name, entry, _ in self._entries(DEAD)
        ]

    def bad(self) -> list[Message]:
        return [Message(name, entry.size, entry.mtime) for name, entry, _ in self._entries(BAD)]

    def look(self, shelf: Shelf) -> list[Seen]:
        if shelf == "waiting":
            return self._look_at_waiting()
        held = {each.token: each for each in self.claimed()} if shelf == "claimed" else {}
        found: list[Seen] = []
        for name, entry, directory in self._entries(_FOLDERS[shelf]):
            if shelf == "claimed" and name not in held:
                continue
            if shelf in ("done", "expired") and name.endswith(EXPIRED) != (shelf == "expired"):
                continue
            seen = self._seen(directory, shelf, name, entry.mtime)
            if name in held:
                seen = seen._replace(id=held[name].id, attempt=held[name].attempt, claim=held[name])
            elif shelf != "bad":
                id = name.removesuffix(EXPIRED) if shelf == "expired" else name.partition("~")[0]
                seen = seen._replace(id=id.removesuffix(SUFFIX))
            found.append(seen)
        return found + self._lying_about() if shelf == "bad" else found

    def _look_at_waiting(self) -> list[Seen]:
        found: list[tuple[str, Seen]] = []
        for file, entry, inbox in self._entries(None):
            letter = Waiting.parse(file) if file.endswith(SUFFIX) else None
            if letter is not None:
                seen = self._seen(inbox, "waiting", file, letter.since(entry.mtime))
                place = place_of_ours(file) or letter.place(entry.mtime, rank_in(seen.record or {}))
                found.append((place, seen._replace(id=letter.id, attempt=letter.attempt)))
        return [seen for _, seen in sorted(found, key=lambda one: one[0])]

    def _lying_about(self) -> list[Seen]:
        """Files beside those that wait, with names that no message can have."""
        found: list[Seen] = []
        for name, entry, inbox in self._entries(None):
            if name.startswith("."):
                continue
            if not name.endswith(SUFFIX):
                why = f"no message: its name does not end in {SUFFIX}; left where it is"
                found.append(Seen("bad", name, name, None, entry.mtime, why))
            elif Waiting.parse(name) is None:
                found.append(self._seen(inbox, "bad", name, entry.mtime))
        return found

    def _seen(self, directory: Dir, shelf: Shelf, name: str, since: float) -> Seen:
        try:
            return Seen(shelf, name, name, read_message(self._vfs, directory, name), since)
        except NoMessage as why:
            return Seen(shelf, name, name, None, since, str(why))
        except FileNotFoundError:
            return Seen(shelf, name, name, None, since, "it went while we looked")

    def _entries(self, shelf: str | None) -> Iterator[tuple[str, Stat, Dir]]:
        """What lies on a shelf, or in the mailbox itself; nothing is made by looking."""
        with typed("listing", self.key), self._place.opened() as inbox:
            if inbox is None:
                return
            try:
                directory = inbox.subdir(shelf) if shelf else inbox
            except FileNotFoundError:
                return
            try:
                for name in sorted(directory.names()):
                    entry = directory.stat(name)
                    if entry is not None:
                        yield name, entry, directory
            finally:
                if shelf:
                    directory.close()

    def close(self) -> None:
        """Nothing is kept open between calls."""
