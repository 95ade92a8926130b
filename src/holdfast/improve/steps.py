"""Steps of a round: what happens once, whatever becomes of the process.

A step that is done gives what was recorded.  One that is not is done, and each act is written so
that a second time changes nothing.  Here also stand the limits: nothing is begun beyond them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.clock import instant_of, utc_stamp
from holdfast.codec import Record
from holdfast.errors import StorageError
from holdfast.improve.acceptance import holds_even
from holdfast.improve.evaluator import Evaluation, Evaluator, failure
from holdfast.improve.files import Settings
from holdfast.improve.journal import Journal, State
from holdfast.improve.money import Money
from holdfast.improve.roles import Answer, Call, stored
from holdfast.improve.views import Views
from holdfast.proc.around import Around
from holdfast.proc.survivors import end_around
from holdfast.store.failpoints import hit
from holdfast.text import plural

if TYPE_CHECKING:
    from holdfast.store.home import Home

T = TypeVar("T")
_LOOK, _SHOW = 0.2, 0.5
"""Seconds between two looks for a request to stop while programs run, and of the documents."""
_INLINE = 8 << 10
"""Characters of a benchmark's output that a line of the journal holds."""


class Halted(Exception):
    """The run ends here; the round goes on with the next run."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Limits(NamedTuple):
    """Of one run, beside those of the settings."""

    max_cost: float | None = None
    evaluations: int | None = None
    deadline: float | None = None
    planners: int | None = None


class Bar(NamedTuple):
    """What a candidate is held against at first: the best so far, less its noise."""

    name: str
    score: float
    sd: float


class Ask(NamedTuple):
    """A role that is to be asked in a step."""

    call: Call
    take: Callable[[Answer], Record]
    """What is recorded of the answer."""


class Steps:
    """Used by one thread; roles are asked in others."""

    def __init__(
        self,
        home: Home,
        journal: Journal,
        settings: Settings,
        evaluator: Evaluator,
        screen: Evaluator | None,
        limits: Limits,
        stopping: Callable[[], str],
    ) -> None:
        self.journal, self.settings = journal, settings
        self.evaluator, self.screen = evaluator, screen
        self.home, self.clock, self._money = home, home.clock, Money(home, journal)
        self.views = Views(journal.home, journal.place)
        place = f"{journal.home.url}\0{journal.place.root}"
        self.around = f"improve-{sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
        self._limits, self._stopping = limits, stopping
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="improve")
        self._began = self.clock.boottime()
        self._next_show = 0.0
        self._inputs = journal.home.log(journal.place.key("inputs.jsonl"))
        self._evaluations_before = journal.known()["evaluations"]

    @property
    def state(self) -> State:
        return self.journal.known()

    @property
    def planners(self) -> int:
        return self._limits.planners or self.settings.number_of_agents

    def now(self) -> str:
        return utc_stamp(self.clock.now())

    # -- steps -------------------------------------------------------------------------

    def result(self, step: str) -> Record | None:
        return self.state["round"]["results"].get(step)

    def done(self, step: str, result: Record, **more: Any) -> Record:
        """Record what came of a step."""
        self.journal.write({"event": "done", "step": step, "result": result, **more})
        return result

    def once(self, step: str, phase: str, act: Callable[[], Record]) -> Record:
        """An act that is recorded before and after."""
        if (found := self.result(step)) is not None:
            return found
        self._intend(phase, {step: {}})
        return self.done(step, act())

    def _intend(self, phase: str, steps: Mapping[str, Record]) -> None:
        self.look()
        self.journal.write({"event": "intent", "phase": phase, "steps": dict(steps)})
        self.show()
        hit("improve.acting")

    def ask(self, phase: str, asks: Mapping[str, Ask]) -> None:
        """Ask roles at once, by step, and record each answer as it comes."""
        asks = {step: each for step, each in asks.items() if self.result(step) is None}
        if not asks:
            return
        intents: dict[str, Record] = {}
        inputs = [stored(each.call.request) for each in asks.values()]
        self._inputs.append_all(inputs)
        most = (self._limits.max_cost, self.settings.budget_cost_usd)
        paid = self._money.reserved(
            {step: each.call for step, each in asks.items() if not each.call.inline},
            min((each for each in most if each is not None), default=None),
        )
        for (step, each), kept in zip(asks.items(), inputs, strict=True):
            plan: Record = each.call.request["input"].get("plan", {})
            about = {"plan_id": plan["plan_id"]} if plan else {}
            intents[step] = {"input": kept["input"], **about, **paid.get(step, {})}
        lost = [args["charge"] for s, args in self.state["round"]["open"].items() if s in paid]
        self.journal.write(*({"event": "lost", "charge": charge} for charge in lost))
        self._intend(phase, intents)
        waiting: dict[Future[Answer], str] = {}
        for step, each in asks.items():
            if each.call.inline:
                self._take(step, each, each.call.make())
            else:
                waiting[self._pool.submit(each.call.make)] = step
        while waiting:
            for future in self._ended(waiting):
                step = waiting.pop(future)
                self._take(step, asks[step], future.result())

    def _ended(self, waiting: Collection[Future[T]]) -> set[Future[T]]:
        """Those that are done; on a request to stop, everything else is ended."""
        while not (ended := wait(waiting, _LOOK, FIRST_COMPLETED).done):
            try:
                self._heed()
            except Halted:
                # Again and again: a program may only be about to start.
                end_around(self.around)
                while wait(waiting, _LOOK).not_done:
                    end_around(self.around)
                raise
        return ended

    def _take(self, step: str, asked: Ask, answer: Answer) -> None:
        paid: Record = {}
        if answer.paid is not None:
            charge = self.state["round"]["open"].get(step, {}).get("charge")
            paid["paid"] = {**answer.paid, "charge": charge}
        self.done(step, asked.take(answer), **paid)
        self.show()

    # -- scores ------------------------------------------------------------------------

    def evaluate(
        self,
        step: str,
        phase: str,
        commit: str,
        bar: Bar | None = None,
        *,
        seed: int = 0,
        fresh: bool = False,
        screen: bool = False,
    ) -> Record:
        """What one run of the benchmark gives for a commit, held against a bar."""
        if (found := self.result(step)) is not None:
            return found
        evaluator = self.screen if screen and self.screen is not None else self.evaluator
        key = evaluator.key(commit, seed)
        if not fresh and (cached := self.state["cache"].get(key)) is not None:
            return self.done(step, self._held(cached, bar))
        self._affordable()
        self._intend(phase, {step: {}})
        found = self._measured(evaluator, commit, seed)
        result = {**found._asdict(), "raw": self._kept(found.raw)}
        cached = {"cached": key} if found.status == "ok" and not fresh else {}
        return self.done(step, self._held(result, bar), evaluations=1, **cached)

    def _held(self, result: Record, bar: Bar | None) -> Record:
        """A result with its standing: success is better than the bar, or even with it."""
        result = {**result, "at": self.now()}
        if bar is None or result["score"] is None:
            return result
        if holds_even(result["score"], bar.score, bar.sd, higher=self.settings.higher):
            return {**result, "status": "success", "failure": None}
        what = f"{bar.name} gives {result['score']:g}, and gave {bar.score:g} before"
        failed = failure(what, "the change makes it worse", "regression")
        return {**result, "status": "regression", "failure": failed}

    def _measured(self, evaluator: Evaluator, commit: str, seed: int) -> Evaluation:
        """Tried twice where the fault is not the candidate's; then the run ends, resumable."""
        failed: Record = {}
        for _ in range(2):
            future = self._pool.submit(self._evaluated, evaluator, commit, seed)
            found = self._ended([future]).pop().result()
            if not found.is_ours:
                return found
            failed = found.failure or {}
        raise StorageError(
            f"{failed['what']}: {failed['why']}", hint="repair it, then run the campaign again"
        )

    def _evaluated(self, evaluator: Evaluator, commit: str, seed: int) -> Evaluation:
        with Around(self.around):
            return evaluator.evaluate(commit, seed=seed)

    def _kept(self, raw: str) -> str:
        """An output as a line can hold it; a long one is kept beside the journal by its hash."""
        if len(raw) <= _INLINE:
            return raw
        name = f"outputs/{sha256(raw.encode('utf-8', 'replace')).hexdigest()}.txt"
        self.journal.put(name, raw)
        half = _INLINE // 2
        return f"{raw[:half]}\n[{len(raw) - _INLINE} characters more in {name}]\n{raw[-half:]}"

    # -- limits ------------------------------------------------------------------------

    def _heed(self) -> None:
        """Halted on a request to stop."""
        if self.journal.state()["stopping"]:
            raise Halted("user_stopped", "stopped by `improve stop`")
        if why := self._stopping():
            raise Halted("user_stopped", why)

    def look(self) -> None:
        """Halted on a request to stop, or when the time is over: nothing more is begun."""
        self._heed()
        s, now = self.settings, self.clock.now()
        if (self._limits.deadline is not None and now >= self._limits.deadline) or (
            s.deadline is not None and now >= instant_of(s.deadline)
        ):
            raise Halted("budget", "the deadline has passed")
        wall = self.settings.budget_wall_s
        if wall is not None and self.clock.boottime() - self._began >= wall:
            raise Halted("budget", f"the {wall:g} s of a run are used up")

    def _affordable(self) -> None:
        """Halted if no more evaluations are allowed."""
        spent, s = self.state["evaluations"], self.settings
        limits = {
            "--eval-budget": (self._limits.evaluations, spent - self._evaluations_before),
            "budget_evaluations": (s.budget_evaluations, spent),
        }
        for name, (most, used) in limits.items():
            if most is not None and used >= most:
                raise Halted("budget", f"{used} of {plural(most, 'evaluation')} used ({name})")

    # -- what others see ---------------------------------------------------------------

    def show(self, *, now: bool = False) -> None:
        """Bring the documents up to date, now or soon."""
        if now or self.clock.boottime() >= self._next_show:
            self.views.show(self.state)
            self._money.settle()
            self._next_show = self.clock.boottime() + _SHOW

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._inputs.close()
        self._money.close()
