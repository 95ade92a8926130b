"""Asks agents for a job, one call after another.

A call is an intent on record before anybody is asked, the reply on record before anything is made
of it, and then what is made of it.  Whoever dies in between is followed by one who can tell from
the history what was done and what may have been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from random import Random
from typing import TYPE_CHECKING

from holdfast import audit
from holdfast.calls.call import Result, ask
from holdfast.clock import instant_of, utc_stamp
from holdfast.codec import Record
from holdfast.errors import (
    HoldfastError,
    OverBudget,
    UsageError,
)
from holdfast.ids import SessionId, session_id
from holdfast.jobs.call import ENDINGS, OUTCOMES, Call, Prepared, given
from holdfast.jobs.crew import Crew, acts, any_acts
from holdfast.jobs.job import Job
from holdfast.jobs.money import account_of, name_in_book
from holdfast.jobs.remains import around, end_remains
from holdfast.jobs.request import Asking, asking, hash_of, model_request, prompt_of
from holdfast.jobs.state import capped, check, committed_usd, phase_of, refusal, spec_of, told_in
from holdfast.jobs.verdict import Verdict, many, verdict_on, without_files
from holdfast.mask.shown import beginning
from holdfast.models.protocol import Model, Reply, Request
from holdfast.proc.limits import told_lost
from holdfast.settings import Budget
from holdfast.store.failpoints import hit
from holdfast.store.primitives import Decision
from holdfast.workspace.safedir import Unkept
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.jobs.job import State as JobState

API_TRIES = 3
"""How often a call that failed for no fault of ours is made again."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_TINY = 1e-9
_EFFECT = "may have had an effect: look, then decide"
_MOST_RAW = 1 << 20
"""Characters of a reply that are kept; a longer one is no answer to anything."""

