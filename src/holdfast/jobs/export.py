"""A job to be taken elsewhere: what was measured as CSV, all of it as one page.

Agents and the pages they read wrote most of this.  So a cell never begins as a formula, and in the
page every text is escaped by the one function that makes elements.
"""

from __future__ import annotations

import csv
import io
import re
from base64 import b64encode
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.codec import Record
from holdfast.jobs.history import calls
from holdfast.jobs.markup import Child, Html, tag
from holdfast.jobs.money import known_usd
from holdfast.jobs.state import spec_of
from holdfast.jobs.timeline import (
    ACTED,
    Timeline,
    in_words,
    meaning,
    places,
    timeline,
    used,
    words,
)
from holdfast.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.contracts.job_spec import JobSpec
    from holdfast.jobs.job import Job
    from holdfast.jobs.state import Job as JobState

COLUMNS = (
    "timestamp",
    "step_number",
    "role",
    "action",
    "summary",
    "cost_usd",
    "time_seconds",
    "token_input",
    "token_output",
    "token_cache_read",
    "cache_hit",
    "ttft_seconds",
    "throughput_tokens_per_second",
    "total_tokens",
    "status_after",
)
_LONGEST = 400_000
"""Characters of one text: the history has the rest."""
_MOST_PLACES = 20
MOST_BYTES = 4 * (_LONGEST + 1)
"""What has to be read of a text to see whether it is longer."""
_FORMULA = re.compile(r"\s*[=+\-@]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def as_csv(job: Job) -> str:
    """A line for each call, oldest first; what nobody knows is left empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for number, call in enumerate(calls(job), 1):
        told = _measured(number, call)
        lines.writerow([_cell(told[name]) for name in COLUMNS])
    return text.getvalue()


def _measured(number: int, call: Record) -> Record:
    response: Record = call["response"]
    metrics: Record = response.get("metrics") or {}
    return {
        "timestamp": call["timestamp"],
        "step_number": number,
        "role": call["request"]["metadata"].get("role"),
        "action": response["action"],
        "summary": response["summary_for_supervisor"],
        "cost_usd": response["cost_usd"],
        "time_seconds": response["execution_time_seconds"],
        "status_after": response["new_status"],
    } | {name: metrics.get(name) for name in COLUMNS[7:14]}


def _cell(value: Any) -> str:
    """Text that a spreadsheet takes for text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    line = _UNPRINTABLE.sub(" ", value)
    return f"'{line}" if _FORMULA.match(line) else line


# --- one page that opens anywhere -----------------------------------------------------------


def as_html(job: Job, diff: str = "", damage: Sequence[str] | None = None) -> str:
    """Everything there is about a job, in one file that asks for nothing and runs nothing.

    `diff` is what the job did to its files, as git tells it; `damage` where its history is not what
    was written, None if nobody looked.  The page is read where no warning goes with it.
    """
    state, told = job.state(), timeline(job)
    spec = spec_of(state)
    parts = [
        _damaged(damage) if damage else None,
        _head(job, state, spec),
        _figures(state, told),
        tag("section", _phases(state), aria_label="Phases"),
        _section("What happened", _timeline(told)),
        _section("Recovery points", _points(told.points)) if told.points else None,
        _section("Files", _diff(diff)) if diff.strip() else None,
        _foot(job, damage),
    ]
    style = resources.files(__package__ or "holdfast.jobs").joinpath("sheet.css").read_text("utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{job.name} · {in_words(state)}"),
        Html(f"<style>{style}</style>"),
    )
    body = tag("body", tag("main", *parts), class_="away")
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _section(title: str, *children: Child) -> Html:
    return tag("section", tag("h2", title), *children)


def _head(job: Job, state: JobState, spec: JobSpec) -> Html:
    made = f"Job, made {_time(state['created_at'])}, last touched {_time(state['updated_at'])}"
    return tag(
        "header",
        tag("p", made, class_="over"),
        tag("h1", job.name, " ", _state(in_words(state), meaning(state))),
        tag("p", state["why"], class_="lede") if state["why"] else None,
        tag("p", spec.task, class_="wanted") if spec.task else None,
    )


