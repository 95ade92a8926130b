"""What is told of a job while it runs: a line for each step, and how things are meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import ceil
from typing import NamedTuple

from holdfast.clock import Clock, instant_of
from holdfast.codec import Record
from holdfast.contracts.job_states import FINAL
from holdfast.jobs.report import headline, shown_usd
from holdfast.jobs.runner import Watch
from holdfast.jobs.sealed import BLANK, is_sealed
from holdfast.jobs.state import phase_of, spec_of
from holdfast.ops.context import Context
from holdfast.text import one_line, plural

_REFUSED = "The answer breaks the rules: "
_WARNED = 5


@contextmanager
def watching(call: Context, given: Watch | None = None) -> Generator[Watch | None]:
    """Who is told of each step: somebody in particular, or else whoever sits at the face."""
    if given is not None or call.tell is None:
        yield given
    elif call.live is None:
        yield _Steps(call.tell, call.clock).watch
    else:
        steps = _Steps(call.tell, call.clock, live=True)
        with call.live(steps.now):
            yield steps.watch


class _Meanwhile(NamedTuple):
    """What is known of a call while it lasts."""

    head: str
    call: Record
    again: str
    used: str
    since: float
    each: float | None
    """Seconds of a call, as far as there were any."""
    behind: int


class _Steps:
    def __init__(self, tell: Callable[[str], None], clock: Clock, *, live: bool = False) -> None:
        self._tell, self._clock, self._live = tell, clock, live
        self._began = clock.boottime()
        self._meanwhile: _Meanwhile | str | None = None

    def watch(self, word: str, state: Record) -> None:
        if is_sealed(state["spec"]):
            state = _without_words(state)
        phases = [each.name for each in spec_of(state).phases]
        last: Record = state["last"] or {}
        name = last["phase"] if word == "judged" else phase_of(state).name
        at = phases.index(name) + 1
        head, behind = f"{at}/{len(phases)} {name}", len(phases) - at
        self._meanwhile = state["not_before"]
        if word in ("waiting", "given"):
            # What failed, and that it is asked again, was told just now; and who gives an answer
            # himself knows it.
            return
        if word == "asked":
            since, each = self._clock.boottime(), _each(state)
            used = _used(state, brief=True)
            self._meanwhile = _Meanwhile(
                head, state["call"], _again(state), used, since, each, behind
            )
            if self._live:
                return
        said = self._said(word, state)
        each = _each(state)
        left = ""
        if each is not None and behind and state["status"] not in FINAL:
            left = f", about {_span(behind * each)} to go behind this phase"
        used = _used(state, answered=word == "judged")
        self._tell(f"{self._elapsed():7.1f}s  {head}  {said}  ({used}{left})\n")
        warned: list[str] = state.get("warned", []) if word == "judged" else []
        more = [f"and more, see `holdfast job history {state['job_id']} --format json`"]
        for each in [*warned[:_WARNED], *(more if len(warned) > _WARNED else [])]:
            self._tell(f"{'':10}warning: {one_line(each)}\n")

    def _said(self, word: str, state: Record) -> str:
        match word:
            case "asked":
                return f"asking {state['call']['model']}{_again(state)}"
            case "judged":
                last: Record = state["last"]
                until = state["not_before"]
                pause = "" if until is None else f"; asked again in {_span(self._until(until))}"
                return f"{words_of(last)}{pause} → {last['status']}"
            case _:
                return f"{word}: {state['why'] or state['status']}"

    # -- meanwhile ---------------------------------------------------------------------

    def now(self) -> str:
        """How things are; asked for by another thread, so it looks at what was noted alone."""
        match self._meanwhile:
            case None:
                return ""
            case str(until):
                return f"{self._elapsed():7.1f}s  asks again in {_span(self._until(until))}"
            case one:
                return f"{self._elapsed():7.1f}s  {self._of_call(one)}"

    def _of_call(self, one: _Meanwhile) -> str:
        passed = self._clock.boottime() - one.since
        # The reply is on record before gates are tried, and what was noted is that very record.
        doing = "asking" if one.call.get("outcome") is None else "checking the answer of"
        each = one.each or 0.0
        rest = max(0.0, each - passed) + one.behind * each
        left = f", about {_span(rest)} to go" if rest else ""
        # Who it is comes last: a command can be longer than the terminal is wide.
        tried = f"{one.head}{one.again} for {_span(passed)}"
        return f"{tried}  ({one.used}{left})  {doing} {one.call['model']}"

    def _elapsed(self) -> float:
        return self._clock.boottime() - self._began

    def _until(self, stamp: str) -> float:
        return max(0.0, instant_of(stamp) - self._clock.now())


def words_of(reply: Record) -> str:
    """A reply, or what happened instead, on one line."""
    summary = one_line(str(reply.get("summary") or ""))
    role = reply.get("role")
    match reply.get("unsaid"):
        case "failed":
            return f"{reply.get('model') or role} failed: {summary}"
        case "late":
            return f"no answer in time from {reply.get('model') or role}"
        case "refused":
            return f"the answer of the {role} was refused: {summary.removeprefix(_REFUSED)}"
        case _:
            pass
    if complaint := reply.get("complaint"):
        return f"{role} said {reply['action']}, not accepted: {headline(complaint)}"
    return f"{role} said {reply['action']}: {summary}"


def _without_words(state: Record) -> Record:
    """The state of a sensitive job without what was said: lines end up in somebody's logs."""
    last: Record = state["last"] or {}
    hidden = {name: BLANK for name in ("summary", "complaint") if last.get(name)}
    warned = [BLANK for _ in state.get("warned", [])]
    return {**state, "why": state["why"] and BLANK, "last": {**last, **hidden}, "warned": warned}


def _again(state: Record) -> str:
    tries = state["tries"].get(state["call"]["phase"], 1)
    return f", try {tries}" if tries > 1 else ""


def _used(state: Record, *, answered: bool = False, brief: bool = False) -> str:
    """What was used; with an answer the next call may be on record already."""
    calls = plural(state["steps"] - (answered and state["call"] is not None), "call")
    tokens = f", {state['tokens']:,} token{'s'[: state['tokens'] > 1]}" if state["tokens"] else ""
    unknown, most = state["unknown"], state["limits"]["max_cost_usd"]
    money = shown_usd(state["cost_usd"], 0 if brief else unknown, most)
    if unknown and brief:
        money = f"at least {money}" if state["cost_usd"] else "cost not known"
    return f"{calls}{tokens}, {money}"


def _each(state: Record) -> float | None:
    """How long a call took so far; None if there was none."""
    ended = state["steps"] - (state["call"] is not None)
    return state["seconds"] / ended if ended > 0 and state["seconds"] > 0 else None


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{ceil(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
