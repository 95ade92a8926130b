"""goal.md: what an improvement loop is for, by which number, and in which phases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from holdfast.contracts import markdown
from holdfast.contracts.formats import meant_choice
from holdfast.contracts.improve_state import Direction
from holdfast.contracts.kind import Finding, Kind, Reading
from holdfast.contracts.markdown import Cell, OtherSection, Prose
from holdfast.contracts.record import Also, NonEmpty, Number, Record, broken_rule

SectionName = Literal[
    "Objective", "Target Metric", "Scope", "Milestones", "Experiment Ideas", "Phases"
]
_SECTIONS: tuple[SectionName, ...] = get_args(SectionName)
_WANTED = _SECTIONS[:3]
_METRIC = {"Metric name": "name", "Target value": "target_value", "Direction": "direction"}
_SCOPE = {"In scope": "in_scope", "Out of scope": "out_of_scope"}
_MILESTONES = ("Milestone", "Target", "Strategy Focus")
_PHASES = ("Phase", "Focus", "Sub-Score Targets", "Status")

_LABEL = re.compile(r"(?:\*\*([^*\n]+?):?\*\*|([A-Za-z ]+)(?=:))\s*:?\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_BETWEEN_TARGETS = re.compile(r"\s*(?:[,;&]|<br\s*/?>|\band\b)\s*")
_TARGET = re.compile(rf"`?([^\s`<>=≥≤]+)`?\s*(>=|<=|==|[<>=≥≤])\s*({_NUMBER.pattern})", re.ASCII)
_COMPARISONS = {"≥": ">=", "≤": "<=", "=": "=="}
_NOTHING = {"", "-", "–", "—", "none", "null", "n/a", "tbd"}


class TargetMetric(Record):
    name: Cell | None = None
    target_value: Number | None = None
    direction: Direction | None = None


class Scope(Record):
    in_scope: Prose = ""
    out_of_scope: Prose = ""


class Milestone(Record):
    milestone: Annotated[Cell, Field(min_length=1)]
    target: Cell
    strategy_focus: Cell


class SubScoreTarget(Record):
    """`dim_a >= 90.0`."""

    dimension: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./:-]*$")]
    comparison: Literal[">=", "<=", ">", "<", "=="]
    bound: Number


class Phase(Record):
    phase: Annotated[Cell, Field(min_length=1)]
    focus: Cell
    targets: list[SubScoreTarget]
    unread: list[Annotated[Cell, Field(min_length=1)]]
    """Targets that are no comparison with a number."""
    status: Annotated[
        Literal["pending", "active", "completed"],
        Also(completed=("done",), active=("in_progress", "current")),
    ]


class Goal(Record):
    title: NonEmpty | None
    intro: Prose
    objective: Prose
    target_metric: TargetMetric
    scope: Scope
    milestones: list[Milestone]
    experiment_ideas: Prose
    phases: list[Phase]
    remarks: dict[SectionName, Prose]
    """What else stands in the sections that have a structure."""
    other: list[OtherSection]

    @model_validator(mode="after")
    def _one_phase_at_a_time(self) -> Self:
        active = [each.phase for each in self.phases if each.status == "active"]
        if len(active) > 1:
            raise broken_rule(f"more than one phase is active: {', '.join(active)}")
        return self


# --- reading --------------------------------------------------------------------------------


class _Reader:
    """What has been read of a goal so far, and where it stood."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {
            "objective": "",
            "target_metric": {"name": None, "target_value": None, "direction": None},
            "scope": {"in_scope": "", "out_of_scope": ""},
            "milestones": [],
            "experiment_ideas": "",
            "phases": [],
            "remarks": {},
            "other": [],
        }
        self.lines: dict[str, int] = {}
        self.odd: list[Finding] = []

    def section(self, name: str, section: markdown.Section) -> None:
        match name:
            case "Target Metric":
                self._metric(section)
            case "Scope":
                self._labels(section, "Scope", _SCOPE)
            case "Milestones":
                for number, cells in self._rows(section, "Milestones", _MILESTONES):
                    self.lines[f"milestones[{len(self.value['milestones'])}]"] = number
                    row = dict(zip(("milestone", "target", "strategy_focus"), cells, strict=True))
                    self.value["milestones"].append(row)
            case "Phases":
                self._phases(section)
            case _:
                self.value[_field(name)] = markdown.prose_of(section)

    def _metric(self, section: markdown.Section) -> None:
        self._labels(section, "Target Metric", _METRIC)
        metric = self.value["target_metric"]
        for name in metric:
            text = (metric[name] or "").strip(" \t`*")
            metric[name] = None if text.casefold() in _NOTHING else text
        if metric["target_value"] is not None and _NUMBER.fullmatch(metric["target_value"]):
            metric["target_value"] = float(metric["target_value"])

    def _phases(self, section: markdown.Section) -> None:
        for number, (name, focus, targets, status) in self._rows(section, "Phases", _PHASES):
            at = f"phases[{len(self.value['phases'])}]"
            self.lines[at] = number
            read, unread = _targets(targets)
            for text in unread:
                reason = f"{text!r} is not of the form dim_a >= 90.0; kept"
                self.odd.append(Finding("warning", "target", f"{at}.targets", reason, number))
            status = status.strip(" \t`*")
            if status.casefold() == "active":
                self.lines[""] = number  # of a goal as a whole, all that can be wrong
            phase = {"phase": name, "focus": focus, "targets": read, "unread": unread}
            self.value["phases"].append(phase | {"status": status})

    def _rows(
        self, section: markdown.Section, name: str, columns: tuple[str, ...]
    ) -> Iterator[tuple[int, list[str]]]:
        rows, rest, odd = markdown.table_rows(section, columns)
        self.odd += odd
        if rest:
            self.value["remarks"][name] = rest
        return iter(rows)

    def _labels(self, section: markdown.Section, name: str, labels: dict[str, str]) -> None:
        """Blocks such as `- **In scope**: src/`; after a label of its own line, what follows."""
        into: dict[str, Any] = self.value[_field(name)]
        rest: list[str] = []
        seen: set[str] = set()
        open_label = ""
        for block in markdown.blocks_of(section.body):
            found = _LABEL.fullmatch(block.text)
            label = meant_choice(found[1] or found[2], list(labels)) if found else None
            if found and label is not None and label not in seen:
                seen.add(label)
                open_label = "" if block.mark else label
                into[labels[label]] = markdown.dedented(found[3], len(block.mark))
                self.lines[f"{_field(name)}.{labels[label]}"] = block.number
            elif open_label and label is None:
                piece = f"- {markdown.dedented(block.text, 0)}" if block.mark else block.text
                before = into[labels[open_label]]
                between = "\n" if block.mark else "\n\n"
                into[labels[open_label]] = f"{before}{between}{piece}".strip()
            else:
                open_label = ""
                rest.append((block.mark + block.text).strip())
        if rest:
            self.value["remarks"][name] = markdown.joined(*rest)


