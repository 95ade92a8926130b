"""What a command says about itself: the report file, and the JSON that CLI agents print.

A claim, kept beside what was measured.  Three speak: anybody who writes the file that
HOLDFAST_REPORT names, `claude -p --output-format json`, and `codex exec --json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from holdfast.agents.history import SETTABLE
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
_WHOLE = {"sources_archived", "sources_expected", "tokens_used", "pr_number"}
_LARGEST = 2**53
_LONGEST = 20_000
"""Characters of a text; what is longer loses its end."""


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
    named = {NAMES.get(name, name): value for name, value in found.items()}
    given = {name: value for name, value in named.items() if value is not None}
    said = {name: value for name, value in given.items() if name in _CLAIMS}
    wrong = sorted(name for name, value in said.items() if not _fits(name, value))
    odd: list[str] = []
    if unknown := sorted(given.keys() - _CLAIMS):
        odd.append(f"the report has unknown fields: {', '.join(unknown)[:200]}")
    if wrong:
        odd.append(f"the report says what cannot be of {', '.join(wrong)}")
    return {
        name: value[:_LONGEST] if isinstance(value, str) else value
        for name, value in said.items()
        if name not in wrong
    }, "; ".join(odd)


def _fits(name: str, value: object) -> bool:
    """Whether a value can be what it is said to be: what comes from a command is not trusted."""
    if name == "cost_usd":
        return type(value) in (int, float) and 0 <= cast("float", value) < _LARGEST
    if name in _WHOLE:
        return type(value) is int and 0 <= value < _LARGEST
    return isinstance(value, str)


def from_output(text: str) -> Record:
    """Cost and tokens, if the output is that of a CLI agent that tells them."""
    said: Record = {}
    for value in _objects(text):
        usage = value.get("usage")
        if not isinstance(usage, dict):
            continue
        match value.get("type"):
            case "result":
                said |= _claude(value, cast("Record", usage))
            case "turn.completed":
                tokens = _tokens(cast("Record", usage))
                said["tokens_used"] = said.get("tokens_used", 0) + tokens
            case _:
                pass
    return said


def _claude(value: Record, usage: Record) -> Record:
    said: Record = {"tokens_used": _tokens(usage)}
    cost = value.get("total_cost_usd", value.get("cost_usd"))
    if _fits("cost_usd", cost):
        said["cost_usd"] = float(cast("float", cost))
    models = value.get("modelUsage")
    if isinstance(models, dict) and len(cast("Record", models)) == 1:
        said["model"] = next(iter(cast("Record", models)))
    if value.get("is_error"):
        said["failed"] = str(value.get("result") or value.get("subtype") or "error")[:500]
    return said


def _tokens(usage: Record) -> int:
    names = (
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    )
    return sum(value for name in names if type(value := usage.get(name)) is int)


def _objects(text: str) -> Iterator[Record]:
    """JSON objects in the output: the whole of it, or line by line."""
    for part in (text, *text.splitlines()) if "\n" in text.strip() else (text,):
        if part.lstrip()[:1] in ("{", "["):
            try:
                value = decode(part.strip().encode("utf-8", "replace"), limit=MAX_DOCUMENT)
            except DecodeError:
                continue
            many: list[Any] = value if isinstance(value, list) else [value]
            yield from (each for each in many if isinstance(each, dict))
            if part is text:
                return
