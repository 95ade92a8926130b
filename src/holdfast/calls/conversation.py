"""What was said to an agent and by it: memory.jsonl, and turns.json folded from it.

A turn is two lines.  The question is written before the model is asked, with what asking may cost
at most: it is the intent and the reservation in one.  The answer is written after, or the failure,
with what it did cost.  A question without an answer counts as spent, with all that was set aside,
until its session is over.

What else the model was told (persona, notes, tasks, messages) stands in lines of its own, each text
once; a question names them by their hash.  So a turn costs what is new in it, however long the
conversation is.

The lines of a sensitive turn are sealed (`sealed`): what was said can be read with the key only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.audit import refused
from holdfast.calls.call import CallRequest, PendingCall, Result
from holdfast.calls.sealing import MARK, Seals, meta_of, part_of, with_texts
from holdfast.codec import MAX_DOCUMENT, MAX_LINE, Record, encode, pretty
from holdfast.errors import (
    BadValue,
    Indeterminate,
    InvalidOutput,
    ModelError,
    NoKey,
    OverBudget,
)
from holdfast.models.protocol import Message, Reply, Try, Usage
from holdfast.models.report import count, legible, usd
from holdfast.spend.gate import Bound, grant
from holdfast.state.inherited import lines_before
from holdfast.state.statelog import StateLog
from holdfast.store.primitives import (
    START,
    Cursor,
    Decision,
    Line,
    Log,
    T,
)
from holdfast.store.view import Shape

if TYPE_CHECKING:
    from holdfast.layout import Part
    from holdfast.store.home import Home

State = dict[str, Any]
SWARM = "swarm/"
"""What the session of a question begins with that a swarm asks: its run is behind it."""
_SESSIONS_KEPT, _PARTS_KEPT, _MARKS_KEPT, _STEP = 32, 64, 6, 16
_MESSAGES_KEPT = 64
_LONGEST_TEXT, _LONGEST_MESSAGE = MAX_LINE // 2, 64 << 10
"""In bytes, as JSON has them; sealed they take a third more."""
_BYTES_A_LETTER = 6
"""At most: a control character is written as `\\u0000`."""


class Tally(NamedTuple):
    """What the turns of a session came to."""

    turns: int = 0
    failed: int = 0
    usd: float = 0.0
    unknown: int = 0
    """Turns of which nobody told what they cost."""
    assumed_usd: float = 0.0
    """What had been set aside for those."""
    reserved_usd: float = 0.0
    """For questions that wait for their answers."""
    tokens: int = 0
    over_usd: float = 0.0
    """By how much calls cost more than was set aside for them."""

    def bound(self, name: str, most: float | None) -> Bound:
        return Bound(name, most, self.usd, self.reserved_usd, self.unknown, self.assumed_usd)


class Unsealed(Message):
    """Something said in a sensitive turn; whoever is told it answers in one."""

    __slots__ = ()


class Conversation:
    """Used by one thread at a time."""

    def __init__(self, home: Home, key: Callable[[Part], str]) -> None:
        self._home, self.clock = home, home.clock
        views = {key("turns"): SHAPE.render}
        self._state = StateLog(home, key("conversation"), SHAPE, views)
        self.log: Log = self._state.log
        self._messages: deque[tuple[Message, Message]] = deque(maxlen=_MESSAGES_KEPT)
        self._questions: dict[str, Message] = {}
        self._seals = Seals(home, self.log.key)
        self.unopened = 0
        """Sealed lines that were changed or moved, and are left out."""
        self.sealing = False
        """Whether the last question was put on record sealed."""
        self._heard: set[str] = set()
        self._seen: Cursor | None = None
        """The last line of which the messages were taken in."""

    # -- writing -----------------------------------------------------------------------

    def unlock(self, *, sensitive: bool, history: bool) -> None:
        """See that the keys are there; without `history`, what was said before is left out."""
        if sensitive:
            self._seals.ring.current  # noqa: B018 - NoKey if there is none
        if history:
            self._follow()
        else:
            self._seen = self.log.head()

    def begin(self, call: CallRequest) -> PendingCall:
        """Put a question on record and money aside for it; OverBudget if there is not enough."""
        self.sealing = call.sensitive
        digest = self._seals.ring.digest if call.sensitive else _hash

        def decide(state: State) -> Decision[PendingCall]:
            number = state["sessions"].get(call.session, {}).get("turns", 0)
            reserved = _granted(_tally(state, call.session), call)
            turn = call.turn or f"{call.session}/{number}"
            hashes = [digest(part) for part in call.parts]
            lines = [
                self._line("system", part, part=name)
                for part, name in dict(zip(call.parts, hashes, strict=True)).items()
                if name not in state["parts"]
            ]
            request = call.request
            options = {"max_tokens": request.max_tokens, "temperature": request.temperature}
            told = {name: value for name, value in options.items() if value is not None}
            lines.append(
                self._line(
                    "user",
                    call.prompt,
                    turn=turn,
                    session_id=call.session,
                    model=call.model,
                    parts=hashes,
                    request=request.key,
                    reserved_usd=reserved,
                    **({"options": told} if told else {}),
                )
            )
            return lines, PendingCall(turn, call.session, call.model, reserved, call.sensitive)

        try:
            return self._decide(decide, sealed=call.sensitive)
        except OverBudget as error:
            agent = call.session.partition("_")[2].rpartition("_")[0]
            refused(self._home, f"a question in {call.session}", error, agent=agent or None)
            raise

    def end(self, pending: PendingCall, result: Result) -> None:
        """Record how a call ended; InvalidOutput if the reply cannot be recorded."""
        cost: Record = {"cost_usd": usd(result.cost_usd)}
        if result.reply is not None and result.outcome == "ok":
            meta = {**_fields(result.reply), **_tries(result.reply.tries)}
            try:
                self._end(pending, "assistant", _kept(result.text), meta)
            except BadValue as error:
                message = f"the reply cannot be recorded: {error.message}"
                self._end(pending, "system", message, {"error": InvalidOutput.code, **cost})
                unfit = InvalidOutput(message, hint=error.hint)
                unfit.reply = result.reply
                raise unfit from error
            return
        error = result.error
        known = error if isinstance(error, ModelError) else None
        failed: Record = {"error": known.code if known else "interrupted", **cost}
        meta = dict(failed)
        if result.reply is not None:
            meta |= {**_fields(result.reply), "reply": _kept(result.text)}
        meta |= _tries([row for row in known.tries if isinstance(row, Try)] if known else [])
        said = known.message if known else type(error).__name__
        try:
            self._end(pending, "system", _kept(said, _LONGEST_MESSAGE), meta)
        except BadValue:
            self._end(pending, "system", "the reply cannot be recorded", failed)

    def abandon_all_but(self, sessions: Collection[str]) -> None:
        """End the questions of sessions that are over: the process that asked them is gone.

        A swarm has no session here, and ends its own.
        """

        def decide(state: State) -> Decision[None]:
            return [
                self._line(
                    "system",
                    "whoever asked this is gone",
                    turn=turn,
                    session_id=question["session_id"],
                    error="abandoned",
                    cost_usd=None,
                )
                for turn, question in state["open"].items()
                if question["session_id"] not in sessions
                and not question["session_id"].startswith(SWARM)
            ], None

        if self.waiting():
            self._decide(decide)

    def _end(self, pending: PendingCall, role: str, text: str, meta: Record) -> None:
        named = {"turn": pending.turn, "session_id": pending.session}
        line = self._line(role, text, **named, **meta)
        self._decide(lambda _: ([line], None), sealed=pending.sensitive)

    def _decide(self, decide: Callable[[State], Decision[T]], *, sealed: bool = False) -> T:
        """Write a decision, and take in what it says: nothing of it is read back."""
        if not sealed:
            written = self._state.decide(decide)
            lines, value = written.lines, written.value
        else:
            lines, value = self._write_sealed(decide)
            self._state.refresh()
        if lines and self._seen is not None and lines[0].seq == self._seen.seq + 1:
            for line in lines:
                self._hear(line, self.log.key)
            self._seen = lines[-1].cursor
        return value

    def _write_sealed(self, decide: Callable[[State], Decision[T]]) -> tuple[list[Line], T]:
        """Write lines that are sealed for the place in which they stand."""
        # A log whose disk failed puts a line of its own before the next one: let it do so now.
        self.log.append_all([])

        def sealing(head: Cursor) -> Decision[tuple[T, int]]:
            lines, value = decide(self._state.state())
            locked = [self._sealed(line, seq) for seq, line in enumerate(lines, head.seq + 1)]
            return locked, (value, head.seq + len(lines))

        written = self.log.write(sealing)
        value, due = written.value
        if written.lines and written.lines[-1].seq != due:
            raise Indeterminate(
                f"the disk failed while a sealed line was written to {self.log.key}: it is "
                "recorded, but in a place in which it does not open",
                hint="check the disk, then ask again",
                path=self.log.key,
            )
        return written.lines, value

    def _sealed(self, line: Record, seq: int) -> Record:
        locked = with_texts(line, lambda text, field: self._seals.lock(text, part_of(seq, field)))
        return {**locked, "meta": {**locked["meta"], **self._seals.mark}}

    def _line(self, role: str, text: str, **meta: Any) -> Record:
        return {"ts": self.clock.now(), "role": role, "content": text, "meta": meta}

    # -- reading -----------------------------------------------------------------------

    def tally(self, session: str) -> Tally:
        return _tally(self._state.state(), session)

    def waiting(self) -> dict[str, Record]:
        """Questions without an answer, by the name of the turn."""
        return self._state.state()["open"]

    def recent(self, most: int) -> list[Message]:
        """The latest questions and answers that fit into `most` characters, oldest first."""
        self._follow()
        found: list[Message] = []
        for question, answer in reversed(self._messages):
            most -= len(question.text) + len(answer.text)
            if most < 0:
                break
            found[:0] = [question, answer]
        return found

    def mark(self) -> Cursor:
        """A place from which what was said lately can be read."""
        marks = self._state.state()["marks"]
        return Cursor(*marks[0]) if len(marks) == _MARKS_KEPT else START

    def _follow(self) -> None:
        """Take in what was said since the last look, or lately."""
        if self._seen is None:
            self._seen = self.mark()
        for line in self.log.read(self._seen):
            if isinstance(line, Line) and line.seq is not None and line.hash is not None:
                self._hear(line, self.log.key)
                self._seen = line.cursor

    def _hear(self, line: Line, log: str) -> None:
        turn, role = meta_of(line.record).get("turn"), line.record.get("role")
        if "forked_from" in meta_of(line.record):
            self._hear_parent(meta_of(line.record)["forked_from"])
        if not isinstance(turn, str):
            return
        if role not in ("user", "assistant"):
            self._questions.pop(turn, None)
            return
        text: str | None = str(line.record.get("content", ""))
        if MARK in meta_of(line.record):
            text = self._seals.open(text, part_of(line.seq, "content"), log)
            if text is None:
                self.unopened += 1
                return
            said: Message = Unsealed(role, text)
        else:
            said = Message(role, text)
        if role == "user":
            self._questions[turn] = said
        elif (question := self._questions.pop(turn, None)) and question.text:
            self._messages.append((question, said))

    def _hear_parent(self, reach: object) -> None:
        """What was said in another agent's conversation before this one was forked from it."""
        match reach:
            case {
                "log": str(key),
                "seq": int(last),
                "hash": str(known),
                "after": [int(seq), str(hash), str(segment), int(offset)],
            }:
                after = Cursor(seq, hash, segment, offset)
            case _:
                return  # nothing that we wrote
        if key in self._heard or key.rpartition("/")[2] != self.log.key.rpartition("/")[2]:
            return
        self._heard.add(key)
        found = lines_before(self._home, self.log.key, key, last, known, after)
        try:
            for line in found:
                self._hear(line, key)
        except NoKey:
            self._heard.discard(key)  # not heard yet, and not to be passed over next time
            raise

    def close(self) -> None:
        self._state.close()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def recorded(home: Home, log: Log) -> Iterator[tuple[str, Reply]]:
    """The key of each request in a conversation and its reply: for `Replay`."""
    keys: dict[str, str] = {}
    seals = Seals(home, log.key)
    for line in log.read():
        meta = meta_of(line.record) if isinstance(line, Line) else {}
        turn = str(meta.get("turn", ""))
        if not isinstance(line, Line) or not turn:
            continue

        def opened(text: object, field: str, line: Line = line) -> str | None:
            if not isinstance(text, str) or MARK not in meta_of(line.record):
                return text if isinstance(text, str) else None
            return seals.open(text, part_of(line.seq, field))

        if (key := opened(meta.get("request"), "request")) is not None:
            keys[turn] = key
        elif line.record.get("role") == "assistant" and turn in keys:
            text = opened(line.record.get("content"), "content")
            if text is not None:
                tokens = Usage(*(meta.get(name) for name in Usage._fields))
                yield (
                    keys.pop(turn),
                    Reply(
                        text,
                        str(meta.get("model")),
                        usage=tokens,
                        cost_usd=meta.get("cost_usd"),
                        finish=meta.get("finish", "stop"),
                    ),
                )