def _field(name: str) -> str:
    return name.lower().replace(" ", "_")


def _targets(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    read: list[dict[str, Any]] = []
    unread: list[str] = []
    for part in _BETWEEN_TARGETS.split(text):
        found = _TARGET.fullmatch(part)
        if found:
            comparison = _COMPARISONS.get(found[2], found[2])
            target = {"dimension": found[1], "comparison": comparison, "bound": float(found[3])}
            read.append(target)
        elif part.casefold() not in _NOTHING:
            unread.append(part)
    return read, unread


def parse(text: str) -> Reading:
    """The goal, as far as the text tells it, and what is odd about it."""
    page = markdown.page_of(text)
    reader = _Reader()
    seen: set[str] = set()
    for section in page.sections:
        name = meant_choice(section.title, _SECTIONS)
        if name is not None and name not in seen:
            seen.add(name)
            reader.lines[_field(name)] = section.number
            reader.section(name, section)
            continue
        code = "unknown_section" if name is None else "duplicate"
        reason = "not a section of a goal; kept" if name is None else "a second section; kept"
        reader.odd.append(Finding("warning", code, section.title, reason, section.number))
        reader.lines[f"other[{len(reader.value['other'])}]"] = section.number
        reader.value["other"].append({"title": section.title, "text": markdown.prose_of(section)})
    for name in _WANTED:
        if name not in seen:
            reader.odd.append(Finding("warning", "missing", name, "no such section"))
    value = {"title": page.title, "intro": page.intro, **reader.value}
    return markdown.read_page(Goal, value, reader.lines, reader.odd)


# --- writing --------------------------------------------------------------------------------


def render(goal: Goal) -> str:
    """The goal with all its sections, in the order in which they are documented."""
    metric, scope = goal.target_metric, goal.scope
    wanted = "" if metric.target_value is None else repr(metric.target_value)
    texts = {
        "Objective": goal.objective,
        "Target Metric": _labelled(_METRIC, metric.name or "", wanted, metric.direction or ""),
        "Scope": _labelled(_SCOPE, scope.in_scope, scope.out_of_scope),
        "Milestones": markdown.table(
            _MILESTONES,
            [[each.milestone, each.target, each.strategy_focus] for each in goal.milestones],
        ),
        "Experiment Ideas": goal.experiment_ideas,
        "Phases": markdown.table(
            _PHASES, [[each.phase, each.focus, _shown(each), each.status] for each in goal.phases]
        ),
    }
    remarks: dict[str, str] = {**goal.remarks}
    sections = [(name, markdown.joined(texts[name], remarks.get(name, ""))) for name in texts]
    sections += [(each.title, each.text) for each in goal.other]
    parts = [f"# {goal.title}" if goal.title else "", goal.intro]
    parts += [f"## {name}\n{text}".rstrip("\n") for name, text in sections]
    return markdown.joined(*parts) + "\n"


def _labelled(labels: Iterable[str], *texts: str) -> str:
    lines: list[str] = []
    for label, text in zip(labels, texts, strict=True):
        apart = "\n" in text or markdown.is_marked(text)
        below = f"\n  {markdown.indented(text)}" if apart else f" {text}".rstrip()
        lines.append(f"- **{label}**:{below}")
    return "\n".join(lines)


def _shown(phase: Phase) -> str:
    targets = [f"{each.dimension} {each.comparison} {each.bound!r}" for each in phase.targets]
    return ", ".join([*targets, *phase.unread])


def _looks(text: str) -> bool:
    titles = [each.title for each in markdown.page_of(text).sections]
    return sum(meant_choice(title, _SECTIONS) is not None for title in titles) >= 2


GOAL = Kind.of(
    "goal",
    "What an improvement loop is for",
    Goal,
    r"goal\.md",
    _looks,
    shape="markdown",
    parse=parse,
)
