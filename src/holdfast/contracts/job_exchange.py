"""What is said to an agent that works on a job, and what it answers.

An answer is one JSON object, found in the text it came as.  Strict is the object and nothing but
white space around it.  Tolerant is, in this order: the same, with or without a byte order mark; the
first fence marked `json`, or where none is marked the first that begins with a brace; the only
object in the prose.  A choice that turns out to be no object is refused, never replaced by the next
one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from holdfast import codec
from holdfast.codec import DecodeError
from holdfast.contracts.job_states import Action
from holdfast.contracts.kind import Form, Kind, has_fields, object_of
from holdfast.contracts.record import Document, NotNegative, Record

SUMMARY_LIMIT = 500
LONG_SUMMARY_LIMIT = 1000

_BETWEEN = re.compile(r"[/\\]")
_DRIVE = re.compile(r"[A-Za-z]:")


def escapes(path: str) -> bool:
    """Whether a path names anything but a file below the directory it is relative to."""
    parts = _BETWEEN.split(path)
    absolute = not parts[0] or _DRIVE.match(path) is not None
    return absolute or ".." in parts or "\0" in path


def _inside(path: str) -> str:
    if escapes(path):
        raise PydanticCustomError("escaping_path", "not a path inside of the job's workspace")
    return path


_INSIDE = r"^(?![/\\])(?![A-Za-z]:)(?!([\s\S]*[/\\])?\.\.([/\\]|(?![\s\S])))[^\0]+$"
"""The same for the schema; the models' own engine knows no looking ahead."""

JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$")]
WorkspacePath = Annotated[
    str, AfterValidator(_inside), Field(json_schema_extra={"pattern": _INSIDE})
]
Cents = Minutes = NotNegative
"""Hundredths of a US dollar, and minutes; both with fractions."""


class Limits(Record):
    cost_threshold: Cents
    time_threshold_minutes: Minutes
    accepted_formats: list[Action]
    """The actions that an answer may have."""


class AgentRequest(Document):
    job_id: JobId
    phase: str
    context_files: list[WorkspacePath]
    system_prompt: str
    task_description: str
    metadata: Limits


class AgentResponse(Document):
    action: Annotated[
        Action,
        Field(
            description="COMPLETED: this phase is done. RETRY: it has to be done again. "
            "STUCK: a person has to decide."
        ),
    ]
    evidence_files: Annotated[
        list[WorkspacePath],
        Field(description="Every file made, changed or relied on, relative to the workspace"),
    ]
    summary_for_supervisor: Annotated[
        str,
        Field(
            max_length=SUMMARY_LIMIT,
            description="Two or three sentences for whoever goes on with the job",
        ),
    ]
    summary_full: str | None = None
    """Additive: what an older form said at greater length."""


TOLD_TO_AGENTS = ("action", "evidence_files", "summary_for_supervisor")
"""The fields that an agent is asked for; the others are added by us."""


# --- older forms ----------------------------------------------------------------------------


class LongResponse(Document):
    """With room for twice the summary."""

    action: Action
    evidence_files: list[WorkspacePath]
    summary_for_supervisor: Annotated[str, Field(max_length=LONG_SUMMARY_LIMIT)]
    job_manifest_url: str | None = None


class WrappedResponse(Record):
    response: LongResponse


class CommandOptions(Record):
    resume: bool = False
    model: str | None = None
    clean_git: bool = False
    keep_files: bool = False


class Command(Record):
    action: Literal["run", "step", "rerun", "restep"]
    job_id: JobId
    options: CommandOptions = Field(default_factory=CommandOptions)


class WrappedRequest(Record):
    """Not what is said to an agent, but what a person told the engine to do."""

    request: Command


def _is_wrapped(name: str, value: Any) -> bool:
    return isinstance(object_of(value).get(name), dict)


def _is_long(value: Any) -> bool:
    summary = object_of(value).get("summary_for_supervisor")
    return isinstance(summary, str) and len(summary) > SUMMARY_LIMIT


def _shortened(value: dict[str, Any]) -> dict[str, Any]:
    told = {**value, "schema_version": "1.0"} if "schema_version" in value else value
    if not _is_long(value):
        return told
    summary = value["summary_for_supervisor"]
    short = summary[: SUMMARY_LIMIT - 1] + "…"
    return {**told, "summary_for_supervisor": short, "summary_full": summary}


