"""Kinds of files, and the reading of values against them.

Strict reading is the model, nothing else.  Liberal reading is the model too; what it refuses is
mended where the meaning is plain (a drifted enum, another form of time, a number as text), each
time with a warning, and tried again.  What stays refused is an error; the value can be had all
the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import Field, ValidationError, model_validator
from pydantic_core.core_schema import ErrorType

from holdfast.contracts import formats
from holdfast.contracts.record import (
    CHOICE_ERROR,
    RULE_ERROR,
    TEXT_ERROR,
    TIME_ERROR,
    ChainedLine,
    Count,
    Digest,
    Fence,
    NonEmpty,
    Number,
    OffsetTime,
    Record,
    UtcTime,
    broken_rule,
)
from holdfast.text import clip

Location = tuple[int | str, ...]


class Place(NamedTuple):
    path: Location
    """Through the value."""
    holder: type[Record] | None
    """The model of the record that has the last part of the path as a field, if it is one."""


def place(model: type[Record], location: Location) -> Place:
    """The place that a location of pydantic's means, in a value read against `model`."""
    path: list[int | str] = []
    at: Any = model
    holder: type[Record] | None = None
    for part in location:
        members = _members(at)
        if len(members) > 1:
            at = _called(members, part)
            continue
        at = members[0] if members else None
        holder = at if isinstance(at, type) and issubclass(at, Record) else None
        wrapped = holder is not None and holder.array_in != "" and holder.array_in == part
        if part != "[key]" and not wrapped:
            path.append(part)
        at = _inside(at, part)
    return Place(tuple(path), holder)


def _members(annotation: Any) -> list[Any]:
    """What an annotation allows, without None and what is said about it."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin is Union or origin is UnionType:
        return [each for part in get_args(annotation) for each in _members(part)]
    return [] if annotation is NoneType else [annotation]


def _called(members: Sequence[Any], name: int | str) -> Any:
    for member in members:
        if isinstance(member, type) and issubclass(member, Record):
            fields = [each.annotation for each in member.model_fields.values()]
            tags = [tag for each in fields if get_origin(each) is Literal for tag in get_args(each)]
            if member.__name__ == name or name in tags:
                return member
    return None


def _inside(annotation: Any, part: int | str) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        for name, field in annotation.model_fields.items():
            if (field.alias or name) == part:
                return field.annotation
        return _other_fields(annotation)
    arguments = get_args(annotation)
    return arguments[-1] if arguments and get_origin(annotation) in (list, dict) else None


@lru_cache(maxsize=256)
def _other_fields(model: type[Record]) -> Any:
    arguments = get_args(get_type_hints(model).get("__pydantic_extra__"))
    return arguments[-1] if arguments else None


Level = Literal["error", "warning"]
Shape = Literal["document", "lines", "array", "markdown"]

_ALLOWED = re.compile(r"'((?:[^'\\]|\\.)*)'")
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")
_LONGEST_SHOWN = 80
_MOST_TRIES = 3  # a tag that was mended shows what is odd behind it
_CODES = {TIME_ERROR: "time", TEXT_ERROR: "type"}
_PYDANTICS_OWN = frozenset(get_args(ErrorType))


class Finding(NamedTuple):
    level: Level
    code: str
    """A word for scripts: missing, choice, time, type, rule, unknown_field, form, newer, torn, …"""
    field: str
    """Such as `tasks[2].status`; empty for the record as a whole."""
    reason: str
    line: int = 0
    """Counted from 1; 0 for the file as a whole."""


class Reading(NamedTuple):
    value: Any
    """What was read, with what could be mended."""
    record: Record | None
    """None if something stays wrong."""
    findings: list[Finding]


@dataclass(frozen=True)
class Form:
    """One version or shape of a kind."""

    version: str
    model: type[Record]
    matches: Callable[[Any], bool] | None = None
    """Whether a value has this form; None: by `schema_version` alone."""
    upgrade: Callable[[Any], Any] | None = None
    """To the next form in the list.  The last one has none."""
    warning: str = ""
    """The warning when a value has this form and the caller named none; strictly read, such a
    value is refused."""
    plain: Callable[[Any], bool] | None = None
    """Whether a value surely has this form and nothing to tell, for files of very many records;
    False only says that it has to be read to know."""


class Located(NamedTuple):
    """A value of a file, where it begins, and what the reading made of it."""

    line: int
    reading: Reading


class Origin(NamedTuple):
    """Where a file lies, as far as the contracts care."""

    path: str
    """With `/` between components."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def parent(self, up: int = 1) -> str:
        """The name of the directory that holds it, or of one further up; empty if unknown."""
        parts = self.path.split("/")
        return parts[-1 - up] if len(parts) > up else ""


