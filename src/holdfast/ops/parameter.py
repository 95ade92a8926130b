"""The arguments of a verb, declared once in its signature and read off for every face.

    def write(
        context: Context,
        text: Annotated[str, Arg("What happened", positional=True)],
        *,
        agent: Annotated[str, Arg("Who did it", metavar="AGENT")],
        event: Annotated[Literal["info", "error"], Arg("What kind of event")] = "info",
        tag: Annotated[Sequence[str], Arg("A label; may be repeated")] = (),
        dry_run: Annotated[bool, Arg("Only say what would be done")] = False,
    ) -> Change: ...

Types are `str`, `int`, `float`, `bool`, a `Literal` of strings, a `list` or `Sequence` of one
of these, each perhaps `| None`.  What a face makes of a `Parameter` is its own business.

Options that several verbs share are a group: `**fields: Unpack[SessionFields]` of a
`TypedDict` with `total=False`.  All of them may be left out; the verb finds in `fields` what was
given.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from holdfast.clock import local_stamp, zone
from holdfast.errors import NotFound, UsageError
from holdfast.ids import agent_id
from holdfast.text import duration

if TYPE_CHECKING:
    from holdfast.store.home import Home

Kind = Literal["argument", "option", "flag"]
Scalar = type[str] | type[int] | type[float] | type[bool]

LONGEST = 1 << 20
"""Characters of one text that a remote caller may give."""
_LARGEST = 1 << 53
"""Beyond it JSON readers disagree about an integer."""
_JSON = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LEFT_OUT = object()
"""The default of an option in a group."""
FACES_OWN = frozenset({"home", "layout", "json", "help", "version"})
"""Names that the faces use themselves."""


class Arg(NamedTuple):
    """What a signature cannot say about a parameter."""

    help: str
    """One line, without a full stop."""
    positional: bool = False
    metavar: str | None = None
    or_file: bool = False
    """On the command line `@FILE` and `-` stand for what the file or the standard input holds.
    The verb sees only the text, so a remote caller can name no file."""
    bare_file: bool = False
    """The `@` may be left out: what is there under that name, or is called like a file, is one, as
    no such text is."""
    is_path: bool = False
    """It names a file of whoever sits at the machine: only the command line has it."""


DryRun = Annotated[bool, Arg("Only say what would be done")]
OfAgent = Annotated[str | None, Arg("Only of this agent")]
Since = Annotated[str | None, Arg("From then on: 2h, 7d, a date or a time", metavar="T")]


def known_agent(agent: str, known: Sequence[str]) -> str:
    """The name of an agent that exists."""
    name = agent_id(agent).lower()
    if name not in known:
        hint = f"known: {', '.join(known)}" if known else "`holdfast init NAME` makes one"
        raise NotFound(f"no agent called {agent}", hint=hint)
    return name


def checked_limit(limit: int) -> int:
    """`--limit` of a list."""
    if limit < 0:
        raise UsageError("--limit is below zero", hint="0 is all")
    return limit


def moment(text: str, home: Home) -> float:
    """A time such as `2h`, `7d` or `2026-11-01T08:00`, by the home's zone if it has none."""
    where = zone(home.settings.timezone)
    try:
        if text[-1:] in ("s", "m", "h", "d", "w"):
            instant = home.clock.now() - duration(text)
        else:
            found = datetime.fromisoformat(text)
            instant = (found if found.tzinfo else found.replace(tzinfo=where)).timestamp()
        local_stamp(instant, where)
    except (UsageError, ValueError, OverflowError, OSError):
        raise UsageError(
            f"not a time: {text[:80]!r}", hint="such as 2h, 7d, 2026-11-01 or 2026-11-01T08:00"
        ) from None
    return instant