def _damaged(places: Sequence[str]) -> Html:
    rows = [tag("li", each) for each in places[:_MOST_PLACES]]
    if more := len(places) - len(rows):
        rows.append(tag("li", f"and {more:,} more"))
    return tag(
        "section",
        tag(
            "p",
            tag("b", "This history is damaged."),
            " It is not what was written; what cannot be read is left out of this page:",
        ),
        tag("ul", *rows),
        class_="damaged",
        role="alert",
    )


def _figures(state: JobState, told: Timeline) -> Html:
    limits, share = state["limits"], used(state)
    known = known_usd(state)
    unknown = f", {plural(state['unknown'], 'call')} of unknown cost" if state["unknown"] else ""
    tokens = [each for call in told.calls if (each := _tokens(call)) is not None]
    rows = [
        (
            "Cost",
            "unknown" if known is None else f"${known:.4f}",
            f"of ${limits.get('max_cost_usd', 0):g}{unknown}",
            "cost",
        ),
        (
            "Time",
            f"{state['seconds']:.1f} s",
            f"of {limits.get('max_seconds', 0):g} s",
            "time",
        ),
        (
            "Calls",
            state["steps"],
            f"of {limits.get('max_iterations', 0)}",
            "iterations",
        ),
        ("Tokens", f"{sum(tokens):,}" if tokens else "?", "in and out", None),
    ]
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", name),
                tag("dd", figure, tag("small", small)),
                _bar(share[of]) if of else None,
            )
            for name, figure, small, of in rows
        ),
        class_="figures",
    )


def _tokens(call: Record) -> int | None:
    metrics: Record = call["response"].get("metrics") or {}
    return metrics.get("total_tokens")


def _bar(share: Record) -> Html:
    width = min(100.0, (share["share"] or 0.0) * 100)
    return tag(
        "svg",
        tag("rect", width=round(width, 1), height=4),
        viewBox="0 0 100 4",
        preserveAspectRatio="none",
        class_="bar",
        data_level=share["level"],
        aria_hidden="true",
    )


def _phases(state: JobState) -> Html:
    return tag(
        "ol",
        *(
            tag(
                "li",
                tag("i", aria_hidden="true"),
                tag("b", each["name"]),
                tag("span", each["role"], ", you approve" if each["approval"] else ""),
                data_place=each["place"],
                aria_current="step" if each["place"] == "here" else None,
            )
            for each in places(state)
        ),
        class_="phases",
    )


def _timeline(told: Timeline) -> Html:
    items: list[Html] = []
    events = iter([*told.events, None])
    event = next(events)
    for call in told.calls:
        while event is not None and event["before"] <= call["sequence"]:
            items.append(_between(event))
            event = next(events)
        items.append(_call(call))
    while event is not None:
        items.append(_between(event))
        event = next(events)
    if told.asking is not None:
        asking = told.asking
        said = f"{asking['role']} in {asking['phase']} is being asked: {asking['model']}"
        items.append(tag("li", tag("i"), tag("div", said, class_="between"), data_is="going"))
    return tag("ol", *items, class_="timeline")


def _between(event: Record) -> Html:
    by = f" by {event['by']}" if event["by"] else ""
    why = f": {event['why']}" if event["why"] else ""
    return tag(
        "li",
        tag("i"),
        tag(
            "div",
            tag("b", event["event"]),
            f"{by}{why} ",
            tag("span", f"→ {words(event['status'])} ", class_="faint"),
            tag("time", _time(event["timestamp"]), class_="faint num"),
            tag("q", event["guidance"]) if event["guidance"] else None,
            class_="between",
        ),
        data_is="quiet",
    )


def _call(call: Record) -> Html:
    response, settings = call["response"], call["request"]["metadata"]
    is_ = ACTED[response["action"]]
    number = call["sequence"]
    tokens = _tokens(call)
    cost = "cost unknown" if response["cost_usd"] is None else f"${response['cost_usd']:.4f}"
    figures = [f"{response['execution_time_seconds']:.1f} s", cost]
    if tokens is not None:
        figures.append(plural(tokens, "token"))
    header = tag(
        "header",
        tag("a", f"{number} · {settings.get('phase') or 'no phase'}", href=f"#call-{number}"),
        _state(call["heard"], is_),
        tag("span", f"→ {words(response['new_status'])}", class_="faint"),
        tag("span", " · ".join(figures), class_="end num"),
    )
    model = settings.get("model") or "model unknown"
    asked = [settings.get("role"), " ", tag("span", model, class_="id"), " "]
    article = tag(
        "article",
        header,
        tag("p", *asked, tag("time", _time(call["timestamp"]), class_="num"), class_="asked"),
        tag("p", response["summary_for_supervisor"], class_="says"),
        _wrongs(call["wrong"]),
        _evidence(call["evidence"]),
        _gate(response.get("gate")),
        _changes(response.get("measured_files")),
        _more("Prompt", call["request"]["prompt"]),
        _more("Reply", response["raw_response"]),
        class_="call",
        id=f"call-{number}",
    )
    return tag("li", tag("i"), article, data_is=is_)


