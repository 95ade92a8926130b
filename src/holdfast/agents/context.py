"""What an agent is given to begin a session with, as one Markdown text.

How the last session ended and what it left to say, memory.md, what was found in memory about the
task, pending tasks, urgent messages in full, the others by subject.  What agents and others wrote
stands between random marks, so that no text in it can pass for Holdfast's.  Journal and ledger are
never part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents import history
from holdfast.agents.document import object_at, objects_in
from holdfast.agents.inbox import Letter, rendered
from holdfast.agents.notes import MOST_SHOWN, bounded
from holdfast.agents.tasks import OPEN, in_order, with_status
from holdfast.clock import utc_stamp
from holdfast.codec import Record
from holdfast.models.marks import ABOUT, WARNING, between, cut, in_one_line, new_mark

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent
    from holdfast.memory.search import MemoryHit
    from holdfast.store.home import Home

MOST_MEMORY = MOST_SHOWN
"""Characters of memory.md; beyond that each section keeps its newest entries."""
_LEAST_MEMORY = 1_000
MOST_HITS, MOST_FOUND, LONGEST_HIT = 8, 4_000, 800
"""Texts from memory; characters of all of them, about 1,000 tokens; and of one."""
MOST_TASKS = 20
MOST_SUBJECTS = 20
_LONGEST_CLOSING = 40  # characters


class Given(NamedTuple):
    """What the text is made of."""

    agent: str
    last: Record | None
    """How the session before ended, and what it left to say."""
    so_far: Record
    """What the one under way has left until now."""
    memory: str
    tasks: Sequence[Record]
    urgent: Sequence[Letter]
    others: Sequence[Letter]
    """Normal messages: only their subjects are shown."""
    found: Sequence[MemoryHit] = ()
    """What memory has about the task, the best first."""


def gather(home: Home, agent: Agent) -> Given:
    """Everything an agent should know; nothing is claimed or changed by looking."""
    given = Given(
        agent.name,
        history.last_session(agent.state()),
        history.left_so_far(agent.state()),
        agent.desk.notes.look(),
        pending(object_at(home, agent.key("tasks"))),
        (),
        (),
    )
    return with_mail(agent, given)


def with_mail(agent: Agent, given: Given, session: str | None = None) -> Given:
    """The same with the messages as they are now: what a session was handed, and what waits.

    Without a session, what all that are under way were handed.
    """
    handed = agent.desk.handed_out(session)
    known = {each.id for each in handed}
    waiting = [each for each in agent.desk.inbox.takeable() if each.id not in known]
    urgent = handed + [each for each in waiting if each.is_urgent]
    return given._replace(urgent=urgent, others=[each for each in waiting if not each.is_urgent])


def pending(document: Record) -> list[Record]:
    """The tasks that are to be done: urgent ones first, parked ones not at all."""
    found = map(with_status, objects_in(document.get("tasks")))
    return in_order([each for each in found if each["status"] in OPEN and not each.get("parked")])


# --- as text --------------------------------------------------------------------------------


def compose(given: Given, mark: str | None = None, most_memory: int = MOST_MEMORY) -> str:
    """The text; `mark` is what the words of agents and others stand between."""
    mark = mark or new_mark()
    parts = [
        f"# What {given.agent} should know\n\n{ABOUT}\n",
        *_last_session(given.last, mark),
        *_this_session(given.so_far, mark),
        *_memory(given.memory, most_memory, mark),
        *_found(given.found, mark),
        *_tasks(given.tasks, mark),
        *_messages(given, mark),
    ]
    return "\n".join(parts)


def fitted(given: Given, most: int, whole: str) -> str:
    """The text in `most` characters: memory gives way first; `whole` says where the rest is."""
    mark = new_mark()
    text = compose(given, mark)
    if len(text) > most:
        room = min(len(given.memory), MOST_MEMORY) - (len(text) - most)
        text = compose(given, mark, most_memory=max(room, _LEAST_MEMORY))
    note = f"\n[left out here: {whole}]\n"
    room = most - len(note) - _LONGEST_CLOSING
    return text if len(text) <= most else cut(text, room, mark) + note


def _last_session(last: Record | None, mark: str) -> Iterator[str]:
    if last is None:
        yield "## Last session\n\nThis is the first one.\n"
        return
    outcome, cause = last["outcome"], last["cause"]
    why = f" ({cause})" if cause and cause != outcome else ""
    yield f"## Last session\n\n- {last['id']}: {outcome}{why}\n"
    yield from _left(last, mark, Summary=last["summary"])


def _this_session(so_far: Record, mark: str) -> Iterator[str]:
    if so_far:
        yield f"## This session so far\n\n- {so_far['id']}: running\n"
        yield from _left(so_far, mark)


def _left(said: Record, mark: str, **more: str | None) -> Iterator[str]:
    """What a session leaves to the next one, a line each."""
    told = {
        **more,
        "Handoff": said.get("handoff_notes"),
        "Next": said.get("next_priority"),
        "Blocked by": said.get("blocked_by"),
    }
    lines = [f"- {name}: {in_one_line(text)}" for name, text in told.items() if text]
    if lines:
        yield between("session", mark, "\n".join(lines)) + "\n"


def _memory(text: str, most: int, mark: str) -> Iterator[str]:
    if text.strip():
        shown = between("memory", mark, bounded(text, most).strip())
        yield f"## Memory\n\n{shown}\n"


def _found(found: Sequence[MemoryHit], mark: str) -> Iterator[str]:
    lines, left = list[str](), MOST_FOUND
    for hit in found:
        said, when = in_one_line(hit.text), utc_stamp(hit.ts)[:10] if hit.ts is not None else ""
        said = said if len(said) <= LONGEST_HIT else f"{said[: LONGEST_HIT - 1]}…"
        line = f"- [{', '.join(filter(None, (hit.id, when, hit.topic)))}] {said}"
        left -= len(line)
        if left < 0:
            break
        lines.append(line)
    if lines:
        yield f"## Found in memory\n\n{between('found', mark, chr(10).join(lines))}\n"


def _tasks(tasks: Sequence[Record], mark: str) -> Iterator[str]:
    if not tasks:
        return
    lines = [
        in_one_line(
            f"- [{task.get('id')}] ({task.get('priority', 'medium')}, {task.get('status')}) "
            f"{task.get('description')}"
        )
        for task in tasks[:MOST_TASKS]
    ]
    shown = between("tasks", mark, "\n".join(lines))
    yield f"## Tasks\n\n{shown}"
    if len(tasks) > MOST_TASKS:
        yield f"- and {len(tasks) - MOST_TASKS} more: `holdfast task list`"
    yield ""


def _messages(given: Given, mark: str) -> Iterator[str]:
    if given.urgent:
        yield f"## Urgent messages\n\n{WARNING}\n"
        yield from rendered(given.urgent, mark)
    if given.others:
        yield f"## Other messages: {len(given.others)}\n"
        yield f"`holdfast inbox take --agent {given.agent}` hands them out. {WARNING}\n"
        told = [
            f"- from {in_one_line(each.record.get('from'))}: "
            f"{in_one_line(each.record.get('subject') or each.id)}"
            for each in given.others[:MOST_SUBJECTS]
        ]
        yield between("subjects", mark, "\n".join(told)) + "\n"
