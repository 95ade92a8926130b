"""`jobHistory.json`: every call of a job with its full prompt, from the history.

It is written when a run pauses or ends, and on demand; while a job runs, history.jsonl is ahead of
it.  Beyond 32 MiB, older calls go to packed files of the same form.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import zstandard

from holdfast.codec import Record, encode, pretty
from holdfast.contracts.job_states import CLAIMABLE
from holdfast.errors import NotFound
from holdfast.jobs.request import prompt_again
from holdfast.jobs.state import Job as JobState
from holdfast.jobs.state import add_known, fold, initial, utc_of
from holdfast.store.primitives import START, Cursor, Line, Stamp

if TYPE_CHECKING:
    from holdfast.jobs.job import Job

LARGEST = 32 << 20
_VERSION = 1
_GONE = "[this part is not in the history]"
_METADATA = ("role", "phase", "model", "temperature", "max_tokens")


class Calls:
    """Takes the lines of a history one by one, and gives the calls that have ended."""

    def __init__(self, workspace: str | None) -> None:
        self._workspace = workspace
        self._parts: dict[str, str] = {}
        self._call: Record | None = None
        self._reply: Record | None = None
        self.state: JobState = initial()

    def take(self, line: Line) -> Record | None:
        """The call that ended with this line, if one did."""
        record = line.record
        before = self.state["call"]
        self.state = fold(self.state, line)
        match record.get("event"):
            case "part":
                self._parts[str(record.get("part"))] = str(record.get("text"))
            case "call" if self.state["call"] is not before:
                self._call, self._reply = record, None
            case "reply" if self._is_open(record):
                self._reply = record
            case "judged" if self._is_open(record) and self._reply is not None:
                return self._ended(_answered(record, self._reply, self.state))
            case "told" if isinstance(record.get("interaction"), dict):
                return record["interaction"]
            case "move" if record.get("cause") in ("lost", "cancel") and self._call is not None:
                if before is None or self.state["call"] is not None:
                    return None
                return self._ended(_lost(record, self._reply, self.state))
            case _:
                return None
        return None

    def _is_open(self, record: Record) -> bool:
        return self._call is not None and self._call["sequence"] == record.get("sequence")

    def _ended(self, response: Record) -> Record:
        call, self._call = self._call or {}, None
        request = call.get("request", {})
        ended: Record = {
            "sequence": call["sequence"],
            "timestamp": utc_of(call.get("ts")),
            "state_before": call.get("state_before"),
            "workspace_path": self._workspace,
            "request": {
                "prompt": self.prompt(call),
                "files_context": request.get("context_files", []),
                "metadata": {
                    **{name: call.get(name) for name in _METADATA},
                    **request.get("metadata", {}),
                },
            },
            "response": response,
            "preceded_by": [each for each in call.get("preceded_by", []) if each != "lost"],
        }
        if self._reply is not None and self._reply.get("is_simulated"):
            ended["is_simulated"] = True
        return ended

    def prompt(self, call: Record) -> str:
        return prompt_again(call, lambda name: self._parts.get(name, _GONE))


def _answered(judged: Record, reply: Record, state: JobState) -> Record:
    seconds = reply.get("execution_time_seconds") or 0.0
    tokens = reply.get("output_tokens")
    counts = [each for each in (reply.get("input_tokens"), tokens) if isinstance(each, int)]
    cached = reply.get("cache_read_tokens")
    metrics: Record = {
        "cost_usd": reply.get("cost_usd"),
        "duration_seconds": seconds,
        "token_input": reply.get("input_tokens"),
        "token_output": tokens,
        "token_cache_read": cached,
        "total_tokens": sum(counts) if counts else None,
        "cache_hit": None if cached is None else bool(cached),
        "ttft_seconds": reply.get("first_text_seconds"),
        "throughput_tokens_per_second": tokens / seconds if tokens and seconds else None,
    }
    action, summary = judged.get("action"), judged.get("summary_for_supervisor") or ""
    files = judged.get("evidence_files", [])
    response = _response(state, reply, reply.get("outcome"), action, files, summary)
    response["metrics"] = add_known({}, metrics)
    for name in ("error", "complaint", "violations", "warnings", "measured_files", "gate"):
        value = judged.get(name) or reply.get(name)
        if name == "error" and reply.get("outcome") == "SUCCESS" and not judged.get("violations"):
            continue  # it was not quite what the model was asked for, and did
        if value is not None:
            response["overruled" if name == "complaint" else name] = value
    return response


def _lost(move: Record, reply: Record | None, state: JobState) -> Record:
    action = "RETRY" if state["status"] in CLAIMABLE else "STUCK"
    why = move.get("reason") or "the runner died"
    return _response(state, reply or {}, "ERROR", action, [], why)


def _response(
    state: JobState, reply: Record, status: object, action: object, files: list[str], summary: str
) -> Record:
    return {
        "status": status,
        "action": action,
        "evidence_files": files,
        "summary_for_supervisor": summary,
        "raw_response": reply.get("raw_response"),
        "execution_time_seconds": reply.get("execution_time_seconds") or 0.0,
        "cost_usd": reply.get("cost_usd"),
        "new_status": state["status"],
    }


# --- reading --------------------------------------------------------------------------------


def calls(job: Job) -> Iterator[Record]:
    """Every call that has ended, in order."""
    reading = Calls(job.workspace_shown())
    for line in job.lines():
        if (call := reading.take(line)) is not None:
            yield call


def prompt_of_call(job: Job, sequence: int) -> str:
    """What was sent in a call, ended or not."""
    reading = Calls(None)
    for line in job.lines():
        reading.take(line)
        if line.record.get("event") == "call" and line.record.get("sequence") == sequence:
            return reading.prompt(line.record)
    raise NotFound(f"{job.name} has no call {sequence}", hint="`holdfast job history` lists them")


def points(state: JobState) -> list[Record]:
    """The recovery points as the format has them."""
    ours = ("tree", "former", "place")
    return [{k: v for k, v in each.items() if k not in ours} for each in state["points"]]


# --- writing --------------------------------------------------------------------------------


def show(job: Job, *, anew: bool = False, largest: int = LARGEST) -> list[str]:
    """Bring jobHistory.json up to date with what is durable; where an edited one was kept.

    `largest` is in bytes of calls.
    """
    with closing(job.home.cell(f"{job.key}/jobHistory.json")) as cell:
        head = job.log.settle()
        stamp = cell.load(_VERSION)
        if not anew and stamp is not None and stamp.shown and stamp.cursor[:2] == head[:2]:
            return []
        data = _rendered(job, head, largest)
        edited = cell.save(_VERSION, Stamp(job.log.key, head, {}), data)
        return [] if edited is None else [edited]


def _rendered(job: Job, head: Cursor, largest: int) -> bytes:
    reading = Calls(job.workspace_shown())
    kept: list[Record] = []
    archives: list[str] = []
    size = 0
    for line in job.lines(START, blank=True):
        if line.seq is not None and line.seq > head.seq:
            break
        call = reading.take(line)
        if call is None:
            continue
        more = len(encode(call, limit=LARGEST * 2))
        if kept and size + more > largest:
            archives.append(_archive(job, len(archives) + 1, reading.state, kept))
            kept, size = [], 0
        kept.append(call)
        size += more
    return pretty(_whole(reading.state, kept) | ({"archives": archives} if archives else {}))


def _whole(state: JobState, kept: list[Record]) -> Record:
    foreign: Record = state["foreign"] or {}
    return {
        **foreign.get("history", {}),
        "schema_version": "1.0",
        "job_id": state["job_id"],
        "created_at": state["created_at"],
        "interactions": kept,
        "recovery_points": points(state),
    }


def _archive(job: Job, number: int, state: JobState, kept: list[Record]) -> str:
    """Pack calls that are too many for one file; once, since older calls do not change."""
    name = f"jobHistory.{number:04}.json.zst"
    document = job.home.document(f"{job.key}/{name}")
    if document.read() is None:
        whole = {**_whole(state, kept), "recovery_points": list[Record]()}
        document.replace(zstandard.compress(pretty(whole)))
    return name
