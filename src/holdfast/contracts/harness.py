"""harness.md: the rules that plans have to keep, and families of plans beyond the known ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from holdfast.contracts import markdown
from holdfast.contracts.formats import meant_choice
from holdfast.contracts.improve_state import FamilyName
from holdfast.contracts.kind import Finding, Kind, Reading
from holdfast.contracts.markdown import Cell, OtherSection, Prose
from holdfast.contracts.record import NonEmpty, Record

_RULES, _FAMILIES = "Custom Rules", "Custom Approach Families"
_BUILT_IN = ("H001", "H002", "H003")
_RULE = re.compile(r"(H[0-9]{3})\b\s*[—–:-]*\s*(.*)")
_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"
_FAMILY = re.compile(
    rf"`({_NAME})`\s*(?:[—–:-]+\s*)?(.*)|({_NAME})(?:\s*:\s*|\s+[—–-]+\s+)(.*)|({_NAME})", re.DOTALL
)


class Rule(Record):
    id: Annotated[str, Field(pattern=r"^H[0-9]{3}$")]
    title: Cell
    text: Prose


class CustomFamily(Record):
    name: FamilyName
    description: Prose


class Harness(Record):
    title: NonEmpty | None
    intro: Prose
    rules: list[Rule]
    custom_rules: Prose
    custom_families: list[CustomFamily]
    families_remark: Prose
    """What else stands in the section of the families."""
    other: list[OtherSection]


def parse(text: str) -> Reading:
    """The rules and families, and what is odd about them."""
    page = markdown.page_of(text)
    value: dict[str, Any] = {"title": page.title, "intro": page.intro, "rules": []}
    value |= {"custom_rules": "", "custom_families": [], "families_remark": "", "other": []}
    lines: dict[str, int] = {}
    odd: list[Finding] = []
    seen: set[str] = set()
    for section in page.sections:
        rule = _RULE.fullmatch(section.title)
        name = rule[1] if rule else meant_choice(section.title, (_RULES, _FAMILIES))
        if name in seen:
            reason = "a second section; kept"
            odd.append(Finding("warning", "duplicate", section.title, reason, section.number))
        if rule:
            lines[f"rules[{len(value['rules'])}]"] = section.number
            value["rules"].append(
                {"id": rule[1], "title": rule[2], "text": markdown.prose_of(section)}
            )
        elif name == _RULES and name not in seen:
            lines["custom_rules"] = section.number
            value["custom_rules"] = markdown.prose_of(section)
        elif name == _FAMILIES and name not in seen:
            odd += _read_families(section, value, lines)
        else:
            if name is None:
                reason = "not a section of a harness; kept"
                found = ("warning", "unknown_section", section.title, reason, section.number)
                odd.append(Finding(*found))
            lines[f"other[{len(value['other'])}]"] = section.number
            value["other"].append({"title": section.title, "text": markdown.prose_of(section)})
        seen.update([name] if name else [])
    for id in _BUILT_IN:
        if id not in seen:
            odd.append(Finding("warning", "missing", id, "no such rule"))
    return markdown.read_page(Harness, value, lines, odd)


def _read_families(
    section: markdown.Section, value: dict[str, Any], lines: dict[str, int]
) -> Iterator[Finding]:
    """One family for each bullet; paragraphs are remarks."""
    rest: list[str] = []
    seen: set[str] = set()
    for block in markdown.blocks_of(section.body):
        found = _FAMILY.fullmatch(block.text) if block.mark else None
        name = (found[1] or found[3] or found[5]) if found else None
        if found is None or name is None or name in seen:
            if block.mark:
                reason = f"{block.text!r} names no family, or one that is there already; kept"
                yield Finding("warning", "family", _FAMILIES, reason, block.number)
            rest.append((block.mark + block.text).strip())
            continue
        seen.add(name)
        lines[f"custom_families[{len(value['custom_families'])}]"] = block.number
        said = markdown.dedented(found[2] or found[4] or "", len(block.mark))
        value["custom_families"].append({"name": name, "description": said})
    value["families_remark"] = markdown.joined(*rest)


def _looks(text: str) -> bool:
    titles = [section.title for section in markdown.page_of(text).sections]
    return any(_RULE.fullmatch(each) or meant_choice(each, (_FAMILIES,)) for each in titles)


HARNESS = Kind.of(
    "harness",
    "The rules that plans have to keep",
    Harness,
    r"harness\.md",
    _looks,
    shape="markdown",
    parse=parse,
)