CrossCheck = Callable[[Sequence[Located], Origin], Iterator[Finding]]
Check = Callable[[dict[str, Any], Origin], Iterator[Finding]]


def of_each(check: Check) -> CrossCheck:
    """A cross-check of one object after the other; what it finds is on the line of the object."""

    def check_all(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
        for line, reading in found:
            for value in objects_in([reading.value]):
                for finding in check(value, origin):
                    yield finding._replace(line=line)

    return check_all


class Watch(Protocol):
    """A cross-check that sees the records one after the other, and keeps few of them."""

    def see(self, line: int, value: Any, written: Any) -> list[Finding]:
        """The next record: in the form we write, and as it stands in the file."""
        ...

    def end(self) -> Iterator[Finding]: ...


def has_fields(value: Any, *names: str) -> bool:
    """For `looks`: whether a value is an object with these fields."""
    return isinstance(value, dict) and all(name in value for name in names)


def object_of(value: Any) -> dict[str, Any]:
    """For cross-checks: a value, if it is an object; else one without fields."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def objects_in(values: Any) -> Iterator[dict[str, Any]]:
    """For cross-checks, which see what could not be read too: the objects among some values."""
    for value in cast("Sequence[Any]", values) if isinstance(values, list | tuple) else ():
        if isinstance(value, dict):
            yield cast("dict[str, Any]", value)


@dataclass(frozen=True)
class Kind:
    """What a file can be."""

    name: str
    what: str
    """One line, without a full stop."""
    shape: Shape
    forms: tuple[Form, ...]
    """Oldest first.  The last one is written."""
    paths: tuple[str, ...] = ()
    """Regular expressions for the end of a path, tried with `search`."""
    looks: Callable[[Any], bool] = field(default=lambda value: False)
    """Whether a parsed value (of an array, its first item) is of this kind, whatever its name."""
    cross_check: CrossCheck | None = None
    """What one record alone cannot show."""
    watch: Callable[[Origin], Watch] | None = None
    """The same for files that are too long to hold."""
    parse: Callable[[str], Reading] | None = None
    """For Markdown: the text as a record."""

    @classmethod
    def of(
        cls,
        name: str,
        what: str,
        model: type[Record],
        path: str,
        looks: tuple[str, ...] | Callable[[Any], bool] = (),
        check: Check | None = None,
        shape: Shape = "document",
        parse: Callable[[str], Reading] | None = None,
    ) -> Kind:
        """A kind with one form so far, known by the end of its path and by the fields it has."""
        forms = (*([LOG_FORM] if shape == "lines" else []), Form("1.0", model))

        def alike(value: Any) -> bool:
            if not callable(looks):
                return bool(looks) and has_fields(value, *looks)
            return (shape != "markdown" or isinstance(value, str)) and looks(value)

        cross_check = of_each(check) if check else None
        paths = (rf"(?:^|/){path}$",)
        return cls(name, what, shape, forms, paths, alike, cross_check, None, parse)

    @property
    def current(self) -> Form:
        return self.forms[-1]

    def form(self, version: str) -> Form | None:
        return next((form for form in self.forms if form.version == version), None)

    def form_of(self, value: Any) -> Form:
        """The form that a value has; the one we write if nothing tells."""
        told = _stated_version(value)
        for form in reversed(self.forms):
            if form.matches is not None and form.matches(value):
                return form
            if told is not None and form.version == told:
                return form
        return self.current

    def read(self, value: Any, *, strict: bool = False, form: Form | None = None) -> Reading:
        """A value against its form, or against the one that is asked for."""
        if (newer := self._newer(value)) is not None:
            return Reading(value, None, [newer])
        chosen = form or self.form_of(value)
        found = read(chosen.model, value, strict=strict)
        if chosen.warning and form is None:
            level: Level = "error" if strict else "warning"
            found.findings.insert(0, Finding(level, "form", "", chosen.warning))
        return found if form or not (strict and chosen.warning) else found._replace(record=None)

    def refusals(self, value: Any, form: Form) -> list[Finding]:
        """What keeps a value from having a form; unknown fields do not."""
        if (newer := self._newer(value)) is not None:
            return [newer]
        try:
            return [*_warnings_of(form.model.model_validate(value), "error")]
        except ValidationError as error:
            return _refused(form.model, error, strict=True)

    def upgraded(self, value: Any) -> Any:
        """A value in the form that is written."""
        at = self.forms.index(self.form_of(value))
        for form in self.forms[at:-1]:
            if form.upgrade is not None:
                value = form.upgrade(value)
        return value

    def _newer(self, value: Any) -> Finding | None:
        told = _stated_version(value)
        if told is None or (parts := _VERSION.fullmatch(told)) is None:
            return None
        ours = max(_number(form.version) for form in self.forms)
        if (int(parts[1]), int(parts[2])) <= ours:
            return None
        reason = (
            f"version {told} is newer than this Holdfast reads ({ours[0]}.{ours[1]}); update it"
        )
        return Finding("error", "newer", "schema_version", reason)


def _stated_version(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    told = cast("dict[str, Any]", value).get("schema_version")
    return told if isinstance(told, str) else None


def _number(version: str) -> tuple[int, int]:
    found = _VERSION.fullmatch(version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


# --- lines that a log or a lease writes about itself ----------------------------------------


class LogLine(ChainedLine):
    """A lease that was taken, renewed or released; a cut or failed segment; a redacted line."""

    ts: OffsetTime | None = None  # by the zone of the home
    lease: NonEmpty | None = None
    fence: Fence | None = None
    purpose: str | None = None
    since: UtcTime | None = None
    owner: list[str | int] | None = None
    host: str | None = None
    boot: str | None = None
    deadline: Number | None = None
    until: UtcTime | None = None
    released: bool | None = None
    log: Literal["segment_failed", "cut_tail"] | None = Field(default=None, alias="_log")
    segment: str | None = None
    error: str | None = None
    lost: Count | None = None
    hash_of_lost: Digest | None = None
    redacted: Digest | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        said = [each for each in (self.lease, self.log, self.redacted) if each is not None]
        if len(said) != 1:
            raise broken_rule("a line of the log itself has one of lease, _log and redacted")
        if self.lease is not None and self.fence is None:
            raise broken_rule("a lease has a fence")
        return self


def is_log_line(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    line = cast("dict[str, Any]", value)
    return "event" not in line and any(name in line for name in ("lease", "_log", "redacted"))


LOG_FORM = Form("log", LogLine, matches=is_log_line)


# --- reading --------------------------------------------------------------------------------


def read(model: type[Record], value: Any, *, strict: bool = False) -> Reading:
    """A value against a model."""
    level: Level = "error" if strict else "warning"
    findings: list[Finding] = []
    tries = 1 if strict else _MOST_TRIES
    while True:
        try:
            record = model.model_validate(value)
            break
        except ValidationError as error:
            tries -= 1
            mended, found = _mend(model, value, error) if tries else (value, [])
            if not found:
                return Reading(value, None, findings + _refused(model, error, strict=strict))
            value, findings = mended, findings + found
    findings.extend(_warnings_of(record, level))
    for path in record.unknown_fields():
        findings.append(Finding(level, "unknown_field", path, "not a field of this format; kept"))
    return Reading(value, record, findings)


def _warnings_of(record: Record, level: Level) -> Iterator[Finding]:
    for path in record.missing_fields():
        yield Finding(level, "missing", path, "missing")
    for doubt in record.doubts():
        yield Finding(level, *doubt)


def _refused(model: type[Record], error: ValidationError, *, strict: bool) -> list[Finding]:
    errors = cast("list[dict[str, Any]]", error.errors(include_url=False))
    return [_refusal(model, each, strict=strict) for each in errors]


def _mend(model: type[Record], value: Any, refused: ValidationError) -> tuple[Any, list[Finding]]:
    """A copy of the value in which everything is mended whose meaning is plain."""
    mended, warnings = _copy(value), list[Finding]()
    done: set[Location] = set()  # every member of a union has its own error for one field
    for each in cast("list[dict[str, Any]]", refused.errors(include_url=False)):
        where = place(model, each["loc"])
        if where.path in done:
            continue
        match each["type"]:
            case "missing":
                finding = _renamed(mended, where)
            case "union_tag_invalid":
                finding = _retagged(mended, where.path, each)
            case _:
                finding = _mended(mended, where.path, each)
        done.update([where.path] if finding else [])
        if finding is not None:
            warnings.append(finding)
    return mended, warnings


def _copy(value: Any) -> Any:
    """New containers, so that the caller's value stays what it was."""
    if isinstance(value, dict):
        return {name: _copy(inner) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_copy(inner) for inner in cast("list[Any]", value)]
    return value


def _container_of(value: Any, path: Location) -> Any:
    """What holds the last part of a path; nothing, if the path does not lead through the value.

    No file of another system may stop the reading, even if the path is wrong.
    """
    try:
        for part in path[:-1]:
            value = value[part]
    except (KeyError, IndexError, TypeError):
        return {}
    return cast("Any", value) if isinstance(value, dict | list) else {}


def _mended(value: Any, path: Location, error: dict[str, Any]) -> Finding | None:
    """Mend one refused field in place; None if its meaning is not plain."""
    if not path:
        return None
    container, given = _container_of(value, path), error["input"]
    code, meant, odd = _meant(error, given)
    if meant is None and not (code and formats.means_nothing(given)):
        return None
    container[path[-1]] = meant
    return Finding("warning", code, _spelled(path), f"{_shown(given)}: {odd}, read as {meant!r}")


def _meant(error: dict[str, Any], given: Any) -> tuple[str, Any, str]:
    """A code, what was meant, and what is odd; the code is empty if it cannot be mended."""
    match error["type"]:
        case "literal_error" | "choice":
            also: dict[str | bool, str] = error["ctx"].get("also", {})
            meant = formats.meant_choice(given, _ALLOWED.findall(error["ctx"]["expected"]))
            words = [each for each in also if isinstance(each, str)]
            other = bool(given) if given in (0, 1) else formats.meant_choice(given, words)
            meant = meant or (also.get(other) if other is not None else None)
            return "choice", meant, "another spelling"
        case "time_form":
            found = formats.meant_time(given, error["ctx"]["wanted"])
            return ("time", *found) if found else ("", None, "")
        case "text_form":
            meant = formats.meant_text(given, error["ctx"]["pattern"])
            return "spelling" if meant else "", meant, "another spelling"
        case "int_type" | "int_from_float":
            return "type", formats.meant_number(given, whole=True), "not a number"
        case "float_type":
            return "type", formats.meant_number(given, whole=False), "not a number"
        case _:
            return "", None, ""


def _renamed(value: Any, where: Place) -> Finding | None:
    """Give a missing field what stands under another name of it."""
    if where.holder is None:
        return None
    holder, name = _container_of(value, where.path), str(where.path[-1])
    for other in where.holder.other_names.get(name, ()):
        if other in holder:
            holder[name] = holder.pop(other)
            there = _spelled((*where.path[:-1], other))
            return Finding("warning", "renamed", there, f"read as {name!r}")
    return None


def _retagged(value: Any, path: Location, error: dict[str, Any]) -> Finding | None:
    """Mend the field that tells which of several models a record is of."""
    field = error["ctx"]["discriminator"].strip("'")
    given, allowed = error["input"][field], _ALLOWED.findall(error["ctx"]["expected_tags"])
    meant = formats.meant_choice(given, allowed)
    if meant is None:
        return None
    _container_of(value, (*path, field))[field] = meant
    reason = f"{_shown(given)}: another spelling, read as {meant!r}"
    return Finding("warning", "choice", _spelled((*path, field)), reason)


def _refusal(model: type[Record], error: dict[str, Any], *, strict: bool) -> Finding:
    path, holder = place(model, error["loc"])
    where, kind = _spelled(path), str(error["type"])
    if kind == "missing":
        often = holder is not None and path[-1] in holder.often_missing
        level: Level = "warning" if often and not strict else "error"
        return Finding(level, "missing", where, "missing")
    if kind == "union_tag_invalid":
        field, tags = error["ctx"]["discriminator"].strip("'"), error["ctx"]["expected_tags"]
        reason = f"{error['ctx']['tag']!r} is not one of {', '.join(_ALLOWED.findall(tags))}"
        return Finding("error", "choice", _spelled((*path, field)), reason)
    if kind == "union_tag_not_found":
        field = error["ctx"]["discriminator"].strip("'")
        return Finding("error", "missing", _spelled((*path, field)), "missing")
    given = _shown(error["input"])
    if kind in ("literal_error", CHOICE_ERROR):
        known = holder is not None and path[-1] in holder.open_choices
        extended = known and isinstance(error["input"], str) and not strict
        reason = f"{given} is not one of {', '.join(_ALLOWED.findall(error['ctx']['expected']))}"
        return Finding("warning" if extended else "error", "choice", where, reason)
    said = "not an object" if kind == "model_type" else str(error["msg"])
    said = said.removeprefix("Value error, ")
    if kind == RULE_ERROR:
        return Finding("error", "rule", where, said)
    code = _CODES.get(kind, "type" if kind in _PYDANTICS_OWN else kind)
    return Finding("error", code, where, f"{said}: {given}")


def line_of(field: str, lines: Mapping[str, int]) -> int:
    """Where a field stands; for one that is missing, where its holder does."""
    while field and field not in lines:
        field = field[: max(field.rfind("."), field.rfind("["), 0)]
    return lines.get(field, 0)


def _spelled(path: Location) -> str:
    """`tasks[2].status`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _shown(value: Any) -> str:
    return clip(repr(value), _LONGEST_SHOWN)
