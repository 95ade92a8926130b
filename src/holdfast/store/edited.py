"""An edited document: a text that Holdfast changes, and that anybody may edit meanwhile.

The log is the truth.  A change through here is a line first (the revisions, and the patch
between them), then the file.  A file that is not what the log says was edited by hand: the
difference becomes an `edited_by_hand` line.

Somebody who saves a text that lacks what was added a moment ago has most likely not seen it:
an editor or a script that loaded the file before.  Among the revisions of the last minutes
the one nearest to the saved text is taken as what they began with, and both sides' changes
are merged, so that no acknowledged change is lost.  What they take out of older text, or take
out again after it came back, is gone as they wish; the log has it.  A sheet that is a copy
knows what it was made from: then nothing is guessed, however old the copy is.

Who saves in place empties the file first and may stall before the rest is in it.  An empty or a
broken text is therefore waited for, and one that was believed all the same, and of which more
comes later, has removed nothing: what it seemed to lack is merged in again.

Secrets are masked in the log, and never in the file, which is the person's own: what is written
comes from the file, or from the text it had before.  Only where neither has it any more is the
masked line all there is; that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.clock import instant_of
from holdfast.codec import Record, pretty
from holdfast.errors import Busy, Corrupt, HoldfastError, Indeterminate, StorageError
from holdfast.store.document import revision_of
from holdfast.store.entries import entries_of, is_masked
from holdfast.store.merge import (
    Patch,
    between,
    distance,
    merge_lines,
    patched,
    unpatched,
)
from holdfast.store.primitives import Cell, Line, Log, Sheet, Text
from holdfast.store.view import Shape, View

if TYPE_CHECKING:
    from holdfast.clock import Clock

Merge = Callable[[str, str, str], str]
Notice = Callable[[str, str], None]
BY_HAND, MASKED = "edited_by_hand", "masked_text_restored"
_REMEMBERED, _OVERRULED = 32, 8
"""How many revisions back somebody's buffer can be, of ours and of what they saved before."""
STALE_FOR = 900.0
"""For how many seconds after a change a saved text may have been loaded before it."""
INSISTS_AFTER = 10.0
"""Who saves the same text again so much later has seen what came of it the first time."""
_QUIET, _PAUSE, _PATIENCE = 0.2, 0.05, 5.0
"""Seconds without a write before a whole text counts as saved, between looks, and until we take
any text as it is."""
_UNFINISHED_FOR = 30.0
"""For how many seconds after a text was taken in more of it may come, and it was only a part."""
_GRACE = 0.02
_ROUNDS = 20


class _Now(NamedTuple):
    state: dict[str, Any]
    entries: list[str]
    """The text on record; masked is only what stands nowhere else."""
    at_hand: dict[str, bytes]
    """Texts that are on record, by their revisions, as they were."""

    @property
    def text(self) -> str:
        return "".join(self.entries)


class _Step(NamedTuple):
    """A change of the last minutes."""

    old: str
    new: str
    theirs: str
    """Revisions: before it, after it, and of what was saved."""
    before: str
    after: str
    saved: str
    """The texts of these."""
    may_be_unfinished: bool
    """Whether somebody saved it who may still be writing."""


class _Merged(NamedTuple):
    text: str
    ours: str
    """The text on record, with what had seemed to be removed from it."""
    theirs: str
    base: str
    """The revision that theirs was made from."""