# --- money ----------------------------------------------------------------------------------


def _granted(spent: Tally, asked: CallRequest) -> float | None:
    """What is reserved for a question: what it can cost, else all that is left."""
    bounds = [spent.bound(f"session {asked.session}", asked.limit_usd)]
    hint = "allow more, ask for fewer tokens (max_tokens), or take a cheaper model"
    return grant(bounds, asked.most_usd, hint=hint)


def _tally(state: State, session: str) -> Tally:
    waiting = [each for each in state["open"].values() if each["session_id"] == session]
    reserved = sum(each["reserved_usd"] or 0.0 for each in waiting)
    return Tally(**state["sessions"].get(session, {}))._replace(reserved_usd=reserved)


# --- folding --------------------------------------------------------------------------------


def _initial() -> State:
    return {"turns": 0, "sessions": {}, "open": {}, "parts": [], "marks": []}


def _fold(state: State, line: Line) -> State:
    meta = meta_of(line.record)
    if line.seq is not None and line.seq % _STEP == 0:
        state["marks"] = [*state["marks"], [line.seq, line.hash, line.segment, line.end]][
            -_MARKS_KEPT:
        ]
    if isinstance(meta.get("part"), str):
        state["parts"] = [*state["parts"], meta["part"]][-_PARTS_KEPT:]
    turn, session = meta.get("turn"), meta.get("session_id")
    if not isinstance(turn, str) or not isinstance(session, str):
        return state
    if line.record.get("role") == "user":
        _asked(state, turn, session, meta)
    elif (opened := state["open"].pop(turn, None)) is not None:
        _answered(state["sessions"].setdefault(session, Tally()._asdict()), opened, meta)
    return state


