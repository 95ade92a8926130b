"""The one JSON object that an agent answered with, found in the text it came as.

Strict is the object and nothing but white space around it.  Tolerant is, in this order: the same,
with or without a byte order mark; the first fence marked `json`, or where none is marked the first
that begins with a brace; the only object in the prose.  A choice that turns out to be no object is
refused, never replaced by the next one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast import codec
from holdfast.codec import DecodeError

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
        raise DecodeError(_why_not_strict(text) or str(error)) from None


def _why_not_strict(text: str) -> str:
    try:
        _found(text)
    except DecodeError as error:
        return _SEVERAL if str(error) == _SEVERAL else ""
    return "there is more than the JSON object: a byte order mark, a fence or other text"


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
        at = _end_of_object(text, start.start())
        if found is not None:
            raise DecodeError(_SEVERAL)
        found = _object(text[start.start() : at])
    if found is None:
        raise DecodeError("there is no JSON object in it")
    return found


def _end_of_object(text: str, begin: int) -> int:
    """What begins as an object and is none is refused: one inside of it is not what was meant."""
    try:
        return _SCANNER.raw_decode(text, begin)[1]
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"an object in it is broken: {error}") from None
