"""What a command says about itself: the report file, and the JSON that CLI agents leave.

A claim, kept beside what was measured.  Anybody speaks who writes the file that HOLDFAST_REPORT
names; `claude -p --output-format json | stream-json` and `codex exec --json` speak by what they
print, Claude Code by its transcript too.  Whoever speaks may lie, stumble or be cut off: what
cannot be true is left out, and nothing of it stops a session from ending.
"""

from __future__ import annotations

import os
import stat
from typing import cast

from holdfast.agents.document import as_object
from holdfast.agents.history import LONG_NAMES, SETTABLE, is_credible
from holdfast.clock import instant
from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode
from holdfast.mask.shown import beginning
from holdfast.models import recipes, report
from holdfast.models.report import count, usd

_NAMES = {**LONG_NAMES, "error": "failed"}
_CLAIMS = (SETTABLE - {"timeout_seconds"}) | {"failed"}
"""What a command may say of itself: all but how long it may take, and what went wrong."""
LARGEST_REPORT = 1 << 20
LARGEST_TRANSCRIPT = 64 << 20
_MOST_MODEL, _MOST_MESSAGE, _MOST_TEXT = 100, 500, 20_000


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
    named = {_NAMES.get(name, name): value for name, value in found.items() if value is not None}
    said = {
        name: beginning(value, _MOST_TEXT) if isinstance(value, str) else value
        for name, value in named.items()
        if name in _CLAIMS and is_credible(name, value)
    }
    if "failed" in said:
        said["failed"] = beginning(said["failed"], _MOST_MESSAGE)
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
        if (cost := usd(entry.get("costUSD"))) is not None:
            costs[name] = cost
        if isinstance(inner.get("model"), str) and inner["model"] != "<synthetic>":
            models[inner["model"][:_MOST_MODEL]] = None
    if not tokens:
        return {}, "the transcript tells of none"
    said: Record = {"tokens_used": sum(tokens.values())}
    # Newer ones name no price, and a part of it is not the cost.
    if costs.keys() == tokens.keys() and (cost := usd(sum(costs.values()))) is not None:
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
    found = as_object(entry)
    inner = as_object(found.get("message"))
    usage = inner.get("usage")
    if not isinstance(usage, dict) or _is_older(found, since):
        return None
    return found, cast("Record", usage), inner


def _is_older(entry: Record, since: float | None) -> bool:
    at = instant(entry.get("timestamp"))
    return since is not None and at is not None and at < since


# --- output ---------------------------------------------------------------------------------


def from_output(text: str) -> Record:
    """Cost, tokens and what it answers, if the output is that of a CLI agent that tells them."""
    events = list(report.objects(text))
    said: Record = {}
    for form in (_CODEX, recipes.CLAUDE):
        told = report.read(form, events)
        found = {
            "tokens_used": told.usage.total,
            "cost_usd": told.cost_usd,
            "model": told.model,
            "failed": told.failed and beginning(told.failed, _MOST_MESSAGE),
            "answer": told.text,
        }
        said |= {name: value for name, value in found.items() if value is not None}
    return said


# Any program may log an object of the type `error`: here only a turn that failed counts.
_CODEX = recipes.CODEX._replace(
    errors=tuple(place for place in recipes.CODEX.errors if place.event == "turn.failed")
)


def _tokens(usage: Record) -> int:
    """All tokens of a usage; those that OpenAI calls cached are among its input already."""
    names = (
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    )
    return sum(count(usage.get(name)) or 0 for name in names)
