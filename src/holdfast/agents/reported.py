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


def from_file(data: bytes) -> tuple[Record, str]:
    """What the report file says, and what is wrong with it."""
    if not data.strip():
        return {}, ""
    try:
        found = decode(data.strip(), limit=MAX_DOCUMENT)
    except DecodeError as error:
        return {}, f"the report cannot be read: {error}"
    if not isinstance(found, dict):
        return {}, "the report is not an object"
    named = {NAMES.get(name, name): value for name, value in found.items()}
    unknown = sorted(named.keys() - SETTABLE)
    said = {name: value for name, value in named.items() if name in SETTABLE and value is not None}
    return said, f"the report has unknown fields: {', '.join(unknown)[:200]}" if unknown else ""


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
    if isinstance(cost, int | float) and not isinstance(cost, bool):
        said["cost_usd"] = float(cost)
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
