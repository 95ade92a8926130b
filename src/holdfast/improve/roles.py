"""Who researches, plans, reviews and edits: a model, a command, or a built-in.

All of them get one JSON object, `{"role", "round", "id", "seed", "slug", "input"}`, and reply with
one.  A command has it on standard input, and in the file that HOLDFAST_REQUEST names; its reply is
the last JSON object that it prints.  Of an executor the edits in its folder count, not its words.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from holdfast.calls.call import ask
from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode_record, encode
from holdfast.errors import HoldfastError, UsageError
from holdfast.improve.proposers import builtin, carry_out
from holdfast.models.command import open_command
from holdfast.models.protocol import Message, Request
from holdfast.models.registry import open_model
from holdfast.proc.around import Around
from holdfast.workspace.command import our_environment

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.improve.candidates import Files
    from holdfast.models.protocol import Model

BUILT_IN = ("search", "mutate", "patches", "null", "direct")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
TASKS = {
    "researcher": "Study the repository and what was tried so far. Suggest 3 to 10 changes that "
    "could improve the metric, of at least two families, the likeliest first. Reply with one JSON "
    'object and nothing after it: {"repo_analysis_summary": "…", "ideas": [{"title", "source", '
    '"evidence", "approach_family", "confidence": "high|medium|low", "estimated_impact"}]}',
    "planner": "Plan one change that tests exactly one hypothesis for improving the metric. Take "
    "up the user's ideas first. Do not repeat what failed, or say in `avoids` what differs. Use "
    "one of `families`, the first if it fits. Leave sealed files alone. Reply with one JSON object "
    'and nothing after it: {"hypothesis": "…", "approach_family": "…", "target_files": ["…"], '
    '"steps": [{"step": 1, "file": "…", "change": "…"}], "expected_outcome": {"metric", '
    '"estimated_impact", "rationale"}, "history_reference": {"builds_on": "… or none", '
    '"avoids": "… or none"}}',
    "architect": "Judge whether the plan can be tested, is new, in scope, clear and realistic. "
    "Reply with one JSON object and nothing after it: "
    '{"verdict": "approve|reject", "feedback": "…", "structural_concerns": ["…"]}',
    "critic": "Reject the plan if it has several hypotheses, repeats a failure, or would change "
    "how the score is measured. Reply with one JSON object and nothing after it: "
    '{"verdict": "approved|rejected", "rejection_reason": "… or null"}',
    "executor": "Carry out the plan by editing files in the current directory. Sealed files must "
    "not change. Do not run long programs: the engine measures the result by itself. Reply with "
    'one JSON object and nothing after it: {"hypothesis": "what you changed, and why it helps"}. '
    'If you cannot edit files yourself, reply with {"edits": [{"file": "…", "old": "…", '
    '"new": "…"}], "files": {"PATH": "TEXT"}}',
}


class Answer(NamedTuple):
    """What came of asking a role."""

    value: Record | None
    """The object; None where there is none."""
    why: str = ""
    """What failed."""
    seconds: float = 0.0
    paid: Record | None = None
    """Cost and tokens of a model or command; None for a built-in."""


class Call(NamedTuple):
    """A role that can be asked, in any thread."""

    request: Record
    make: Callable[[], Answer]
    most_usd: float | None = 0.0
    """What it can cost; None is unknown."""
    inline: bool = False
    """A built-in: it is asked where the engine is."""


def is_built_in(ref: str) -> bool:
    return ref.partition(":")[0] in BUILT_IN


def check_role(role: str, ref: str) -> None:
    """UsageError if nothing is called so, before anything is run."""
    if is_built_in(ref):
        if role not in ("planner", "executor"):
            raise UsageError(f"{ref} is no {role}", hint="a model, or command:PROGRAM")
        builtin(ref)
    elif ref:
        open_command(ref.partition(":")[2]).close() if _is_command(ref) else open_model(ref).close()


def planner_id(number: int) -> str:
    return f"planner_{_LETTERS[number] if number < len(_LETTERS) else number + 1}"


def seed_of(seed: int, number: int, who: str) -> int:
    """A seed of its own for everybody, the same whenever the round is run."""
    return int.from_bytes(sha256(f"{seed}/{number}/{who}".encode()).digest()[:4], "big") >> 1


def stored(request: Record) -> Record:
    """What is asked, by its hash; of what the journal has by itself only how much it was."""
    given = request["input"]
    if "proposals" in given:
        request = {**request, "input": {**given, "proposals": len(given["proposals"])}}
    name = sha256(encode(request, limit=MAX_DOCUMENT)).hexdigest()
    return {"input": name, "question": request}


# --- asking ---------------------------------------------------------------------------------


def built_in(ref: str, request: Record, files: Files) -> Call:
    """The call of a built-in; the round goes on without one that cannot read the repository."""

    def make() -> Answer:
        try:
            if request["role"] == "planner":
                return Answer(builtin(ref)(request, files))
            carry_out(request["input"]["plan"], files)
        except HoldfastError as error:
            return Answer(None, error.message)
        except Exception as error:
            return Answer(None, f"{type(error).__name__}: {error}")
        return Answer({})

    return Call(request, make, inline=True)


def asking(
    ref: str, request: Record, clock: Clock, around: str, timeout: float, folder: str | None
) -> Call:
    """The call of a model, or of a command that works in `folder`."""
    text = json.dumps(request, ensure_ascii=False)
    model = _opened(ref, folder, request, clock)
    said = Request((Message("user", text),), timeout=timeout, ordinal=request["round"] - 1)
    edits = request["role"] == "executor"

    def once() -> Answer:
        ended = ask(model, said, clock, session=f"improve/{request['slug']}")
        tokens = ended.reply.usage.total if ended.reply is not None else None
        paid: Record = {"cost_usd": ended.cost_usd, "tokens": tokens, "model": ref}
        value = last_object(ended.text)
        why = "" if ended.outcome == "ok" or (edits and ended.outcome == "invalid") else ended.why
        if not why and value is None and not edits:
            why = f"no JSON object in the reply: {ended.text[:120]!r}"
        return Answer(value, why, round(ended.seconds, 6), paid)

    def make() -> Answer:
        try:
            with Around(around):
                answer = once()
                # An executor may have edited files: it is not asked again.
                return answer if edits or not answer.why else _after(answer, once())
        finally:
            model.close()

    return Call(request, make, model.most_usd(said))


def _after(first: Answer, second: Answer) -> Answer:
    """The second try of a role, with what both cost."""
    payments = [answer.paid or {} for answer in (first, second)]
    costs = [cost for each in payments if (cost := each.get("cost_usd")) is not None]
    paid = {**payments[1], "cost_usd": sum(costs) if len(costs) == len(payments) else None}
    paid["tokens"] = sum(each.get("tokens") or 0 for each in payments)
    return second._replace(paid=paid, seconds=first.seconds + second.seconds)


def _opened(ref: str, folder: str | None, request: Record, clock: Clock) -> Model:
    if not _is_command(ref):
        return open_model(ref)
    env = our_environment() | {"HOLDFAST_SEED": str(request["seed"])}
    if folder is not None:
        above = os.path.dirname(folder)
        path = f"{above}/request.json"
        with open(path, "wb") as file:  # direct write: beside a candidate's files
            file.write(encode(request))
        # A git in there that finds no repository must not find the user's.
        env |= {"GIT_CEILING_DIRECTORIES": above, "HOLDFAST_REQUEST": path}
    return open_command(ref.partition(":")[2], env=env, cwd=folder, clock=clock)


def _is_command(ref: str) -> bool:
    return ref.startswith("command:")


def last_object(text: str) -> Record | None:
    """The last JSON object of a reply: its last line, a fenced block, or all of it."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    inner = text[text.find("{") : text.rfind("}") + 1] if "{" in text else ""
    for each in (*lines[-1:], inner):
        try:
            return decode_record(each.encode("utf-8", "surrogatepass"))
        except DecodeError:
            continue
    return None
