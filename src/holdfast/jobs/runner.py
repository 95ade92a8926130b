"""Asks the models of a job, one call after another.

Of each call the intent is recorded before the model is asked, the reply before anything is made of
it, and then the verdict.  After a crash the next runner can tell from the history what was done and
what may have been done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from math import ceil
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from holdfast import audit
from holdfast.calls.call import Result, ask
from holdfast.clock import instant_of, utc_stamp
from holdfast.codec import Record
from holdfast.errors import HoldfastError, OverBudget, UsageError
from holdfast.ids import SessionId, is_agent_id, session_id
from holdfast.jobs.history import prompt_of_call
from holdfast.jobs.job import Job
from holdfast.jobs.place import Models, any_acts, around, end_orphans
from holdfast.jobs.request import Asking, asking, hash_of, model_request, prompt_of
from holdfast.jobs.state import add_known, capped, check, committed_usd, phase_of, refusal, spec_of
from holdfast.jobs.steward import move
from holdfast.jobs.verdict import ENDINGS, OUTCOMES, Call, Verdict, given, verdict_on, without_files
from holdfast.layout import CACHE
from holdfast.mask.shown import beginning
from holdfast.models.protocol import Model, Reply, Request
from holdfast.models.registry import acts
from holdfast.proc.limits import told_lost
from holdfast.settings import Budget
from holdfast.spend.account import Account
from holdfast.spend.book import OF_A_JOB
from holdfast.store.failpoints import hit
from holdfast.store.primitives import Decision, Line
from holdfast.text import plural
from holdfast.workspace.safedir import Unkept
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.jobs.job import State as JobState

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_TINY = 1e-9
_EFFECT = "may have had an effect: look, then decide"
_MOST_RAW = 1 << 20
"""Characters of a reply that are kept; a longer one is no answer to anything."""

Watch = Callable[[str, Record], None]
"""Is called with each step as it happens: a word, and the state."""


class Prepared(NamedTuple):
    """A call that can be recorded, and made."""

    call: Call
    asked: Asking
    request: Request
    most: float | None
    """What it can cost."""
    reserved: float | None


class Runner:
    """Has the lease of a job; used by one thread."""

    def __init__(
        self,
        job: Job,
        workspace: Workspace,
        *,
        given: Mapping[str, Model] | None = None,
        watch: Watch | None = None,
        rng: Random | None = None,
    ) -> None:
        self.job, self.workspace = job, workspace
        self._clock = job.home.clock
        self.models = Models(
            workspace.path,
            clock=self._clock,
            sandbox=workspace.sandbox,
            given=given,
            environment={"HOLDFAST_JOB_ID": job.name},
        )
        self._watch: Watch = watch or (lambda word, state: None)
        self._rng = rng or Random()
        self._account, self._name = account_of(job), _name_in_book(job.name)
        self._fleet = Budget(fleet_day=job.home.current_settings().budget().fleet_day)
        self._limited = self._fleet.fleet_day is not None
        self._around = around(job)
        self._sealed = job.spec.sensitive
        self._files_change = any_acts(job.spec)
        self._part_name = job.seals.ring.digest if self._sealed else hash_of

    # -- the core ----------------------------------------------------------------------

    def step(self) -> JobState:
        """One call, from its claim to what follows from it; or the reason why there is none."""
        return self.job.known() if self._is_stopped() else self._call()

    def run(self) -> JobState:
        """Step until the job is over, or a person has to decide."""
        if self._is_stopped():
            return self.job.known()
        while is_ready(state := self._call(on=True)):
            if (until := state["not_before"]) is not None:
                self._watch("waiting", self.job.known())
                # A clock that was set back in between must not hold up the job.
                left = instant_of(until) - self._clock.now()
                self._clock.sleep(min(max(0.0, left), _LONGEST_PAUSE))
        return state

    def respond(self, raw: str) -> JobState:
        """Take an answer from a person or a script instead of asking."""
        check_length(raw)
        self.recover()
        if (call := self._claim("given")) is not None:
            self._finish(call, given(raw))
        return self.job.known()

    def _call(self, *, on: bool = False) -> JobState:
        """One call; with `on` also those that follow at once."""
        call = self._claim()
        while call is not None:
            call = self._finish(call, self._ask(call), on=on)
        return self.job.state()

    # -- before ------------------------------------------------------------------------

    def _is_stopped(self) -> bool:
        """Whether what the last runner left ends the job, or is for a person to decide."""
        return self.recover() and not is_ready(self.job.known())

    def recover(self) -> bool:
        """Go on where the last runner was ended; whether there was anything to do."""
        state = self.job.state()
        call = state["call"]
        if state["status"] != "RUNNING" or call is None:
            return False
        phase = next(each for each in spec_of(state).phases if each.name == call["phase"])
        ended = end_orphans(self.job) if acts(call["model"]) or phase.gates else ""
        if call["outcome"] is None:
            again = phase.repeatable if phase.repeatable is not None else not acts(call["model"])
            ended = f" ({ended})" if ended else ""
            self.job.decide(
                lambda now: [self._lost(now, again=again, ended=ended) | {"charge": call["charge"]}]
            )
            self._watch("lost", self.job.known())
            return True
        if ended:
            self.job.decide(lambda _: [{"event": "note", "reason": f"the runner died: {ended}"}])
        left = Call(
            call["sequence"],
            phase,
            call["model"],
            call["state_before"],
            call["tree"],
            prompt_of_call(self.job, call["sequence"]),
            bool(call.get("by_budget")),
            call["charge"] or "",
        )
        reply, why = Reply(call.get("raw_response", ""), call["model"]), call.get("error") or ""
        again = bool(call.get("retryable"))
        self._conclude(left, Result(ENDINGS[call["outcome"]], reply, why, again), [])
        return True

    def _lost(self, state: JobState, *, again: bool, ended: str = "") -> Record:
        check(state, "lost")
        call = state["call"]
        reason = f"the runner died while {call['model']} was asked in phase {call['phase']}{ended}"
        if again:
            return move("lost", call["state_before"], reason=f"{reason}; it is asked again")
        return move("lost", "INTERVENTION_REQUIRED", reason=f"{reason}, which {_EFFECT}")

    def _claim(self, word: str = "asked") -> Call | None:
        """Record the intent, and reserve money; None if the job may not go on."""
        state = self.job.known()
        if state["hold"] is not None:
            raise refusal(state, "run")
        check(state, "claim")
        place = _place(state)
        try:
            prepared = self._prepared(state)
        except OverBudget as error:
            self._note_refusal(state, error)
            raise

        def decide(now: JobState) -> Decision[str]:
            check(now, "claim")
            if now["hold"] is not None:
                raise refusal(now, "run")
            if _place(now) != place:
                return [], "moved"
            if (bar := _over(now, prepared.most)) is not None:
                return [bar], "halted"
            return _intent(now, prepared, self._part_name), "claimed"

        outcome = ""
        try:
            outcome = self.job.transact(decide).value
        finally:
            if outcome != "claimed" and self._limited:
                self._account.release(session_id(prepared.call.charge), "nobody was asked")
        match outcome:
            case "claimed":
                return self._claimed(prepared, word)
            case "moved":
                return self._claim(word)
            case _:
                self._watch("halted", self.job.known())
                return None

    def _note_refusal(self, state: JobState, error: OverBudget) -> None:
        """Record why the job does not go on; the refusal itself comes first."""
        what = f"call {state['sequence']} of {self.job.name}"
        audit.refused(self.job.home, what, error, job=self.job.name)
        why = f"call {state['sequence']} was refused: {error.message}"

        def decide(now: JobState) -> Sequence[Record]:
            noted = now["why"] == why or not is_ready(now)
            return [] if noted else [{"event": "note", "reason": why}]

        with suppress(HoldfastError):
            self.job.decide(decide)

    def _claimed(self, prepared: Prepared, word: str = "asked") -> Call:
        self._watch(word, self.job.known())
        self._request = prepared.request
        hit("job.claimed")
        return prepared.call

    def _prepared(self, state: JobState) -> Prepared:
        """The call that a state asks for, with the money for it reserved."""
        phase = phase_of(state)
        ref = spec_of(state).model_of(phase) or ""
        model = self.models.model(ref)
        if state["restore"] is not None:
            self.workspace.restore(state["restore"])
        tree = self.workspace.snapshot(f"before call {state['sequence']}") if acts(ref) else None
        asked = asking_of(state, ref, self.workspace)
        left = state["limits"]["max_seconds"] - state["seconds"]
        request = model_request(
            asked,
            phase,
            timeout=max(min(phase.timeout_seconds, left), 0.0),
            ordinal=state["asked"].get(ref, 0),
        )
        wanted = most = model.most_usd(request)
        # No money can be reserved for a model that never reports what it costs.
        if most is None and getattr(model, "tells_cost", True):
            wanted = state["limits"]["max_cost_usd"] - committed_usd(state)
        charge = SessionId(self.job.home.day(), self._name, state["sequence"] + 1)
        if self._limited:
            try:
                self._account.reserve(charge, wanted or 0.0, self._fleet)
            except OverBudget:
                if most is not None:
                    raise
                # A call of unknown price gets at most all that the fleet has left.
                self._account.reserve(charge, None, self._fleet)
        call = Call(
            state["sequence"],
            phase,
            ref,
            state["status"],
            tree,
            prompt_of(request),
            left < phase.timeout_seconds,
            str(charge),
        )
        return Prepared(call, asked, request, most, wanted)

    def _following(self, state: JobState, call: Call) -> Prepared | None:
        """The next call, if it can be recorded together with the verdict on this one: a model that
        only answers has no files that would have to be kept or put back before."""
        phase = phase_of(state)
        if not is_ready(state) or state["not_before"] or state["restore"] or self._limited:
            return None
        same = spec_of(state).model_of(phase) == call.model
        if not same or acts(call.model) or phase.repeatable is False:
            return None
        try:
            found = self._prepared(state)
        except HoldfastError:
            return None  # a claim of its own says why; this reply is not lost over it
        return found if _over(state, found.most) is None else None

    # -- the call ----------------------------------------------------------------------

    def _ask(self, call: Call) -> Result:
        with self._around:
            result = ask(self.models.model(call.model), self._request, self._clock)
        if self._around.lost_keeper and result.outcome in ("error", "timeout"):
            # It did not end by itself, whatever it printed last: how far it came is not known.
            left = self._around.left
            again = call.phase.repeatable is True and not left
            why = f"{told_lost(left)}: {call.model} was asked in phase {call.phase.name}"
            why = why if again else f"{why}, which {_EFFECT}"
            result = Result("error", result.reply, why, again, result.seconds)
        hit("job.answered")
        if result.reply is not None and len(raw := result.text) > _MOST_RAW:
            short = f"{beginning(raw, _MOST_RAW)} [{len(raw) - _MOST_RAW} characters more]"
            result = result._replace(reply=result.reply._replace(text=short))
        return result

    # -- after -------------------------------------------------------------------------

    def _finish(self, call: Call, result: Result, *, on: bool = False) -> Call | None:
        """Record the reply, and what is made of it; the next call, if it is claimed."""
        replied = _replied(call, result)
        if not (acts(call.model) or call.phase.gates):
            return self._conclude(call, result, [replied], on=on)
        # What follows takes its time: the reply is safe before it begins.
        if not self.job.decide(lambda now: [replied] if _is_open(now, call) else []).lines:
            return self._watch("overtaken", self.job.known())
        return self._conclude(call, result, [])

    def _conclude(
        self, call: Call, result: Result, before: list[Record], *, on: bool = False
    ) -> Call | None:
        """Judge a reply, and decide where the job goes from there."""
        tree = None
        try:
            with self._around:
                verdict = verdict_on(call, result, self.job.known(), self.workspace, self._clock)
            # The files after a call that could change them, and at each recovery point.
            if call.tree or (self._files_change and verdict.action == "COMPLETED"):
                tree = self.workspace.snapshot(f"after call {call.sequence}")
        except Unkept as error:
            verdict = without_files(call, result, self.job.known(), self.workspace, error)

        def decide(state: JobState) -> Decision[Prepared | None]:
            if not _is_open(state, call):
                return [], None
            pause = self._not_before(state) if verdict.outcome == "ERROR" else ""
            lines = [*before, verdict.line(state, call.sequence, pause)]
            if verdict.action == "COMPLETED":
                lines.append(_point(state, call, verdict, tree))
            if not on or self._sealed:
                return lines, None
            # The next prompt is made of what the history will say: secrets are masked in it.
            after = self.job.ahead(lines)
            if (following := self._following(after, call)) is not None:
                lines += _intent(after, following, self._part_name)
            return lines, following

        written = self.job.transact(decide)
        if not written.lines:  # the job was cancelled in between
            return self._watch("overtaken", self.job.known())
        if self._limited:
            self._account.settle(written.lines[-1].cursor)
        verdict.tell_audit(self.job, call.sequence, sealed=self._sealed)
        if not before or written.masked or self._sealed:
            job, number, record = self.job, call.sequence, {"raw_response": result.text}
            what, ref = f"the reply of call {number}", f"{job.log.key}#{number}/secrets"
            audit.redacted(job.home, what, record, job=job.name, sequence=number, ref=ref)
        state = self.job.known()
        if verdict.warnings:  # which no state keeps
            state = {**state, "warned": [each.reason for each in verdict.warnings]}
        self._watch("judged", state)
        return self._claimed(written.value) if written.value else None

    def _not_before(self, state: JobState) -> str:
        """Twice as long each time, less a part by chance."""
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** state["failures"])
        return utc_stamp(ceil(self._clock.now() + pause * (0.5 + self._rng.random() / 2)))

    def close(self) -> None:
        self.models.close()
        try:
            self._account.settle()
        finally:
            self._account.close()


def is_ready(state: JobState) -> bool:
    """Whether the next call can be made."""
    return state["status"] in ("PENDING", "REVIEWING") and state["hold"] is None


def asking_of(state: JobState, ref: str, workspace: Workspace) -> Asking:
    """The question to a model: one that only answers is shown the files."""
    return asking(state, sent="json" if acts(ref) else "chat", contents=workspace.text_of)


def check_length(raw: str) -> None:
    """Refuse an answer that the history could not keep."""
    if len(raw) > _MOST_RAW:
        hint = f"{_MOST_RAW:,} are kept at most"
        raise UsageError(f"an answer of {len(raw):,} characters", hint=hint)


# --- money ----------------------------------------------------------------------------------


def account_of(job: Job) -> Account:
    """The job's account in the fleet's book: each call stands there as a session of its own."""
    return Account(job.home, job.log, f"{CACHE}/charged/{_name_in_book(job.name)}.json", _settled)


def _settled(line: Line) -> Record | None:
    """The line of the book for a line of a history."""
    record = line.record
    charge = record.get("charge")
    if not isinstance(charge, str) or record.get("event") not in ("reply", "move"):
        return None
    tokens = [record.get(name) for name in ("input_tokens", "output_tokens")]
    known = [each for each in tokens if isinstance(each, int)]
    settle: Record = {"event": "settle", "session_id": charge, "usd": record.get("cost_usd")}
    return settle | {"tokens": sum(known) if known else None}


def _name_in_book(job: str) -> str:
    """The job's name among agents, whose names are shorter and in lower case."""
    name = f"{OF_A_JOB}{job.lower()}"
    if is_agent_id(name) and job == job.lower():
        return name
    return f"{name[:50]}-{sha256(job.encode()).hexdigest()[:8]}"


