"""The words of the command line, before and after they are parsed.

Text is passed on untouched; what is not UTF-8 is refused, since no record could hold it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast import userfile
from holdfast.cli.safe import safe
from holdfast.errors import UsageError
from holdfast.ops.parameter import Parameter

_LIKE_A_FILE = re.compile(r"\.{1,2}|[^\s{}\[\]\"]*(?:/[^\s{}\[\]\"]*|\.[A-Za-z0-9]{1,8})")


def decoded(words: Sequence[str]) -> list[str]:
    """The words as text, or UsageError naming the first that is not UTF-8."""
    return [_decoded(number, word) for number, word in enumerate(words, 1)]


def wants_json(words: Sequence[str]) -> bool:
    """Whether `--json` stands among the words; a guess for calls that could not be parsed."""
    return "--json" in words[: words.index("--")] if "--" in words else "--json" in words


def with_files(parameters: Iterable[Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with what stands in the file wherever `@FILE` or `-` is given for a text."""
    read = dict(values)
    for parameter in parameters:
        value = values.get(parameter.keyword)
        if parameter.or_file and isinstance(value, str) and _names_file(value, parameter):
            read[parameter.keyword] = _content(value, parameter)
    return read


def _names_file(value: str, parameter: Parameter) -> bool:
    if value == "-" or value[:1] == "@":
        return True
    if not parameter.bare_file:
        return False
    # A misspelt name would be taken for the text itself.
    return _LIKE_A_FILE.fullmatch(value) is not None or _is_there(value)


def _is_there(path: str) -> bool:
    """Whether a file has that name, or a pipe, as `<(…)` of a shell is one."""
    try:
        return os.path.exists(path) and not os.path.isdir(path)
    except ValueError:
        return False


def _decoded(number: int, word: str) -> str:
    try:
        word.encode()
    except UnicodeEncodeError:
        # Python decodes by the locale; under a locale of plain ASCII this may still be UTF-8.
        try:
            return os.fsencode(word).decode()
        except UnicodeError:
            raise UsageError(
                f"argument {number} is not UTF-8: {safe(word[:80])}",
                hint="convert it first, for example with `iconv -f latin1 -t utf-8`",
            ) from None
    return word


def _content(value: str, parameter: Parameter) -> str:
    given = "the text itself" if parameter.bare_file else "a text that begins with @"
    hint = f"{given} can be given by - on standard input"
    return userfile.text(value.removeprefix("@"), parameter.flag, hint=hint)
