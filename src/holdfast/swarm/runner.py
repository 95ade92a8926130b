"""Runs the ticks of a swarm, one after the other, and the experts of a tick at once.

What is asked stands in the log before anybody is asked: the plan of a tick is written with the tick
before it.  Each call is recorded in its agent's conversation, and the tick once it is whole.  A
process that takes over asks only for what no conversation has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast import audit
from holdfast.agents.lifecycle import refresh_index
from holdfast.codec import Record, pretty
from holdfast.contracts.kind import object_of
from holdfast.errors import HoldfastError, OverBudget
from holdfast.ids import SessionId
from holdfast.layout import CACHE, HOLDFAST, ROUTER_WEIGHTS, Layout
from holdfast.proc.survivors import end_around
from holdfast.settings import Budget
from holdfast.spend.account import NO_LIMITS, Account
from holdfast.spend.gate import Bound, grant
from holdfast.store.failpoints import hit
from holdfast.store.primitives import Line, Log
from holdfast.swarm import prompts
from holdfast.swarm.experts import LOST_EFFECT, Answer, Ask, Expert, Prepared, charge_number
from holdfast.swarm.router import Router, learned
from holdfast.swarm.run import Run, run_names
from holdfast.swarm.spec import Spec, spec_of
from holdfast.swarm.state import EVENTS, RUNNING, State

if TYPE_CHECKING:
    from holdfast.models.protocol import Model

MOST_BARREN = 3
"""Ticks in a row without a reply, after which a run stops."""
_RUNS_WEIGHED = 20
_SHARE, _PAUSE = 20, 1.0
"""Seconds between two writings of what others read, which may take one part in so many of them."""
Watch = Callable[[Record, State], None]
"""Is told of each whole tick: its lines, and the state after it."""
_HINT = "raise --max-cost with `holdfast swarm resume`, or take a cheaper model"


class Runner:
    """Has the lease of a run; used by one thread."""

    def __init__(
        self,
        run: Run,
        models: Callable[[str, str], Model],
        *,
        layout: Layout = HOLDFAST,
        router: Router | None = None,
        watch: Watch = lambda _, __: None,
        stopping: Callable[[], str] = lambda: "",
    ) -> None:
        """`models` opens a model by agent and name; `stopping` says why to stop before a call."""
        self.run, self.home, self._clock = run, run.home, run.home.clock
        self._layout, self._watch, self._stopping = layout, watch, stopping
        spec, home = spec_of(run.known()), run.home
        self.spec, self._router = spec, router or Router(spec)
        place = f"{home.path}\0{run.key}".encode("utf-8", "surrogateescape")
        self._around = f"swarm-{sha256(place).hexdigest()[:16]}"
        """By which programs of the run are found when its process is gone."""
        self._experts: dict[str, Expert] = {}
        self._topics: dict[str, Log] = {}
        with ExitStack() as opened:
            for agent in spec.agents:
                baton = spec.summarizer_model if agent == spec.summarizer else ""
                asked = [models(agent, ref) for ref in (spec.model_of(agent), baton) if ref]
                expert = Expert(home, layout, run.name, agent, asked, self._around)
                self._experts[agent], self._topics[agent] = expert, home.log(expert.key("topics"))
                opened.callback(expert.close)
                opened.callback(self._topics[agent].close)
            cell = f"{CACHE}/charged/swarm-{run.name}.json"
            self._account = Account(home, run.lines.log, cell, settled)
            opened.callback(self._account.close)
            self._pool = ThreadPoolExecutor(max(2, len(spec.agents)), thread_name_prefix="swarm")
            opened.callback(self._pool.shutdown, wait=False, cancel_futures=True)
            self.close = opened.pop_all().close
        self._next_show = 0.0
        self._look_back = run.fence > 1
        """Whether a process before this one may have asked for the tick that comes next."""
        self._reserved_before: dict[int, SessionId] = {}
        self._reserved = 0.0
        """USD, for calls of this tick that are not in the log."""

    def go(self) -> State:
        """Run tick after tick until the run is over or is stopped."""
        if self._look_back:
            end_around(self._around)
            found = self._account.abandoned()
            self._reserved_before = {each.session.number: each.session for each in found}
        for agent in self.spec.agents:
            self._project(agent, "goal", partial(_goals, agent))
        self._show(now=True)
        try:
            while (state := self.run.known())["status"] == RUNNING:
                if state["ending"] is not None:
                    self._end(state)
                elif why := self._stopping():
                    self.run.write({"event": "halt", "why": why})
                elif state["plan"] is None:  # it was done, and goes on for more ticks
                    self.run.write(plan_of(self.spec, self._router, state))
                else:
                    self._tick(state)
        finally:
            self._show(now=True)
            if self._layout is HOLDFAST:
                refresh_index(self.home, self.spec.agents)
        return self.run.known()

    # -- one tick ----------------------------------------------------------------------

    def _tick(self, state: State) -> None:
        """Ask whom the plan names, and write what came of it with the next plan."""
        spec, plan = self.spec, state["plan"]
        tick, kind, experts = plan["tick"], plan["kind"], plan["experts"]
        began, self._reserved = self._clock.boottime(), 0.0
        primed = prompts.priming(state["baton"], state["said"])
        asks: list[Ask] = []
        for agent in experts:
            goal = prompts.goal_text(spec, agent)
            prompt = prompts.expert_prompt(kind, plan["from"], agent, primed, goal)
            asks.append(Ask(agent, f"{tick}/{agent}", prompt, state["asked"].get(agent, 0)))
        lines: list[Record] = []

        def replies_of(kind: str, asks: Sequence[Ask]) -> dict[str, str]:
            found = list(zip(asks, self._ask_all(state, asks), strict=True))
            lines.extend(_line(kind, plan, *each) for each in found)
            return {ask.agent: reply.text for ask, reply in found if not reply.error}

        replies, baton = replies_of(kind, asks), state["baton"]
        if replies and kind != "moe":
            baton = prompts.limited([*replies.values()][-1], spec)
        elif replies:
            if why := self._stopping():
                self.run.write({"event": "halt", "why": why})
                return
            agent = spec.summarizer
            number = state["asked"].get(agent, 0) + (agent in experts)
            prompt = prompts.summary_prompt(replies, spec.baton_sentences)
            summary = replies_of("aggregate", [Ask(agent, f"{tick}/{agent}/baton", prompt, number)])
            baton = prompts.limited(summary.get(agent) or prompts.joined(replies), spec)
        if not experts:
            said = f"no expert in tick {tick}: {plan['reason']}"
            best = max(plan["scores"], key=plan["scores"].__getitem__)
            t = self._clock.now()
            lines.append({"event": "error", "t": t, "agent": best, "error": said, "tick": tick})
        seconds = round(self._clock.boottime() - began, 6)
        whole = {"event": "tick", "t": self._clock.now(), "tick": tick, "kind": kind}
        whole |= {"baton": baton, "replies": len(replies), "seconds": seconds}
        self._write([*lines, whole])

    def _write(self, lines: list[Record]) -> None:
        """A whole tick and what follows from it, in one write."""

        def decide(_: State) -> Sequence[Record]:
            made = self.run.stamped(lines)
            after = self.run.lines.preview(made)
            return [*made, *self.run.stamped(self._following(after))]

        try:
            # Before the lock of the log is taken: an embedding takes its time.
            self._router.likeness(lines[-1]["baton"])
            written = self.run.decide(decide)
        except HoldfastError as error:
            # What went wrong first must not be hidden by what went wrong next.
            failed = [f"{each['agent']}: {each['error']}" for each in lines if "error" in each]
            error.message += f" (not recorded of this tick: {'; '.join(failed)})" if failed else ""
            raise
        self._look_back = False
        state = self.run.known()
        self._show()
        self._watch(written.lines[len(lines) - 1].record, state)

    def _following(self, state: State) -> list[Record]:
        """What comes after a whole tick: the next plan, or the end."""
        spec = self.spec
        if state["tick"] >= spec.ticks:
            return [self._ending(state, f"{state['tick']} ticks")]
        if spec.max_tokens is not None and state["tokens"] >= spec.max_tokens:
            return [self._ending(state, f"{state['tokens']} tokens")]
        plan = plan_of(spec, self._router, state)
        barren = state["barren"] >= MOST_BARREN
        why = f"no expert replied in {state['barren']} ticks" if barren else state["why"]
        halt = {"event": "halt", "why": why}
        return [plan, halt] if barren or state["stopping"] else [plan]

    # -- asking ------------------------------------------------------------------------

    def _ask_all(self, state: State, asks: Sequence[Ask]) -> list[Answer]:
        """How each call ended, in the order in which they are given; made at once."""
        answers: dict[str, Answer] = {}
        calls: list[Prepared] = []
        try:
            for number, ask in enumerate(asks):
                found = self._before(state, ask) if self._look_back else None
                lost = self.run.known()["lost"].get(ask.name, 0)
                if found is not None:
                    answers[ask.name] = found
                elif lost and self._experts[ask.agent].acts(ask) and not self.spec.repeatable:
                    answers[ask.name] = Answer("", LOST_EFFECT, {"t": self._clock.now()})
                else:
                    call = self._prepared(ask, lost)
                    calls.append(self._funded(state, call, len(asks) - number))
        except OverBudget as error:
            self._refused(error, calls)
            raise
        hit("swarm.asking")
        asking = {
            call.ask.name: self._pool.submit(self._experts[call.ask.agent].ask, call)
            for call in calls
        }
        wait(asking.values())
        answers |= {name: future.result() for name, future in asking.items()}
        return [answers[ask.name] for ask in asks]

    def _prepared(self, ask: Ask, lost: int) -> Prepared:
        """A call as it is named in the conversation and in the book; nothing is reserved for it."""
        parts, request = self._experts[ask.agent].request(ask, self.spec.timeout)
        name = f"{ask.name}/{lost + 1}" if lost else ask.name
        charge = SessionId(self.home.day(), ask.agent, charge_number(self.run.name, name))
        charge = self._reserved_before.get(charge.number, charge)
        return Prepared(ask, parts, request, f"{self.run.name}/{name}", charge, None)

    def _before(self, state: State, ask: Ask) -> Answer | None:
        """How a call ended that the process before this one made; None if it has to be made."""
        expert = self._experts[ask.agent]
        while True:
            call = self._prepared(ask, self.run.known()["lost"].get(ask.name, 0))
            found = expert.recorded(call)
            if found is None or found.error != LOST_EFFECT:
                return found
            line = {"event": "lost", "tick": state["plan"]["tick"], "call": ask.name}
            line |= {"agent": ask.agent, "charge": str(call.charge), "turn": call.turn}
            line |= found.fields
            self.run.write(line)

    # -- money -------------------------------------------------------------------------

    def _funded(self, state: State, call: Prepared, left: int) -> Prepared:
        """Reserve for a call under the limits of run, agent and fleet; OverBudget if refused."""
        spec, ask = self.spec, call.ask
        model = self._experts[ask.agent].model_of(ask)
        usd = most = model.most_usd(call.request)
        if spec.max_cost_usd is not None:
            known = (state["cost_usd"], self._reserved, state["unknown"], state["assumed_usd"])
            bound = Bound(f"swarm {self.run.name}", spec.max_cost_usd, *known)
            if usd is None and getattr(model, "tells_cost", True):
                usd = max(bound.left, 0.0) / left  # an equal share for each call of the tick
            grant([bound], usd or 0.0, hint=_HINT)
            if usd is not None and usd <= 0.0 < (most or 1.0):
                grant([bound], None, hint=_HINT)
        if self._reserved_before.pop(call.charge.number, None):
            self._account.release(call.charge, "not asked")
        budget = self.home.current_settings().budget(ask.agent)
        limits = Budget(None, budget.agent_day, budget.fleet_day)
        charge = SessionId(self.home.day(), ask.agent, call.charge.number)
        if limits != NO_LIMITS:
            self._account.reserve(charge, usd or 0.0, limits)
        self._reserved += usd or 0.0
        return call._replace(charge=charge, reserved_usd=usd)

    def _refused(self, error: OverBudget, calls: Sequence[Prepared]) -> None:
        """Stop the run where it is; the replies of this tick are in the conversations."""
        for call in calls:
            self._account.release(call.charge, "not asked")
        audit.refused(self.home, f"a call of swarm {self.run.name}", error)
        with suppress(HoldfastError):
            self.run.write({"event": "halt", "why": error.message})

    # -- what others see ---------------------------------------------------------------

    def _show(self, *, now: bool = False) -> None:
        """Bring the document, the batons and the book up to date, now or soon."""
        began = self._clock.boottime()
        if not now and began < self._next_show:
            return
        self.run.show()
        self._project(self.spec.summarizer, "baton", _baton)
        self._account.settle()
        ended = self._clock.boottime()
        self._next_show = ended + max(_PAUSE, _SHARE * (ended - began))

    def _project(self, agent: str, what: str, tell: Callable[[Line], Record | None]) -> None:
        cell = f"{CACHE}/retold/swarm-{self.run.name}.{agent}.{what}.json"
        self.run.lines.project(self._topics[agent], cell, tell)

    # -- the end -----------------------------------------------------------------------

    def _ending(self, state: State, why: str) -> Record:
        weights, even = learned(self.spec, state["chosen"], self._chosen_before())
        weights = weights if state["chosen"] else {}
        return {"event": "ending", "why": why, "weights": weights, "entropy": even}

    def _chosen_before(self) -> Counter[str]:
        """How often each agent was chosen in the last runs."""
        chosen = Counter[str]()
        for name in run_names(self.home)[-_RUNS_WEIGHED:]:
            found = self.home.document(f"{HOLDFAST.path('swarms')}/{name}.json").read()
            with suppress(ValueError):
                state = object_of(json.loads(found.data) if found else {})
                chosen.update({} if name == self.run.name else object_of(state.get("chosen")))
        return chosen

    def _end(self, state: State) -> None:
        """Apply what was learned, which may be done twice, and end the run."""
        ending: Record = state["ending"]
        if ending["weights"]:
            document = self.home.document(ROUTER_WEIGHTS)
            document.update(lambda old: pretty(weights_in(old) | ending["weights"]))
            document.close()
        self.run.write({"event": "end", "why": ending["why"]})


# --- pure -----------------------------------------------------------------------------------


def plan_of(spec: Spec, router: Router, state: State) -> Record:
    """Who is asked in the next tick, and why."""
    tick: int = state["tick"] + 1
    count = len(spec.agents)
    kind = spec.kind(tick)
    plan: Record = {"event": "plan", "tick": tick, "kind": kind, "from": spec.summarizer}
    match kind:
        case "handoff":
            turn: int = (tick - 1) % count
            to, from_ = spec.agents[turn], spec.agents[turn - 1]
            return plan | {"from": from_, "experts": [to], "reason": f"{to} is next in the ring"}
        case "broadcast":
            from_ = spec.agents[(tick - 1) % count]
            return plan | {"from": from_, "experts": list(spec.agents), "reason": "all are asked"}
        case "moe":
            choice = router.choose(tick, state["baton"], state["previous"], state["selected"])
            return plan | choice._asdict()


def first_plan(spec: Spec, router: Router) -> Record:
    blank: State = {"tick": 0, "baton": spec.goal, "previous": [], "selected": {}}
    return plan_of(spec, router, blank)


def _line(kind: str, plan: Record, ask: Ask, answer: Answer) -> Record:
    """The event of a call."""
    if answer.error:
        line: Record = {"event": "error", "agent": ask.agent, "error": answer.error}
        line |= {"summary": True} if kind == "aggregate" else {}
    else:
        line = {"event": kind, **({} if kind in ("moe", "aggregate") else {"from": plan["from"]})}
        line |= {EVENTS[kind]: ask.agent, "prompt": ask.prompt, "reply": answer.text}
    return line | {"tick": plan["tick"]} | answer.fields


def settled(line: Line) -> Record | None:
    """The line of the book for a line of a run."""
    record = line.record
    if not isinstance(charge := record.get("charge"), str):
        return None
    usd, tokens = record.get("cost_usd"), record.get("tokens")
    return {"event": "settle", "session_id": charge, "usd": usd, "tokens": tokens}


def _baton(line: Line) -> Record | None:
    record = line.record
    if record.get("event") != "tick" or record.get("kind") != "moe":
        return None
    datum = {"topic": "moe/baton", "text": record["baton"], "fields": {"tick": record["tick"]}}
    return {"ts": record["t"], **datum}


def _goals(agent: str, line: Line) -> Record | None:
    record = line.record
    if record.get("event") != "new":
        return None
    spec = spec_of(record)
    fields = {"global_goal": spec.goal, "agent_goal": spec.goals.get(agent, spec.goal)}
    fields |= {"model": spec.model_of(agent), "topology": spec.topology}
    topic = f"goals/runs/{record['run']}"
    return {"ts": record["t"], "topic": topic, "text": spec.goal, "fields": fields}


def weights_in(data: bytes | None) -> dict[str, float]:
    """The weights in a document that people may have edited."""
    with suppress(ValueError):
        known = object_of(json.loads(data or b"{}")).items()
        return {name: float(value) for name, value in known if type(value) in (int, float)}
    return {}
