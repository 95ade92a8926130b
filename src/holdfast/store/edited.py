"""An edited document: a text that Holdfast changes, and that anybody may edit meanwhile.

The log is the truth.  A change through here is a line first (the revisions, and the patch
between them), then the file.  A file that is not what the log says was edited by hand: the
difference becomes an `edited_by_hand` line.

Somebody who saves a text that lacks what was added a moment ago has most likely not seen it:
an editor or a script that loaded the file before.  Among the revisions of the last minutes
the one nearest to the saved text is taken as what they began with, and both sides' changes
are merged, so that no acknowledged change is lost.  What they take out of older text, or take
out again after it came back, is gone as they wish; the log has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.clock import instant_of
from holdfast.codec import Record, pretty
from holdfast.errors import Busy, Corrupt, HoldfastError, Indeterminate, StorageError
from holdfast.store.document import revision_of
from holdfast.store.merge import apply, difference, merge_lines, undo, weight
from holdfast.store.primitives import Cell, Line, Log, Sheet, Text
from holdfast.store.view import Shape, View

if TYPE_CHECKING:
    from holdfast.clock import Clock

Merge = Callable[[str, str, str], str]
BY_HAND = "edited_by_hand"
_REMEMBERED, _OVERRULED = 32, 8
"""How many revisions back somebody's buffer can be, of ours and of what they saved before."""
STALE_FOR = 900.0
"""For how many seconds after a change a saved text may have been loaded before it."""
INSISTS_AFTER = 10.0
"""Who saves the same text again so much later has seen what came of it the first time."""
_QUIET, _PAUSE, _PATIENCE = 0.2, 0.05, 5.0
"""Seconds without a write before a text counts as saved, between looks, and until we give up."""
_GRACE = 0.02
_ROUNDS = 20


def _shape(key: str) -> Shape[dict[str, Any]]:
    def fold(state: dict[str, Any], line: Line) -> dict[str, Any]:
        record = line.record
        if record.get("file") != key or "patch" not in record or line.seq is None:
            return state
        new, theirs = record["new"], record.get("theirs", record["new"])
        step = [state["revision"], record["patch"], record["ts"]]
        state["text"] = apply(record["patch"], state["text"])
        state["revision"] = new
        state["steps"] = [*state["steps"], step][-_REMEMBERED:]
        state["known"] = [*state["known"], new, theirs][-2 * _REMEMBERED :]
        if theirs != new:
            saved = apply(record["saved"], state["text"])
            overruled = [*state["overruled"], [theirs, saved, record["ts"]]]
            state["overruled"] = overruled[-_OVERRULED:]
        state["changes"] += 1
        return state

    return Shape(
        version=1,
        initial=lambda: {
            "text": "",
            "revision": "",
            "steps": [],
            "known": [],
            "overruled": [],
            "changes": 0,
        },
        fold=fold,
        render=lambda state: pretty({name: state[name] for name in ("revision", "changes")}),
    )


def anything(_: str) -> None:
    """The check of a text that may be any text."""