def _shape(key: str) -> Shape[dict[str, Any]]:
    def fold(state: dict[str, Any], line: Line) -> dict[str, Any]:
        record = line.record
        if record.get("file") != key or "patch" not in record or line.seq is None:
            return state
        new, theirs = record["new"], record.get("theirs", record["new"])
        step = [state["revision"], record["patch"], record["ts"], theirs, record.get("saved")]
        step.append(record.get("event") == BY_HAND)
        state["entries"] = patched(record["patch"], state["entries"])
        state["revision"] = new
        state["steps"] = [*state["steps"], step][-_REMEMBERED:]
        state["known"] = [*state["known"], new, theirs][-2 * _REMEMBERED :]
        if theirs != new:
            saved = patched(record["saved"], state["entries"])
            overruled = [*state["overruled"], [theirs, saved, record["ts"]]]
            state["overruled"] = overruled[-_OVERRULED:]
        state["changes"] += 1
        return state

    return Shape(
        version=3,
        initial=lambda: {
            "entries": [],
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


def unheard(_word: str, _detail: str) -> None:
    """Where nobody is told."""


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
        notice: Notice = unheard,
    ) -> None:
        self._sheet, self._log, self._clock = sheet, log, clock
        self._merge, self._check, self._notice = merge, check, notice
        shape = _shape(sheet.key)
        self._view = View(log, shape, clock, [(cell, shape.render)])

    def read(self) -> str | None:
        """The text as it is now, whoever wrote it; None if there never was one."""
        found, state = self._sheet.read(), self._view.read()
        left = self._sheet.left()
        if found is None and not state["changes"]:
            return None
        if found is not None and found.revision == state["revision"] and not _is_news(state, left):
            return found.data.decode()
        try:
            with self._sheet.locked():
                now = self._absorb()
            self._view.refresh()
        except StorageError:
            return self._unwritten()
        return now.text

    def update(self, change: Callable[[str], str], act: Record) -> str:
        """Change the text; `act` is what the log says of it.  Durable when this returns."""
        with self._sheet.locked():
            now = self._caught_up()
            old, new = now.text, change(now.text)
            if new != old or not now.state["changes"]:
                self._note(act, now, new)
                new = self._shown(new)
        # Behind a change that is on record nothing fails any more: it would be made again.
        with suppress(StorageError):
            self._view.refresh()
        return new

    def close(self) -> None:
        self._view.close()
        self._sheet.close()

    # -- under the lock ----------------------------------------------------------------

    def _caught_up(self) -> _Now:
        """Log and file together, before a change: whatever fails here, the change is not made."""
        try:
            return self._absorb()
        except Indeterminate as error:
            raise StorageError(
                f"not done: {error.message}",
                hint="repeat it once the disk is well",
                path=error.path,
            ) from error

    def _shown(self, new: str) -> str:
        """The text once it is in the file, and what somebody saved meanwhile with it."""
        try:
            self._show(new)
            return self._absorb().text
        except StorageError as error:
            raise Indeterminate(
                f"on record, but not yet in {self._sheet.key}: {error.message}",
                hint="do not repeat it: the file is brought up to date when it is next opened",
                path=self._sheet.key,
            ) from error
        except (Busy, Corrupt):
            return new  # it is on record; who reads next is told what is wrong with the file

    def _unwritten(self) -> str:
        """The text as it will be once the disk takes it."""
        state, found, left = self._view.read(), self._sheet.read(), self._sheet.left()
        base = self._sheet.base()
        now = _on_record(state, found, left, base)
        if found is None or found.revision == state["revision"]:
            return now.text
        if _is_behind(state, found, left) or _is_same(found, base):
            return now.text
        return self._merged(now, found, base).text

    def _absorb(self) -> _Now:
        """Bring log and file together, until nobody has edited in between."""
        for _ in range(_ROUNDS):
            state, found, left = self._view.read(), self._sheet.read(), self._sheet.left()
            base = self._sheet.base()
            now = _on_record(state, found, left, base)
            if base is not None and self._was_known(state, left):
                left = None
            if left is not None and _is_news(state, left):
                self._take_in(now, self._at_rest(self._sheet.left) or left)
            elif found is None:
                if not state["changes"]:
                    return now
                self._bring_back(now)  # to empty it, save it empty
            elif found.revision == state["revision"]:
                return now
            elif _is_behind(state, found, left) or _is_same(found, base):
                self._bring_back(now)
            else:
                self._take_in(now, self._at_rest(self._sheet.read) or found, base)
        raise Busy(
            f"{self._sheet.key} is edited faster than it can be read",
            hint="try again when whoever writes it has come to rest",
            path=self._sheet.key,
        )

    def _at_rest(self, read: Callable[[], Text | None]) -> Text | None:
        """The text once its writer has come to rest: a file written in place is seen half-done."""
        deadline = self._clock.boottime() + _PATIENCE
        while True:
            found = read()
            # Who saves in place empties the file first, and may be slow with the rest.
            enough = _QUIET if found is None or self._is_whole(found) else _PATIENCE
            is_at_rest = not 0 <= self._clock.now() - self._sheet.changed_at() < enough
            if is_at_rest or self._clock.boottime() >= deadline:
                return found
            self._clock.sleep(_PAUSE)

    def _is_whole(self, found: Text) -> bool:
        """Whether a text may be all that its writer means to save."""
        try:
            return self._readable(found) != ""
        except Corrupt:
            return False

    def _was_known(self, state: dict[str, Any], left: Text | None) -> bool:
        """Whether what was taken out of a copy was recorded, if longer ago than is remembered."""
        return (
            left is not None
            and _is_news(state, left)
            and any(
                left.revision in (line.record.get("new"), line.record.get("theirs"))
                for line in self._log.read()
                if isinstance(line, Line) and line.record.get("file") == self._sheet.key
            )
        )

    def _take_in(self, now: _Now, found: Text, copied: Text | None = None) -> None:
        """Record what somebody saved; `copied` is what they saw, where that is known."""
        merged, ours, theirs, base = self._merged(now, found, copied)
        act: Record = {"event": BY_HAND, "theirs": found.revision, "base": base}
        entries = entries_of(merged)
        if merged != theirs:
            act["saved"] = between(entries, entries_of(theirs))
        is_inexact = revision_of(ours.encode()) != now.state["revision"]
        if is_inexact and _has_come_in(entries_of(ours), entries, theirs):
            act["message"] = self._told_of_masks()
        self._note(act, now, merged)
        self._show(merged)

    def _merged(self, now: _Now, found: Text, copied: Text | None) -> _Merged:
        """What was saved with what is on record."""
        theirs, moment = self._readable(found), self._clock.now()
        steps = _former(now, moment)
        if copied is None:
            base, revision = _began_with(now, steps, theirs, found.revision, moment)
        else:
            base, revision = copied.data.decode(), copied.revision
        ours = now.text
        # Only what people saved can be half a text: a removal through here was acknowledged.
        for step in _since(steps, revision):
            if step.may_be_unfinished and _is_beginning(step.saved, theirs):
                ours = self._merge(step.after, ours, step.before)
        return _Merged(self._merge(base, ours, theirs), ours, theirs, revision)

    def _bring_back(self, now: _Now) -> None:
        """Bring the file to what the log has on record already."""
        if _is_inexact(now):
            self._note({"event": MASKED, "message": self._told_of_masks()}, now, now.text)
        self._show(now.text)

    def _told_of_masks(self) -> str:
        told = f"only the log had some lines of {self._sheet.key}, so secrets in them are masked"
        self._notice(MASKED, told)
        return told

    def _show(self, text: str) -> None:
        found = self._sheet.read()
        if found is not None and found.revision == revision_of(text.encode()):
            return
        self._sheet.put(text.encode())
        # Whoever has just opened the old file to write into it gets the time to do so.
        self._clock.sleep(_GRACE)

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

    def _note(self, act: Record, now: _Now, new: str) -> None:
        self._log.append(
            {
                **act,
                "file": self._sheet.key,
                "old": now.state["revision"],
                "new": revision_of(new.encode()),
                "patch": between(now.entries, entries_of(new)),
            }
        )


def _on_record(state: dict[str, Any], *found: Text | None) -> _Now:
    """The text that the log tells of, from the newest one at hand and what became of it since."""
    at_hand = {text.revision: text.data for text in found if text is not None}
    revision, since = state["revision"], list[Patch]()
    for before, patch, *_ in reversed(state["steps"]):
        if revision in at_hand:
            break
        revision = before
        since.append(patch)
    if revision not in at_hand:
        return _Now(state, state["entries"], at_hand)
    entries = entries_of(at_hand[revision].decode())
    for patch in reversed(since):
        entries = patched(patch, entries)
    return _Now(state, entries, at_hand)


def _is_inexact(now: _Now) -> bool:
    return revision_of(now.text.encode()) != now.state["revision"]


def _has_come_in(ours: list[str], merged: list[str], theirs: str) -> bool:
    """Whether something stands masked in a merged text that they did not write so."""
    return any(is_masked(each) and each not in theirs for each in {*ours} & {*merged})


def _is_news(state: dict[str, Any], left: Text | None) -> bool:
    """Whether what was taken out is a text that the log has never heard of."""
    return left is not None and left.revision not in (*state["known"], state["revision"])


def _is_behind(state: dict[str, Any], found: Text, left: Text | None) -> bool:
    """Whether somebody died after the last line and before the file: no such text was taken out."""
    if not state["steps"]:
        return found.revision == ""
    before, _, _, _, saved, is_by_hand = state["steps"][-1]
    # What somebody saved and nothing was merged with stood in the file before it was a line.
    was_there = is_by_hand and saved is None
    return found.revision == before and not was_there and (left is None or left.revision != before)


def _is_same(found: Text, base: Text | None) -> bool:
    """Whether nobody edited a copy."""
    return base is not None and found.revision == base.revision


def _began_with(
    now: _Now, steps: list[_Step], theirs: str, revision: str, moment: float
) -> tuple[str, str]:
    """The text, and its revision, that somebody most likely changed into `theirs`."""
    state, current = now.state, (now.text, now.state["revision"])
    saved = {step.theirs: step.saved for step in steps}
    candidates = [current]
    for overruled, masked, since in reversed(state["overruled"]):
        age = moment - instant_of(since)
        if overruled == revision and age >= INSISTS_AFTER:
            return current
        if age <= STALE_FOR:
            candidates.append((saved.get(overruled) or "".join(masked), overruled))
    candidates += [(step.before, step.old) for step in steps]
    # Of equals the oldest: it keeps most of what was added since.
    return min(reversed(candidates), key=lambda one: distance(one[0], theirs))


def _former(now: _Now, moment: float) -> list[_Step]:
    """The changes of the last minutes, newest first."""
    known: list[list[Any]] = []
    texts = [now.entries]
    for step in reversed(now.state["steps"]):
        old, patch, since, *_ = step
        if not old or moment - instant_of(since) > STALE_FOR:
            break
        known.append(step)
        entries = unpatched(patch, texts[-1])
        if old in now.at_hand:
            entries = entries_of(now.at_hand[old].decode())
        texts.append(entries)
    # What was removed since has lost its secrets on the way back; an older text may have them.
    for at in reversed(range(len(known))):
        texts[at] = _unmasked(texts[at], patched(known[at][1], texts[at + 1]))
    steps: list[_Step] = []
    new = now.state["revision"]
    for step, (after, before) in zip(known, pairwise(texts), strict=True):
        old, _, since, theirs, saved, is_by_hand = step
        is_recent = moment - instant_of(since) <= _UNFINISHED_FOR
        meant = after if saved is None else patched(saved, after)
        said = "".join(before), "".join(after), "".join(meant)
        steps.append(_Step(old, new, theirs, *said, is_by_hand and is_recent))
        new = old
    return steps


def _unmasked(entries: list[str], same: list[str]) -> list[str]:
    """The entries of a text, each from where it is not masked, if there is such a one."""
    if len(entries) != len(same):
        return entries
    return [other if is_masked(one) else one for one, other in zip(entries, same, strict=True)]


def _since(steps: list[_Step], revision: str) -> Iterator[_Step]:
    """The changes that somebody who began with this revision had not seen, newest first."""
    for step in steps:
        if revision in (step.new, step.theirs):
            return
        yield step
        if revision == step.old:
            return


def _is_beginning(saved: str, theirs: str) -> bool:
    return saved != theirs and theirs.startswith(saved)
