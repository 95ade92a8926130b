"""What a command says about itself: the report file, and the JSON that CLI agents leave.

A claim, kept beside what was measured.  Anybody speaks who writes the file that HOLDFAST_REPORT
names; `claude -p --output-format json | stream-json` and `codex exec --json` speak by what they
print, Claude Code by its transcript too.  Whoever speaks may lie, stumble or be cut off: what
cannot be true is left out, and nothing of it stops a session from ending.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator
from typing import Any, cast

from holdfast.agents.history import SETTABLE
from holdfast.clock import instant_of
from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode

NAMES = {
    "question": "research_question",
    "belief": "belief_targeted",
    "disconfirm": "disconfirmation_target",
    "sources": "sources_archived",
    "pr": "pr_number",
    "next": "next_priority",
    "tokens": "tokens_used",
    "cost": "cost_usd",
    "handoff": "handoff_notes",
}
"""Flags of the command line that have a longer name in the journal; a report may use both."""
_CLAIMS = SETTABLE - {"timeout_seconds"}
"""What a command may say of itself: all but how long it may take."""
_NUMBERS = frozenset({"sources_archived", "sources_expected", "tokens_used", "pr_number"})
MOST_COUNTED = 10**12
MOST_USD = 1e6
"""More than that nobody has used or spent in a session."""
LARGEST_REPORT = 1 << 20
LARGEST_TRANSCRIPT = 64 << 20
_MOST_MODEL, _MOST_MESSAGE, _MOST_TEXT = 100, 500, 20_000


# --- what can be true -----------------------------------------------------------------------


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_COUNTED else None


def _usd(value: object) -> float | None:
    if type(value) not in (int, float):
        return None
    number = float(cast("float", value))
    return number if math.isfinite(number) and 0 <= number <= MOST_USD else None


def _credible(name: str, value: object) -> bool:
    if name == "cost_usd":
        return _usd(value) is not None
    if name in _NUMBERS:
        return _count(value) is not None
    return isinstance(value, str)


# --- files ----------------------------------------------------------------------------------


def content(path: str, most: int) -> tuple[bytes, str]:
    """What a file holds that somebody else names, and why it was not read.

    Only a plain file of the user's own is opened, so that neither a pipe can hold us up nor a
    link lead us elsewhere.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        number = os.open(path, flags)  # noqa: TID251 - read only, and no file of a home
    except (OSError, ValueError):
        return b"", "it cannot be opened"
    try:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return b"", "it is no plain file of ours"
        if found.st_size > most:
            return b"", f"it is larger than {most} bytes"
        with open(number, "rb", closefd=False) as file:
            return file.read(most), ""
    except OSError:
        return b"", "it cannot be read"
    finally:
        os.close(number)


def from_file(data: bytes) -> tuple[Record, str]:
    """What the report file says, and what is wrong with it; the rest of it counts."""
    if not data.strip():
        return {}, ""
    try:
        found = decode(data.strip(), limit=MAX_DOCUMENT)
    except DecodeError as error:
        return {}, f"the report cannot be read: {error}"
    if not isinstance(found, dict):
        return {}, "the report is not an object"
    named = {NAMES.get(name, name): value for name, value in found.items() if value is not None}
    said = {
        name: value[:_MOST_TEXT] if isinstance(value, str) else value
        for name, value in named.items()
        if name in _CLAIMS and _credible(name, value)
    }
    unknown, odd = named.keys() - _CLAIMS, (named.keys() & _CLAIMS) - said.keys()
    wrong = [
        f"{what}: {', '.join(sorted(names))[:200]}"
        for what, names in (("has unknown fields", unknown), ("says what cannot be", odd))
        if names
    ]
    return said, f"the report {' and '.join(wrong)}" if wrong else ""


def from_transcript(path: str, since: float | None = None) -> tuple[Record, str]:
    """Tokens, cost and model by the transcript of Claude Code, and why they are not known.

    A message stands in several lines, each with its usage so far: the last one counts.  What is
    older than `since` belongs to another session.
    """
    if not path.endswith(".jsonl"):
        return {}, "no transcript"
    data, wrong = content(path, LARGEST_TRANSCRIPT)
    if wrong:
        return {}, f"the transcript: {wrong}"
    tokens, costs, models = dict[str, int](), dict[str, float](), dict[str, None]()
    for number, line in enumerate(data.splitlines()):
        message = _message(line, since)
        if message is None:
            continue
        entry, usage, inner = message
        name = str(inner.get("id") or entry.get("requestId") or number)
        tokens[name] = _tokens(usage)
        if (cost := _usd(entry.get("costUSD"))) is not None:
            costs[name] = cost
        if isinstance(inner.get("model"), str) and inner["model"] != "<synthetic>":
            models[inner["model"][:_MOST_MODEL]] = None
    if not tokens:
        return {}, "the transcript tells of none"
    said: Record = {"tokens_used": sum(tokens.values())}
    # Newer ones name no price, and a part of it is not the cost.
    if costs.keys() == tokens.keys() and (cost := _usd(sum(costs.values()))) is not None:
        said["cost_usd"] = cost
    if len(models) == 1:
        said["model"] = next(iter(models))
    return said, ""