# --- lines ----------------------------------------------------------------------------------


def _over(state: JobState, most: float | None) -> Record | None:
    """The line that ends a job's spending, if it may not ask."""
    limits, spent = state["limits"], committed_usd(state)
    if state["steps"] >= limits["max_iterations"]:
        reason = f"{state['steps']} of {plural(limits['max_iterations'], 'call')} were made"
        return {"event": "hold", "hold": "iterations", "reason": reason}
    if state["seconds"] >= limits["max_seconds"]:
        reason = f"{state['seconds']:.0f} of {limits['max_seconds']:.0f} seconds are used"
        return move("over_time", "HALTED_TIME", reason=reason)
    money = limits["max_cost_usd"]
    if spent >= money or (most is not None and spent + most > money + _TINY):
        next_one = "" if most is None else f", and the next call can cost {most:.4f}"
        reason = f"{spent:.4f} of {money:.4f} USD are spent{next_one}"
        return move("over_cost", "HALTED_COST", reason=reason)
    return None


def _intent(state: JobState, prepared: Prepared, name_of: Callable[[str], str]) -> list[Record]:
    """The line of a call, after those of the parts that the history does not have."""
    call, asked, request = prepared.call, prepared.asked, prepared.asked.request
    named = {name_of(text): text for text in asked.parts}
    parts: list[Record] = [
        {"event": "part", "part": name, "text": text}
        for name, text in named.items()
        if name not in state["parts"]
    ]
    line: Record = {
        "event": "call",
        "sequence": call.sequence,
        "phase": call.phase.name,
        "role": call.phase.role,
        "model": call.model,
        "state_before": call.state_before,
        "preceded_by": state["since"],
        "sent": asked.sent,
        "parts": [name_of(text) for text in asked.parts],
        "request": {
            "job_id": request.job_id,
            "phase": request.phase,
            "context_files": request.context_files,
            "metadata": asked.limits,
        },
    }
    fields = {
        "reserved_usd": prepared.reserved,
        "charge": call.charge or None,
        "tree": call.tree,
        "temperature": call.phase.temperature,
        "max_tokens": call.phase.max_tokens,
        "by_budget": call.by_budget or None,
    }
    return [*parts, add_known(line, fields)]