Watch = Callable[[str, Record], None]
"""Is told of each step as it happens: a word, and the state."""


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
        self.crew = Crew(
            workspace.path,
            clock=self._clock,
            sandbox=workspace.sandbox,
            given=given,
            told={"HOLDFAST_JOB_ID": job.name},
        )
        self._watch, self._rng = watch or _unwatched, rng or Random()
        self._account, self._name = account_of(job), name_in_book(job.name)
        self._fleet = Budget(fleet_day=job.home.current_settings().budget().fleet_day)
        self._around = around(job)
        self._sealed = job.spec.sensitive
        self._files_change = any_acts(job.spec)
        self._part_name = job.seals.ring.digest if self._sealed else hash_of

    # -- the core ----------------------------------------------------------------------

    def step(self) -> JobState:
        """One call, from its claim to what follows from it; or the reason why there is none."""
        return self.job.known() if self._is_stopped() else self._call()

    def run(self) -> JobState:
        """Step until the job is over, or somebody has to decide."""
        if self._is_stopped():
            return self.job.known()
        while is_ready(state := self._call(on=True)):
            self._wait(state["not_before"])
        return state

    def _call(self, *, on: bool = False) -> JobState:
        """One call; with `on` also those that follow at once."""
        call = self._claim()
        while call is not None:
            call = self._finish(call, self._ask(call), on=on)
        return self.job.state()

    # -- before ------------------------------------------------------------------------

    def _is_stopped(self) -> bool:
        """Whether what the one before left behind ends the job, or is for somebody to decide."""
        return self.recover() and not is_ready(self.job.known())

    def recover(self) -> bool:
        """Go on where whoever ran the job before was ended; whether there was anything."""
        state = self.job.state()
        call = state["call"]
        if state["status"] != "RUNNING" or call is None:
            return False
        phase = next(each for each in spec_of(state).phases if each.name == call["phase"])
        ended = end_remains(self.job) if acts(call["model"]) or phase.gates else ""
        if call["outcome"] is not None:
            if ended:
                self.job.decide(
                    lambda _: [{"event": "note", "reason": f"the runner died: {ended}"}]
                )
            told = self._prompt_of(call["sequence"])
            left = Call(
                call["sequence"],
                phase,
                call["model"],
                call["state_before"],
                call["tree"],
                told,
                bool(call.get("by_budget")),
                call["charge"] or "",
            )
            raw, why = call.get("raw_response", ""), call.get("error") or ""
            result = Result(
                ENDINGS[call["outcome"]],
                Reply(raw, call["model"]),
                why,
                bool(call.get("retryable")),
            )
            self._conclude(left, result, [])
            return True
        again = phase.repeatable if phase.repeatable is not None else not acts(call["model"])
        ended = f" ({ended})" if ended else ""
        self.job.decide(
            lambda now: [self._lost(now, again=again, ended=ended) | {"charge": call["charge"]}]
        )
        self._watch("lost", self.job.known())
        return True

    def _lost(self, state: JobState, *, again: bool, ended: str = "") -> Record:
        check(state, "lost")
        call = state["call"]
        whom = f"{call['model']} was asked in phase {call['phase']}"
        if again:
            reason = f"the runner died while {whom}{ended}; it is asked again"
            return _move("lost", call["state_before"], reason)
        reason = f"the runner died while {whom}{ended}, which {_EFFECT}"
        return _move("lost", "INTERVENTION_REQUIRED", reason)

    def _claim(self, word: str = "asked") -> Call | None:
        """Put the intent on record, and money aside; None if the job may not go on."""
        state = self.job.known()
        if state["hold"] is not None:
            raise refusal(state, "run")
        check(state, "claim")
        place = _place(state)
        try:
            call, asked, request, most, aside = self._prepared(state)
        except OverBudget as error:
            self._tell_refused(state, error)
            raise

        def decide(now: JobState) -> Decision[str]:
            check(now, "claim")
            if now["hold"] is not None:
                raise refusal(now, "run")
            if _place(now) != place:
                return [], "moved"
            if (bar := _over(now, most)) is not None:
                return [bar], "halted"
            return _intent(now, call, asked, aside, self._part_name), "claimed"

        came_to = ""
        try:
            came_to = self.job.transact(decide).value
        finally:
            if came_to != "claimed" and self._limited:
                self._account.release(session_id(call.charge), "nobody was asked")
        match came_to:
            case "claimed":
                return self._claimed(call, request, word)
            case "moved":
                return self._claim(word)
            case _:
                self._watch("halted", self.job.known())
                return None

    def _tell_refused(self, state: JobState, error: OverBudget) -> None:
        """Let who looks at the job see why it does not go on; the refusal itself comes first."""
        what = f"call {state['sequence']} of {self.job.name}"
        audit.refused(self.job.home, what, error, job=self.job.name)
        why = f"call {state['sequence']} was refused: {error.message}"

        def decide(now: JobState) -> Sequence[Record]:
            told = now["why"] == why or not is_ready(now)
            return [] if told else [{"event": "note", "reason": why}]

        with suppress(HoldfastError):
            self.job.decide(decide)

    def _claimed(self, call: Call, request: Request, word: str = "asked") -> Call:
        self._watch(word, self.job.known())
        self._request = request
        hit("job.claimed")
        return call

    def _prepared(self, state: JobState) -> Prepared:
        """What would be asked in a state, and of whom, with the money for it set aside."""
        phase = phase_of(state)
        ref = spec_of(state).model_of(phase) or ""
        model, acting = self.crew.model(ref), acts(ref)
        if state["restore"] is not None:
            self.workspace.restore(state["restore"])
        tree = self.workspace.snapshot(f"before call {state['sequence']}") if acting else None
        asked = asking_of(state, ref, self.workspace)
        left = state["limits"]["max_seconds"] - state["seconds"]
        request = model_request(
            asked,
            phase,
            timeout=max(min(phase.timeout_seconds, left), 0.0),
            ordinal=state["asked"].get(ref, 0),
        )
        aside = most = model.most_usd(request)
        # Money cannot be set aside for who never tells what it costs.
        if most is None and self.crew.tells_cost(ref):
            aside = state["limits"]["max_cost_usd"] - committed_usd(state)
        call = Call(
            state["sequence"],
            phase,
            ref,
            state["status"],
            tree,
            prompt_of(request),
            left < phase.timeout_seconds,
            self._reserve(state["sequence"], aside, known=most is not None),
        )
        return Prepared(call, asked, request, most, aside)

    @property
    def _limited(self) -> bool:
        """Whether the fleet may spend only so much in a day."""
        return self._fleet.fleet_day is not None

    def _reserve(self, sequence: int, wanted: float | None, *, known: bool) -> str:
        """Reserve the fleet's money for a call; its name in the book.

        A call whose price is not known before gets at most all that the fleet has left.
        """
        charge = SessionId(self.job.home.day(), self._name, sequence + 1)
        if self._limited:
            try:
                self._account.reserve(charge, wanted or 0.0, self._fleet)
            except OverBudget:
                if known:
                    raise
                self._account.reserve(charge, None, self._fleet)
        return str(charge)

    def _following(self, state: JobState, call: Call) -> Prepared | None:
        """The next call, if it can go on record with what is made of this one: who only answers
        has no files that would have to be kept or put back before."""
        phase = phase_of(state)
        if not is_ready(state) or state["not_before"] or state["restore"] or self._limited:
            return None
        same = spec_of(state).model_of(phase) == call.model
        if not same or acts(call.model) or phase.repeatable is False:
            return None
        try:
            found = self._prepared(state)
        except HoldfastError:
            return None  # a claim of its own tells why; this reply is not lost over it
        return found if _over(state, found.most) is None else None

    # -- the call ----------------------------------------------------------------------

    def _ask(self, call: Call) -> Result:
        with self._around:
            result = ask(self.crew.model(call.model), self._request, self._clock)
        if self._around.lost_keeper and result.outcome in ("error", "timeout"):
            result = _without_keeper(call, result, self._around.left)
        hit("job.answered")
        if result.reply is not None and len(raw := result.text) > _MOST_RAW:
            short = f"{beginning(raw, _MOST_RAW)} [{len(raw) - _MOST_RAW} characters more]"
            result = result._replace(reply=result.reply._replace(text=short))
        return result

    # -- after -------------------------------------------------------------------------

    def _finish(self, call: Call, result: Result, *, on: bool = False) -> Call | None:
        """Put on record what came, and what is made of it; the next call, if it is claimed."""
        replied = _replied(call, result)
        if acts(call.model) or call.phase.gates:
            # What follows takes its time: what was said is safe before it begins.
            if not self.job.decide(lambda now: [replied] if _is_open(now, call) else []).lines:
                return self._overtaken()
            return self._conclude(call, result, [])
        return self._conclude(call, result, [replied], on=on)

    def _conclude(
        self, call: Call, result: Result, before: list[Record], *, on: bool = False
    ) -> Call | None:
        """What is made of a reply, and where the job goes from there."""
        try:
            with self._around:
                verdict = verdict_on(call, result, self.job.known(), self.workspace, self._clock)
            tree = self._kept(call, verdict)
        except Unkept as error:
            state, tree = self.job.known(), None
            verdict = without_files(call, result, state, self.workspace, error)

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
            following = self._following(after, call)
            if following is not None:
                _, asked, _, _, aside = following
                lines += _intent(after, following.call, asked, aside, self._part_name)
            return lines, following

        written = self.job.transact(decide)
        if not written.lines:
            return self._overtaken()
        if self._limited:
            self._account.settle(written.lines[-1].cursor)
        verdict.tell_audit(self.job, call.sequence, sealed=self._sealed)
        if not before or written.masked or self._sealed:
            self._tell_masked(call, result.text)
        following = written.value
        self._watch("judged", self._with_warnings(verdict))
        return self._claimed(following.call, following.request) if following else None

    def _with_warnings(self, verdict: Verdict) -> JobState:
        """The state, with what was odd about an answer that was taken: no state keeps that."""
        state = self.job.known()
        if not verdict.warnings:
            return state
        return {**state, "warned": [each.reason for each in verdict.warnings]}

    def _overtaken(self) -> None:
        """The job was cancelled while somebody was asked."""
        self._watch("overtaken", self.job.known())

    def _kept(self, call: Call, verdict: Verdict) -> str | None:
        """The files behind a call that could change them, and at each recovery point."""
        if call.tree or (self._files_change and verdict.action == "COMPLETED"):
            return self.workspace.snapshot(f"after call {call.sequence}")
        return None

    def _tell_masked(self, call: Call, raw: str) -> None:
        job, number = self.job, call.sequence
        told, ref = f"the reply of call {number}", f"{job.log.key}#{number}/secrets"
        record: Record = {"raw_response": raw}
        audit.redacted(job.home, told, record, job=job.name, sequence=number, ref=ref)

    def respond(self, raw: str) -> JobState:
        """Take an answer from a person or a script instead of asking."""
        check_length(raw)
        self.recover()
        call = self._claim("given")
        if call is not None:
            self._finish(call, given(raw))
        return self.job.known()

    def _not_before(self, state: JobState) -> str:
        """Twice as long each time, less a part by chance."""
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** state["failures"])
        return utc_stamp(ceil(self._clock.now() + pause * (0.5 + self._rng.random() / 2)))

    def _wait(self, until: str | None) -> None:
        if until is not None:
            self._watch("waiting", self.job.known())
            # A clock that was set back meanwhile must not hold up the job.
            left = instant_of(until) - self._clock.now()
            self._clock.sleep(min(max(0.0, left), _LONGEST_PAUSE))

    def _prompt_of(self, sequence: int) -> str:
        from holdfast.jobs.history import prompt_of_call  # noqa: PLC0415 - only after a crash

        return prompt_of_call(self.job, sequence)

    def close(self) -> None:
        self.crew.close()
        try:
            self._account.settle()
        finally:
            self._account.close()


