"""Programs that are asked: their command line, their time and limits, and how they fail.

Programs say in words why they failed, each in its own; the kind of error is guessed from them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.errors import (
    Busy,
    Declined,
    HoldfastError,
    ModelError,
    NotAuthorised,
    TooLong,
    Unavailable,
    UsageError,
)
from holdfast.mask.shown import end
from holdfast.models.output import too_late
from holdfast.models.protocol import MOST_OUTPUT, Request
from holdfast.proc.limits import Ended, Limits

_SHOWN_LINES, _SHOWN, _MOST_SHOWN, _LOOKED_AT = 8, 1_000, 8_000, 8_000
_GRACE_SHARE, _LONGEST_GRACE = 10, 2.0
_MEANT = {
    124: " (out of time, as `timeout` says it)",
    137: " (killed, by signal 9)",
    143: " (told to end, by signal 15)",
}
"""What a shell, or `timeout`, that was between us and the program tells of how that one ended."""


def words_of(line: str) -> list[str]:
    """A command line, split as by a shell."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(
            f"no command line: {line[:200]!r}: {error}", hint="close the quote"
        ) from None


def limits_for(request: Request, *, memory: int | None = None, output: int = MOST_OUTPUT) -> Limits:
    """So that the call ends by its deadline: the last of the time is for ending in order."""
    grace = min(request.timeout / _GRACE_SHARE, _LONGEST_GRACE)
    return Limits(time=request.timeout - grace, grace=grace, memory=memory, output=output)


class Failing(NamedTuple):
    """How a program tells of its failures."""

    name: str
    exits: Mapping[int, type[ModelError]] = {}
    """Exit codes that say what failed."""

    def of(self, ended: Ended, timeout: float, reported: str | None = None) -> ModelError | None:
        """The error of a run, which the program itself may have reported; None if it is well."""
        match ended.outcome:
            case "exited" if ended.code == 0:
                return None if reported is None else self.typed(reported, ended, "")
            case "exited":
                meant = _MEANT.get(ended.code, "") if ended.code is not None else ""
                return self.typed(f"exit code {ended.code}{meant}", ended, reported)
            case "timeout":
                return too_late(self.name, timeout)
            case "output":
                # No answer to be judged, whatever came: we ended it in the middle of its work.
                return ModelError(
                    f"{self.name} printed more than it may: {ended.output_bytes} bytes",
                    hint="have it print only its answer",
                )
            case "memory":
                return ModelError(
                    f"{self.name} used more memory than it may: {ended.peak_memory} bytes",
                    hint="allow more, or ask for less",
                )
            case "not_started":
                return ModelError(
                    f"{self.name}: {ended.error}", hint="run it by hand to see what is wrong"
                )
            case "lost":
                # Whatever it printed: it was ended from outside, and may have had an effect.
                return ModelError(
                    f"{self.name}: {ended.told_lost}",
                    hint="it may have done part of its work: look, then ask again",
                )
            case _:
                how = f"ended by signal {ended.signal}" if ended.signal else ended.outcome
                return self.typed(how, ended, reported)

    def typed(self, how: str, ended: Ended, reported: str | None = None) -> ModelError:
        """The kind of error that the program's own words tell of."""
        # Some say on stdout what went wrong; where there is a report, that says it.
        tail = ended.stderr if ended.stderr.total or reported is not None else ended.stdout
        whole = (tail.head + tail.tail).decode("utf-8", "replace").strip()
        last = whole[-_LOOKED_AT:]
        reported = reported or ""
        kind, hint = _kind(f"{how}\n{reported}\n{last}")
        kind = self.exits.get(ended.code or 0, kind)
        lines = "\n".join(end(whole, _MOST_SHOWN).splitlines()[-_SHOWN_LINES:])
        shown = [part for part in (how, reported, end(lines, _SHOWN)) if part]
        error = kind(f"{self.name} failed: {': '.join(shown)}", hint=hint)
        if isinstance(error, Unavailable) and (after := _AFTER.search(f"{reported}\n{last}")):
            error.after = float(after[1])
        return error


@contextmanager
def as_model_errors(name: str) -> Generator[None]:
    """What hinders us from running a program is a failure of the model."""
    try:
        yield
    except ModelError:
        raise
    except Busy as error:
        busy = Unavailable(error.message, hint=error.hint)
        busy.free = True
        raise busy from error
    except HoldfastError as error:
        raise ModelError(f"{name}: {error.message}", hint=error.hint) from error


_CODE = r"\b(?:error|status|code|http(?:/[0-9.]{1,3})?)[\s:=('\"]{1,4}"
_SIGNS: tuple[tuple[type[ModelError], str, str], ...] = (
    (
        TooLong,
        r"context.?(?:length|window)|(?:prompt|input|request) (?:is )?too (?:long|large)"
        r"|too many (?:input )?tokens|maximum (?:context|number of tokens)",
        "ask for less at once",
    ),
    (
        NotAuthorised,
        rf"{_CODE}40[13]\b|unauthori[sz]ed|authenticat|api.?key|not logged in|log ?in again"
        r"|/login|permission.?denied.{0,40}credential|invalid.{0,20}(?:token|credential)",
        "log in with the program itself, or give it its key",
    ),
    (
        Unavailable,
        rf"{_CODE}(?:429|5\d\d)\b|rate.?limit|too many requests|overloaded|quota|usage limit"
        r"|(?:service|temporarily) unavailable|internal server error|bad gateway"
        r"|ECONNREFUSED|ECONNRESET|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|connection (?:refused|reset)"
        r"|stream disconnected",
        "try again later",
    ),
    (
        Declined,
        r"content.?policy|usage polic|safety|refus(?:ed|al|es)|flagged|content.?filter",
        "ask for something else, or another model",
    ),
)
_AFTER = re.compile(
    r"(?:retry.?after|try again in|retry in)\W{0,4}(\d{1,6}(?:\.\d{1,6})?) ?(?:s\b|sec|$)",
    re.IGNORECASE | re.MULTILINE,
)


def _kind(reported: str) -> tuple[type[ModelError], str]:
    for kind, pattern, hint in _SIGNS:
        if re.search(pattern, reported, re.IGNORECASE):
            return kind, hint
    return ModelError, "run it by hand to see what is wrong"
