"""Messages to an agent: sent by whoever, looked at by anybody, taken by one at a time.

The mailbox (`store.mailbox`) knows files and claims; here is what a message has to say, what is
set aside because it says something else, and how it is shown to a model: as data of a named
sender between random marks, never as words of ours.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.clock import utc_stamp
from holdfast.codec import Record, encode
from holdfast.errors import Busy, Conflict, LeaseLost, NotFound, UsageError
from holdfast.ids import is_agent_id, message_id, new_message_id
from holdfast.models.marks import between, in_one_line
from holdfast.process import Owner
from holdfast.store.letter import has_expired
from holdfast.store.primitives import PRIORITIES, Claim, Claimed, Mailbox, Seen

if TYPE_CHECKING:
    from holdfast.store.home import Home

Type = Literal["flag", "task", "question", "cascade"]
Priority = Literal["high", "normal"]
MOST_BODY = 256 << 10
"""Bytes of a body."""
MOST_SUBJECT = 500
"""Characters of a subject, a reference or the name of a thread."""
_MOST_MESSAGE = 2 * MOST_BODY
"""Bytes of a message that somebody else put there: of its body as text, of the rest as JSON."""
_MAY_GROW = MOST_BODY // 8
"""Characters of a body above which it may be too large once its secrets are masked."""


class New(NamedTuple):
    """A message that was not sent yet."""

    sender: str
    """Who says that he sends it."""
    subject: str
    body: str
    type: Type = "flag"
    priority: Priority = "normal"
    source_ref: str | None = None
    expires: float | None = None
    thread: str | None = None
    sent_by: str | None = None
    """In whose session it is sent, if that is proven."""
    id: str | None = None
    """To send again what may have been sent: the same id is there once."""

    def check(self) -> None:
        size = len(self.body.encode("utf-8", "surrogatepass"))
        if size > MOST_BODY:
            raise UsageError(
                f"the body has {size} bytes; a message has room for {MOST_BODY}",
                hint="store the text as a file and name it with --source-ref",
            )
        for what, text in (
            ("subject", self.subject),
            ("source_ref", self.source_ref or ""),
            ("thread", self.thread or ""),
        ):
            if len(text) > MOST_SUBJECT:
                raise UsageError(
                    f"the {what} has {len(text)} characters; it has room for {MOST_SUBJECT}",
                    hint="put the text into the body",
                )
        if not self.subject.strip():
            raise UsageError("a message without a subject", hint="--subject says what it is about")
        if self.id is not None:
            message_id(self.id)

    def named(self, now: float) -> New:
        """The same with an id."""
        if self.id is not None:
            return self
        rank = PRIORITIES.index(self.priority)
        return self._replace(id=new_message_id(now, rank, secrets.randbits(62)))

    def record(self, to: str, now: float) -> Record:
        made: Record = {
            "id": self.id,
            "from": self.sender,
            "to": to,
            "created_at": utc_stamp(now),
            "type": self.type,
            "priority": self.priority,
            "subject": self.subject,
            "body": self.body,
            "source_ref": self.source_ref,
            "expires_at": None if self.expires is None else utc_stamp(self.expires),
        }
        more = {"thread": self.thread, "sent_by": self.sent_by}
        return made | {name: value for name, value in more.items() if value is not None}


class Letter(NamedTuple):
    """A message as it lies in an inbox, or a file that is none."""

    id: str
    """Of a bad file, its name."""
    state: str
    """waiting, claimed, expired, done, dead or bad."""
    record: Record
    attempt: int = 0
    """Which try handing it out is or will be; 0 of one that is handed out no more."""
    since: float = 0.0
    claimed: Claimed | None = None
    note: str = ""

    @property
    def is_urgent(self) -> bool:
        return self.record.get("priority") == "high"


_DEAD = "handed out as often as it may be; `holdfast inbox return` gives it another chance"


def _held(claim: Claimed, record: Record, since: float) -> Letter:
    if claim.left > 0:
        return Letter(claim.id, "claimed", record, claim.attempt, since, claim)
    note = f"{claim.claimant} had it until its time was over"
    return Letter(claim.id, "waiting", record, claim.attempt + 1, since, claim, note)


def _told(name: str) -> str:
    """The name of a file as text: bytes in it that are none become \\xff, for one."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def unfit(record: Record, agent: str) -> str | None:
    """Why a record is no message to an agent."""
    sender, to = record.get("from"), record.get("to", agent)
    if not isinstance(sender, str) or not is_agent_id(sender):
        return f"its sender has no name that one can have: {str(sender)[:60]!r}"
    if not isinstance(to, str) or to.lower() != agent:
        return f"it is for {str(to)[:60]!r}"
    for name in ("subject", "body"):
        if not isinstance(record.get(name, ""), str):
            return f"its {name} is no text"
    # As `send` measures it: in JSON a quote has two bytes and a control character six.
    body = str(record.get("body", "")).encode("utf-8", "surrogatepass")
    if (size := len(body) + len(encode({**record, "body": ""}))) > _MOST_MESSAGE:
        return f"{size} bytes; a message has at most {_MOST_MESSAGE}"
    return None