def _without_keeper(call: Call, result: Result, left: int) -> Result:
    """Whatever a program said last, it did not end by itself: how far it came is not known."""
    again = call.phase.repeatable is True and not left
    said = f"{told_lost(left)}: {call.model} was asked in phase {call.phase.name}"
    why = said if again else f"{said}, which {_EFFECT}"
    return Result("error", result.reply, why, again, result.seconds)


def is_ready(state: JobState) -> bool:
    """Whether the next call can be made."""
    return state["status"] in ("PENDING", "REVIEWING") and state["hold"] is None


def asking_of(state: JobState, ref: str, workspace: Workspace) -> Asking:
    """What a model is asked: who only answers cannot look into the files himself."""
    return asking(state, sent="json" if acts(ref) else "chat", contents=workspace.text_of)


def check_length(raw: str) -> None:
    """Refuse an answer that the history could not keep."""
    if len(raw) > _MOST_RAW:
        raise UsageError(
            f"an answer of {len(raw):,} characters", hint=f"{_MOST_RAW:,} are kept at most"
        )


# --- lines ----------------------------------------------------------------------------------


def _move(cause: str, status: str, reason: str | None = None, **more: object) -> Record:
    told = {name: value for name, value in more.items() if value is not None}
    line: Record = {"event": "move", "cause": cause, "status": status, **told}
    return line | ({"reason": reason} if reason else {})