def _message(line: bytes, since: float | None) -> tuple[Record, Record, Record] | None:
    """A line of the transcript, its usage and its message; None if it used nothing."""
    if b'"usage"' not in line:
        return None
    try:
        entry = decode(line)
    except DecodeError:
        return None  # torn, or not of Claude Code
    inner = entry.get("message") if isinstance(entry, dict) else None
    usage = cast("Record", inner).get("usage") if isinstance(inner, dict) else None
    if not isinstance(entry, dict) or not isinstance(usage, dict) or _is_older(entry, since):
        return None
    return entry, cast("Record", usage), cast("Record", inner)


def _is_older(entry: Record, since: float | None) -> bool:
    stamp = entry.get("timestamp")
    if since is None or not isinstance(stamp, str):
        return False
    try:
        return instant_of(stamp) < since
    except ValueError:
        return False


# --- output ---------------------------------------------------------------------------------


def from_output(text: str) -> Record:
    """Cost and tokens, if the output is that of a CLI agent that tells them."""
    said: Record = {}
    for value in _objects(text):
        match value.get("type"):
            case "result":
                said |= _claude(value)
            case "turn.completed" if (usage := _object(value, "usage")) is not None:
                total = _count(said.get("tokens_used", 0) + _tokens(usage))
                said |= {} if total is None else {"tokens_used": total}
                said.pop("failed", None)
            case "turn.failed":
                error = _object(value, "error") or {}
                said["failed"] = str(error.get("message") or "turn failed")[:_MOST_MESSAGE]
            case _:
                pass
    return said


def _claude(value: Record) -> Record:
    said: Record = {}
    if (usage := _object(value, "usage")) is not None:
        said["tokens_used"] = _tokens(usage)
    if (cost := _usd(value.get("total_cost_usd", value.get("cost_usd")))) is not None:
        said["cost_usd"] = cost
    models = _object(value, "modelUsage") or {}
    if len(models) == 1:
        said["model"] = next(iter(models))[:_MOST_MODEL]
    if value.get("is_error") is True:
        said["failed"] = str(value.get("result") or value.get("subtype") or "error")[:_MOST_MESSAGE]
    return said


def _object(value: Record, name: str) -> Record | None:
    found = value.get(name)
    return cast("Record", found) if isinstance(found, dict) else None


def _tokens(usage: Record) -> int:
    """All tokens of a usage; those that OpenAI calls cached are among its input already."""
    names = (
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    )
    return sum(_count(usage.get(name)) or 0 for name in names)


def _objects(text: str) -> Iterator[Record]:
    """JSON objects in the output: the whole of it, or line by line."""
    if (whole := _decoded(text)) is not None:
        yield from whole
        return
    lines, tries = text.splitlines(), _MOST_TRIES
    for number, line in enumerate(lines):
        found = _decoded(line)
        if found is not None:
            yield from found
        elif line == "{" and tries:
            # Indented JSON among other text.
            tries -= 1
            yield from _decoded_from("\n".join(lines[number:]))
        elif _LEFT_OUT.fullmatch(line) and number + 1 < len(lines):
            yield from _rest_of_result(lines[number - 1] if number else "", lines[number + 1])


def _decoded(text: str) -> list[Record] | None:
    """The objects that a text is; None if it is no JSON."""
    text = text.strip()
    if text[:1] not in ("{", "["):
        return None
    try:
        value = decode(text.encode("utf-8", "replace"), limit=MAX_DOCUMENT)
    except DecodeError:
        return None
    many: list[Any] = value if isinstance(value, list) else [value]
    return [each for each in many if isinstance(each, dict)]


def _decoded_from(text: str) -> list[Record]:
    end = _END_OF_OBJECT.search(text)
    return (_decoded(text[: end.end()]) if end else None) or []


_MOST_TRIES = 20
_END_OF_OBJECT = re.compile(r"^\}", re.MULTILINE)
_LEFT_OUT = re.compile(r"\[\d+ bytes left out\]")
_COST = re.compile(r'(?<!\\)"total_cost_usd":\s*(-?[0-9.eE+-]{1,40})')
_USAGE = re.compile(r'(?<!\\)"usage":\s*(?=\{)')
_IS_ERROR = re.compile(r'\{"type":\s*"result".*?(?<!\\)"is_error":\s*true', re.DOTALL)


def _rest_of_result(head: str, tail: str) -> Iterator[Record]:
    """What can be saved of a result whose long text was left out: cost and usage come after it."""
    cost = _COST.search(tail)
    if cost is None:
        return
    value: Record = {"type": "result", "is_error": _IS_ERROR.match(head) is not None}
    try:
        value["total_cost_usd"] = float(cost[1])
        if (usage := _USAGE.search(tail)) is not None:
            value["usage"] = json.JSONDecoder().raw_decode(tail, usage.end())[0]
    except (ValueError, RecursionError):
        pass  # cut there, too
    yield value