class Inbox:
    def __init__(self, home: Home, agent: str, key: str) -> None:
        self._home, self.agent, self.key = home, agent, key
        self.box: Mailbox = home.mailbox(key)
        """For what becomes of a claim."""

    # -- delivering and taking ---------------------------------------------------------

    def deliver(self, new: New) -> str:
        """Store a message that has its id; it is on disk when this returns."""
        record = new.record(self.agent, self._home.clock.now())
        # What its receiver would set aside is refused: a tag is longer than a short secret.
        large = len(new.body) > _MAY_GROW
        if large and (why := unfit(self._home.mask(record), self.agent)) is not None:
            hint = "store the text as a file and name it with --source-ref"
            raise UsageError(f"without its secrets it has {why}", hint=hint)
        if new.sent_by is not None:
            record = self._home.mask(record)
            record["proof"] = _proof(record, self._key)
        return self.box.deliver(record, id=new.id)

    @cached_property
    def _key(self) -> bytes:
        return self._home.secret()

    def _believed(self, record: Record | None) -> Record:
        return believed(record, self._key) if record and "sent_by" in record else record or {}

    def check_same(self, new: New) -> None:
        """Conflict if under the id of a message that was delivered lies another one.

        When it expires does not count: whoever says `2h` again means a later time.
        """
        try:
            there = self.find(str(new.id)).record
        except NotFound:
            return  # it was dealt with, and purged
        meant = new.record(self.agent, self._home.clock.now())
        for name in ("from", "type", "priority", "subject", "body", "source_ref", "thread"):
            said = meant.get(name)
            shown = self._home.mask(said) if isinstance(said, str) else said
            if there.get(name) not in (said, shown):
                raise Conflict(
                    f"{self.agent} has another message {new.id}: its {name} differs",
                    hint="nothing was changed there; send this one without --id",
                )

    def take(
        self,
        claimant: str,
        *,
        seconds: float,
        limit: int,
        fence: int = 0,
        owner: Owner | None = None,
    ) -> list[Claim]:
        """Have up to `limit` messages for some seconds; what is none is set aside on the way."""
        taken: list[Claim] = []
        while len(taken) < limit:
            rest = limit - len(taken)
            claims = self.box.claim(claimant, fence=fence, seconds=seconds, owner=owner, limit=rest)
            if not claims:
                break
            for claim in claims:
                if (why := unfit(claim.record, self.agent)) is None:
                    taken.append(claim._replace(record=self._believed(claim.record)))
                else:
                    self.box.set_aside(claim, why)
        return taken

    def take_chosen(self, claimant: str, id: str, *, seconds: float) -> Claim:
        """Have this one message, whatever waits before it."""
        letter = self.find(id)
        if letter.state != "waiting":
            raise UsageError(f"{id} is {letter.state}", hint="only what waits can be taken")
        claim = self.box.take(claimant, letter.id, fence=0, seconds=seconds)
        if claim is not None:
            return claim._replace(record=self._believed(claim.record))
        state = self.find(letter.id).state
        if state in ("claimed", "waiting"):
            raise Busy(f"somebody else has {id}", hint="it comes back if he fails")
        raise UsageError(f"{id} is {state}", hint="only what waits can be taken")

    def claim_of(self, named: str) -> Letter | None:
        """The claim on a message, named by the message's id or, exactly, by the claim's."""
        for letter in self.claimed():
            assert letter.claimed is not None
            if named in (letter.id, letter.claimed.token):
                return letter
        return None

    # -- looking -----------------------------------------------------------------------

    def look(self) -> list[Seen]:
        """The files of messages that wait, to be passed to `waiting` and `bad`."""
        return self.box.look("waiting")

    def waiting(self, looked: Sequence[Seen] | None = None) -> list[Letter]:
        """What waits, in the order in which it will be handed out; nothing is claimed."""
        now = self._home.clock.now()
        return [
            Letter(
                each.id,
                "expired" if has_expired(each.record, now) else "waiting",
                *(self._believed(each.record), each.attempt, each.since),
            )
            for each in (self.look() if looked is None else looked)
            if each.record is not None and not unfit(each.record, self.agent)
        ]

    def takeable(self) -> list[Letter]:
        """What is handed out next, urgent ones first: also what somebody had for too long."""
        found = [each for each in self.claimed() + self.waiting() if each.state == "waiting"]
        return sorted(found, key=lambda each: not each.is_urgent)

    def claimed(self) -> list[Letter]:
        """What somebody has; what he has no more waits, although it lies where it lay."""
        return [
            _held(each.claim, self._believed(each.record), each.since)
            for each in self.box.look("claimed")
            if each.claim is not None and each.record is not None
        ]

    def finished(self, shelf: Literal["done", "expired"]) -> list[Letter]:
        """What was acknowledged, or was found to have expired when it was handed out."""
        return [
            Letter(_told(each.id), shelf, self._believed(each.record), since=each.since)
            for each in self.box.look(shelf)
            if each.record is not None
        ]

    def expired(self) -> list[Letter]:
        """What expired before it was handed out, also what still lies among those that wait."""
        late = [each for each in self.waiting() if each.state == "expired"]
        return late + self.finished("expired")

    def dead(self) -> list[Letter]:
        """What was handed out too often, without what was given another chance since."""
        box, found = self.box, dict[str, Letter]()
        for each in box.look("dead"):
            id = _told(each.id)
            kept = self._believed(each.record)
            found[id] = Letter(id, "dead", kept, since=each.since, note=_DEAD)
        lists = (box.waiting, box.claimed, box.done) if found else ()
        living = {each.id for listed in lists for each in listed()}
        return [letter for id, letter in found.items() if id not in living]

    def bad(self, looked: Sequence[Seen] | None = None) -> list[Letter]:
        """Files that are no messages: those that were set aside, and those that still lie about."""
        unread = [
            each
            for each in (self.look() if looked is None else looked)
            if each.record is None or unfit(each.record, self.agent)
        ]
        return [
            Letter(
                _told(each.name),
                "bad",
                self._believed(each.record),
                since=each.since,
                note=each.note or unfit(each.record or {}, self.agent) or "its id was used before",
            )
            for each in self.box.look("bad") + sorted(unread, key=lambda each: each.name)
        ]

    def find(self, id: str) -> Letter:
        """A message wherever it lies."""
        done, late = partial(self.finished, "done"), partial(self.finished, "expired")
        for shelf in (self.waiting, self.claimed, done, late, self.dead, self.bad):
            for letter in shelf():
                if letter.id == id or (letter.claimed and letter.claimed.token == id):
                    return letter
        hint = f"`holdfast inbox list --agent {self.agent}` shows what there is"
        raise NotFound(f"{self.agent} has no message {id[:60]!r}", hint=hint)

    # -- purging -----------------------------------------------------------------------

    def purge(self, before: float, folder: str, *, dry_run: bool = False) -> tuple[int, list[str]]:
        """Pack what is done and was delivered before that; how many messages, in which files.

        Nothing is removed unpacked.
        """
        done = self._done_before(before)
        if dry_run or not done:
            return len(done), []
        # One after the other: two at once would both pack what they both found.
        with self._home.sheet(f"{folder}/{_PURGING}").locked():
            done = self._done_before(before)
            ids, files = {each.id for each in done}, list[str]()
            # One that died and got another chance is not dead again when it is gone from the done.
            dead = [each for each in self.box.look("dead") if each.id in ids and each.record]
            for batch in _batches([*dead, *done]):
                files.append(self._pack(folder, [line for _, line in batch]))
                self.box.remove([each for each, _ in batch])
            return len(done), files

    def _done_before(self, before: float) -> list[Seen]:
        found = [*self.box.look("done"), *self.box.look("expired")]
        old = [each for each in found if each.since < before and each.record is not None]
        return sorted(old, key=lambda each: each.name)

    def _pack(self, folder: str, lines: Sequence[bytes]) -> str:
        from holdfast.store.packed import pack  # noqa: PLC0415 - only once in a while

        number = 1
        while self._home.document(key := f"{folder}/{self._home.day()}-{number:03d}.zst").read():
            number += 1
        data = b"".join(pack(lines, sum(map(len, lines))))
        self._home.document(key).replace(data, expected="")
        return key

    def close(self) -> None:
        self.box.close()


