"""The report of a campaign in Markdown: what blocks and what to do next, then what was found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.codec import Record
from holdfast.contracts.kind import object_of
from holdfast.improve.overview import Curve, blocks, control, curve_of
from holdfast.improve.pictures import terminal
from holdfast.text import clip, one_line, plural

_MARKUP = re.compile(r"([\\`*_\[\]<>|#])")
_MOST_LESSONS = 20


def report(facts: Record) -> str:
    curve = curve_of(facts)
    parts = [f"# {_plain(facts['objective'] or facts['campaign'])}"]
    parts += [f"**State:** {_plain(blocks(facts))}", f"**Next:** `{facts['next']}`"]
    parts += ["## Scores", f"```\n{terminal(curve)}\n```", _result(facts)]
    families = ((*each.values(),) for each in facts["families"])
    parts += ["## Families", _table(("family", "tried", "won", "gain"), families)]
    parts += ["## Rounds", _table(("round", "outcome", "score", "what"), _rounds(facts))]
    if lessons := list(_lessons(curve)):
        parts += ["## Lessons", "\n".join(lessons)]
    return "\n\n".join(parts) + "\n"


def _result(facts: Record) -> str:
    n, unknown = facts["best_of_n"], plural(facts["unknown_costs"], "call")
    target = {} if facts["target"] is None else {"target": facts["target"]}
    rows: Record = {
        "baseline": _figure(facts["baseline"]),
        "best": f"{_figure(facts['best'])}{_percent(facts['gain_percent'])}",
        **target,
        "noise, sd": _figure(facts["noise_sd"]),
        "random search, same budget": control(facts),
        "best of N made from the base": f"{_figure(n['score'])}, N = {n['n']}" if n else "none yet",
        "evaluations": facts["evaluations"],
        "cost": f"{facts['cost_usd']:.4f} USD, unknown for {unknown}",
        "branch": f"`{facts['branch']}`",
    }
    if held := object_of(object_of(facts["finalized"]).get("holdout")):
        scores = f"{_figure(held['base'])} → {_figure(held['result'])}"
        rows["hold-out"] = held["failure"] or scores
    return _table((facts["metric"], ""), rows.items())


def _rounds(facts: Record) -> Iterator[Sequence[Any]]:
    for each in facts["rounds"]:
        winner = object_of(each["winner"])
        what = winner.get("hypothesis") or each["reason"] or ""
        score = _figure(each["best"]) if winner else ""
        yield each["iteration"], each["status"], score, clip(one_line(str(what)), 120)


def _lessons(curve: Curve) -> Iterator[str]:
    for each in curve.lessons[-_MOST_LESSONS:]:
        what = clip(one_line(each.hypothesis or each.family), 80)
        lesson = clip(one_line(each.lesson), 200)
        yield f"- round {each.round}, {_plain(what)}: {_plain(lesson)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        lines.append("| " + " | ".join(_cell(each) for each in row) + " |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = _figure(value) if isinstance(value, float) else str(value)
    return text if text.startswith("`") else _plain(text)


def _plain(text: str) -> str:
    """A text of anybody's as Markdown that shows it."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return _MARKUP.sub(r"\\\1", one_line(shown))


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def _percent(value: float | None) -> str:
    return "" if value is None else f" ({value:+.4g} %)"
