"""The report of a campaign in Markdown: what blocks and what to do next, then what was found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.codec import Record
from holdfast.contracts.kind import object_of
from holdfast.improve.pictures import terminal
from holdfast.improve.shown import Curve, families, number
from holdfast.text import clip, one_line, plural

_MARKUP = re.compile(r"([\\`*_\[\]<>|#])")
_MOST_LESSONS = 20


def report(facts: Record, curve: Curve) -> str:
    parts = [f"# {_plain(facts['objective'] or facts['campaign'])}", *_head(facts)]
    parts += ["## Scores", f"```\n{terminal(curve)}\n```", *_result(facts)]
    parts += ["## Families", _table(("family", "tried", "won", "gain"), _families(curve))]
    parts += ["## Rounds", _table(("round", "outcome", "score", "what"), _rounds(facts))]
    if lessons := list(_lessons(curve.points)):
        parts += ["## Lessons", "\n".join(lessons)]
    return "\n\n".join(parts) + "\n"


def blocks(facts: Record) -> str:
    """What stands in the way, in a line."""
    why = f": {facts['why']}" if facts["why"] else ""
    return f"{facts['campaign']} is {facts['status']}{why}"


def _head(facts: Record) -> list[str]:
    return [f"**State:** {_plain(blocks(facts))}", f"**Next:** `{facts['next']}`"]


def _result(facts: Record) -> Iterator[str]:
    rows: list[Sequence[Any]] = [
        ("baseline", _figure(facts["baseline"])),
        ("best", f"{_figure(facts['best'])}{_percent(facts['gain_percent'])}"),
    ]
    if facts["target"] is not None:
        rows.append(("target", _figure(facts["target"])))
    rows.append(("noise, sd", _figure(facts["noise_sd"])))
    rows += compared(facts)
    unknown = plural(facts["unknown_costs"], "call")
    rows += [
        ("evaluations", facts["evaluations"]),
        ("cost", f"{facts['cost_usd']:.4f} USD, unknown for {unknown}"),
        ("branch", f"`{facts['branch']}`"),
    ]
    if (held := object_of(object_of(facts.get("finalized")).get("holdout"))) != {}:
        scores = f"{_figure(held['base'])} → {_figure(held['result'])}"
        rows.append(("hold-out", held["failure"] or scores))
    yield _table((facts["metric"], ""), rows)


def compared(facts: Record) -> list[Sequence[Any]]:
    """The controls: random search with the same budget, and best of N."""
    control, n = facts["control"], facts["best_of_n"]
    drawn = f"{_figure(control['best'])} in {plural(control['n'], 'evaluation')}"
    drawn = (
        drawn if control["best"] is not None else control["why"] or "not measured: --control does"
    )
    first = f"{_figure(n['score'])}, N = {n['n']}" if n else "no candidate yet"
    return [("random search, same budget", drawn), ("best of N made from the base", first)]


def _families(curve: Curve) -> Iterator[Sequence[Any]]:
    for name, each in families(curve).items():
        yield name, each.tried, each.won, _figure(each.gain)


def _rounds(facts: Record) -> Iterator[Sequence[Any]]:
    for each in facts["rounds"]:
        winner = object_of(each["winner"])
        what = winner.get("hypothesis") or each["reason"] or ""
        score = _figure(number(each["best"])) if winner else ""
        yield each["iteration"], each["status"], score, clip(one_line(str(what)), 120)


def _lessons(points: Sequence[Any]) -> Iterator[str]:
    failed = [each for each in points if each.lesson and not each.won]
    for each in failed[-_MOST_LESSONS:]:
        what = clip(one_line(each.hypothesis or each.family), 80)
        lesson = clip(one_line(each.lesson), 200)
        yield f"- round {each.round}, {_plain(what)}: {_plain(lesson)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        lines.append("| " + " | ".join(_cell(each) for each in row) + " |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = str(value)
    return text if text.startswith("`") else _plain(text)


def _plain(text: str) -> str:
    """A text of anybody's as Markdown that shows it."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return _MARKUP.sub(r"\\\1", one_line(shown))


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def _percent(value: float | None) -> str:
    return "" if value is None else f" ({value:+.4g} %)"