class EditedDocument:
    """Used by one thread at a time."""

    def __init__(
        self,
        sheet: Sheet,
        log: Log,
        cell: Cell,
        clock: Clock,
        *,
        merge: Merge = merge_lines,
        check: Callable[[str], object] = anything,
    ) -> None:
        self._sheet, self._log, self._clock = sheet, log, clock
        self._merge, self._check = merge, check
        self._view = View(log, cell, _shape(sheet.key), clock)

    def read(self) -> str | None:
        """The text as it is now, whoever wrote it; None if there never was one."""
        found, state = self._sheet.read(), self._view.read()
        left = self._sheet.left()
        if found is None and not state["changes"]:
            return None
        if found is None or found.revision != state["revision"] or _is_news(state, left):
            with self._sheet.locked():
                state = self._absorb()
            self._view.refresh()
        return state["text"]

    def update(self, change: Callable[[str], str], act: Record) -> str:
        """Change the text; `act` is what the log says of it.  Durable when this returns."""
        with self._sheet.locked():
            state = self._absorb()
            old, new = state["text"], change(state["text"])
            if new != old or not state["changes"]:
                self._note(act, state, new)
                self._show(new)
                state = self._absorb()
        self._view.refresh()
        return state["text"]

    def close(self) -> None:
        self._view.close()
        self._sheet.close()

    # -- under the lock ----------------------------------------------------------------

    def _absorb(self) -> dict[str, Any]:
        """Bring log and file together, until nobody has edited in between."""
        for _ in range(_ROUNDS):
            state, found, left = self._view.read(), self._sheet.read(), self._sheet.left()
            if left is not None and _is_news(state, left):
                self._take_in(state, self._at_rest(self._sheet.left) or left)
            elif found is None:
                if not state["changes"]:
                    return state
                self._show(state["text"])  # to empty it, save it empty
            elif found.revision == state["revision"]:
                return state
            elif _is_behind(state, found, left):
                self._show(state["text"])
            else:
                self._take_in(state, self._at_rest(self._sheet.read) or found)
        raise Busy(
            f"{self._sheet.key} is edited faster than it can be read",
            hint="try again when whoever writes it has come to rest",
            path=self._sheet.key,
        )

    def _at_rest(self, read: Callable[[], Text | None]) -> Text | None:
        """The text once its writer has come to rest: a file written in place is seen half-done."""
        deadline = self._clock.boottime() + _PATIENCE
        while 0 <= self._clock.now() - self._sheet.changed_at() < _QUIET:
            if self._clock.boottime() >= deadline:
                break
            self._clock.sleep(_PAUSE)
        return read()

    def _take_in(self, state: dict[str, Any], found: Text) -> None:
        theirs = self._readable(found)
        base, revision = _began_with(state, theirs, found.revision, self._clock.now())
        merged = self._merge(base, state["text"], theirs)
        act: Record = {"event": BY_HAND, "theirs": found.revision, "base": revision}
        if merged != theirs:
            act["saved"] = difference(merged, theirs)
        self._note(act, state, merged)
        self._show(merged)

    def _show(self, text: str) -> None:
        """Bring the file to what the log has on record already."""
        found = self._sheet.read()
        if found is not None and found.revision == revision_of(text.encode()):
            return
        try:
            self._sheet.put(text.encode())
            # Whoever has just opened the old file to write into it gets the time to do so.
            self._clock.sleep(_GRACE)
        except StorageError as error:
            raise Indeterminate(
                f"on record, but not yet in {self._sheet.key}: {error.message}",
                hint="do not repeat it: the file is brought up to date when it is next opened",
                path=self._sheet.key,
            ) from error

    def _readable(self, found: Text) -> str:
        try:
            text = found.data.decode()
            self._check(text)
        except (ValueError, HoldfastError) as error:
            raise Corrupt(
                f"{self._sheet.key} was edited and cannot be read: {error}",
                hint="mend it with an editor; nothing was overwritten",
                path=self._sheet.key,
            ) from None
        return text

    def _note(self, act: Record, state: dict[str, Any], new: str) -> None:
        self._log.append(
            {
                **act,
                "file": self._sheet.key,
                "old": state["revision"],
                "new": revision_of(new.encode()),
                "patch": difference(state["text"], new),
            }
        )


def _is_news(state: dict[str, Any], left: Text | None) -> bool:
    """Whether what was taken out is a text that the log has never heard of."""
    return left is not None and left.revision not in (*state["known"], state["revision"])


def _is_behind(state: dict[str, Any], found: Text, left: Text | None) -> bool:
    """Whether somebody died after the last line and before the file: no such text was taken out."""
    before = state["steps"][-1][0] if state["steps"] else ""
    return found.revision == before and (left is None or left.revision != before)


def _began_with(state: dict[str, Any], theirs: str, revision: str, now: float) -> tuple[str, str]:
    """The text, and its revision, that somebody most likely changed into `theirs`."""
    text, current = state["text"], state["revision"]
    candidates = [(text, current)]
    for overruled, saved, since in reversed(state["overruled"]):
        age = now - instant_of(since)
        if overruled == revision and age >= INSISTS_AFTER:
            return text, current
        if age <= STALE_FOR:
            candidates.append((saved, overruled))
    for before, patch, since in reversed(state["steps"]):
        if not before or now - instant_of(since) > STALE_FOR:
            break
        text = undo(patch, text)
        candidates.append((text, before))
    # Of equals the oldest: it keeps most of what was added since.
    return min(reversed(candidates), key=lambda one: weight(difference(one[0], theirs)))
