"""A call of a job, and what is made of its reply: whether the work stands, and what follows.

The reply's own words come first, layer by layer: the shape of the object, then the action, the
evidence and the summary.  Every layer is judged, whatever the ones before it found, so that a
person sees all that is wrong at once.  A violation makes the action STUCK; a warning changes
nothing.

Then comes what can be measured: the files that it changed, the evidence it names, the gates of its
phase.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import dropwhile
from posixpath import normpath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from holdfast import audit
from holdfast.calls.call import Ending, Result
from holdfast.codec import DecodeError, Record
from holdfast.contracts.job_exchange import (
    LONG_SUMMARY_LIMIT,
    RESPONSE,
    SUMMARY_LIMIT,
    TOLD_TO_AGENTS,
    escapes,
    said,
)
from holdfast.contracts.job_spec import PhaseSpec
from holdfast.contracts.job_states import ACTIONS, Action, Hold, Outcome, State
from holdfast.contracts.kind import Finding
from holdfast.jobs.sealed import BLANK
from holdfast.jobs.state import add_known, capped, ready_state, spec_of
from holdfast.mask.shown import beginning
from holdfast.models.protocol import Reply
from holdfast.text import plural
from holdfast.workspace.command import Passed, pass_gates
from holdfast.workspace.files import Examined, examine

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
    missing = ", ".join(path for path in rules.required if normpath(path) not in there)
    if missing or len(there) < rules.at_least:
        lack = f"{missing} is missing" if missing else plural(len(there), "evidence file")
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
    for kind, what, paths in (
        ("unlisted", "changed but not listed", sorted(changed - named)),
        ("unchanged", "listed but not changed", sorted(named - changed)),
    ):
        more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
        if paths:
            found.append(Violation(kind, f"{what}: {', '.join(paths[:10])}{more}"))
    return found


def _measured(measured: Measured | None) -> Record | None:
    """Of very many files the first ones, and how many there are."""
    if measured is None:
        return None
    whole: dict[str, list[str]] = measured._asdict()
    shown: Record = {name: capped(paths) for name, paths in whole.items()}
    counts = {name: len(paths) for name, paths in whole.items()}
    return shown if shown == whole else shown | {"counts": counts}


# --- the reply's own words -------------------------------------------------------------------

Preset = Literal["seed", "logist"]
MOST_SENTENCES = 3
_MOST_SHOWN = 20
"""Of one layer: ten thousand invented files are not ten thousand broken rules."""
_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s+[^\sa-z]|\s*$)|[。！？]+")
_ENDS = ".!?…。！？"
"""One of these ends a sentence, whatever else does."""
_CUT_OFF = re.compile(r"cut off after [\w ]{1,40} tokens")
_NOT_ALL = re.compile(r"… \[\d{1,12} characters more\]\Z")
"""How a reply ends of which the history has the first MiB only; what is missing closed it."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TAG, _MOST_TAGS = re.compile(r"\[SECRET(?::[a-z-]{1,40}:[0-9a-f]{8})?\]"), 20
"""What the history says instead of a secret.  It may be longer than that was, and what was judged
when it came has to come to the same when it is read again."""
_LONG_PATH = 200
_FORMS = {form.version: form for form in RESPONSE.forms}
_REVIEW = "what was done has to be reviewed in detail"


class Rules(NamedTuple):
    preset: Preset = "seed"
    tolerant: bool = False
    """Whether the object may stand in a fence or among other text."""
    accepted: tuple[Action, ...] = ACTIONS

    @property
    def longest_summary(self) -> int:
        return SUMMARY_LIMIT if self.preset == "seed" else LONG_SUMMARY_LIMIT


class Violation(NamedTuple):
    kind: str
    """As in the audit: schema, action, evidence_escape, summary; of a warning also
    evidence_missing."""
    reason: str
    """The field, and what is wrong with it, in words."""


class CheckedReply(NamedTuple):
    action: Action
    evidence_files: list[str]
    """As the agent named them."""
    summary: str
    """The agent's own; if it broke the rules, what was wrong."""
    violations: list[Violation]
    warnings: list[Violation]
    missing: tuple[str, ...] = ()
    """Evidence that is not in the workspace."""


