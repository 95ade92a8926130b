"""A call of a job, and what is made of its reply: whether the work stands, and what follows.

The reply's own words come first (`reply`), then what can be measured: the files that it changed,
the evidence it names, the gates of its phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import normpath
from typing import TYPE_CHECKING, NamedTuple

from holdfast import audit
from holdfast.calls.call import Ending, Result
from holdfast.codec import Record
from holdfast.contracts.job_spec import PhaseSpec
from holdfast.contracts.job_states import Action, Hold, Outcome, State
from holdfast.jobs.reply import CheckedReply, Rules, Violation, judge
from holdfast.jobs.sealed import BLANK
from holdfast.jobs.state import add_known, capped, ready_state, spec_of
from holdfast.models.protocol import Reply
from holdfast.text import plural
from holdfast.workspace.gates import Passed, pass_gates

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.jobs.job import Job
    from holdfast.jobs.job import State as JobState
    from holdfast.workspace.safedir import Unkept
    from holdfast.workspace.workspace import Measured, Workspace

API_TRIES = 3
"""How often a call that failed for no fault of the job is made again."""
_MOST_IN_AUDIT = 50


class Call(NamedTuple):
    """A call in flight."""

    sequence: int
    phase: PhaseSpec
    model: str
    state_before: State
    tree: str | None
    """The files before it."""
    prompt: str
    by_budget: bool = False
    """Whether its time is what is left of the job's."""
    charge: str = ""
    """Its name in the fleet's book of money."""


OUTCOMES: dict[Ending, Outcome] = {
    "ok": "SUCCESS",
    # A reply is judged by the rules of the job, which may be milder than the schema.
    "invalid": "SUCCESS",
    "error": "ERROR",
    "timeout": "TIMEOUT",
}
"""How the history names the end of a call."""
ENDINGS: dict[Outcome, Ending] = {"SUCCESS": "ok", "ERROR": "error", "TIMEOUT": "timeout"}


def given(raw: str) -> Result:
    """The reply of a person or a script, instead of a model's."""
    return Result("ok", Reply(raw, "", cost_usd=0.0))


class Transition(NamedTuple):
    """Where a job goes."""

    status: State
    phase: int
    hold: Hold | None = None
    reason: str | None = None


class Verdict(NamedTuple):
    outcome: str
    phase: PhaseSpec
    at: int
    """Which of the phases it is."""
    action: Action
    evidence_files: list[str]
    summary: str
    violations: list[Violation]
    warnings: list[Violation]
    measured: Measured | None = None
    by_budget: bool = False
    tree: str | None = None
    gate: Passed | None = None
    complaint: str | None = None
    """Why COMPLETED is not taken for an answer."""

    @property
    def evidence_doubts(self) -> bool:
        return any(each.kind.startswith("evidence") for each in self.warnings)

    @property
    def touched(self) -> list[str]:
        """The files that a call left, as measured; where nothing was measured, as it reports."""
        if self.measured is None:
            return self.evidence_files
        return sorted([*self.measured.added, *self.measured.changed, *self.measured.removed])

    def line(self, state: JobState, sequence: int, not_before: str) -> Record:
        """The line of the history, decided by the state as it is now."""
        place = self._transition(state)
        line: Record = {
            "event": "judged",
            "sequence": sequence,
            "outcome": self.outcome,
            "role": self.phase.role,
            "action": self.action,
            "evidence_files": self.evidence_files,
            "summary_for_supervisor": self.summary,
            "status": place.status,
            "next_phase": place.phase,
        }
        restore, goes_on = None, place.status != "INTERVENTION_REQUIRED"
        if self.action == "RETRY" and goes_on:  # what a gate refused is to be mended, not undone
            again = None if self.complaint is not None else state["tree"]
            restore = self.tree if self.outcome == "ERROR" else again
        fields = {
            "hold": place.hold,
            "reason": place.reason,
            "complaint": self.complaint,
            "violations": [each._asdict() for each in self.violations] or None,
            "warnings": [each._asdict() for each in self.warnings] or None,
            "measured_files": _measured(self.measured),
            "gate": self.gate.record() if self.gate else None,
            "restore": restore,
            "not_before": not_before if self.outcome == "ERROR" and goes_on else None,
        }
        return add_known(line, fields)

    def _transition(self, state: JobState) -> Transition:
        phases, next_phase = spec_of(state).phases, self.at + 1
        stuck = Transition("INTERVENTION_REQUIRED", self.at, reason=self.complaint or self.summary)
        if self.outcome == "TIMEOUT" and self.by_budget:
            why = "the time of the job was used up by a call"
            return Transition("HALTED_TIME", self.at, reason=why)
        match self.action:
            case "STUCK":
                return stuck
            case "RETRY" if self.outcome == "ERROR":
                return Transition(ready_state(self.phase), self.at)
            case "RETRY":
                tried = state["retries"].get(self.phase.name, 0) + 1
                if tried > self.phase.max_retries:
                    times = plural(self.phase.max_retries, "time")
                    why = f"{self.phase.name} was tried again {times}: {stuck.reason}"
                    return stuck._replace(reason=why)
                # A supervisor sends back to the worker before it.
                workers = (n for n in range(self.at - 1, -1, -1) if not phases[n].reviews)
                back = next(workers, self.at) if self.phase.reviews else self.at
                return Transition("PENDING", back)
            case _ if self.phase.approval:
                why = f"{self.phase.name} waits for approval"
                return Transition("REVIEWING", self.at, "approval", why)
            case _ if next_phase >= len(phases):
                return Transition("SUCCESS", self.at)
            case _:
                return Transition(ready_state(phases[next_phase]), next_phase)

    def tell_audit(self, job: Job, sequence: int, *, sealed: bool) -> None:
        """One entry for each violation and each piece of evidence that is missing."""
        missing = [each for each in self.warnings if each.kind == "evidence_missing"]
        for number, each in enumerate([*self.violations, *missing][:_MOST_IN_AUDIT]):
            detail = BLANK if sealed else each.reason  # it quotes the answer
            ref = f"{job.log.key}#{sequence}/{number}"
            audit.tell(job.home, each.kind, detail, job=job.name, sequence=sequence, ref=ref)


