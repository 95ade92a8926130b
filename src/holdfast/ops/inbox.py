"""The verbs of messages between agents."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NamedTuple

from holdfast.agents.agent import Agent
from holdfast.agents.history import open_sessions
from holdfast.agents.inbox import Letter, New, Priority, Type, rendered, trust
from holdfast.clock import utc_stamp
from holdfast.codec import Record
from holdfast.errors import Conflict, HoldfastError, NotFound, UsageError, recorded
from holdfast.ids import agent_id, is_agent_id
from holdfast.ledger.book import agents
from holdfast.models.marks import WARNING, new_mark
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show, tally
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun, OfAgent, moment
from holdfast.proc import procfs
from holdfast.process import alive
from holdfast.text import duration, one_line

ALL = "all"
Whose = Annotated[str, Arg("Whose inbox")]
Id = Annotated[str, Arg("Which message", positional=True, metavar="ID")]
_MOST_TAKEN = 1_000


# --- sending --------------------------------------------------------------------------------


@example('holdfast inbox send --from leo --to rio --priority high --subject Fees "See #12"')
def send(
    call: Context,
    body: Annotated[str, Arg("What there is to say", positional=True, or_file=True)],
    *,
    to: Annotated[str, Arg("To whom: a name, names with commas between, or all")],
    subject: Annotated[str, Arg("What it is about, in a line")],
    from_: Annotated[
        str | None, Arg("Who sends it; in a session, its agent", metavar="AGENT")
    ] = None,
    type: Annotated[Type, Arg("What it asks for")] = "flag",
    priority: Annotated[
        Priority, Arg("High ones are in the context of the next session")
    ] = "normal",
    expires: Annotated[
        str | None, Arg("Not to be handed out after that: 2h, or a time", metavar="T")
    ] = None,
    source_ref: Annotated[str | None, Arg("Where it comes from: a branch, a session")] = None,
    thread: Annotated[str | None, Arg("What it belongs to", metavar="ID")] = None,
    id: Annotated[str | None, Arg("To send again what may have been sent", metavar="ID")] = None,
    dry_run: DryRun = False,
) -> Change:
    home = call.home_to_change()
    caller = os.environ.get("HOLDFAST_AGENT", "")
    named = caller.lower() if is_agent_id(caller) else None
    sender = agent_id(from_).lower() if from_ is not None else named
    seen = named if named is not None and _is_proven(call, named) else None
    if sender is None:
        raise UsageError("nobody sends it", hint="say who with --from")
    new = New(
        sender=sender,
        subject=one_line(subject),
        body=body,
        type=type,
        priority=priority,
        source_ref=source_ref,
        expires=None if expires is None else _until(call, expires),
        thread=thread,
        sent_by=seen,
        id=id,
    )
    new.check()
    new = new.named(home.clock.now())
    names = _recipients(call, to, sender)
    if seen is not None and seen != sender:
        call.warn(f"sent as {sender} in a session of {seen}; the message says so")
    sent = [] if dry_run else _deliver(call, new, names, again=id is not None)
    if sent and type == "flag":
        counter = seen or sender
        with recorded(f"message {new.id} to {', '.join(sent)}", "only the count of it is missing"):
            if counter in agents(home, call.layout):
                with call.agent(counter, change=True) as one:
                    one.desk.count_sent(len(sent), str(new.id), again=id is not None)
    told = "would go" if dry_run else "sent"
    data = {"id": new.id, "to": names, "from": sender, "sent_by": seen}
    detail = f"{new.id} {told} to {', '.join(names)}"
    return Change(str(new.id), not dry_run, detail, data=data, dry_run=dry_run)


def _is_proven(call: Context, name: str) -> bool:
    """Whether this process descends from the owner of a session of the agent that is under way."""
    chain = [*procfs.ancestors()]
    above = {each.process for each in chain}
    with suppress(NotFound), call.agent(name) as one:
        for session in open_sessions(one.state()):
            held = one.holder(session["role"])
            owner = held.owner if held is not None else None
            if owner is not None and alive(owner) and (owner.pid, owner.started) in above:
                return True
            # In a pid namespace the owner cannot be seen; the first process there is the keeper.
            tree = session["tree"]
            if tree and procfs.kept_by(chain[-1].pid) == tree["id"]:
                return True
    return False


def _until(call: Context, text: str) -> float:
    home = call.home()
    now = home.clock.now()
    try:
        when = now + duration(text)
    except UsageError:
        when = moment(text, home)
    if when <= now:
        raise UsageError(f"{utc_stamp(when)} is over", hint="such as 2h, 7d or a date to come")
    return when


def _recipients(call: Context, to: str, sender: str) -> list[str]:
    known = agents(call.home(), call.layout)
    if to.strip() == ALL:
        names = [name for name in known if name != sender]
    else:
        names = list(dict.fromkeys(agent_id(each.strip()).lower() for each in to.split(",")))
    if unknown := [name for name in names if name not in known]:
        hint = f"known: {', '.join(known)}" if known else "`holdfast init NAME` makes one"
        raise NotFound(f"no agent called {unknown[0]}; nothing was sent", hint=hint)
    if not names:
        raise NotFound("nobody to send it to", hint="`holdfast init NAME` makes an agent")
    return names


def _deliver(call: Context, new: New, names: list[str], *, again: bool) -> list[str]:
    sent: list[str] = []
    for name in names:
        try:
            with call.agent(name, change=True) as one:
                one.desk.inbox.deliver(new)
                if again:
                    one.desk.inbox.check_same(new)
        except Conflict:
            raise
        except HoldfastError as error:
            if not sent:
                raise
            hint = f"{', '.join(sent)} have it; repeat with --id {new.id} for the others"
            raise type(error)(error.message, hint=hint, path=error.path) from error
        sent.append(name)
    return sent


# --- looking --------------------------------------------------------------------------------


@example(
    "holdfast inbox list --agent rio", columns="id state priority type from subject attempt note"
)
def list_(
    call: Context,
    *,
    agent: Whose,
    dead: Annotated[bool, Arg("Those that nobody could deal with")] = False,
    expired: Annotated[bool, Arg("Those that were too late")] = False,
    done: Annotated[bool, Arg("Those that are dealt with")] = False,
    bad: Annotated[bool, Arg("Files that are no messages")] = False,
) -> Rows:
    with call.agent(agent) as one:
        inbox = one.desk.inbox
        chosen: list[Letter] = []
        for wanted, shelf in (
            (dead, inbox.dead),
            (expired, inbox.expired),
            (done, partial(inbox.finished, "done")),
            (bad, inbox.bad),
        ):
            chosen += shelf() if wanted else ()
        if not (dead or expired or done or bad):
            looked = inbox.look()
            chosen = inbox.claimed() + inbox.waiting(looked)
            _tell_of(call, one.name, {"bad": len(inbox.bad(looked)), "dead": len(inbox.dead())})
    rows = [_row(letter) for letter in chosen]
    return Rows(rows, {"messages": len(rows), **tally(rows, "state")})


def _tell_of(call: Context, agent: str, aside: dict[str, int]) -> None:
    for what, number in aside.items():
        if number:
            call.warn(f"{number} {what}: `holdfast inbox list --agent {agent} --{what}`")


def _row(letter: Letter) -> Record:
    names = ("priority", "type", "from", "subject", "created_at", "expires_at", "thread")
    row: Record = {"id": letter.id, "state": letter.state}
    row |= {name: letter.record.get(name) for name in names}
    tries = letter.attempt or None
    row |= {"attempt": tries, "redelivered": tries and tries > 1, "note": letter.note}
    seen = letter.record.get("sent_by")
    if seen is not None:
        row["sent_by"] = seen
        if seen != letter.record.get("from"):
            row["note"] = trust(letter.record)
    if letter.claimed is not None:
        left = round(letter.claimed.left)
        row |= {"claimed_by": letter.claimed.claimant, "claim": letter.claimed.token, "left": left}
        row["note"] = row["note"] or f"{letter.claimed.claimant} has it for {left} s"
    return row | {"since": utc_stamp(letter.since)}


@example("holdfast inbox show --agent rio msg-abc123")
def show(call: Context, id: Id, *, agent: Whose) -> Show:
    with call.agent(agent) as one:
        letter = one.desk.inbox.find(id)
    return Show(_whole(letter))


def _whole(letter: Letter) -> Record:
    """A message with all that it says."""
    return {**letter.record, **_row(letter), "trust": trust(letter.record)}


class Mail(NamedTuple):
    """What a page shows of an inbox."""

    letters: list[Record]
    """The first of those that wait or are taken, whole."""
    more: int
    """How many others there are."""
    aside: list[Record]
    """Dead, expired and bad ones."""


def mail_of(call: Context, agent: str, most: int) -> Mail:
    """All of it at once: a page is drawn often, and an inbox may hold thousands of files."""
    with call.agent(agent) as one:
        inbox = one.desk.inbox
        looked = inbox.look()
        there = inbox.claimed() + inbox.waiting(looked)
        late = [each for each in there if each.state == "expired"]
        aside = inbox.dead() + late + inbox.finished("expired") + inbox.bad(looked)
    living = [each for each in there if each.state != "expired"]
    more = max(0, len(living) - most)
    return Mail([_whole(each) for each in living[:most]], more, [_row(each) for each in aside])


# --- taking and giving back -----------------------------------------------------------------


@example(
    "holdfast inbox take --agent rio --lease 10m --limit 5",
    columns="id priority type from subject attempt",
)
def take(
    call: Context,
    id: Annotated[
        str | None, Arg("This one, not the next in order", positional=True, metavar="ID")
    ] = None,
    *,
    agent: Whose,
    lease: Annotated[str, Arg("For how long; then they are handed out again", metavar="D")] = "10m",
    limit: Annotated[int, Arg("How many at most")] = 1,
) -> Rows:
    if not 1 <= limit <= _MOST_TAKEN:
        raise UsageError(f"not a number of messages: {limit}", hint=f"1 to {_MOST_TAKEN}")
    seconds = duration(lease)
    with call.agent(agent, change=True) as one:
        inbox = one.desk.inbox
        if id is None:
            taken = inbox.take(one.name, seconds=seconds, limit=limit)
        else:
            taken = [inbox.take_chosen(one.name, id, seconds=seconds)]
        _tell_of(call, one.name, {"bad": len(inbox.bad())})
    letters = [Letter(each.id, "claimed", each.record, each.attempt) for each in taken]
    rows = [
        {**each.record, "id": each.id, "attempt": each.attempt, "redelivered": each.redelivered}
        | {"claim": each.token, "trust": trust(each.record)}
        for each in taken
    ]
    text = "\n".join([WARNING, "", *rendered(letters, new_mark())])
    return Rows(rows, {"messages": len(rows)}, plain=text.split("\n") if rows else None)


@example("holdfast inbox ack --agent rio msg-abc123 --as-task")
def ack(
    call: Context,
    id: Id,
    *,
    agent: Whose,
    as_task: Annotated[bool, Arg("Make a task of it")] = False,
) -> Change:
    data: dict[str, Any] = {}
    with call.agent(agent, change=True) as one:
        letter = one.desk.inbox.claim_of(id)
        if letter is None:
            return _not_claimed(one, id)
        if as_task:
            data["task"] = one.desk.as_task(letter).task["id"]
        owed = one.desk.ack(letter)
    if owed is not None:
        call.warn(f"{owed}; {letter.id} is noted when that is mended")
    more = f", {data['task']} was made of it" if as_task else ""
    return Change(letter.id, applied=True, detail=f"{letter.id} is done{more}", data=data)


def _not_claimed(one: Agent, id: str) -> Change:
    """What to say of a message that nobody has."""
    letter = one.desk.inbox.find(id)
    if letter.state == "done":
        return Change(id, applied=False, detail=f"{id} is done already")
    raise UsageError(
        f"{id} is {letter.state}, and nobody has taken it",
        hint=f"`holdfast inbox take --agent {one.name}` first",
    )


@example("holdfast inbox return --agent rio msg-abc123")
def return_(
    call: Context,
    id: Id,
    *,
    agent: Whose,
    reason: Annotated[
        str, Arg("Why nothing came of it; on record if that was the last try")
    ] = "returned",
) -> Change:
    with call.agent(agent, change=True) as one:
        inbox = one.desk.inbox
        letter = inbox.claim_of(id)
        if letter is not None and letter.claimed is not None:
            again = inbox.box.give_back(letter.claimed, reason)
            told = "waits again" if again else "was handed out too often and is dead"
            return Change(letter.id, applied=True, detail=f"{letter.id} {told}")
        letter = inbox.find(id)
        if letter.state == "dead" and letter.record:
            inbox.box.deliver(letter.record, id=letter.id)
            return Change(id, applied=True, detail=f"{id} waits again")
    if letter.state == "waiting":
        return Change(id, applied=False, detail=f"{id} waits already")
    raise UsageError(f"{id} is {letter.state}", hint="only what was taken, or is dead, goes back")


@example("holdfast inbox purge --older-than 90d --dry-run", columns="agent messages file")
def purge(
    call: Context,
    *,
    agent: OfAgent = None,
    older_than: Annotated[str, Arg("Dealt with, and delivered so long ago", metavar="D")] = "90d",
    dry_run: DryRun = False,
) -> Rows:
    home = call.home_to_change()
    before = home.clock.now() - duration(older_than)
    names = [agent_id(agent).lower()] if agent is not None else agents(home, call.layout)
    rows: list[Record] = []
    for name in names:
        with call.agent(name, change=True) as one:
            folder = f"{one.key('agent')}/purged"
            count, files = one.desk.inbox.purge(before, folder, dry_run=dry_run)
        if count:
            rows.append({"agent": name, "messages": count, "file": ", ".join(files) or None})
    return Rows(rows, {"messages": sum(row["messages"] for row in rows), "dry_run": dry_run})