def judge(
    raw: str,
    rules: Rules,
    *,
    workspace: str | None = None,
    prompt: str | Sequence[str] = "",
    trouble: str | None = None,
) -> CheckedReply:
    """What to make of an answer.

    Without a `workspace` evidence is judged by its names alone.  `prompt` is what the agent was
    asked to do, in one text or several: no paragraph of it is a summary.  `trouble` is what the
    model's side said of the answer; where that is no object, it tells whether it was cut off.
    """
    try:
        found = said(raw, tolerant=rules.tolerant)
    except DecodeError as error:
        cut = _CUT_OFF.search(trouble or "")
        what = f"the answer was {cut[0]}, and" if cut else "the answer"
        if more := _NOT_ALL.search(raw, max(0, len(raw) - 40)):
            what = f"the answer is too long ({more.start():,} characters are kept), and so"
        return _in_all({}, [Violation("schema", f"{what} is not one JSON object: {error}")], [])
    warnings: list[Violation] = []
    if found.ignored_fences:
        ignored = f"the first of {found.ignored_fences + 1} fences was taken for the answer"
        warnings.append(Violation("schema", ignored))
    value, inner = found.value, found.value.get("response")
    if isinstance(inner, dict) and not any(name in value for name in TOLD_TO_AGENTS):
        value = cast("dict[str, Any]", inner)
        warnings.append(Violation("schema", RESPONSE.forms[0].warning))
    asked = (prompt,) if isinstance(prompt, str) else prompt
    if workspace is not None:
        evidence = examine(workspace, _files(value))
    else:
        evidence = Examined([], [each for each in dict.fromkeys(_files(value)) if escapes(each)])
    violations = [
        *_shape(value, rules),
        *_action(value, rules),
        *_each("evidence_escape", evidence.escaping, "evidence outside of the workspace"),
        *_summary(value, rules, asked),
    ]
    warnings += _each("evidence_missing", evidence.missing, "evidence that is not in the workspace")
    warnings += _length(value)
    return _in_all(value, violations, warnings)._replace(missing=tuple(evidence.missing))


def _in_all(value: Record, violations: list[Violation], warnings: list[Violation]) -> CheckedReply:
    if violations:
        reasons = "; ".join(each.reason for each in violations)
        summary = beginning(f"The answer breaks the rules: {reasons}", SUMMARY_LIMIT - 1)
        value = {**value, "action": "STUCK", "summary_for_supervisor": summary}
    action, summary = value["action"], value["summary_for_supervisor"]
    return CheckedReply(action, _files(value), summary, violations, warnings)


def _capped(violations: Iterable[Violation]) -> list[Violation]:
    found = list(violations)
    if (more := len(found) - _MOST_SHOWN) > 0:
        return [*found[:_MOST_SHOWN], Violation(found[0].kind, f"and {more} more of this kind")]
    return found


def _shape(value: dict[str, Any], rules: Rules) -> list[Violation]:
    form = _FORMS["1.0" if rules.preset == "seed" else "0.9"]
    found = [
        Violation("schema", f"{each.field}: {each.reason}")
        for each in RESPONSE.refusals(value, form)
        if _is_about_shape(each, value)
    ]
    if rules.preset == "logist":
        unknown = [name for name in value if name not in form.model.model_fields]
        found += [Violation("schema", f"{name[:80]!r} is not a field of it") for name in unknown]
    return _capped(found)


def _is_about_shape(finding: Finding, value: dict[str, Any]) -> bool:
    """Whether no later layer looks at it."""
    if finding.code == "escaping_path":
        return False
    if finding.field == "summary_for_supervisor":
        return not isinstance(value.get(finding.field, ""), str)
    return finding.field != "action" or not isinstance(value.get("action"), str)


def _action(value: dict[str, Any], rules: Rules) -> list[Violation]:
    action = value.get("action")
    if not isinstance(action, str) or action in rules.accepted:
        return []
    accepted = ", ".join(rules.accepted)
    if action in ACTIONS:
        return [Violation("action", f"action: {action} where only {accepted} is accepted")]
    return [Violation("action", f"action: {action[:80]!r} is not one of {accepted}")]


def _files(value: dict[str, Any]) -> list[str]:
    files = value.get("evidence_files")
    named = cast("list[Any]", files) if isinstance(files, list) else []
    return [each for each in named if isinstance(each, str)]


