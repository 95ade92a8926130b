"""What an agent has to do: tasks.json, which people edit as well.

How often a task failed is not kept in it: sessions say on which task they work and how they
ended, so the journal knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

from holdfast.agents.document import OwnObject, as_object, parsed
from holdfast.agents.endings import number_of
from holdfast.agents.journal import State
from holdfast.clock import utc_stamp
from holdfast.codec import Record, pretty
from holdfast.contracts import formats
from holdfast.errors import NotFound, UsageError
from holdfast.state.statelog import StateLog
from holdfast.store.merge import merge_json
from holdfast.text import one_line

if TYPE_CHECKING:
    from holdfast.store.home import Home

Verb = Literal["start", "done", "drop", "reopen"]
Type = Literal["research", "extract", "evaluate", "follow-up", "disconfirm"]
Priority = Literal["high", "medium", "low"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
OPEN = ("pending", "active")
STATUSES = (*OPEN, "completed", "dropped")
MOST_TEXT = 20_000
"""Characters of a description, a context or an outcome."""


class _Step(NamedTuple):
    """What a verb makes of a task."""

    to: str
    event: str
    did: str


STEPS: dict[Verb, _Step] = {
    "start": _Step("active", "task_started", "started"),
    "done": _Step("completed", "task_completed", "completed"),
    "drop": _Step("dropped", "task_dropped", "dropped"),
    "reopen": _Step("pending", "task_reopened", "reopened"),
}
ADDED, PARKED = "task_added", "task_parked"


class New(NamedTuple):
    """A task that is not on the list yet."""

    description: str
    type: Type = "research"
    priority: Priority = "medium"
    context: str | None = None
    follow_up_from: str | None = None
    from_message: str | None = None
    """The message it was made of; of one message there is one task."""

    def check(self) -> None:
        if not self.description.strip():
            raise UsageError("a task without a text", hint="say what is to be done")
        for text in (self.description, self.context):
            check_length(text)


def check_length(text: str | None) -> None:
    if text is not None and len(text) > MOST_TEXT:
        raise UsageError(
            f"{len(text)} characters; a task has room for {MOST_TEXT}",
            hint="store the text as a file and name it",
        )


def with_status(task: Record) -> Record:
    """The task as it is meant: one that a person wrote may lack a status, or have a word of its own
    there."""
    word = formats.meant_choice(task.get("status"), (*STATUSES, *STEPS)) or "pending"
    status = STEPS[word].to if word in STEPS else word
    return task if task.get("status") == status else {**task, "status": status}


class Changed(NamedTuple):
    task: Record
    applied: bool
    """False if it was so already."""
    follow_up: Record | None = None


# --- as a list shows them -------------------------------------------------------------------


def state_of(task: Record) -> str:
    """Its status, or that it is parked."""
    return "parked" if task.get("parked") else str(task.get("status"))


def parked_because(task: Record) -> str:
    """Why it is parked; empty if it is not."""
    parked = task.get("parked")
    return str(as_object(parked).get("reason") or "by hand") if parked else ""


def in_order(tasks: Sequence[Record]) -> list[Record]:
    """Urgent ones first, then as they stand in the file."""
    rank: dict[object, int] = {name: number for number, name in enumerate(PRIORITIES)}
    return sorted(tasks, key=lambda task: rank.get(task.get("priority"), 1))


# --- what may become of a task --------------------------------------------------------------


def allowed(task: Record) -> list[Verb]:
    """The verbs that a task can take now."""
    match task.get("status"):
        case "pending" if task.get("parked"):
            return ["reopen", "done", "drop"]
        case "pending":
            return ["start", "done", "drop"]
        case "active":
            return ["done", "drop", "reopen"]
        case _:
            return ["reopen"]


def moved(task: Record, verb: Verb, now: str, outcome: str | None = None) -> Record | None:
    """The task after a verb; None if it is so already, UsageError if it cannot be."""
    if verb not in allowed(task):
        # Who does not know whether it worked may say it again; but a parked task is not started.
        if task.get("status") == STEPS[verb].to:
            return None
        state = "parked" if task.get("parked") else task.get("status")
        raise UsageError(
            f"{task.get('id')} is {state} and cannot be {STEPS[verb].did}",
            hint=f"allowed: {', '.join(allowed(task))}",
        )
    after = {name: value for name, value in task.items() if name != "parked"}
    ended = verb in ("done", "drop")
    after |= {"status": STEPS[verb].to, "completed_at": now if ended else None}
    if ended or verb == "reopen":
        after["outcome"] = outcome
    return after


# --- the list -------------------------------------------------------------------------------


class TaskList(OwnObject):
    """The tasks of one agent."""

    listed = "tasks"

    def __init__(self, home: Home, agent: str, key: str, journal: StateLog[State]) -> None:
        super().__init__(home, agent, key, journal.log)
        self._course = journal

    def _merged(self, base: str, ours: str, theirs: str) -> str:
        return merged(base, ours, theirs, self.endings()["highest"])

    def endings(self) -> Record:
        """How sessions ended, and what that says of tasks; look at it, do not change it."""
        return self._course.state()[1]["endings"]

    def read(self) -> list[Record]:
        """Every task, in the order of the file; what was edited by hand is taken in first."""
        found = parsed(self._document.read() or "", "tasks")
        return [with_status(task) for task in _tasks_in(found)]

    def look(self) -> list[Record]:
        """Every task as the file has it, without a byte being written."""
        return [with_status(task) for task in _tasks_in(self._look())]

    def failures(self) -> dict[str, tuple[int, str]]:
        """How often in a row sessions on a task failed, and why the last time."""
        failed = self.endings()["failed"]
        return {task: (times, why) for task, (times, why) in failed.items()}

    def add(self, new: New) -> Changed:
        new.check()
        act: Record = {"event": ADDED}
        made: list[Changed] = []

        def change(document: Record) -> None:
            tasks = _tasks_in(document)
            for task in tasks:
                if new.from_message is not None and task.get("from_message") == new.from_message:
                    made.append(Changed(task, applied=False))
                    return
            made.append(Changed(self._append(document, new), applied=True))
            task = made[0].task
            act.update(task=task["id"], message=one_line(task["description"])[:200])

        self._change(change, act)
        return made[0]

    def move(
        self, id: str, verb: Verb, outcome: str | None = None, follow_up: str | None = None
    ) -> Changed:
        """Take a task a step on; `follow_up` is the text of a task that comes out of it."""
        check_length(outcome)
        outcome = outcome and self._home.mask(outcome)
        act: Record = {"event": STEPS[verb].event, "task": id}
        made: list[Changed] = []

        def change(document: Record) -> None:
            tasks = cast("list[Record]", document["tasks"])
            at = self._find(tasks, id)
            task = with_status(tasks[at])
            after = moved(task, verb, self._now(), outcome)
            if after is None:
                made.append(Changed(task, applied=False))
                return
            tasks[at] = after
            if outcome:
                act["message"] = one_line(outcome)[:200]
            new = None
            if follow_up is not None:
                priority = after.get("priority")
                wanted = New(
                    follow_up,
                    "follow-up",
                    priority if priority in PRIORITIES else "medium",
                    follow_up_from=id,
                )
                wanted.check()
                new = self._append(document, wanted)
            made.append(Changed(after, applied=True, follow_up=new))

        self._change(change, act)
        return made[0]

    def park(self) -> list[str]:
        """Hand out no more what has failed too often; the ids that were parked now."""
        if not self._course.known()[1]["endings"]["failed"]:
            return []
        history = self.endings()
        # Not since it was parked: who takes the mark out by hand wants another try.
        parked: dict[str, int] = history["parked"]
        due = [id for id, (times, _) in history["failed"].items() if times > parked.get(id, 0)]
        limit = self._home.current_settings().park_after if due else 0
        due = [id for id in due if history["failed"][id][0] >= limit]
        return [id for id in due if self._park(id, *history["failed"][id])]

    def _park(self, id: str, times: int, why: str) -> bool:
        parked = False

        def change(document: Record) -> None:
            nonlocal parked
            for task in _tasks_in(document):
                if task.get("parked") or with_status(task)["status"] not in OPEN:
                    continue
                if task.get("id") == id:
                    reason = f"failed {times} times, the last time: {why}"
                    mark = {"reason": reason, "attempts": times, "since": self._now()}
                    task |= {"status": "pending", "parked": mark}
                    parked = True

        self._change(change, {"event": PARKED, "task": id, "message": one_line(why)[:200]})
        return parked

    def _find(self, tasks: Sequence[Record], id: str) -> int:
        for at, task in enumerate(tasks):
            if task.get("id") == id:
                return at
        hint = f"`holdfast task list --agent {self.agent} --status all`"
        raise NotFound(f"{self.agent} has no task {id[:60]!r}", hint=hint)

    def find(self, id: str) -> Record:
        tasks = self.read()
        return tasks[self._find(tasks, id)]

    def _append(self, document: Record, new: New) -> Record:
        """Under the lock of the document, so that no number is given twice."""
        tasks = cast("list[Record]", document["tasks"])
        highest = self.endings()["highest"]
        task: Record = {
            "id": next(_free_ids(map(_id_of, tasks), highest)),
            "type": new.type,
            "description": new.description,
            "status": "pending",
            "priority": new.priority,
            "created_at": self._now(),
            "context": new.context,
            "follow_up_from": new.follow_up_from,
            "completed_at": None,
            "outcome": None,
        }
        if new.from_message is not None:
            task["from_message"] = new.from_message
        tasks.append(task := self._home.mask(task))
        return task

    def _change(self, change: Callable[[Record], None], act: Record) -> None:
        def rewritten(text: str) -> str:
            document = self._parsed(text)
            before = pretty(document)
            change(document)
            if pretty(document) == before:
                return text
            fresh = {"schema_version": "1.0", "agent": self.agent, "updated_at": self._now()}
            return pretty({**fresh, **document, "updated_at": fresh["updated_at"]}).decode()

        self._document.update(rewritten, act)

    def _now(self) -> str:
        return utc_stamp(self._home.clock.now())


# --- the file -------------------------------------------------------------------------------


def _tasks_in(document: Record) -> list[Record]:
    return cast("list[Record]", document["tasks"])


def merged(base: str, ours: str, theirs: str, highest: int = 0) -> str:
    """Both sides' changes; a task that somebody added without an id of its own gets one, with a
    number above `highest`."""
    document, before, mine = (parsed(text, "tasks") for text in (theirs, base, ours))
    is_theirs_alone = base == ours or not ours.strip()
    known = _unique_ids(before)
    if _name_again(before, mine, known):
        before["tasks"] = [task for task in _tasks_in(before) if _id_of(task)]
        base = pretty(before).decode()
    if _give_ids(document, before, mine, known, highest):
        theirs = pretty(document).decode()
    # Byte for byte, where only one side changed.
    return theirs if is_theirs_alone else merge_json(base, ours, theirs)


def _unique_ids(document: Record) -> set[str]:
    """The ids in it; of two tasks with the same one, only the first has it."""
    seen: set[str] = set()
    for task in _tasks_in(document):
        if not _id_of(task) or _id_of(task) in seen:
            task["id"] = None
        seen.add(_id_of(task))
    return seen - {""}


def _name_again(document: Record, mine: Record, known: set[str]) -> bool:
    """Give tasks the ids that they got when the same buffer, which lacks them, was saved before."""
    ids = {_id_of(task) for task in _tasks_in(document)}
    # Of two with one id the last, so that it is given once.
    by_id = {_id_of(task): task for task in _tasks_in(mine)}
    free = [task for id, task in by_id.items() if id and id not in ids]
    nameless = [task for task in _tasks_in(document) if not _id_of(task)]
    for task in nameless:
        same = [each for each in free if _said(each) == _said(task)]
        # Those that they knew by their ids are gone because they took them out.
        since = [each for each in free if _id_of(each) not in known]
        same += [each for each in since if each.get("description") == task.get("description")]
        if same:
            task |= {**with_status(task), "id": same[0]["id"]}
            free.remove(same[0])
    return bool(nameless)


def _said(task: Record) -> Record:
    return {**with_status(task), "id": None}


def _give_ids(
    document: Record, before: Record, mine: Record, known: set[str], highest: int
) -> bool:
    written = [task.get("id") for task in _tasks_in(document)]
    _unique_ids(document)
    _name_again(document, mine, known)
    ids = [_id_of(task) for each in (document, before, mine) for task in _tasks_in(each)]
    free = _free_ids(ids, highest)
    for task in _tasks_in(document):
        if not _id_of(task):
            task |= {**with_status(task), "id": next(free)}
    return written != [task["id"] for task in _tasks_in(document)]


def _free_ids(taken: Iterable[str], highest: int) -> Iterator[str]:
    """Ids that no task has or had."""
    ids = {*taken}
    numbers = count(max(highest, *map(number_of, ids), 0) + 1)
    return (id for id in (f"task-{number:03d}" for number in numbers) if id not in ids)


def _id_of(task: Record) -> str:
    id = task.get("id")
    return id if isinstance(id, str) else ""


# --- the board ------------------------------------------------------------------------------

DONE_SHOWN = 10
"""How many finished tasks of an agent are shown, the newest."""
_STAMP = re.compile(r"<!-- tasks of a Holdfast home ([0-9a-f]{16}) -->\n")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#&])")
_STATES = ("active", "pending", "parked", "completed", "dropped")


def board(tasks: Mapping[str, Sequence[Record]]) -> str:
    """All agents' tasks as one page of Markdown, for people.

    The first line carries a digest of what follows, by which `is_untouched` tells a page that was
    edited since.  What an agent wrote stands in it as text, not as Markdown.
    """
    body = "\n".join(_board_lines(tasks)) + "\n"
    return f"<!-- tasks of a Holdfast home {_digest(body)} -->\n{body}"


def is_untouched(page: str) -> bool:
    """Whether a page is a board that was not edited."""
    stamp = _STAMP.match(page)
    return stamp is not None and stamp[1] == _digest(page[stamp.end() :])


def _digest(body: str) -> str:
    return sha256(body.encode()).hexdigest()[:16]


def _board_lines(tasks: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    yield "# Tasks"
    for agent, listed in tasks.items():
        yield f"\n## {agent}"
        groups = {state: [t for t in listed if state_of(t) == state] for state in _STATES}
        if not any(groups.values()):
            yield "\nNothing to do."
        for state, group in groups.items():
            finished = state in ("completed", "dropped")
            shown = group[-DONE_SHOWN:] if finished else in_order(group)
            if shown:
                yield f"\n### {state.capitalize()}\n"
            yield from (_item(task, finished=finished) for task in shown)
            if len(shown) < len(group):
                yield f"\n{len(group) - len(shown)} older ones are not shown."


def _item(task: Record, *, finished: bool) -> str:
    words = f"{task.get('priority', 'medium')}, {task.get('type', 'research')}"
    reason, outcome = parked_because(task), task.get("outcome")
    more = f" — parked: {_plain(reason)}" if reason else ""
    more += f" — {_plain(outcome)}" if finished and outcome else ""
    text = _plain(task.get("description"))
    return f"- [{'x' if finished else ' '}] {_plain(task.get('id'))} ({_plain(words)}) {text}{more}"


def _plain(text: object) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))
