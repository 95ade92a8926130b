"""Derive every state of a job again from what was recorded.

Each reply is judged by the rules of its job, and each state follows from the one before by the
table; where the history differs, it was changed, or the rules were.  Calls that another system
recorded are judged by what they say of answers and states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.codec import Record
from holdfast.contracts.job_check import check_history
from holdfast.contracts.job_states import TRANSITIONS, Action, after
from holdfast.contracts.kind import Located, Origin, Reading
from holdfast.errors import HoldfastError
from holdfast.jobs.reply import TAG, Rules, judge
from holdfast.jobs.state import fold, initial, spec_of
from holdfast.jobs.timeline import known_usd
from holdfast.jobs.verdict import Verdict

if TYPE_CHECKING:
    from holdfast.jobs.job import Job
    from holdfast.jobs.state import Job as JobState


class Differs(HoldfastError):
    """A history that does not follow from its replies."""

    code = "replay_differs"

    def __init__(self, job: str, sequence: int, what: str) -> None:
        super().__init__(
            f"{job}: call {sequence}: {what}",
            hint="`holdfast check` tells whether a line was changed; "
            "`holdfast job history` shows the call",
        )
        self.sequence = sequence


class NothingToReplay(HoldfastError):
    """Calls of which neither answers nor states were recorded."""

    code = "nothing_to_replay"


class Replayed(NamedTuple):
    calls: int
    """How many were derived."""
    lines: int
    status: str
    cost_usd: float | None
    unproven: int = 0
    """Calls of another system that say neither what was answered nor which states there were."""


def replay(job: Job, until: int | None = None) -> Replayed:
    """Derive every state again, of the first `until` calls; Differs where one does not follow."""
    state, ended, number = initial(), 0, 0
    reply: Record = {}
    imported: list[Record] = []
    for line in job.lines():
        if until is not None and ended >= until:
            break
        number += 1
        record, event = line.record, line.record.get("event")
        sequence = record.get("sequence", state["sequence"])
        match event:
            case "call":
                _check_call(job.name, state, record)
            case "reply":
                reply = record
            case "judged":
                _check_judged(job.name, state, reply, record)
            case "move":
                cause, status = record.get("cause"), record.get("status")
                if cause not in TRANSITIONS or status not in after(state["status"], cause):
                    what = f"{cause} leads from {state['status']} to {status}"
                    raise Differs(job.name, sequence, what)
            case "told" if isinstance(record.get("interaction"), dict):
                imported.append(record["interaction"])
            case _:
                event = None
        ended += event in ("judged", "told")
        state = fold(state, line)
    for at, what in wrong_in({"interactions": imported}):
        raise Differs(job.name, int(imported[at].get("sequence", at)), what)
    unproven = sum(not any(isinstance(each, str) for each in _says(call)) for call in imported)
    return Replayed(ended - unproven, number, state["status"], known_usd(state), unproven=unproven)


# --- calls of another system ------------------------------------------------------------------


def wrong_in(history: Record) -> Iterator[tuple[int, str]]:
    """What does not follow in a history of any system: the place of its call, and what is wrong."""
    read = Reading({**history, "recovery_points": []}, None, [])
    for found in check_history([Located(0, read)], Origin("jobHistory.json")):
        place = _PLACE.search(found.field)
        at = int(place[1]) if place else 0
        masked = TAG.search(str(history["interactions"][at].get("response")))
        if found.level == "error" and not (found.code == "raw_response" and masked):
            yield at, f"{found.field}: {found.reason}"
    for at, call in enumerate(history["interactions"]):
        answer = call["response"]
        raw, held = answer.get("raw_response"), answer.get("action") != "STUCK"
        if not isinstance(raw, str) or TAG.search(raw) or answer.get("status") != "SUCCESS":
            continue
        if held and judge(raw, Rules("seed", tolerant=True)).violations:
            yield at, "its answer breaks the rules"


_PLACE = re.compile(r"interactions\[(\d+)\]")


def _says(call: Record) -> tuple[Any, ...]:
    answer = call["response"]
    return answer.get("raw_response"), call.get("state_before"), answer.get("new_status")


def _check_call(job: str, state: JobState, record: Record) -> None:
    sequence = int(record.get("sequence", -1))
    if sequence != state["sequence"]:
        raise Differs(job, sequence, f"{state['sequence']} is the next one")
    if record.get("state_before") != state["status"]:
        what = f"{record.get('state_before')} recorded, {state['status']} derived"
        raise Differs(job, sequence, what)
    if state["status"] not in TRANSITIONS["claim"][0] or state["hold"] is not None:
        raise Differs(job, sequence, f"nobody may be asked while it is {state['status']}")


def _check_judged(job: str, state: JobState, reply: Record, record: Record) -> None:
    sequence = int(record.get("sequence", -1))
    call = state["call"]
    if call is None or call["sequence"] != sequence:
        raise Differs(job, sequence, "what was answered had not been asked")
    verdict = _derived(state, reply, record)
    if verdict.action != record.get("action"):
        what = f"action {record.get('action')} recorded, {verdict.action} derived"
        raise Differs(job, sequence, what)
    line = verdict.line(state, sequence, str(record.get("not_before")))
    for name in ("status", "next_phase"):
        if state["status"] == "RUNNING" and line[name] != record.get(name):
            what = f"{name} {record.get(name)} recorded, {line[name]} derived"
            raise Differs(job, sequence, what)


def _derived(state: JobState, reply: Record, record: Record) -> Verdict:
    """What the recorded reply comes to; what was measured is taken as it was recorded."""
    spec = spec_of(state)
    call = state["call"]
    at = next(n for n, each in enumerate(spec.phases) if each.name == call["phase"])
    phase = spec.phases[at]
    outcome, complaint = str(reply.get("outcome")), record.get("complaint")
    action: Action = "STUCK"
    summary = str(record.get("summary_for_supervisor", ""))
    if outcome == "SUCCESS":
        rules = Rules(spec.reply.preset, spec.reply.tolerant, tuple(phase.accepts))
        raw = str(reply.get("raw_response", ""))
        judged = judge(raw, rules)
        # Links that lead out of the workspace and echoes were seen when they were there to be seen.
        seen = any(
            each.get("kind") in ("evidence_escape", "summary")
            for each in record.get("violations", [])
        )
        action = "STUCK" if seen else judged.action
        if action == "COMPLETED" and complaint is not None:
            action = "RETRY"
        if judged.violations and TAG.search(raw) and not record.get("violations"):
            # A secret may reach over the end of a text: without it the answer cannot be read.
            action = record["action"]
    elif outcome == "ERROR" and reply.get("retryable") and record.get("action") == "RETRY":
        action = "RETRY"
    verdict = Verdict(outcome, phase, at, action, [], summary, [], [], complaint=complaint)
    return verdict._replace(by_budget=bool(call.get("by_budget")), tree=call.get("tree"))