REQUEST = Kind(
    "agent-request",
    "What an agent that works on a job is asked",
    "document",
    (
        Form(
            "0.9",
            WrappedRequest,
            matches=lambda value: _is_wrapped("request", value),
            warning="a command to the engine, not a request to an agent",
        ),
        Form("1.0", AgentRequest),
    ),
    paths=(r"(^|/)(agent|llm)[-_]request[^/]*\.json$",),
    looks=lambda value: (
        has_fields(value, "job_id", "task_description", "context_files")
        # A line of a job's history has a request too, among much else.
        or (_is_wrapped("request", value) and not has_fields(value, "event"))
    ),
)

RESPONSE = Kind(
    "agent-response",
    "What an agent that works on a job answers",
    "document",
    (
        Form(
            "0.8",
            WrappedResponse,
            matches=lambda value: _is_wrapped("response", value),
            upgrade=lambda value: value["response"],
            warning="the answer is wrapped in an object of its own",
        ),
        Form(
            "0.9",
            LongResponse,
            matches=_is_long,
            upgrade=_shortened,
            warning=f"the previous version, whose summary may have {LONG_SUMMARY_LIMIT} characters",
        ),
        Form("1.0", AgentResponse),
    ),
    paths=(r"(^|/)(agent|llm)[-_]response[^/]*\.json$",),
    looks=lambda value: (
        (has_fields(value, "action", "evidence_files") or _is_wrapped("response", value))
        and not has_fields(value, "event")
    ),
)


MOST_PROSE = 1 << 20
"""Characters of a text in which an object is looked for."""
_SEVERAL = "more than one JSON object"
_OPENING = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})[ \t]*([^\s`~]*)")
_START = re.compile(r'\{\s*+"(?:[^"\\]++|\\.)*+"\s*+:')
"""A brace and a name: any other brace is prose."""
_SCANNER = json.JSONDecoder()
"""Only to see where an object ends; the codec says whether it is one."""


class Said(NamedTuple):
    value: dict[str, Any]
    ignored_fences: int = 0
    """How many fences beside the chosen one could have been the answer too."""


def said(text: str, *, tolerant: bool = False) -> Said:
    """The object, or DecodeError with the reason."""
    if not text.strip("\ufeff\0 \t\r\n"):
        raise DecodeError("nothing was answered")
    if tolerant:
        return _found(text)
    try:
        return Said(_object(text))
    except DecodeError as error:
        reason = str(error)
    try:
        _found(text)
        reason = "there is more than the JSON object: a byte order mark, a fence or other text"
    except DecodeError as error:
        reason = _SEVERAL if str(error) == _SEVERAL else reason
    raise DecodeError(reason)


def _object(text: str) -> dict[str, Any]:
    # A lone surrogate becomes bytes that the codec refuses, naming the place.
    return codec.decode_record(text.encode("utf-8", "surrogatepass"))


def _found(text: str) -> Said:
    text = text.removeprefix("\ufeff")
    try:
        value = codec.decode(text.encode("utf-8", "surrogatepass"))
    except DecodeError as error:
        reason = str(error)
    else:
        if isinstance(value, dict):
            return Said(value)
        raise DecodeError("not an object")
    if len(text) > codec.MAX_LINE:
        raise DecodeError(reason)
    fences = list(_fences(text))
    marked = [content for mark, content in fences if mark == "json"]
    bare = [content for mark, content in fences if not mark and content.lstrip()[:1] == "{"]
    if chosen := marked or bare:
        return Said(_object(chosen[0]), len(chosen) - 1)
    return Said(_only_object(text))


def _fences(text: str) -> Iterator[tuple[str, str]]:
    """The mark and the content of each; one that is not closed goes on to the end."""
    fence, mark, content = "", "", list[str]()
    for line in text.split("\n"):
        if not fence:
            if opening := _OPENING.fullmatch(line.rstrip()):
                fence, mark, content = opening[1], opening[2].lower(), []
            continue
        body = line.rstrip().rstrip(fence[0])
        # JSON has no line that ends so, unless it ends there.
        if len(line.rstrip()) - len(body) >= len(fence):
            yield mark, "\n".join([*content, body])
            fence = ""
        else:
            content.append(line)
    if fence:
        yield mark, "\n".join(content)


def _only_object(text: str) -> dict[str, Any]:
    if len(text) > MOST_PROSE:
        raise DecodeError("no JSON object by itself, and too long to look for one in it")
    found: dict[str, Any] | None = None
    at = 0
    while start := _START.search(text, at):
        try:
            at = _SCANNER.raw_decode(text, start.start())[1]
        except (ValueError, RecursionError) as error:
            # An object inside of a broken one is not what was meant.
            raise DecodeError(f"an object in it is broken: {error}") from None
        if found is not None:
            raise DecodeError(_SEVERAL)
        found = _object(text[start.start() : at])
    if found is None:
        raise DecodeError("there is no JSON object in it")
    return found