def _wrongs(wrong: list[Record]) -> Html | None:
    rows = [tag("li", each["reason"], data_is="bad" if each["bad"] else "care") for each in wrong]
    return tag("ul", *rows, class_="wrongs") if rows else None


def _evidence(files: list[Record]) -> Html | None:
    rows = [
        tag(
            "li",
            each["path"],
            tag("small", f" {each['state']}") if each["state"] != "there" else None,
            data_state=each["state"],
        )
        for each in files
    ]
    return tag("ul", tag("li", "Evidence", class_="word"), *rows, class_="paths") if rows else None


def _gate(gate: Record | None) -> Html | None:
    if gate is None:
        return None
    runs = [
        f"$ {each['run']}\n{each['output'].rstrip()}\n[exit {each['exit_code']}, "
        f"{each['seconds']:.1f} s]"
        for each in gate["runs"]
    ]
    title = "Gates passed" if gate["ok"] else "A gate failed"
    return _more(title, "\n\n".join(runs), open_=not gate["ok"])


def _changes(changes: Record | None) -> Html | None:
    if not changes or not any(changes.values()):
        return None
    rows = [
        tag("li", f"{mark} {path}")
        for name, mark in (("added", "+"), ("changed", "~"), ("removed", "−"))
        for path in changes.get(name, ())
    ]
    return tag("ul", tag("li", "Changed", class_="word"), *rows, class_="paths")


def _more(title: str, text: str | None, *, open_: bool = False) -> Html | None:
    if not text:
        return None
    kept = text[:_LONGEST]
    rest = len(text) - len(kept)
    more = f"\n… {plural(rest, 'character')} more in the history" if rest else ""
    size = tag("span", f" {plural(len(text), 'character')}", class_="faint")
    return tag("details", tag("summary", title, size), tag("pre", kept + more), open=open_)


def _points(points: list[Record]) -> Html:
    rows = [
        tag(
            "tr",
            tag("td", each["id"], class_="id"),
            tag("td", each["description"]),
            tag("td", tag("a", f"call {each['sequence']}", href=f"#call-{each['sequence']}")),
            tag("td", each["resume_phase"] or "the end"),
            tag("td", each["metadata"].get("confidence")),
        )
        for each in points
    ]
    names = ("Point", "What", "After", "Goes on with", "Confidence")
    return tag(
        "table",
        tag("thead", tag("tr", *(tag("th", name) for name in names))),
        tag("tbody", *rows),
        class_="points",
    )


def _diff(text: str) -> Html:
    kept = text[:_LONGEST]
    lines: list[Child] = []
    for line in kept.splitlines():
        match line[:1]:
            case "+" if not line.startswith("+++"):
                lines.append(tag("ins", line))
            case "-" if not line.startswith("---"):
                lines.append(tag("del", line))
            case "@":
                lines.append(tag("i", line))
            case _ if line.startswith("diff "):
                lines.append(tag("b", line))
            case _:
                lines.append(line)
        lines.append("\n")
    if len(kept) < len(text):
        lines.append("… the rest: holdfast job diff --patch")
    return tag("pre", *lines, class_="diff")


def _foot(job: Job, damage: Sequence[str] | None) -> Html:
    head = job.log.head()
    verified = "damaged, see above" if damage else "every line is what was written"
    if damage is None:
        verified = "not verified"
    told = (
        f"Holdfast {__version__}, {job.now()}. Line {head.seq} of history.jsonl, hash {head.hash}: "
    )
    return tag("footer", told, verified, ".")


def _state(words: str, is_: str) -> Html:
    return tag("span", tag("i", aria_hidden="true"), words, class_="state", data_is=is_)


def _time(stamp: str | None) -> str:
    return (stamp or "").replace("T", " ").removesuffix("Z")