_BATCH = 16 << 20
_PURGING = "purge"
"""What is locked meanwhile, in the folder of what was purged."""


def _batches(found: Sequence[Seen]) -> Iterator[list[tuple[Seen, bytes]]]:
    batch: list[tuple[Seen, bytes]] = []
    size = 0
    for each in found:
        file = f".dead/{each.name}" if each.shelf == "dead" else each.name
        told = {"file": _told(file), "delivered_at": utc_stamp(each.since), "message": each.record}
        line = encode(told) + b"\n"
        if batch and size + len(line) > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append((each, line))
        size += len(line)
    if batch:
        yield batch


# --- for a model ----------------------------------------------------------------------------

MOST_SHOWN = 4_000
"""Characters of a body."""


def rendered(letters: Sequence[Letter], mark: str) -> Iterator[str]:
    """Messages as a model is shown them, between marks that their senders cannot know."""
    for letter in letters:
        again = f"handed out before, this is try {letter.attempt}" if letter.attempt > 1 else None
        fields = {"id": letter.id, "from": letter.record.get("from")}
        fields |= {"trust": trust(letter.record), "redelivered": again}
        names = ("type", "subject", "created_at", "source_ref", "thread")
        fields |= {name: letter.record.get(name) for name in names}
        lines = [
            f"{name}: {in_one_line(value)}" for name, value in fields.items() if value is not None
        ]
        body = str(letter.record.get("body") or "")
        lines += ["", body[:MOST_SHOWN]]
        if len(body) > MOST_SHOWN:
            lines.append(f"[{len(body) - MOST_SHOWN} characters more: `holdfast inbox show`]")
        yield between("message", mark, "\n".join(lines)) + "\n"