def _asked(state: State, turn: str, session: str, meta: Record) -> None:
    sessions = state["sessions"]
    sums = sessions.setdefault(session, Tally()._asdict())
    sums["turns"] += 1
    state["turns"] += 1
    reserved = meta.get("reserved_usd")
    money = float(reserved) if isinstance(reserved, int | float) else None
    state["open"][turn] = {"session_id": session, "model": meta.get("model"), "reserved_usd": money}
    if len(sessions) > _SESSIONS_KEPT:
        oldest = next(name for name in sessions if name != session)
        del sessions[oldest]
        state["open"] = {
            name: each for name, each in state["open"].items() if each["session_id"] != oldest
        }


def _answered(sums: Record, opened: Record, meta: Record) -> None:
    cost, reserved = meta.get("cost_usd"), opened["reserved_usd"]
    sums["failed"] += "error" in meta
    sums["tokens"] += sum(
        count
        for name in ("input_tokens", "output_tokens")
        if isinstance(count := meta.get(name), int)
    )
    if isinstance(cost, int | float):
        sums["usd"] += cost
        sums["over_usd"] += max(0.0, cost - reserved) if reserved is not None else 0.0
    else:
        sums["unknown"] += 1
        sums["assumed_usd"] += reserved or 0.0


def _render(state: State) -> bytes:
    shown = {name: _tally(state, name)._asdict() for name in state["sessions"]}
    return pretty({"turns": state["turns"], "sessions": shown, "waiting": state["open"]})


