"""What an agent answered: extracted, and judged by the rules of the protocol, layer by layer.

First the shape of the object, then the action, then the evidence, then the summary.  Every layer
is looked at, whatever the ones before it found, so that a person who has to decide sees all that
is wrong at once.  A violation makes the action STUCK; a warning changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, cast

from holdfast.codec import DecodeError
from holdfast.contracts.job_exchange import (
    LONG_SUMMARY_LIMIT,
    RESPONSE,
    SUMMARY_LIMIT,
    TOLD_TO_AGENTS,
    escapes,
    said,
)
from holdfast.contracts.job_states import ACTIONS, Action
from holdfast.contracts.kind import Finding
from holdfast.jobs.echo import is_echo
from holdfast.mask.shown import beginning
from holdfast.workspace.evidence import Examined, examine

Preset = Literal["seed", "logist"]
MOST_SENTENCES = 3
_MOST_TOLD = 20
"""Of one layer: who invents ten thousand files has not broken ten thousand rules."""
_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s+[^\sa-z]|\s*$)|[。！？]+")
_ENDS = ".!?…。！？"
"""One of these ends a sentence, whatever else does."""
_CUT_OFF = re.compile(r"cut off after [\w ]{1,40} tokens")
_NOT_ALL = re.compile(r"… \[\d{1,12} characters more\]\Z")
"""How a reply ends of which the history has the first MiB only; what is missing closed it."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TAG, _MOST_TAGS = re.compile(r"\[SECRET(?::[a-z-]{1,40}:[0-9a-f]{8})?\]"), 20
"""What the history says instead of a secret.  It may be longer than that was, and what was judged
when it came has to come to the same when it is read again."""
_LONG_PATH = 200
_FORMS = {form.version: form for form in RESPONSE.forms}
_REVIEW = "what was done has to be reviewed in detail"


class Rules(NamedTuple):
    preset: Preset = "seed"
    tolerant: bool = False
    """Whether the object may stand in a fence or among other text."""
    accepted: tuple[Action, ...] = ACTIONS

    @property
    def longest_summary(self) -> int:
        return SUMMARY_LIMIT if self.preset == "seed" else LONG_SUMMARY_LIMIT


class Violation(NamedTuple):
    kind: str
    """As in the audit: schema, action, evidence_escape, summary; of a warning also
    evidence_missing."""
    reason: str
    """The field, and what is wrong with it, in words."""


class Judged(NamedTuple):
    action: Action
    evidence_files: list[str]
    """As the agent named them."""
    summary: str
    """The agent's own; if it broke the rules, what was wrong."""
    violations: list[Violation]
    warnings: list[Violation]
    missing: tuple[str, ...] = ()
    """Evidence that is not in the workspace."""


def judge(
    raw: str,
    rules: Rules,
    *,
    workspace: str | None = None,
    prompt: str | Sequence[str] = "",
    trouble: str | None = None,
) -> Judged:
    """What to make of an answer.

    Without a `workspace` evidence is judged by its names alone.  `prompt` is what the agent was
    asked to do, in one text or several: no paragraph of it is a summary.  `trouble` is what the
    model's side said of the answer; where that is no object, it tells whether it was cut off.
    """
    try:
        found = said(raw, tolerant=rules.tolerant)
    except DecodeError as error:
        cut = _CUT_OFF.search(trouble or "")
        told = f"the answer was {cut[0]}, and" if cut else "the answer"
        if more := _NOT_ALL.search(raw, max(0, len(raw) - 40)):
            told = f"the answer is too long ({more.start():,} characters are kept), and so"
        return _judged({}, [Violation("schema", f"{told} is not one JSON object: {error}")], [])
    warnings: list[Violation] = []
    if found.ignored_fences:
        ignored = f"the first of {found.ignored_fences + 1} fences was taken for the answer"
        warnings.append(Violation("schema", ignored))
    value, wrapped = _unwrapped(found.value)
    if wrapped:
        warnings.append(Violation("schema", RESPONSE.forms[0].warning))
    asked = (prompt,) if isinstance(prompt, str) else prompt
    evidence = _evidence(value, workspace)
    violations = [
        *_shape(value, rules),
        *_action(value, rules),
        *_each("evidence_escape", evidence.escaping, "evidence outside of the workspace"),
        *_summary(value, rules, asked),
    ]
    warnings += _each("evidence_missing", evidence.missing, "evidence that is not in the workspace")
    warnings += _length(value)
    return _judged(value, violations, warnings, tuple(evidence.missing))


