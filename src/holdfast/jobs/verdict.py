"""What is made of a reply: whether it is one, whether the work behind it stands, and what follows.

The reply's own words come first (`reply`), then what can be measured: the files that it changed,
the evidence it names, the gates of its phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import normpath
from typing import TYPE_CHECKING, NamedTuple

from holdfast import audit
from holdfast.codec import Record
from holdfast.contracts.job_spec import PhaseSpec
from holdfast.contracts.job_states import Action, Hold, State
from holdfast.jobs.call import OUTCOMES
from holdfast.jobs.reply import Judged, Rules, Violation, judge
from holdfast.jobs.sealed import BLANK
from holdfast.jobs.state import capped, ready_state, spec_of, told_in
from holdfast.workspace.gates import Passed, pass_gates

if TYPE_CHECKING:
    from holdfast.calls.call import Result
    from holdfast.clock import Clock
    from holdfast.jobs.call import Call
    from holdfast.jobs.job import Job
    from holdfast.jobs.job import State as JobState
    from holdfast.workspace.safedir import Unkept
    from holdfast.workspace.workspace import Measured, Workspace

API_TRIES = 3
"""How often a call that failed for no fault of ours is made again."""
_MOST_TOLD = 50


class Place(NamedTuple):
    """Where a job goes."""

    status: State
    phase: int
    hold: Hold | None = None
    reason: str | None = None


class Verdict(NamedTuple):
    outcome: str
    action: Action
    role: str
    evidence_files: list[str]
    summary: str
    violations: list[Violation]
    warnings: list[Violation]
    measured: Measured | None
    gate: Passed | None
    phase: PhaseSpec
    at: int
    """Which of the phases it is."""
    next_phase: int
    by_budget: bool
    tree: str | None
    complaint: str | None = None
    """Why COMPLETED is not taken for an answer."""

    @property
    def evidence_doubts(self) -> bool:
        return any(each.kind.startswith("evidence") for each in self.warnings)

    @property
    def touched(self) -> list[str]:
        """The files that a call left, as they were measured; as it says where nobody measured."""
        if self.measured is None:
            return self.evidence_files
        return sorted([*self.measured.added, *self.measured.changed, *self.measured.removed])

    def line(self, state: JobState, sequence: int, not_before: str) -> Record:
        """The line of the history, decided by the state as it is now."""
        place = self._place(state)
        line: Record = {
            "event": "judged",
            "sequence": sequence,
            "outcome": self.outcome,
            "role": self.role,
            "action": self.action,
            "evidence_files": self.evidence_files,
            "summary_for_supervisor": self.summary,
            "status": place.status,
            "next_phase": place.phase,
        }
        told = {
            "hold": place.hold,
            "reason": place.reason,
            "complaint": self.complaint,
            "violations": [each._asdict() for each in self.violations] or None,
            "warnings": [each._asdict() for each in self.warnings] or None,
            "measured_files": _measured(self.measured),
            "gate": self.gate.record() if self.gate else None,
            "restore": self._restored(state, place),
            "not_before": not_before if self._tries_again(place) else None,
        }
        return told_in(line, told)

    def _tries_again(self, place: Place) -> bool:
        return self.outcome == "ERROR" and place.status != "INTERVENTION_REQUIRED"

    def _restored(self, state: JobState, place: Place) -> str | None:
        """RETRY begins the phase anew; where a gate failed, what was done is to be mended."""
        if self.action != "RETRY" or place.status == "INTERVENTION_REQUIRED":
            return None
        if self.outcome == "ERROR":
            return self.tree
        return None if self.complaint is not None else state["tree"]

    def _place(self, state: JobState) -> Place:
        here = Place(ready_state(self.phase), self.at)
        stuck = Place("INTERVENTION_REQUIRED", self.at, reason=self.complaint or self.summary)
        if self.outcome == "TIMEOUT" and self.by_budget:
            return Place("HALTED_TIME", self.at, reason="the time of the job was used up by a call")
        match self.action:
            case "STUCK":
                return stuck
            case "RETRY" if self.outcome == "ERROR":
                return here
            case "RETRY":
                tried = state["retries"].get(self.phase.name, 0) + 1
                if tried > self.phase.max_retries:
                    times = many(self.phase.max_retries, "time")
                    why = f"{self.phase.name} was tried again {times}"
                    return stuck._replace(reason=f"{why}: {stuck.reason}")
                back = _worker_before(state, self.at) if self.phase.reviews else self.at
                return Place("PENDING", back)
            case _:
                return self._after(state)

    def _after(self, state: JobState) -> Place:
        phases = spec_of(state).phases
        if self.phase.approval:
            return Place("REVIEWING", self.at, "approval", f"{self.phase.name} waits for approval")
        if self.next_phase >= len(phases):
            return Place("SUCCESS", self.at)
        return Place(ready_state(phases[self.next_phase]), self.next_phase)

    def tell_audit(self, job: Job, sequence: int, *, sealed: bool) -> None:
        """One entry for each violation and each piece of evidence that is not there."""
        missing = [each for each in self.warnings if each.kind == "evidence_missing"]
        for number, each in enumerate([*self.violations, *missing][:_MOST_TOLD]):
            # What is wrong with an answer quotes it.
            detail = BLANK if sealed else each.reason
            ref = f"{job.log.key}#{sequence}/{number}"
            audit.tell(job.home, each.kind, detail, job=job.name, sequence=sequence, ref=ref)


def verdict_on(
    call: Call, result: Result, state: JobState, workspace: Workspace, clock: Clock
) -> Verdict:
    measured = workspace.changed_since(call.tree) if call.tree is not None else None
    judged = _judged(call, result, state, workspace.path)
    if OUTCOMES[result.outcome] == "SUCCESS":
        judged.warnings.extend(_against(judged.evidence_files, measured))
    verdict = _verdict(call, result, state, judged, measured)
    if verdict.action != "COMPLETED":
        return verdict
    verdict = _by_evidence(verdict, judged.missing)
    if verdict.action != "COMPLETED" or not call.phase.gates:
        return verdict
    if call.tree is not None:
        # A gate may delete the files, and what was not kept is lost.
        workspace.snapshot(f"before the gates of call {call.sequence}")
    left = state["limits"]["max_seconds"] - state["seconds"]
    passed = pass_gates(call.phase.gates, workspace.path, clock, workspace.sandbox, left=left)
    verdict = verdict._replace(gate=passed)
    if passed.ok:
        return verdict
    # Nobody can mend what a gate that was ended from outside did not say.
    action = "STUCK" if passed.lost else "RETRY"
    return verdict._replace(action=action, complaint=passed.complaint)


def without_files(
    call: Call, result: Result, state: JobState, workspace: Workspace, why: Unkept
) -> Verdict:
    """Where the files cannot be kept as they were left, a person has to see to them first."""
    judged = _judged(call, result, state, workspace.path)
    verdict = _verdict(call, result, state, judged, None)
    return verdict._replace(action="STUCK", complaint=f"{why.message}; {why.hint}")


def _verdict(
    call: Call, result: Result, state: JobState, judged: Judged, measured: Measured | None
) -> Verdict:
    phases = spec_of(state).phases
    at = next(n for n, each in enumerate(phases) if each.name == call.phase.name)
    return Verdict(
        OUTCOMES[result.outcome],
        judged.action,
        call.phase.role,
        judged.evidence_files,
        judged.summary,
        judged.violations,
        judged.warnings,
        measured,
        None,
        call.phase,
        at,
        at + 1,
        call.by_budget,
        call.tree,
    )


def _judged(call: Call, result: Result, state: JobState, workspace: str) -> Judged:
    """What a reply comes to; without one, why."""
    why = result.why
    if result.outcome == "timeout":
        late = Violation("timeout", why or "no answer in time")
        return Judged("STUCK", [], why, [late], [])
    if result.outcome == "error":
        again = result.retryable and state["failures"] < API_TRIES
        return Judged("RETRY" if again else "STUCK", [], why, [], [])
    asked = spec_of(state).reply
    rules = Rules(asked.preset, asked.tolerant, tuple(call.phase.accepts))
    return judge(result.text, rules, workspace=workspace, prompt=call.prompt, trouble=why or None)


def _by_evidence(verdict: Verdict, gone: Sequence[str]) -> Verdict:
    """What the phase demands of the evidence."""
    rules = verdict.phase.evidence
    there = {normpath(path) for path in verdict.evidence_files if path not in gone}
    missing = [path for path in rules.required if normpath(path) not in there]
    if not missing and len(there) >= rules.at_least:
        return verdict
    lacking = f"{', '.join(missing)} is missing" if missing else many(len(there), "evidence file")
    said = f"{lacking}, but phase {verdict.phase.name} needs it to be completed"
    return verdict._replace(action="RETRY", complaint=said)


def _against(listed: Sequence[str], measured: Measured | None) -> list[Violation]:
    """What an agent says that it changed, against what it did."""
    if measured is None:
        return []
    changed = {*measured.added, *measured.changed, *measured.removed}
    named = {path if path in changed else normpath(path) for path in listed}
    unlisted, unchanged = sorted(changed - named), sorted(named - changed)
    found: list[Violation] = []
    if unlisted:
        found.append(Violation("unlisted", f"changed but not listed: {_few(unlisted)}"))
    if unchanged:
        found.append(Violation("unchanged", f"listed but not changed: {_few(unchanged)}"))
    return found


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return ", ".join(paths[:10]) + more


def _measured(measured: Measured | None) -> Record | None:
    """Of very many files the first ones, and how many there are."""
    if measured is None:
        return None
    whole: dict[str, list[str]] = measured._asdict()
    told: Record = {name: capped(paths) for name, paths in whole.items()}
    if told == whole:
        return told
    return told | {"counts": {name: len(paths) for name, paths in whole.items()}}


def _worker_before(state: JobState, at: int) -> int:
    """The phase that a supervisor sends back to."""
    phases = spec_of(state).phases
    return next((n for n in range(at - 1, -1, -1) if not phases[n].reviews), at)