def _each(kind: str, paths: list[str], reason: str) -> list[Violation]:
    shown = (
        path if path.isprintable() and 0 < len(path) <= _LONG_PATH else repr(path[:_LONG_PATH])
        for path in paths
    )
    return _capped(Violation(kind, f"{path}: {reason}") for path in shown)


def _summary(value: dict[str, Any], rules: Rules, asked: Sequence[str]) -> list[Violation]:
    name = "summary_for_supervisor"
    if name not in value:
        return [Violation("summary", f"{name}: missing; {_REVIEW}")]
    summary = value[name]
    if not isinstance(summary, str):
        return []
    if not any(each.isprintable() and not each.isspace() for each in summary):
        return [Violation("summary", f"{name}: empty; {_REVIEW}")]
    found: list[str] = []
    length = len(summary)
    if length > rules.longest_summary:
        length = len(TAG.sub("*", summary, count=_MOST_TAGS))
    if length > rules.longest_summary:
        found.append(f"{length} characters, {rules.longest_summary} are allowed")
    if control := _CONTROL.search(summary):
        found.append(f"control character {control[0]!r}")
    if any(is_echo(summary, text) for each in asked for text in _texts_in(each)):
        found.append(f"says again what was asked for; {_REVIEW}")
    return [Violation("summary", f"{name}: {each}") for each in found]


def _texts_in(asked: str) -> list[str]:
    """The texts of a request, which programs get as an object."""
    if asked[:1] == "{":
        with suppress(DecodeError):
            return [each for each in said(asked).value.values() if isinstance(each, str)]
    return [asked]


def _length(value: dict[str, Any]) -> list[Violation]:
    summary = value.get("summary_for_supervisor")
    if not isinstance(summary, str) or sum(map(summary.count, _ENDS)) < MOST_SENTENCES:
        return []
    parts = _SENTENCE_END.split(summary[:LONG_SUMMARY_LIMIT])
    if (sentences := sum(bool(each.strip()) for each in parts)) <= MOST_SENTENCES:
        return []
    reason = f"summary_for_supervisor: {sentences} sentences, {MOST_SENTENCES} are enough"
    return [Violation("summary", reason)]


# --- echoes ---------------------------------------------------------------------------------

# Earlier reports and files that were shown are part of a question too, and to repeat those may
# well say something.  So a long text counts as an echo of the task, of the phase, of guidance, of
# the rules, or of the question as a whole.
LONG_ECHO = 40
"""So many characters are not the same by chance."""
_WORD = re.compile(r"[^\W_]+")
_REPORTED = re.compile(r"<others ([0-9a-f]{16})>\n(.*?)\n</others \1>", re.DOTALL)
_FILLERS = """
    a an the this my your our its it is was were are be i we you to of do by for here
    task tasks job prompt question request phase description objective details acceptance
    instructions instruction assignment goal summary asked told given again user system
"""
_SAYS_NOTHING = frozenset(_FILLERS.split())
"""Words that may stand around an echo and make nothing else of it."""


def is_echo(summary: str, asked: str) -> bool:
    """Whether it is the question or a paragraph of it, or a long piece of it and nothing else."""
    folded = _folded(summary)
    for each in (asked, *asked.split("\n\n")):
        if each.lstrip()[:1].casefold()[:1] != folded[:1]:
            continue  # most begin otherwise: that is seen without folding all of it
        part = _folded(each)
        if folded == part or (len(folded) >= LONG_ECHO and part.startswith(folded)):
            return True
    words = [*dropwhile(_SAYS_NOTHING.__contains__, _WORD.findall(summary.casefold()))]
    words = [*dropwhile(_SAYS_NOTHING.__contains__, reversed(words))][::-1]
    whole = asked.casefold()
    # A summary nearly always has a word of its own, and that is seen without taking all apart.
    if len(" ".join(words)) < LONG_ECHO or not all(each in whole for each in words):
        return False
    piece = _spaced(" ".join(words))
    if piece not in _spaced(asked):
        return False
    reported = any(piece in _spaced(text) for _, text in _REPORTED.findall(asked))
    return not reported or piece in _spaced(_REPORTED.sub("", asked))


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _spaced(text: str) -> str:
    """Its words between spaces, so that a word is never found in the middle of another."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "
