"""What is told of a job: its events in order, its state in words, a table and a page.

Calls are as `jobHistory.json` has them; between them stands what people and the engine decided, and
at the end the call that is under way.  One reading of the history gives all three.

Agents and the pages they read wrote most of this, so a cell of the CSV never begins as a formula.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Sequence
from sys import maxsize
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import __version__
from holdfast.codec import Record
from holdfast.jobs.history import Calls, calls, points
from holdfast.jobs.state import committed_usd, reported, spec_of, utc_of
from holdfast.look.page import alone, words
from holdfast.text import plural

if TYPE_CHECKING:
    from holdfast.jobs.job import Job
    from holdfast.jobs.state import Job as JobState

_EVIDENCE = {"evidence_missing": "missing", "evidence_escape": "outside"}
_QUOTED = 200
"""Characters of a path that a complaint quotes, where it does not name the path as it is."""

_NO_ACTION = {"failed": "failed", "late": "no answer in time", "refused": "refused"}
_MEANINGS = {
    "RUNNING": "going",
    "SUCCESS": "good",
    "INTERVENTION_REQUIRED": "bad",
    "HALTED_COST": "care",
    "HALTED_TIME": "care",
}


class Timeline(NamedTuple):
    total: int
    """Calls that have ended, shown or not."""
    calls: list[Record]
    """Each with `heard`: the action, or why there is none; with `evidence`: what became of the
    files that it named; and with `wrong`."""
    events: list[Record]
    """Each with `before`: the number of the call that came next."""
    asking: Record | None
    """The call under way."""
    points: list[Record]

    def record(self, state: JobState) -> Record:
        """The history as the format has it, and what it has no place for."""
        return {
            "job_id": state["job_id"],
            "created_at": state["created_at"],
            "calls": self.total,
            "interactions": self.calls,
            "recovery_points": self.points,
            "events": self.events,
            "asking": self.asking,
        }


def timeline(job: Job, *, limit: int = 0, only: int | None = None) -> Timeline:
    """The last `limit` calls and what lies between them, all if 0; or only the one named."""
    reading = Calls(job.workspace_shown())
    calls: deque[Record] = deque(maxlen=limit if 0 < limit <= maxsize else None)
    events: list[Record] = []
    total, asked = 0, None
    for line in job.lines():
        record, told = line.record, len(reading.state["trail"])
        call = reading.take(line)
        if record.get("event") == "call":
            asked = record
        if call is not None:
            total += 1
            if only in (None, call["sequence"]):
                calls.append(call | _examined(call["response"]))
        elif only is None:
            accepted = len(reading.state["trail"]) > told
            events += _event(record, reading.state, accepted=accepted)
    if len(calls) < total and only is None:
        first = calls[0]["sequence"]
        events = [each for each in events if each["before"] > first]
    return Timeline(total, list(calls), events, _asking(reading, asked), points(reading.state))


def in_order(calls: Sequence[Record], events: Sequence[Record]) -> list[Record]:
    """Calls and what was decided between them, oldest first."""
    items = [(each["before"], 0, {"event": each}) for each in events]
    items += [(each["sequence"], 1, {"call": each}) for each in calls]
    # Stable: what lies between two calls stays in its order.
    return [item for *_, item in sorted(items, key=lambda each: each[:2])]


def _examined(response: Record) -> Record:
    """The answer in a word, the files that it names (there, missing, or outside), and all else
    that is wrong."""
    doubts: dict[str, str] = {}
    wrong: list[Record] = []
    overruled = response.get("overruled")
    answer = reported({**response, "outcome": response["status"], "complaint": overruled})
    heard = _NO_ACTION.get(answer.get("unsaid", ""), str(answer["action"]))
    if "unsaid" not in answer and overruled is not None:
        heard += ", not accepted"
    for name, bad in (("violations", True), ("warnings", False)):
        for each in response.get(name) or ():
            path, state = each["reason"].rpartition(":")[0], _EVIDENCE.get(each["kind"])
            if state is not None:
                doubts[path] = state
            if state is None or each["reason"].startswith("and "):
                wrong.append({"bad": bad, "kind": each["kind"], "reason": each["reason"]})
    # What a gate printed is told whole beside it.
    heads = {"overruled": headline(overruled or ""), "error": response.get("error")}
    wrong += [{"bad": True, "kind": name, "reason": why} for name, why in heads.items() if why]
    files = [
        {"path": path, "state": doubts.get(path) or doubts.get(repr(path[:_QUOTED])) or "there"}
        for path in response["evidence_files"]
    ]
    return {"heard": heard, "evidence": files, "wrong": wrong}


def headline(complaint: str) -> str:
    """What a complaint begins with, without the rule that some programs draw below it."""
    return complaint.partition("\n")[0].rstrip(": =-_*#")


def _event(record: Record, state: JobState, *, accepted: bool) -> list[Record]:
    word, reason = record.get("event"), record.get("reason")
    point: Record = record.get("point") or {}
    found = {
        "move": (record.get("cause"), reason),
        "hold": (record.get("hold") or "released", reason),
        "attach": ("attached", record.get("path")),
        "point": ("recovery point", f"{point.get('id')}: {point.get('description')}"),
        "new": ("made", None),
        "set": ("changed", None),
        "note": ("noted", record.get("text") or reason),
    }.get(str(word))
    if found is None or (word in ("move", "hold") and not accepted):
        return []  # those lines that are not accepted are by a runner that had been replaced
    return [
        {
            "timestamp": utc_of(record.get("ts")),
            "event": str(found[0]),
            "why": found[1],
            "guidance": record.get("guidance"),
            "by": record.get("by"),
            "status": state["status"],
            "before": state["sequence"],
        }
    ]


def _asking(reading: Calls, asked: Record | None) -> Record | None:
    call = reading.state["call"]
    if call is None or asked is None or reading.state["status"] != "RUNNING":
        return None
    return {
        "sequence": call["sequence"],
        "timestamp": utc_of(call["at"]),
        "phase": call["phase"],
        "role": asked.get("role"),
        "model": call["model"],
        "answered": call["outcome"],
        "prompt": reading.prompt(asked),
    }


def places(state: JobState) -> list[Record]:
    """The phases of a job: behind it, here, or ahead."""
    spec, here, over = spec_of(state), state["phase"], state["status"] == "SUCCESS"
    return [
        {
            "name": each.name,
            "role": each.role,
            "model": spec.model_of(each),
            "approval": each.approval,
            "place": "behind" if over or number < here else "here" if number == here else "ahead",
        }
        for number, each in enumerate(spec.phases)
    ]


def used(state: JobState) -> Record:
    """The share of each limit that a job has used: yellow from three quarters on, red when all."""
    found: Record = {}
    for name, amount, limit in (
        ("cost", committed_usd(state), "max_cost_usd"),
        ("time", state["seconds"], "max_seconds"),
        ("iterations", state["steps"], "max_iterations"),
    ):
        most: float | None = state["limits"].get(limit)
        share = None if most is None else round(amount / most, 4) if most else 1.0
        level = "red" if (share or 0) >= 1 else "yellow" if (share or 0) >= 0.75 else "green"
        found[name] = {"share": share, "level": level}
    return found


def shown_usd(cost_usd: float | None, unknown: int, most: float | None = None) -> str:
    """Money as people read it: an unknown cost is named, and never shown as 0."""
    limit = "" if most is None else f" of {most:g}"
    known = f"{cost_usd or 0.0:.4f}{limit} USD"
    if not unknown:
        return known
    hidden = f"cost unknown for {plural(unknown, 'call')}"
    if cost_usd:
        return f"{known}, {hidden}"
    return hidden if most is None else f"{hidden} (limit {most:g} USD)"


def known_usd(state: JobState) -> float | None:
    """What was spent; None if no cost is known."""
    return round(state["cost_usd"], 6) or (None if state["unknown"] else 0.0)


def in_words(state: JobState) -> str:
    """The state of a job as one says it; what holds it says more than where it is held."""
    held = {"approval": "waits for approval", "iterations": "used up its calls"}
    hold: str | None = state["hold"]
    return words(state["status"]) if hold is None else held.get(hold, hold)


def meaning(state: JobState) -> str:
    """What the state of a job means to a person who looks for what is wrong."""
    return "care" if state["hold"] else _MEANINGS.get(state["status"], "quiet")


# --- as a table -----------------------------------------------------------------------------

_OF_RESPONSE = {
    **{"action": "action", "summary": "summary_for_supervisor", "cost_usd": "cost_usd"},
    "time_seconds": "execution_time_seconds",
}
_METRICS = (
    *("token_input", "token_output", "token_cache_read", "cache_hit", "ttft_seconds"),
    *("throughput_tokens_per_second", "total_tokens"),
)
_LONGEST = 400_000
"""Characters of one text: the history has the rest."""
MOST_BYTES = 4 * (_LONGEST + 1)
"""What has to be read of a text to see whether it is longer."""
_FORMULA = re.compile(r"\s*[=+\-@]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def as_csv(job: Job) -> str:
    """A line for each call, oldest first; what is not known is left empty."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["timestamp", "step_number", "role", *_OF_RESPONSE, *_METRICS, "status_after"])
    for number, call in enumerate(calls(job), 1):
        response: Record = call["response"]
        metrics: Record = response.get("metrics") or {}
        row = [call["timestamp"], number, call["request"]["metadata"].get("role")]
        row += [response[name] for name in _OF_RESPONSE.values()]
        row += [metrics.get(name) for name in _METRICS]
        rows.writerow([_cell(each) for each in (*row, response["new_status"])])
    return text.getvalue()