def _unwrapped(value: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    inner = value.get("response")
    if isinstance(inner, dict) and not any(name in value for name in TOLD_TO_AGENTS):
        return cast("dict[str, Any]", inner), True
    return value, False


def _judged(
    value: dict[str, Any],
    violations: list[Violation],
    warnings: list[Violation],
    missing: tuple[str, ...] = (),
) -> Judged:
    if violations:
        reasons = "; ".join(each.reason for each in violations)
        told = f"The answer breaks the rules: {reasons}"
        told = beginning(told, SUMMARY_LIMIT - 1)
        return Judged("STUCK", _files(value), told, violations, warnings, missing)
    summary = value["summary_for_supervisor"]
    return Judged(value["action"], _files(value), summary, violations, warnings, missing)


def _capped(violations: Iterable[Violation]) -> list[Violation]:
    found = list(violations)
    kept = found[:_MOST_TOLD]
    if more := len(found) - len(kept):
        kept.append(Violation(kept[-1].kind, f"and {more} more of this kind"))
    return kept


# --- the layers -----------------------------------------------------------------------------


def _shape(value: dict[str, Any], rules: Rules) -> list[Violation]:
    form = _FORMS["1.0" if rules.preset == "seed" else "0.9"]
    found = [
        Violation("schema", f"{each.field}: {each.reason}")
        for each in RESPONSE.refusals(value, form)
        if _is_about_shape(each, value)
    ]
    if rules.preset == "logist":
        unknown = [name for name in value if name not in form.model.model_fields]
        found += [Violation("schema", f"{name[:80]!r} is not a field of it") for name in unknown]
    return _capped(found) if found else found


def _is_about_shape(finding: Finding, value: dict[str, Any]) -> bool:
    """Whether no later layer looks at it."""
    if finding.code == "escaping_path":
        return False
    if finding.field == "summary_for_supervisor":
        return not isinstance(value.get(finding.field, ""), str)
    return finding.field != "action" or not isinstance(value.get("action"), str)


def _action(value: dict[str, Any], rules: Rules) -> list[Violation]:
    action = value.get("action")
    if not isinstance(action, str) or action in rules.accepted:
        return []
    accepted = ", ".join(rules.accepted)
    if action in ACTIONS:
        return [Violation("action", f"action: {action} where only {accepted} is accepted")]
    return [Violation("action", f"action: {action[:80]!r} is not one of {accepted}")]


def _files(value: dict[str, Any]) -> list[str]:
    files = value.get("evidence_files")
    named = cast("list[Any]", files) if isinstance(files, list) else []
    return [each for each in named if isinstance(each, str)]


def _evidence(value: dict[str, Any], workspace: str | None) -> Examined:
    files = _files(value)
    if workspace is not None:
        return examine(workspace, files)
    return Examined([], [each for each in dict.fromkeys(files) if escapes(each)])


def _each(kind: str, paths: list[str], reason: str) -> list[Violation]:
    return _capped(Violation(kind, f"{_shown(path)}: {reason}") for path in paths) if paths else []


def _shown(path: str) -> str:
    return path if path.isprintable() and 0 < len(path) <= _LONG_PATH else repr(path[:_LONG_PATH])


def _summary(value: dict[str, Any], rules: Rules, asked: Sequence[str]) -> list[Violation]:
    name = "summary_for_supervisor"
    if name not in value:
        return [Violation("summary", f"{name}: missing; {_REVIEW}")]
    summary = value[name]
    if not isinstance(summary, str):
        return []
    clean = summary.isprintable()
    if not (summary.strip() if clean else _has_letters(summary)):
        return [Violation("summary", f"{name}: empty; {_REVIEW}")]
    found: list[str] = []
    length = len(summary)
    if length > rules.longest_summary:
        length = len(TAG.sub("*", summary, count=_MOST_TAGS))
    if length > rules.longest_summary:
        found.append(f"{length} characters, {rules.longest_summary} are allowed")
    if not clean and (control := _CONTROL.search(summary)):
        found.append(f"control character {control[0]!r}")
    if any(is_echo(summary, text) for each in asked for text in _told(each)):
        found.append(f"says again what was asked for; {_REVIEW}")
    return [Violation("summary", f"{name}: {each}") for each in found]


def _has_letters(text: str) -> bool:
    return any(each.isprintable() and not each.isspace() for each in text)


def _told(asked: str) -> list[str]:
    """The texts of a request, which programs get as an object."""
    if asked[:1] == "{":
        with suppress(DecodeError):
            return [each for each in said(asked).value.values() if isinstance(each, str)]
    return [asked]


def _length(value: dict[str, Any]) -> list[Violation]:
    summary = value.get("summary_for_supervisor")
    if not isinstance(summary, str) or sum(map(summary.count, _ENDS)) < MOST_SENTENCES:
        return []
    sentences = sum(
        bool(each.strip()) for each in _SENTENCE_END.split(summary[:LONG_SUMMARY_LIMIT])
    )
    if sentences <= MOST_SENTENCES:
        return []
    reason = f"summary_for_supervisor: {sentences} sentences, {MOST_SENTENCES} are enough"
    return [Violation("summary", reason)]