class Parameter(NamedTuple):
    name: str
    """As callers say it: `from`, `dry_run`."""
    keyword: str
    """As the function says it: `from_`, `dry_run`."""
    kind: Kind
    type: Scalar
    required: bool
    repeated: bool
    default: Any
    choices: tuple[str, ...]
    help: str
    metavar: str
    or_file: bool
    bare_file: bool
    is_path: bool

    @property
    def flag(self) -> str:
        """`--dry-run`."""
        return "--" + self.name.replace("_", "-")

    def schema(self) -> dict[str, Any]:
        """The JSON that a remote caller may give for it."""
        kind: dict[str, Any] = {"type": _JSON[self.type]}
        if self.choices:
            kind["enum"] = list(self.choices)
        elif self.type is str:
            kind["maxLength"] = LONGEST
        elif self.type is int:
            kind |= {"minimum": -_LARGEST, "maximum": _LARGEST}
        if self.repeated:
            kind = {"type": "array", "items": kind}
        if self.may_be_null:
            kind = {"anyOf": [kind, {"type": "null"}]}
        elif not self.required:
            kind["default"] = list(self.default) if self.repeated else self.default
        return kind | {"description": self.help}

    @property
    def may_be_null(self) -> bool:
        """Whether null means what leaving it out means."""
        return not self.required and self.default is None

    def accepted(self, value: Any) -> Any:
        """A value of JSON as the verb takes it; UsageError if it does not fit the schema."""
        if value is None and self.may_be_null:
            return None
        if not self.repeated and self._fits(value):
            return self.type(cast("Any", value))
        if self.repeated and isinstance(value, list):
            values = cast("list[Any]", value)
            if all(map(self._fits, values)):
                return values
        kind = f"one of {', '.join(self.choices)}" if self.choices else _JSON[self.type]
        many = "a list, each " if self.repeated else ""
        raise UsageError(f"{self.name}: expected {many}{kind}", hint=self.help)

    def _fits(self, value: Any) -> bool:
        if self.type is bool:
            return isinstance(value, bool)
        if self.type is str:
            fits = isinstance(value, str) and len(value) <= LONGEST
            return fits and (not self.choices or value in self.choices)
        if type(value) not in (int, float) or not math.isfinite(value):
            return False
        return self.type is float or (abs(value) <= _LARGEST and value == int(value))


@cache
def parameters(function: Callable[..., object]) -> tuple[Parameter, ...]:
    """The parameters of a verb, without its context; TypeError if it is declared wrongly."""
    hints = get_type_hints(function, include_extras=True)
    _, *declared = inspect.signature(function).parameters.values()
    where = f"of {function.__module__}:{function.__qualname__}"
    found: list[Parameter] = []
    for each in declared:
        hint = hints.get(each.name)
        if each.kind is not each.VAR_KEYWORD:
            found.append(_parameter(each.name, each.default, hint, where))
            continue
        if get_origin(hint) is not Unpack:
            raise TypeError(f"**{each.name} {where} is not Unpack[…] of a TypedDict")
        (group,) = get_args(hint)
        options = get_type_hints(group, include_extras=True)
        found += [_parameter(name, _LEFT_OUT, option, where) for name, option in options.items()]
    return tuple(found)


class _Shape:
    """What an annotation means to a caller."""

    def __init__(self, annotation: object) -> None:
        self.repeated = False
        self.choices: tuple[str, ...] = ()
        if get_origin(annotation) in (Union, UnionType):
            inner = [each for each in get_args(annotation) if each is not NoneType]
            annotation = inner[0] if len(inner) == 1 else None
        if get_origin(annotation) in (list, Sequence):
            self.repeated = True
            (annotation,) = get_args(annotation)
        if get_origin(annotation) is Literal:
            values = get_args(annotation)
            self.choices = tuple(each for each in values if isinstance(each, str))
            annotation = str if len(self.choices) == len(values) else None
        self.type = cast("Scalar | None", annotation)
        self.known = annotation in (str, int, float, bool)


def _parameter(keyword: str, default: Any, hint: object, where: str) -> Parameter:
    where = f"parameter {keyword} {where}"
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{where} is not Annotated[…, Arg(…)]")
    annotation, *extras = get_args(hint)
    arg = next((each for each in extras if isinstance(each, Arg)), None)
    shape = _Shape(annotation)
    if default is _LEFT_OUT:
        default = () if shape.repeated else False if shape.type is bool else None
    required = default is inspect.Parameter.empty
    name = keyword.rstrip("_")
    if arg is None or not shape.known:
        raise TypeError(f"{where}: no Arg, or a type that callers cannot give")
    if name in FACES_OWN:
        raise TypeError(f"{where}: the faces use that name themselves")
    flag = shape.type is bool
    metavar = "N" if shape.type in (int, float) else name.upper().replace("_", "-")
    if flag and (arg.positional or shape.repeated or default is not False):
        raise TypeError(f"{where}: a flag is an option whose default is False")
    return Parameter(
        name=name,
        keyword=keyword,
        kind="argument" if arg.positional else "flag" if flag else "option",
        type=cast("Scalar", shape.type),
        required=required,
        repeated=shape.repeated,
        default=None if required else default,
        choices=shape.choices,
        help=arg.help,
        metavar=arg.metavar or "|".join(shape.choices) or metavar,
        or_file=arg.or_file,
        bare_file=arg.bare_file,
        is_path=arg.is_path,
    )
