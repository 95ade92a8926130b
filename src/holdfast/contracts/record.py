"""What every record is made of.

Models are strict: they hold what may be written.  Being liberal towards what others wrote is
done outside of them, in `kind`, so that a model, its JSON Schema and the check of what we write
can never say different things.  A field that a model does not know is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from holdfast.contracts.formats import Wanted

TIME_ERROR = "time_form"
TEXT_ERROR = "text_form"
RULE_ERROR = "rule"
CHOICE_ERROR = "choice"
_WITHOUT_RECORDS = frozenset({str, int, float, bool, type(None)})


class Doubt(NamedTuple):
    """Something odd that does not keep a record from being read."""

    code: str
    field: str
    reason: str


class Record(BaseModel):
    """An object of a format.  Its fields in the order in which they are written."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        frozen=True,
        serialize_by_alias=True,
        validate_by_alias=True,
        validate_by_name=False,
        protected_namespaces=(),
    )

    other_names: ClassVar[dict[str, tuple[str, ...]]] = {}
    """For a field the names under which it was met, which are read with a warning."""
    often_missing: ClassVar[frozenset[str]] = frozenset()
    """Fields whose absence in other people's files is a warning, not an error.

    One that has no default leaves the reading without a record all the same.
    """
    open_choices: ClassVar[frozenset[str]] = frozenset()
    """Fields whose list of values others extend: an unknown one is a warning on read, and kept."""
    open_ended: ClassVar[bool] = False
    """Whether fields beyond the named ones are part of the format."""
    array_in: ClassVar[str] = ""
    """The one field of a record that stands in the file as a bare array."""

    def value(self) -> dict[str, Any]:
        """The object as it is written: nothing that was not set, everything that was unknown."""
        return self.model_dump(mode="json", exclude_unset=True)

    def doubts(self) -> Iterable[Doubt]:
        """What is read, here and below, but never written by us."""
        return ()

    def missing_fields(self) -> Iterator[str]:
        """Paths of the fields whose absence is worth a warning, here and below."""
        for path, record in self.all_records():
            for name in sorted(record.often_missing - record.model_fields_set):
                yield f"{path}.{_alias(type(record), name)}".removeprefix(".")

    def unknown_fields(self) -> Iterator[str]:
        """Paths of the fields that the format does not know, here and below."""
        for path, record in self.all_records():
            for name in record.own_unknown_fields():
                yield f"{path}.{name}".removeprefix(".")

    def own_unknown_fields(self) -> Iterable[str]:
        """The names of its own fields that the format does not know."""
        return () if self.open_ended else self.model_extra or ()

    def all_records(self, path: str = "") -> Iterator[tuple[str, Record]]:
        """The record and all that are in it, each with its path."""
        yield path, self
        for name, inner in self.__dict__.items():
            if type(inner) not in _WITHOUT_RECORDS:
                yield from _records_in(inner, f"{path}.{_alias(type(self), name)}")


def _records_in(value: object, path: str) -> Iterator[tuple[str, Record]]:
    if isinstance(value, Record):
        yield from value.all_records(path)
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[object]", value)):
            yield from _records_in(inner, f"{path}[{number}]")
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, object]", value).items():
            yield from _records_in(inner, f"{path}.{name}")


@lru_cache(maxsize=4096)
def _alias(model: type[Record], name: str) -> str:
    field = model.model_fields.get(name)
    return field.alias if field and field.alias else name


class Document(Record):
    """A record that is a whole file, and says which version of its format it is."""

    schema_version: Annotated[str, Field(pattern=r"^\d{1,4}\.\d{1,4}$")] | None = None


def broken_rule(said: str) -> PydanticCustomError:
    """For a `model_validator`: what the fields of a record owe each other, and do not keep."""
    return PydanticCustomError(RULE_ERROR, "{said}", {"said": said})


@dataclass(frozen=True)
class Free:
    """Marks a field whose content the format leaves open, and where it says so."""

    why: str


@dataclass(frozen=True)
class OneOf:
    """Text that is one of some words, which stand in a table."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.literal_schema(list(self.words))


class Also:
    """Other values that stand for those of a `Literal`; they are read with a warning."""

    def __init__(self, **others: tuple[str | bool, ...]) -> None:
        self._meant = {word: meant for meant, words in others.items() for word in words}

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        allowed = ", ".join(repr(each) for each in get_args(source))
        return core_schema.custom_error_schema(
            handler(source),
            custom_error_type=CHOICE_ERROR,
            custom_error_message="Input should be one of {expected}",
            custom_error_context={"expected": allowed, "also": self._meant},
        )


@dataclass(frozen=True)
class Formed:
    """Text that matches a pattern; an example tells people more than the pattern."""

    pattern: str
    example: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.custom_error_schema(
            core_schema.str_schema(pattern=self.pattern),
            custom_error_type=TEXT_ERROR,
            custom_error_message="not of the form {example}",
            custom_error_context={"example": self.example, "pattern": self.pattern},
        )


_DAY_AND_TIME = (
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?"
)
_PATTERNS = {
    "utc": re.compile(rf"^{_DAY_AND_TIME}Z$", re.ASCII),
    "offset": re.compile(rf"^{_DAY_AND_TIME}(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$", re.ASCII),
}
_EARLIEST, _LATEST = 10**8, 10**11


@dataclass(frozen=True)
class Time:
    """A time in the one form that a format is written with."""

    wanted: Wanted

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        check = self._check_epoch if self.wanted == "epoch" else self._check_text
        return core_schema.no_info_plain_validator_function(check)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        if self.wanted == "epoch":
            return {"type": "number", "minimum": _EARLIEST, "exclusiveMaximum": _LATEST}
        return {"type": "string", "format": "date-time", "pattern": _PATTERNS[self.wanted].pattern}

    def _check_text(self, value: object) -> str:
        fits = _PATTERNS[self.wanted].fullmatch
        if isinstance(value, str) and fits(value) and _is_day(value[:10]):
            return value
        form = "…Z" if self.wanted == "utc" else "…+07:00 or …Z"
        raise PydanticCustomError(
            TIME_ERROR,
            "not a time of the form 2026-11-15T08:48:46{form}",
            {"form": form, "wanted": self.wanted},
        )

    def _check_epoch(self, value: object) -> float:
        known = isinstance(value, int | float) and not isinstance(value, bool)
        if known and _EARLIEST <= cast("float", value) < _LATEST:
            return cast("float", value)
        raise PydanticCustomError(TIME_ERROR, "not seconds since 1970", {"wanted": self.wanted})


@lru_cache(maxsize=1024)
def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


UtcTime = Annotated[str, Time("utc")]
OffsetTime = Annotated[str, Time("offset")]
EpochTime = Annotated[float, Time("epoch")]
Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Usd = NotNegative
AtLeastOne = Fence = Annotated[int, Field(ge=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
AgentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
NonEmpty = Annotated[str, Field(min_length=1)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
SessionIdText = Annotated[
    str, Field(pattern=r"^(?:\d{4}-\d{2}-\d{2}_[a-z0-9][a-z0-9_-]{0,63}_\d{3,18}|\d{8}-\d{6})$")
]
"""Of our form, or of the older one by the second, which is read and never written."""


class ChainedLine(Record):
    """A line of a log of ours, which adds its number and the hash that follows from all before."""

    seq: Count | None = None
    hash: Digest | None = None