def _over(state: JobState, most: float | None) -> Record | None:
    """The line that ends a job's spending, if it may not ask."""
    limits, spent = state["limits"], committed_usd(state)
    if state["steps"] >= limits["max_iterations"]:
        reason = f"{state['steps']} of {many(limits['max_iterations'], 'call')} were made"
        return {"event": "hold", "hold": "iterations", "reason": reason}
    if state["seconds"] >= limits["max_seconds"]:
        reason = f"{state['seconds']:.0f} of {limits['max_seconds']:.0f} seconds are used"
        return _move("over_time", "HALTED_TIME", reason)
    money = limits["max_cost_usd"]
    if spent >= money or (most is not None and spent + most > money + _TINY):
        next_one = "" if most is None else f", and the next call can cost {most:.4f}"
        reason = f"{spent:.4f} of {money:.4f} USD are spent{next_one}"
        return _move("over_cost", "HALTED_COST", reason)
    return None


def _intent(
    state: JobState,
    call: Call,
    asked: Asking,
    aside: float | None,
    name_of: Callable[[str], str],
) -> list[Record]:
    texts = asked.parts
    hashes = [name_of(text) for text in texts]
    known: dict[str, bool] = state["parts"]
    parts: list[Record] = [
        {"event": "part", "part": name, "text": text}
        for name, text in dict(zip(hashes, texts, strict=True)).items()
        if name not in known
    ]
    request = asked.request
    line: Record = {
        "event": "call",
        "sequence": call.sequence,
        "phase": call.phase.name,
        "role": call.phase.role,
        "model": call.model,
        "state_before": call.state_before,
        "preceded_by": state["since"],
        "sent": asked.sent,
        "parts": hashes,
        "request": {
            "job_id": request.job_id,
            "phase": request.phase,
            "context_files": request.context_files,
            "metadata": asked.limits,
        },
    }
    told = {
        "reserved_usd": aside,
        "charge": call.charge or None,
        "tree": call.tree,
        "temperature": call.phase.temperature,
        "max_tokens": call.phase.max_tokens,
        "by_budget": call.by_budget or None,
    }
    return [*parts, told_in(line, told)]


def _place(state: JobState) -> tuple[object, ...]:
    """Where a job is; somebody may take it back to another place while a call is prepared."""
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
        told_in(line, dict(zip(reply.usage._fields, reply.usage, strict=True)))
        if reply.first_text is not None:
            line["first_text_seconds"] = round(reply.first_text, 6)
    return line


def _point(state: JobState, call: Call, verdict: Verdict, tree: str | None) -> Record:
    """A recovery point behind a phase that was completed."""
    spec = spec_of(state)
    place = min(verdict.next_phase, len(spec.phases) - 1)
    sure = verdict.gate is not None and verdict.gate.ok and not verdict.evidence_doubts
    name = f"{call.phase.name}-complete-{call.sequence}"
    touched = verdict.touched
    few = capped(touched)
    point: Record = {
        "id": name,
        "checkpoint_id": name,
        "sequence": call.sequence,
        "can_resume_from": verdict.next_phase < len(spec.phases),
        "description": f"{call.phase.role} completed {call.phase.name}",
        "resume_phase": spec.phases[place].name if verdict.next_phase < len(spec.phases) else None,
        "rollback_files": few,
        "metadata": {
            "confidence": "high" if sure else "medium",
            "evidence_count": len(verdict.evidence_files),
            "test_pass_rate": verdict.gate.test_pass_rate if verdict.gate else None,
        },
    }
    if len(few) < len(touched):
        point["rollback_count"] = len(touched)
    return {"event": "point", "point": point, "place": verdict.next_phase, "tree": tree}


def _unwatched(word: str, state: Record) -> None:
    """Nobody looks."""
