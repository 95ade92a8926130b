"""A swarm written down by people: YAML, JSON, or YSON with `#@key: value` lines.

A `logic:` block, which other systems execute, is never run: all that is read are values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from holdfast.byhand import parse
from holdfast.codec import Json, Record
from holdfast.contracts.kind import object_of
from holdfast.errors import BadValue, UsageError
from holdfast.text import duration

_META = re.compile(r"#@[ \t]*([\w.-]+)[ \t]*:[ \t]*(.*)")
_LOGIC = re.compile(r"^\s*[\"']?logic[\"']?\s*:", re.MULTILINE)
_AFTER = re.compile(r"^logic\s*:", re.MULTILINE)
"""Below an object."""
_SECTIONS = ("swarm", "cluster", "runtime", "routing", "moe")
_SILENT = ("id", "name", "description", "version", "kind")
"""Keys that say nothing of how a swarm runs."""
_GLOBAL, _LOCAL = ("global", "goal"), ("local", "agents", "per_agent")


class SwarmFile(NamedTuple):
    fields: Record
    """Of a spec: what the file says."""
    agents: tuple[str, ...]
    summarizer: str | None
    """An agent, a place or a role."""
    warnings: list[str]


def read_swarm(text: str, name: str) -> SwarmFile:
    """What a file called `name` says; BadValue for a value that cannot be meant."""
    body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    warnings: list[str] = []
    if logic := (_AFTER if body.lstrip().startswith("{") else _LOGIC).search(body):
        count = body[logic.start() :].strip().count("\n")
        warnings.append(f"{name}: logic is never run ({count} lines left out)")
        body = body[: logic.start()]
    found = _parsed(body, name) if body.strip() else {}
    if not isinstance(found, dict):
        raise BadValue(f"{name}: no swarm", hint="an object with agents, goal, topology, …")
    given: Record = _set({key: _parsed(value, name) for key, value in _META.findall(text)})
    given |= _set(found)
    for section in _SECTIONS:
        if isinstance(given.get(section), dict):
            given = {**cast("Record", given.pop(section)), **given}
    swarm = SwarmFile({"goals": {}, "models": {}}, (), None, warnings)
    for key, value in _set(given).items():
        swarm = _with(swarm, key.lower().replace("-", "_"), value, name)
    return swarm


def _set(given: Record) -> Record:
    """Null says as little as a key that is not there."""
    return {key: value for key, value in given.items() if value is not None}


def _parsed(text: str, name: str) -> Json:
    try:
        return parse(text.encode(), name)
    except BadValue:
        if not text.lstrip().startswith("{"):
            raise
        return parse(f"--- {text.lstrip()}".encode(), name)  # keys without quotes


def _with(swarm: SwarmFile, key: str, value: Any, name: str) -> SwarmFile:
    match key:
        case "agents":
            return swarm._replace(agents=_agents(swarm, value, name))
        case "goal" | "goals":
            _goals(swarm, cast("Record", value) if isinstance(value, dict) else {"goal": value})
        case "agent_goals":
            _goals(swarm, {"agents": value})
        case "summarizer" | "summariser" | "summarizer_role_hint":
            return swarm._replace(summarizer=_text(value))
        case "baton" if isinstance(value, dict):
            for part, inner in _set(cast("Record", value)).items():
                swarm = _with(swarm, f"baton_{part}", inner, name)
        case _ if _NAMES.get(key, key) in _FIELDS:
            _take(swarm, key, value, name)
        case _:
            if key not in _SILENT:
                swarm.warnings.append(f"{name}: {key} is not read")
    return swarm


def _take(swarm: SwarmFile, key: str, value: Any, name: str) -> None:
    field = _NAMES.get(key, key)
    try:
        swarm.fields[field] = _FIELDS[field](value)
    except (TypeError, ValueError, OverflowError, UsageError):
        raise BadValue(f"{name}: {key} is {value!r}", hint="see docs/swarm.md") from None
    if key == "cooldown_seconds":
        swarm.warnings.append(f"{name}: cooldown counts ticks: {value} ticks, not seconds")


def _agents(swarm: SwarmFile, value: Any, name: str) -> tuple[str, ...]:
    rows: list[Record] = []
    if isinstance(value, dict):
        rows = [object_of(inner) | {"id": id} for id, inner in cast("Record", value).items()]
    elif isinstance(value, list):
        rows = [object_of(each) or {"id": each} for each in cast("list[object]", value)]
    names: list[str] = []
    for place, row in enumerate(map(_set, rows), 1):
        agent = next((row.pop(key) for key in ("id", "name", "agent") if row.get(key)), None)
        if not isinstance(agent, str):
            raise BadValue(f"{name}: agent {place} has no name", hint="agents: [rio, kim]")
        names.append(agent.lower())
        for key, of in (("goal", "goals"), ("subgoal", "goals"), ("model", "models")):
            if key in row:
                swarm.fields[of][names[-1]] = str(row.pop(key))
        if unread := ", ".join(sorted(row)):
            swarm.warnings.append(f"{name}: agent {agent}: {unread} left out; see `agent edit`")
    return tuple(names)


def _goals(swarm: SwarmFile, goals: Record) -> None:
    for key, value in _set(goals).items():
        if key in _GLOBAL:
            swarm.fields["goal"] = _text(value)
        elif key in _LOCAL and isinstance(value, dict):
            inner = _set(cast("Record", value))
            swarm.fields["goals"] |= {agent.lower(): _text(goal) for agent, goal in inner.items()}
        else:
            swarm.fields["goals"][key.lower()] = _text(value)


def _text(value: Any) -> str:
    lines: list[Any] = cast("Any", value) if isinstance(value, list) else [value]
    return "\n".join(str(each) for each in lines if each is not None)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise TypeError


def _count(value: Any) -> int:
    if isinstance(value, bool) or int(value) != float(value):
        raise TypeError
    return int(value)


def _seconds(value: Any) -> float:
    return duration(value) if isinstance(value, str) else float(value)


_NAMES = {
    **{"selection_strategy": "topology", "moe_topk": "topk", "top_k": "topk"},
    **{"cooldown_ticks": "cooldown", "cooldown_seconds": "cooldown", "max_cost": "max_cost_usd"},
}
"""What others call a field."""
_COUNTS = ("ticks", "topk", "seed", "cooldown", "baton_chars", "baton_sentences")
_FIELDS: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(("topology", "model", "router", "summarizer_model"), str),
    **dict.fromkeys((*_COUNTS, "switch_after", "max_messages"), _count),
    **dict.fromkeys(("explore", "max_cost_usd"), float),
    "timeout": _seconds,
    "repeatable": _flag,
}