SHAPE: Shape[State] = Shape(version=1, initial=_initial, fold=_fold, render=_render)


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _kept(text: str, most: int = _LONGEST_TEXT) -> str:
    """As much of a text as fits into a line, sealed or not, with a note of what is left out."""
    text = legible(text)
    surely = most // _BYTES_A_LETTER
    if len(text) <= surely or (len(text) <= most and _size(text) <= most):
        return text
    return f"{text[:surely]}\n[{len(text) - surely} characters left out]"


def _size(text: str) -> int:
    return len(encode(text, limit=MAX_DOCUMENT))


def _fields(reply: Reply) -> Record:
    """What is known of an answer beside its text."""
    counts = {name: count(value) for name, value in reply.usage._asdict().items()}
    known = {name: value for name, value in counts.items() if value is not None}
    fields: Record = {"model": _kept(reply.model, _LONGEST_MESSAGE), **known}
    fields["cost_usd"] = usd(reply.cost_usd)
    fields["seconds"] = round(reply.seconds, 6)
    if reply.first_text is not None:
        fields["first_text_seconds"] = round(reply.first_text, 6)
    return fields | {"finish": reply.finish}


def _tries(tries: Sequence[Try]) -> Record:
    if not tries:
        return {}
    return {
        "tries": [
            {**each.told(), "message": _kept(each.message, _LONGEST_MESSAGE)} for each in tries
        ]
    }