def lost(id: str) -> LeaseLost:
    return LeaseLost(
        f"{id} is not claimed any more",
        hint="its time was over and somebody else may have it: `holdfast inbox show`",
    )


# --- who sent it, as far as that is known -----------------------------------------------------

# `from` is what the sender says, as is `HOLDFAST_AGENT`.  `sent_by` is the agent in one of whose
# sessions the sending process runs, and `proof` a code over the whole message under a key of the
# home: a file that somebody put into an inbox has none.


def believed(record: Record, key: bytes) -> Record:
    """A message without a `sent_by` that is not proven."""
    if hmac.compare_digest(str(record.get("proof")), _proof(record, key)):
        return record
    return {name: value for name, value in record.items() if name not in ("sent_by", "proof")}


def _proof(record: Record, key: bytes) -> str:
    told = {name: record[name] for name in sorted(record) if name != "proof"}
    return hmac.new(key, b"sent by\n" + encode(told), sha256).hexdigest()


def trust(record: Record) -> str:
    """What is known of the sender of a message that `believed` has seen."""
    claimed, seen = in_one_line(record.get("from")), record.get("sent_by")
    if seen is None:
        return f"claims to be from {claimed}; nothing confirms it"
    seen = in_one_line(seen)
    if seen.lower() == claimed.lower():
        return f"sent in a session of {seen}"
    return f"says it is from {claimed}, but was sent in a session of {seen}"
