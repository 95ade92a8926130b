"""A job once more: derived from what was recorded, or asked again from a call on in a new job.

Each reply is judged by the rules of its job, and each state follows from the one before by the
table; where the history differs, it was changed, or the rules were.  Calls that another system
recorded are judged by what they say of answers and states.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from holdfast.codec import Record
from holdfast.contracts.job_check import check_history
from holdfast.contracts.job_spec import JobSpec
from holdfast.contracts.job_states import FINAL, TRANSITIONS, Action, after
from holdfast.contracts.kind import Located, Origin, Reading
from holdfast.errors import HoldfastError, UsageError, typed
from holdfast.jobs.job import Job, State
from holdfast.jobs.packing import has_files
from holdfast.jobs.place import workspace_of
from holdfast.jobs.report import known_usd
from holdfast.jobs.state import fold, initial, spec_of
from holdfast.jobs.verdict import TAG, Rules, Verdict, judge
from holdfast.layout import JOB_FILES
from holdfast.store.primitives import Line
from holdfast.text import plural
from holdfast.workspace.files import ATTACHMENTS
from holdfast.workspace.safedir import Folder, remove_folder
from holdfast.workspace.workspace import Workspace


class Differs(HoldfastError):
    """A history that does not follow from its replies."""

    code = "replay_differs"

    def __init__(self, job: str, sequence: int, what: str) -> None:
        hint = (
            "`holdfast check` tells whether it was changed, `holdfast job history` shows the call"
        )
        super().__init__(f"{job}: call {sequence}: {what}", hint=hint)
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
    unproven = 0
    for call in imported:
        answer = call["response"]
        says = (answer.get("raw_response"), call.get("state_before"), answer.get("new_status"))
        unproven += not any(isinstance(each, str) for each in says)
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


def _check_call(job: str, state: State, record: Record) -> None:
    sequence, before = int(record.get("sequence", -1)), record.get("state_before")
    if sequence != state["sequence"]:
        raise Differs(job, sequence, f"{state['sequence']} is the next one")
    if before != state["status"]:
        raise Differs(job, sequence, f"{before} recorded, {state['status']} derived")
    if state["status"] not in TRANSITIONS["claim"][0] or state["hold"] is not None:
        raise Differs(job, sequence, f"nobody may be asked while it is {state['status']}")


def _check_judged(job: str, state: State, reply: Record, record: Record) -> None:
    sequence = int(record.get("sequence", -1))
    call = state["call"]
    if call is None or call["sequence"] != sequence:
        raise Differs(job, sequence, "what was answered had not been asked")
    verdict = _derived(state, reply, record)
    if verdict.action != record.get("action"):
        what = f"action {record.get('action')} recorded, {verdict.action} derived"
        raise Differs(job, sequence, what)
    line = verdict.line(state, sequence, str(record.get("not_before")))
    for name in ("status", "next_phase") if state["status"] == "RUNNING" else ():
        if line[name] != record.get(name):
            what = f"{name} {record.get(name)} recorded, {line[name]} derived"
            raise Differs(job, sequence, what)


def _derived(state: State, reply: Record, record: Record) -> Verdict:
    """What the recorded reply comes to; what was measured is taken as it was recorded."""
    spec, call = spec_of(state), state["call"]
    at, phase = next((n, p) for n, p in enumerate(spec.phases) if p.name == call["phase"])
    outcome, complaint = str(reply.get("outcome")), record.get("complaint")
    action: Action = "STUCK"
    summary = str(record.get("summary_for_supervisor", ""))
    if outcome == "SUCCESS":
        rules = Rules(spec.reply.preset, spec.reply.tolerant, tuple(phase.accepts))
        raw = str(reply.get("raw_response", ""))
        violations: list[Record] = record.get("violations") or []
        judged = judge(raw, rules)
        # Links that lead out of the workspace and echoes were seen when they were there to be seen.
        if not any(each.get("kind") in ("evidence_escape", "summary") for each in violations):
            action = judged.action
        if action == "COMPLETED" and complaint is not None:
            action = "RETRY"
        if judged.violations and TAG.search(raw) and not violations:
            # A secret may reach over the end of a text: without it the answer cannot be read.
            action = record["action"]
    elif outcome == "ERROR" and reply.get("retryable") and record.get("action") == "RETRY":
        action = "RETRY"
    verdict = Verdict(outcome, phase, at, action, [], summary, [], [], complaint=complaint)
    return verdict._replace(by_budget=bool(call.get("by_budget")), tree=call.get("tree"))


# --- the rest of it in a new job --------------------------------------------------------------

_LOGS_OWN = ("seq", "hash", "ts", "fence")
_OLD_ONES = ("tree", "restore", "charge")
"""Trees belong to the repository of the job that made them; its calls are paid for."""


class Beginning(NamedTuple):
    """What a new job starts with."""

    spec: JobSpec
    lines: list[Record]
    """Those of the old job after the first, which says what is wanted."""
    state: State
    """That they leave the job in."""
    tree: str | None
    """The files that go with it, as the old job kept them; None if nothing was kept."""


def beginning_of(job: Job, after: int, model: str | None) -> Beginning:
    """The job up to the end of so many calls; nothing is written."""
    lines, tree, called = _lines(job, after)
    state = initial()
    for line in lines:
        state = fold(state, Line(None, None, line, "", 0, 0))
    if not called and has_files(job):
        tree = job.state()["restore"] or workspace_of(job).snapshot()
    spec = spec_of(state)
    if model is not None:
        value = spec.value()
        phases = [{**each, "model": model} for each in value["phases"]]
        spec = JobSpec.model_validate({**value, "phases": phases})
    # The branch that it began with may have moved on since.
    spec = spec.model_copy(update={"base": workspace_of(job).base or spec.base})
    rest = [each for each in lines if each.get("event") not in ("new", "set")]
    return Beginning(spec, rest, state, tree)


def _lines(job: Job, after: int) -> tuple[list[Record], str | None, bool]:
    """The lines, the files kept last, and whether a call was made after that."""
    lines: list[Record] = []
    ended, tree = 0, None
    reached = after == 0
    for line in job.lines():
        record = {name: each for name, each in line.record.items() if name not in _LOGS_OWN}
        if reached and record.get("event") in ("call", "part", "judged", "reply"):
            if record.get("event") == "call":
                return lines, record.get("tree") or tree, True
            continue
        if reached and record.get("event") == "move" and record.get("status") in FINAL:
            break
        kept = {name: each for name, each in record.items() if name not in _OLD_ONES}
        if isinstance(point := kept.get("point"), dict):
            kept["point"] = {**point, "can_resume_from": False}
        lines.append(kept | {"copied_from": line.record.get("ts")})
        tree = record.get("tree") or tree
        if record.get("event") == "judged":
            ended += 1
            reached = ended >= after
    if ended < after:
        what = f"{job.name} has {plural(ended, 'call')} that ended, not {after}"
        raise UsageError(what, hint=f"--from 0 to --from {ended}")
    return lines, tree, False


@contextmanager
def files_in_place(job: Job, begun: Beginning, name: str, key: str) -> Generator[Workspace]:
    """The files of a job that does not exist yet; removed again if it does not come to be.

    A kill in between leaves a folder without a job, and never a job without its files.
    """
    spec, above = begun.spec, f"{job.home.path}/{key}"
    workspace = Workspace(
        f"{above}/{JOB_FILES}", spec.isolation, job=name, source=spec.source, base=spec.base
    )
    try:
        given: dict[str, str] = {}
        if spec.isolation != "none" and has_files(job):  # the attachments that it still has
            there = workspace_of(job).path
            with Folder(there) as files:
                inside = [each for each in begun.state["attachments"] if files.kind(each) == "file"]
            given = {os.path.basename(each): f"{there}/{each}" for each in inside}
        workspace.make(given)
        if begun.tree is not None:
            workspace_of(job).export(begun.tree, workspace.path)
        for attached, path in given.items():
            if not os.path.lexists(f"{workspace.path}/{ATTACHMENTS}/{attached}"):
                workspace.attach(attached, path)
        yield workspace
    except BaseException:
        with typed("removing the files of no job", above), suppress(FileNotFoundError):
            remove_folder(above)
        raise


def begin_again(job: Job, new: Job, begun: Beginning, origin: Record) -> None:
    """Write the beginning of a new job."""

    def decide(state: State) -> Sequence[Record]:
        if state["job_id"]:
            raise UsageError(f"there is a job {new.name} already", hint="try again")
        made: Record = {"event": "new", "job_id": new.name, "created_at": new.now()}
        made |= {"spec": begun.spec.value(), "origin": {"replayed_from": job.name, **origin}}
        return [made, *begun.lines]

    new.decide(decide)
