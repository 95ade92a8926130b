"""All agents' tasks as one page of Markdown, for people.

    ## rio
    ### Active
    - [ ] task-003 (high, research) Find out who sets the fees

The first line carries a digest of what follows, so that a page that somebody has edited since is
told from one that may be made anew.  What an agent wrote stands in it as text, not as Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from holdfast.agents.document import as_object
from holdfast.agents.tasks import PRIORITIES
from holdfast.codec import Record

DONE_SHOWN = 10
"""How many finished tasks of an agent are shown, the newest."""
_STAMP = re.compile(r"<!-- tasks of a Holdfast home ([0-9a-f]{16}) -->\n")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#&])")
_STATES = ("active", "pending", "parked", "completed", "dropped")
_RANK = {name: number for number, name in enumerate(PRIORITIES)}


def state_of(task: Record) -> str:
    """Its status, or that it is parked."""
    return "parked" if task.get("parked") else str(task.get("status"))


def parked_because(task: Record) -> str:
    """Why it is parked; empty if it is not."""
    parked = task.get("parked")
    return str(as_object(parked).get("reason") or "by hand") if parked else ""


def in_order(tasks: Sequence[Record]) -> list[Record]:
    """Urgent ones first, then as they stand in the file."""
    return sorted(tasks, key=lambda task: _RANK.get(str(task.get("priority")), 1))


def board(tasks: Mapping[str, Sequence[Record]]) -> str:
    """The page."""
    body = "\n".join(_lines(tasks)) + "\n"
    return f"<!-- tasks of a Holdfast home {_digest(body)} -->\n{body}"


def is_untouched(page: str) -> bool:
    """Whether a page is one of ours that nobody has edited."""
    stamp = _STAMP.match(page)
    return stamp is not None and stamp[1] == _digest(page[stamp.end() :])


def _digest(body: str) -> str:
    return sha256(body.encode()).hexdigest()[:16]


def _lines(tasks: Mapping[str, Sequence[Record]]) -> Iterator[str]:
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
