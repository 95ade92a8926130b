"""The reply of an agent: extracted, and judged by the rules of the protocol, layer by layer.

First the shape of the object, then the action, the evidence and the summary.  Every layer is
judged, whatever the ones before it found, so that a person sees all that is wrong at once.  A
violation makes the action STUCK; a warning changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import dropwhile
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
from holdfast.mask.shown import beginning
from holdfast.workspace.evidence import Examined, examine

Preset = Literal["seed", "logist"]
MOST_SENTENCES = 3
_MOST_SHOWN = 20
"""Of one layer: ten thousand invented files are not ten thousand broken rules."""
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


class CheckedReply(NamedTuple):
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
) -> CheckedReply:
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
        return _checked({}, [Violation("schema", f"{told} is not one JSON object: {error}")], [])
    warnings: list[Violation] = []
    if found.ignored_fences:
        ignored = f"the first of {found.ignored_fences + 1} fences was taken for the answer"
        warnings.append(Violation("schema", ignored))
    value, inner = found.value, found.value.get("response")
    if isinstance(inner, dict) and not any(name in value for name in TOLD_TO_AGENTS):
        value = cast("dict[str, Any]", inner)
        warnings.append(Violation("schema", RESPONSE.forms[0].warning))
    asked = (prompt,) if isinstance(prompt, str) else prompt
    evidence = examine(workspace, _files(value)) if workspace is not None else None
    if evidence is None:
        evidence = Examined([], [each for each in dict.fromkeys(_files(value)) if escapes(each)])
    violations = [
        *_shape(value, rules),
        *_action(value, rules),
        *_each("evidence_escape", evidence.escaping, "evidence outside of the workspace"),
        *_summary(value, rules, asked),
    ]
    warnings += _each("evidence_missing", evidence.missing, "evidence that is not in the workspace")
    warnings += _length(value)
    return _checked(value, violations, warnings, tuple(evidence.missing))


def _checked(
    value: dict[str, Any],
    violations: list[Violation],
    warnings: list[Violation],
    missing: tuple[str, ...] = (),
) -> CheckedReply:
    if violations:
        reasons = "; ".join(each.reason for each in violations)
        summary = beginning(f"The answer breaks the rules: {reasons}", SUMMARY_LIMIT - 1)
        return CheckedReply("STUCK", _files(value), summary, violations, warnings, missing)
    summary = value["summary_for_supervisor"]
    return CheckedReply(value["action"], _files(value), summary, violations, warnings, missing)


def _capped(violations: Iterable[Violation]) -> list[Violation]:
    found = list(violations)
    if (more := len(found) - _MOST_SHOWN) > 0:
        return [*found[:_MOST_SHOWN], Violation(found[0].kind, f"and {more} more of this kind")]
    return found


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
    return _capped(found)


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


def _each(kind: str, paths: list[str], reason: str) -> list[Violation]:
    return _capped(Violation(kind, f"{_shown(path)}: {reason}") for path in paths)


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
    if not any(each.isprintable() and not each.isspace() for each in summary):
        return [Violation("summary", f"{name}: empty; {_REVIEW}")]
    found: list[str] = []
    length = len(summary)
    if length > rules.longest_summary:
        length = len(TAG.sub("*", summary, count=_MOST_TAGS))
    if length > rules.longest_summary:
        found.append(f"{length} characters, {rules.longest_summary} are allowed")
    if not clean and (control := _CONTROL.search(summary)):
        found.append(f"control character {control[0]!r}")
    if any(is_echo(summary, text) for each in asked for text in _texts_in(each)):
        found.append(f"says again what was asked for; {_REVIEW}")
    return [Violation("summary", f"{name}: {each}") for each in found]


def _texts_in(asked: str) -> list[str]:
    """The texts of a request, which programs get as an object."""
    if asked[:1] == "{":
        with suppress(DecodeError):
            return [each for each in said(asked).value.values() if isinstance(each, str)]
    return [asked]


def _length(value: dict[str, Any]) -> list[Violation]:
    summary = value.get("summary_for_supervisor")
    if not isinstance(summary, str) or sum(map(summary.count, _ENDS)) < MOST_SENTENCES:
        return []
    parts = _SENTENCE_END.split(summary[:LONG_SUMMARY_LIMIT])
    if (sentences := sum(bool(each.strip()) for each in parts)) <= MOST_SENTENCES:
        return []
    reason = f"summary_for_supervisor: {sentences} sentences, {MOST_SENTENCES} are enough"
    return [Violation("summary", reason)]


# --- echoes ---------------------------------------------------------------------------------

# Earlier reports and files that were shown are part of a question too, and to repeat those may
# well say something.  So a long text counts as an echo of the task, of the phase, of guidance, of
# the rules, or of the question as a whole.
LONG_ECHO = 40
"""So many characters are not the same by chance."""
_WORD = re.compile(r"[^\W_]+")
_REPORTED = re.compile(r"<others ([0-9a-f]{16})>\n(.*?)\n</others \1>", re.DOTALL)
_FILLERS = """
    a an the this my your our its it is was were are be i we you to of do by for here
    task tasks job prompt question request phase description objective details acceptance
    instructions instruction assignment goal summary asked told given again user system
"""
_SAYS_NOTHING = frozenset(_FILLERS.split())
"""Words that may stand around an echo and make nothing else of it."""


def is_echo(summary: str, asked: str) -> bool:
    """Whether it is the question or a paragraph of it, or a long piece of it and nothing else."""
    folded = _folded(summary)
    for each in (asked, *asked.split("\n\n")):
        if each.lstrip()[:1].casefold()[:1] != folded[:1]:
            continue  # most begin otherwise: that is seen without folding all of it
        part = _folded(each)
        if folded == part or (len(folded) >= LONG_ECHO and part.startswith(folded)):
            return True
    words = [*dropwhile(_SAYS_NOTHING.__contains__, _WORD.findall(summary.casefold()))]
    words = [*dropwhile(_SAYS_NOTHING.__contains__, reversed(words))][::-1]
    whole = asked.casefold()
    # A summary nearly always has a word of its own, and that is seen without taking all apart.
    if len(" ".join(words)) < LONG_ECHO or not all(each in whole for each in words):
        return False
    piece = _spaced(" ".join(words))
    if piece not in _spaced(asked):
        return False
    reported = any(piece in _spaced(text) for _, text in _REPORTED.findall(asked))
    return not reported or piece in _spaced(_REPORTED.sub("", asked))


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _spaced(text: str) -> str:
    """Its words between spaces, so that a word is never found in the middle of another."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "
