"""What a campaign has on disk: its places, and the files that people edit.

Settings, goal.md, harness.md and idea.md belong to the user.  They are read again before each
round; what was read stands in the journal, so that a round that is done again reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from holdfast.codec import DecodeError, Record, decode_record
from holdfast.contracts import goal as goals
from holdfast.contracts import harness as harnesses
from holdfast.contracts.goal import Goal
from holdfast.contracts.harness import Harness
from holdfast.contracts.improve import APPROACH_FAMILIES
from holdfast.contracts.improve_state import Settings as Contract
from holdfast.contracts.markdown import without_comments
from holdfast.errors import ConfigError, UsageError
from holdfast.improve.journal import Journal

SETTINGS, GOAL = "config/settings.json", "config/goal.md"
HARNESS, IDEA = "config/harness.md", "config/idea.md"
_HEADING = re.compile(r"^#{1,6}\s+(.*)$", re.MULTILINE)
_PAGE_TITLES = ("", "experiment ideas", "ideas", "user ideas")
IDEA_TEMPLATE = """\
# Experiment Ideas

<!-- One idea per section (`## Title` and what to try).  Planners take them before their own. -->
<!-- An idea is used in one round and removed from here. -->
"""
HARNESS_TEMPLATE = """\
# Harness

## H001 — One Hypothesis Per Plan
A plan tests exactly one hypothesis.

## H002 — No Approach Family Streak
No family wins three rounds in a row.

## H003 — Intra-Round Diversity
No two plans of a round are of one family.

## Custom Rules

## Custom Approach Families
"""
PLACED = {"repo_path", "target_branch", "topic_slug"}
"""Settings that a campaign begins with, and keeps."""
FIXED = PLACED | {
    *("benchmark_command", "benchmark_format", "benchmark_direction", "primary_metric"),
    *("sealed_files", "holdout_command", "screen_command", "pass_env", "seed"),
}
"""Settings under which scores were measured: they stay as they were at `improve init`."""
ROLES = ("researcher", "planner", "architect", "critic", "executor")
_NO_DIGITS = {"true": True, "false": False, "null": None, "none": None}


class Settings(Contract):
    """All of it, with its defaults."""

    @property
    def higher(self) -> bool:
        return self.benchmark_direction == "higher_is_better"

    @property
    def known_families(self) -> list[str]:
        return [*APPROACH_FAMILIES, *self.families]

    def whole(self) -> Record:
        return self.model_dump(mode="json")


# --- settings -------------------------------------------------------------------------------


def checked(values: Mapping[str, Any]) -> Settings:
    """The settings; UsageError naming the field that is wrong."""
    try:
        made = Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "settings"
        given = str(first.get("input"))[:80]
        raise UsageError(
            f"setting {field} is wrong: {given!r}: {first['msg']}",
            hint="`holdfast schema settings` shows what a setting can be",
        ) from None
    if unknown := sorted(made.model_extra or {}):
        raise _no_such_setting(unknown[0])
    return made


def _no_such_setting(name: str) -> UsageError:
    known = list(Settings.model_fields)
    near = [each for each in known if name in each] or get_close_matches(name, known, 1)
    meant = f"did you mean {' or '.join(near[:3])}? " if near else ""
    return UsageError(
        f"no such setting: {name[:80]}", hint=f"{meant}`holdfast schema settings` lists them"
    )


def parsed_setting(key: str, text: str) -> Any:
    """The value that `improve set KEY VALUE` means."""
    if key not in Settings.model_fields:
        raise _no_such_setting(key)
    default = Settings.model_fields[key].get_default(call_default_factory=True)
    kind = str(Settings.model_fields[key].annotation)
    if isinstance(default, list):
        return [each.strip() for each in text.split(",") if each.strip()]
    if text.strip().lower() in _NO_DIGITS and (isinstance(default, bool) or "None" in kind):
        return _NO_DIGITS[text.strip().lower()]
    if "int" in kind or "float" in kind:
        try:
            return int(text)
        except ValueError:
            try:
                return float(text)
            except ValueError:
                return text  # the check of all settings says what is wrong
    return text


def read_settings(journal: Journal) -> Record:
    """What settings.json holds; empty if there is none, ConfigError if it is broken."""
    data = journal.data(SETTINGS)
    try:
        return {} if data is None else decode_record(data)
    except DecodeError as error:
        raise ConfigError(
            f"settings.json of {journal.place.name} cannot be read: {error}",
            hint="repair it; nothing is run until then",
            path=journal.place.key(SETTINGS),
        ) from None


def changed(field: str, old: Any, new: Any, source: str) -> Record:
    """The line of a setting or file that is another one now."""
    return {"event": "changed", "field": field, "old": old, "new": new, "source": source}


def changes(old: Record, new: Record, source: str) -> list[Record]:
    return [
        changed(field, old.get(field), value, source)
        for field, value in new.items()
        if value != old.get(field)
    ]


# --- Markdown -------------------------------------------------------------------------------


def new_goal(settings: Settings) -> str:
    value: Record = {
        "title": "Improvement Goal",
        "intro": "",
        "objective": settings.objective,
        "target_metric": {
            "name": settings.primary_metric,
            "target_value": settings.target_value,
            "direction": settings.benchmark_direction,
        },
        "scope": {
            "in_scope": ", ".join(settings.scope) or "everything that is not sealed",
            "out_of_scope": ", ".join(settings.sealed_files),
        },
        **{"milestones": [], "experiment_ideas": "", "phases": [], "remarks": {}, "other": []},
    }
    return goals.render(Goal.model_validate(value))


def read_goal(text: str) -> Goal:
    """The goal; ConfigError naming the line of a phase whose target is no comparison."""
    reading = goals.parse(text)
    for finding in reading.findings:
        if finding.level == "error" or finding.code == "target":
            where = f" line {finding.line}" if finding.line else ""
            raise ConfigError(
                f"goal.md{where}: {finding.field}: {finding.reason}",
                hint="targets are written as `NAME >= NUMBER`, joined by commas",
            )
    if not isinstance(reading.record, Goal):
        raise ConfigError("goal.md is no goal", hint="`holdfast schema goal` shows one")
    return reading.record


def families_in(text: str) -> list[str]:
    """The families that harness.md adds."""
    reading = harnesses.parse(text)
    found = reading.record
    return [each.name for each in found.custom_families] if isinstance(found, Harness) else []


def with_status(text: str, phase: str, status: str) -> str:
    """goal.md with another status of one phase, and nothing else changed."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        cells = line.split("|")
        if len(cells) >= 6 and cells[1].strip() == phase:
            cells[4] = f" {status} "
            lines[number] = "|".join(cells)
            break
    return "\n".join(lines)


def ideas_in(text: str) -> list[str]:
    """The ideas of idea.md: its sections, or all of it where it has none."""
    plain = without_comments(text)
    _, *parts = ["", "", *_HEADING.split(plain)]
    ideas: list[str] = []
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        own = "" if title.strip().lower() in _PAGE_TITLES else title.strip()
        if own or body.strip():
            ideas.append(": ".join(filter(None, (own, body.strip()))))
    return ideas


def in_scope(path: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(
        path == each.rstrip("/")
        or path.startswith(f"{each.rstrip('/').removesuffix('/**')}/")
        or fnmatchcase(path, each)
        for each in patterns
    )