def _cell(value: Any) -> str:
    """Text that a spreadsheet takes for text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    line = _UNPRINTABLE.sub(" ", value)
    return f"'{line}" if _FORMULA.match(line) else line


# --- pages ----------------------------------------------------------------------------------


def as_html(job: Job, shown: Record, diff: str = "", damage: Sequence[str] | None = None) -> str:
    """Everything there is about a job, in one file that asks for nothing and runs nothing.

    `shown` is what `job show` gives; `diff` what the job did to its files, as git has it; `damage`
    where its history is not what was written, None if that was not verified.
    """
    told = timeline(job)
    measured: list[Record] = [each["response"].get("metrics") or {} for each in told.calls]
    tokens = [each["total_tokens"] for each in measured if each.get("total_tokens") is not None]
    lines = diff[:_LONGEST].rstrip("\n").split("\n") if diff.strip() else []
    if len(diff) > _LONGEST:
        lines.append("… the rest: holdfast job diff --patch")
    return alone(
        "export.html",
        job=shown,
        items=in_order(told.calls, told.events),
        asking=told.asking,
        points=told.points,
        tokens=f"{sum(tokens):,}" if tokens else "?",
        lines=lines,
        damage=damage,
        most=_LONGEST,
        as_of=job.now(),
        head=job.log.head(),
        version=__version__,
    )
