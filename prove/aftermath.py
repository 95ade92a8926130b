"""After one operation with one fault: was the caller told the truth, and does life go on?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.store.check import HARMLESS, check
from holdfast.store.home import Home
from holdfast.store.primitives import CONTROL, Line
from prove.actors import Calendar, tally
from prove.operations import (
    BEFORE,
    INBOX,
    JOURNAL,
    LEASE,
    LEDGER,
    MAIL,
    NEW_DOCUMENT,
    NEW_INBOX,
    NEW_LEASE,
    NEW_LEDGER,
    NEW_LOG,
    REPORT,
    TASKS,
    Operation,
    ids,
    mail_in,
    open_again,
)


@dataclass(frozen=True)
class Outcome:
    """What the victim said at the end."""

    answer: Any = None
    """The acknowledgement; None if there was none."""
    error: str = ""
    maybe: bool = False
    """Whether the error says that it may or may not be there."""
    untyped: str = ""
    killed: bool = False
    hung: bool = False

    @classmethod
    def of(cls, packet: bytes, *, killed: bool, hung: bool) -> Outcome:
        if killed or hung:
            return cls(killed=killed, hung=hung)
        if not packet or packet.startswith(b"!"):
            return cls(untyped=f"it ended with nothing but {packet!r}")
        said = json.loads(packet)
        error = f"{said['error']}: {said['says']}" if "error" in said else ""
        return cls(said.get("answer"), error, said.get("maybe", False), said.get("untyped", ""))


def inspect(operation: Operation, path: Path, outcome: Outcome) -> Iterator[str]:
    """Everything that is wrong."""
    if outcome.hung:
        yield "it hangs"
    if outcome.untyped:
        yield f"what came out is no HoldfastError: {outcome.untyped}"
    try:
        home = open_again(operation, str(path), acked=outcome.answer is not None)
        if home is None:
            home = Home.open(str(path), create=True, timezone="UTC", clock=Calendar(0))
        with home:
            if not operation.makes_home:
                yield from untouched(operation, home)
                yield from truth(operation, home, outcome)
            yield from _go_on(operation, home)
            if operation.lines:
                # A line that lacked only its end was ended by the next one, if anything.
                yield from truth(operation, home, outcome)
            yield from _findings(operation, home)
    except (HoldfastError, OSError, AssertionError) as error:
        yield f"the next process fails: {type(error).__name__}: {error}"


def untouched(operation: Operation, home: Home) -> Iterator[str]:
    """What was there before is there, once and in order; every log verifies."""
    for key, names in BEFORE.items():
        found = ids(home, key)
        if found[: len(names)] != names or len(set(found)) != len(found):
            yield f"{key} held {names}, acknowledged, and holds {found}"
    for key in (JOURNAL, LEDGER, NEW_LOG, NEW_LEDGER):
        for problem in home.log(key).verify().problems:
            if problem.kind != _expected(operation):
                yield f"{key} does not verify: {problem}"
    if not set(MAIL) <= set(mail := mail_in(home, INBOX)) or len(set(mail)) != len(mail):
        yield f"{INBOX} held {MAIL}, acknowledged, and holds {mail}"
    stamp = home.cell(REPORT).peek()
    if stamp and not _expected(operation) and not home.log(stamp.log).contains(stamp.cursor):
        yield f"{REPORT} is stamped with line {stamp.cursor.seq}, which is not there"


def truth(operation: Operation, home: Home, outcome: Outcome) -> Iterator[str]:
    if operation.look is None:
        return
    seen = operation.look(home, outcome.answer)
    if outcome.answer is not None and not seen.whole:
        yield f"it was acknowledged, but: {seen.detail}"
    if outcome.error and not outcome.maybe and not seen.none:
        yield f"the caller was told it is not there ({outcome.error}), but: {seen.detail}"
    if operation.look(home, outcome.answer)[:2] != seen[:2]:
        yield f"looked at twice it is not the same: {seen.detail}"


def _go_on(operation: Operation, home: Home) -> Iterator[str]:
    """The next write to everything works, and stands on its own."""
    with Home.open(home.path, clock=Calendar(100_000)) as later:
        _append(later, "audit")
    for key in (JOURNAL, LEDGER, NEW_LOG, NEW_LEDGER):
        before = ids(home, key)
        _append(home, key)
        after = ids(home, key)
        known = [*before, *(name for name in operation.lines if name not in before), "next"]
        if after[: len(before)] != before or after[-1] != "next" or after.count("next") > 1:
            yield f"after {before} the next line of {key} gives {after}"
        elif not set(after) <= set(known) or len(set(after)) != len(after):
            yield f"after {before} the next line of {key} gives {after}, which nobody wrote"
    before = ids(home, LEDGER)
    home.log(LEDGER).archive()
    if ids(home, LEDGER) != before:
        yield f"{LEDGER} held {before} and holds {ids(home, LEDGER)} after it was archived"
    for key in (TASKS, NEW_DOCUMENT):
        home.document(key).replace(b"{}")
    for key in (INBOX, NEW_INBOX):
        yield from _go_on_with_mail(home, key)
    for key in (LEASE, NEW_LEASE):
        lease = home.lease(key)
        lease.acquire("next")
        lease.close()
    log = home.log(JOURNAL)
    view = home.view(REPORT, log, tally())
    view.refresh()
    answer = view.read()
    view.close()
    log.close()
    lines = [line for line in home.log(JOURNAL).read() if isinstance(line, Line)]
    count = sum(CONTROL not in line.record for line in lines)
    if answer["lines"] != count:
        yield f"{REPORT} counts {answer['lines']} lines, there are {count}"


def _go_on_with_mail(home: Home, key: str) -> Iterator[str]:
    """Everything that waits or was claimed can be had, and is done once."""
    before, box = mail_in(home, key), home.mailbox(key)
    box.deliver({"id": "next"}, id="next")
    for claimed in box.claimed():
        box.give_back(claimed, "next")
    for claim in box.claim("next", fence=9, seconds=60.0, limit=99):
        box.ack(claim)
    done = sorted(message.id for message in box.done())
    if done != sorted({*before, "next"}) or mail_in(home, key) != done:
        yield f"after {before} and one more, {done} are done and {mail_in(home, key)} there"


def _append(home: Home, key: str) -> None:
    log = home.log(key)
    log.append({"id": "next"})
    log.close()


def _findings(operation: Operation, home: Home) -> Iterator[str]:
    for finding in check(home):
        if finding.kind == "temporary":
            yield f"{finding.key} is left after the next write"
        elif finding.kind not in HARMLESS and finding.kind != _expected(operation):
            yield f"check says {finding.kind}: {finding.key}: {finding.detail}"


def _expected(operation: Operation) -> str:
    """The one finding that an operation's home had from the beginning."""
    return "cut" if operation.name == "view_of_cut_tail" else ""
