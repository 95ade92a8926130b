"""What a benchmark's output says, by the format that was agreed on.

Strict: a score is a finite number in the agreed place.  Anything else is no score, never a guess.
"""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple, TypeGuard, cast

from holdfast.codec import DecodeError, Record, decode_record

Format = Literal["json", "number", "pass_fail", "metric", "python"]
_METRIC = re.compile(r"METRIC ([A-Za-z0-9_][A-Za-z0-9_./:-]*)=(\S+)")
_COMBINED = "combined_score"


class Score(NamedTuple):
    value: float
    sub_scores: dict[str, float | None]


class NoScore(ValueError):
    """The output holds no score in the agreed place."""


def score_in(output: str, code: int, format: Format, primary: str) -> Score:
    """The score of a benchmark that ended with `code`; NoScore says what is wrong."""
    if format == "pass_fail":
        return Score(1.0 if code == 0 else 0.0, {})
    if format == "metric":
        return _of_metrics(output, primary)
    line = output.rstrip().splitlines()[-1].strip() if output.strip() else ""
    if format == "number":
        return Score(_number(_parsed(line), "the last line"), {})
    try:
        result = decode_record(line.encode("utf-8", "surrogatepass"))
    except DecodeError as error:
        raise NoScore(f"the last line is no JSON object ({error}): {line[:120]!r}") from None
    return _of_result(result, primary) if format == "python" else _of_object(result, primary)


def _of_object(result: Record, primary: str) -> Score:
    if primary not in result:
        raise NoScore(f"the last line has no {primary!r}")
    subs = result.get("sub_scores", {})
    if not isinstance(subs, dict):
        raise NoScore("sub_scores is no object")
    found = cast("dict[str, object]", subs)
    kept = {
        name: None if value is None else _number(value, f"sub_scores.{name}")
        for name, value in found.items()
    }
    return Score(_number(result[primary], primary), kept)


def _of_result(result: Record, primary: str) -> Score:
    """What `evaluate(path)` returned: metrics by name, in the manner of OpenEvolve."""
    metrics = result.get("metrics", result)
    name = primary if primary in metrics else _COMBINED
    if name not in metrics:
        raise NoScore(f"evaluate returned neither {primary!r} nor {_COMBINED!r}")
    others = {
        each: float(value)
        for each, value in metrics.items()
        if each != name and _is_number(value) and math.isfinite(value)
    }
    return Score(_number(metrics[name], name), {**others})


def _of_metrics(output: str, primary: str) -> Score:
    found = {name: _parsed(text) for name, text in _METRIC.findall(output)}
    if primary not in found:
        raise NoScore(f"no line `METRIC {primary}=NUMBER`")
    value = _number(found.pop(primary), primary)
    return Score(value, {name: _number(each, name) for name, each in found.items()})


def _parsed(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _number(value: object, where: str) -> float:
    if not _is_number(value):
        raise NoScore(f"{where} is no number: {str(value)[:80]!r}")
    if not math.isfinite(value):
        raise NoScore(f"{where} is not finite: {value}")
    return float(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
