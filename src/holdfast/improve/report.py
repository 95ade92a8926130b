"""The report of a campaign in Markdown: what blocks and what to do next, then what was found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.codec import Record
from holdfast.contracts.kind import object_of, objects_in
from holdfast.improve.pictures import terminal
from holdfast.improve.shown import Curve, Shown, families, number
from holdfast.text import clip, one_line, plural

_MARKUP = re.compile(r"([\\`*_\[\]<>|#])")
_MOST_LESSONS = 20


def facts_of(shown: Shown, name: str) -> Record:
    """What the documents of a campaign say where its journal is missing."""
    curve, own = shown.curve, shown.own
    best = number(own.get("best_score")) if curve.best is None else curve.best
    start, higher = curve.baseline, curve.higher
    gain = None if start is None or best is None else (best - start) * (1 if higher else -1) + 0.0
    rounds = [_round(shown, at) for at in shown.rounds()]
    return {
        "campaign": name,
        "status": str(own.get("status") or "unknown"),
        "why": None,
        "next": f"holdfast validate {name}",
        "objective": "",
        "metric": curve.metric,
        "higher_is_better": higher,
        "target": curve.target,
        "baseline": start,
        "noise_sd": curve.sd,
        "best": best,
        "gain": gain,
        "gain_percent": None if gain is None or not start else 100 * gain / abs(start),
        "iterations": own.get("iterations", len(rounds)),
        "max_iterations": shown.settings.get("max_iterations"),
        "merged": sum(each["status"] == "merged" for each in rounds),
        "rounds": rounds,
    }


def _round(shown: Shown, at: int) -> Record:
    history, report = shown.history(at), shown.merge_report(at)
    winner = object_of(history.get("winner"))
    won = bool(winner) or bool(report.get("winner"))
    return {
        "iteration": at,
        "status": str(report.get("status") or ("merged" if won else "no winner")),
        "winner": winner or None,
        "best": number(winner.get("score")),
        "losers": list(objects_in(history.get("losers"))),
        "reason": report.get("reason"),
    }


def report(facts: Record, curve: Curve) -> str:
    """`facts` is an overview of a journal, or what `facts_of` found."""
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
    if "control" in facts:
        rows += compared(facts)
        rows += [
            ("evaluations", facts["evaluations"]),
            ("cost", f"{facts['cost_usd']:.4f} USD, unknown for {facts['unknown_costs']} calls"),
            ("branch", f"`{facts['branch']}`"),
        ]
    if (held := object_of(object_of(facts.get("finalized")).get("holdout"))) != {}:
        rows.append(("hold-out", f"{_figure(held['base'])} → {_figure(held['result'])}"))
    yield _table((facts["metric"], ""), rows)


def compared(facts: Record) -> list[Sequence[Any]]:
    """What the result stands beside: random search of the same budget, and best of N."""
    told, n = facts["control"], facts["best_of_n"]
    drawn = f"{_figure(told['best'])} in {plural(told['n'], 'evaluation')}"
    drawn = drawn if told["best"] is not None else told["why"] or "not measured: --control does"
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
    told = [each for each in points if each.lesson and not each.won]
    for each in told[-_MOST_LESSONS:]:
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
    return _MARKUP.sub(r"\\\1", one_line(text))


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def _percent(value: float | None) -> str:
    return "" if value is None else f" ({value:+.4g} %)"