def verdict_on(
    call: Call, result: Result, state: JobState, workspace: Workspace, clock: Clock
) -> Verdict:
    measured = workspace.changed_since(call.tree) if call.tree is not None else None
    checked = _checked(call, result, state, workspace.path)
    if OUTCOMES[result.outcome] == "SUCCESS":
        checked.warnings.extend(_against(checked.evidence_files, measured))
    verdict = _verdict(call, result, state, checked)._replace(measured=measured)
    if verdict.action != "COMPLETED":
        return verdict
    rules = call.phase.evidence
    there = {normpath(path) for path in verdict.evidence_files if path not in checked.missing}
    missing = [path for path in rules.required if normpath(path) not in there]
    if missing or len(there) < rules.at_least:
        lack = (
            f"{', '.join(missing)} is missing" if missing else plural(len(there), "evidence file")
        )
        why = f"{lack}, but phase {call.phase.name} needs it to be completed"
        return verdict._replace(action="RETRY", complaint=why)
    if not call.phase.gates:
        return verdict
    if call.tree is not None:
        # A gate may delete the files, and what was not kept is lost.
        workspace.snapshot(f"before the gates of call {call.sequence}")
    left = state["limits"]["max_seconds"] - state["seconds"]
    passed = pass_gates(call.phase.gates, workspace.path, clock, workspace.sandbox, left=left)
    verdict = verdict._replace(gate=passed)
    if passed.ok:
        return verdict
    # A gate that was ended from outside does not say what to mend.
    action = "STUCK" if passed.lost else "RETRY"
    return verdict._replace(action=action, complaint=passed.complaint)


def without_files(
    call: Call, result: Result, state: JobState, workspace: Workspace, why: Unkept
) -> Verdict:
    """Where the files cannot be kept as they were left, a person has to see to them first."""
    verdict = _verdict(call, result, state, _checked(call, result, state, workspace.path))
    return verdict._replace(action="STUCK", complaint=f"{why.message}; {why.hint}")


def _verdict(call: Call, result: Result, state: JobState, checked: CheckedReply) -> Verdict:
    phases = spec_of(state).phases
    at = next(n for n, each in enumerate(phases) if each.name == call.phase.name)
    verdict = Verdict(OUTCOMES[result.outcome], call.phase, at, *checked[:5])
    return verdict._replace(by_budget=call.by_budget, tree=call.tree)


def _checked(call: Call, result: Result, state: JobState, workspace: str) -> CheckedReply:
    """What a reply comes to; without one, why."""
    why = result.why
    if result.outcome == "timeout":
        late = Violation("timeout", why or "no answer in time")
        return CheckedReply("STUCK", [], why, [late], [])
    if result.outcome == "error":
        again = result.retryable and state["failures"] < API_TRIES
        return CheckedReply("RETRY" if again else "STUCK", [], why, [], [])
    asked = spec_of(state).reply
    rules = Rules(asked.preset, asked.tolerant, tuple(call.phase.accepts))
    return judge(result.text, rules, workspace=workspace, prompt=call.prompt, trouble=why or None)


def _against(listed: Sequence[str], measured: Measured | None) -> list[Violation]:
    """What an agent says that it changed, against what it did."""
    if measured is None:
        return []
    changed = {*measured.added, *measured.changed, *measured.removed}
    named = {path if path in changed else normpath(path) for path in listed}
    found: list[Violation] = []
    if unlisted := sorted(changed - named):
        found.append(Violation("unlisted", f"changed but not listed: {_few(unlisted)}"))
    if unchanged := sorted(named - changed):
        found.append(Violation("unchanged", f"listed but not changed: {_few(unchanged)}"))
    return found


def _few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return ", ".join(paths[:10]) + more


def _measured(measured: Measured | None) -> Record | None:
    """Of very many files the first ones, and how many there are."""
    if measured is None:
        return None
    whole: dict[str, list[str]] = measured._asdict()
    shown: Record = {name: capped(paths) for name, paths in whole.items()}
    if shown == whole:
        return shown
    return shown | {"counts": {name: len(paths) for name, paths in whole.items()}}