def _place(state: JobState) -> tuple[object, ...]:
    """Where a job is; a person may take it back to another place while a call is prepared."""
    return state["run"], state["phase"], state["restore"]


def _is_open(state: JobState, call: Call) -> bool:
    return state["call"] is not None and state["call"]["sequence"] == call.sequence


def _replied(call: Call, result: Result) -> Record:
    reply = result.reply
    line: Record = {
        "event": "reply",
        "sequence": call.sequence,
        "outcome": OUTCOMES[result.outcome],
        "raw_response": result.text,
        "execution_time_seconds": round(result.seconds, 6),
        "cost_usd": result.cost_usd,
    }
    if result.why:
        line |= {"error": result.why, "retryable": result.retryable}
    if call.charge:
        line["charge"] = call.charge
    if reply is not None and not reply.model:
        line["is_simulated"] = True
    elif reply is not None:
        line["answered_by"] = reply.model
        add_known(line, reply.usage._asdict())
        if reply.first_text is not None:
            line["first_text_seconds"] = round(reply.first_text, 6)
    return line


def _point(state: JobState, call: Call, verdict: Verdict, tree: str | None) -> Record:
    """A recovery point after a phase that was completed."""
    phases, place = spec_of(state).phases, verdict.at + 1
    doubts = any(each.kind.startswith("evidence") for each in verdict.warnings)
    sure = verdict.gate is not None and verdict.gate.ok and not doubts
    name = f"{call.phase.name}-complete-{call.sequence}"
    few = capped(verdict.touched)
    point: Record = {
        "id": name,
        "checkpoint_id": name,
        "sequence": call.sequence,
        "can_resume_from": place < len(phases),
        "description": f"{call.phase.role} completed {call.phase.name}",
        "resume_phase": phases[place].name if place < len(phases) else None,
        "rollback_files": few,
        "metadata": {
            "confidence": "high" if sure else "medium",
            "evidence_count": len(verdict.evidence_files),
            "test_pass_rate": verdict.gate.test_pass_rate if verdict.gate else None,
        },
    }
    if len(few) < len(verdict.touched):
        point["rollback_count"] = len(verdict.touched)
    return {"event": "point", "point": point, "place": place, "tree": tree}
