"""The verbs that study runs: measures, pictures, and one agent under test."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.agents.agent import Agent, opened
from holdfast.agents.chat import Chat
from holdfast.agents.forking import fork as forked
from holdfast.charts import png, svg
from holdfast.codec import MAX_DOCUMENT, DecodeError, decode
from holdfast.contracts.swarm import CLUSTER_RUN, TEST_RUN
from holdfast.errors import NotFound, UsageError
from holdfast.ids import key_parts
from holdfast.ledger.book import agents
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Show
from holdfast.ops.model import chosen
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.swarm import analysis, harness
from holdfast.swarm.pictures import pictures
from holdfast.swarm.run import Run, run_names
from holdfast.text import clip, one_line
from holdfast.text import duration as seconds_of
from holdfast.userfile import put_over

if TYPE_CHECKING:
    from holdfast.store.home import Home

KINDS = ("cluster_run_", "test_run_")
_SHOWN, _STEPS = 8, 20
SEALED, BASELINE = "[sealed]", "-baseline"
Which = Annotated[
    str,
    Arg(
        "A run of the home, or the file of one, also of another system",
        positional=True,
        or_file=True,
        bare_file=True,
    ),
]


@example("holdfast swarm analyze test_run_20261119-064700")
def analyze(
    context: Context,
    run: Which,
    *,
    compare: Annotated[
        str | None,
        Arg("Another run, shown with the difference", or_file=True, bare_file=True, metavar="RUN"),
    ] = None,
) -> Show:
    """Words are separated by white space; tokens are shown where the model reported them. Entropy
    is in bits, evenness 1 where every agent replied equally often. Drift is 0 for a baton of the
    same words as the one before, 1 for one without a word in common. A run with a baseline is shown
    beside it.
    """
    name, document = found_run(context, run)
    data = {"run": name or "run", **analysis.analyze(document)}
    compare = compare or _baseline_of(context, name)
    if compare is None:
        return Show(data, text="\n".join([*_measured([data], {}), "", *_agents(data)]))
    name, document = found_run(context, compare)
    other = {"run": name or "compared", **analysis.analyze(document)}
    gaps = analysis.difference(data, other)
    agents = (line for each in (data, other) for line in ("", f"{each['run']}:", *_agents(each)))
    text = "\n".join([*_measured([data, other], gaps), *agents])
    return Show({**data, "compare": other, "difference": gaps}, text=text)


@example("holdfast swarm plot test_run_20261119-064700 --out run.svg")
def plot(
    context: Context,
    run: Which,
    *,
    out: Annotated[
        str, Arg("The picture: a name that ends in .svg or .png", metavar="FILE", is_path=True)
    ],
) -> Change:
    """Router scores by tick, replies by agent, timeline and drift of the baton. PNG needs the extra
    `plot`. A file of that name is replaced.
    """
    kind = os.path.splitext(out)[1].lower()
    if kind not in (".svg", ".png"):
        raise UsageError(f"not a picture: {out}", hint="name a file that ends in .svg or .png")
    _, document = found_run(context, run)
    charts = pictures(document)
    picture = svg(charts, alone=True)
    data = picture.encode() if kind == ".svg" else png(picture)
    applied = put_over(out, data)
    titles = [chart.title for chart in charts]
    return Change(
        out, applied, f"{len(charts)} charts in {out}", {"bytes": len(data), "charts": titles}
    )


@example("holdfast swarm test --agent rio --iterations 14 --model scripted:echo")
def test(
    context: Context,
    *,
    agent: Annotated[str, Arg("The agent under test")],
    iterations: Annotated[int | None, Arg("Steps of the test; 20 where no --duration is")] = None,
    duration: Annotated[str | None, Arg("Go on for so long instead", metavar="D")] = None,
    max_forks: Annotated[int, Arg("The most children to make of it")] = 3,
    model: Annotated[str | None, Arg("provider:name; see `model list`")] = None,
    max_cost: Annotated[
        float | None, Arg("The most that all chats may cost together, in USD", metavar="USD")
    ] = None,
) -> Change:
    """Every seventh step forks the agent, every fifth counts the lines of its files, the others
    chat with it, in one session. Writes test_run_TIME.json, .txt and .log. Exits with 1 if a step
    failed.
    """
    if iterations is not None and duration is not None:
        raise UsageError("both --iterations and --duration", hint="give one of them")
    steps = _STEPS if iterations is None else iterations
    if not 1 <= steps <= harness.MOST_ITERATIONS or max_forks < 0:
        hint = f"--iterations 1 to {harness.MOST_ITERATIONS}, --max-forks 0 or more"
        raise UsageError("no such number of steps or forks", hint=hint)
    plan = harness.Plan(max_forks=max_forks)
    if duration is not None:
        plan = plan._replace(seconds=seconds_of(duration))
    else:
        plan = plan._replace(iterations=steps)
    home, layout = context.home_to_change(), context.layout
    with (
        opened(home, agent, layout) as one,
        closing(chosen(context, home, one.name, model)) as asked,
    ):
        logs = [home.log(one.key(part)) for part in ("conversation", "events")]

        def fork(note: str) -> str:
            known = set(agents(home, layout))
            free = (f"{one.name}-child{number}" for number in count(1))
            name = next(name for name in free if name not in known)
            with Agent(home, name, layout) as child:
                forked(home, one, child, name, note)
            return name

        with Chat(home, one, asked, max_cost=max_cost) as talk:

            def say(text: str) -> str:
                reply = talk.say(text).text
                return SEALED if talk.said.sealing else reply

            def lines() -> tuple[int, int]:
                memory, events = (sum(1 for _ in log.read()) for log in logs)
                return memory, events

            subject = harness.Subject(one.name, asked.ref, say, fork, lines)
            progress = context.progress(f"testing {one.name}")
            done = harness.test(home, layout.path("runs"), subject, plan, progress)
            talk.failed = ""
    counts, path = done["counts"], done["logs"]["json"]
    detail = ", ".join(f"{name} {number}" for name, number in counts.items())
    return Change(
        path,
        applied=True,
        detail=f"{detail} in {done['elapsed_sec']:.2f} s: {path}",
        data={name: value for name, value in done.items() if name != "events"},
        exit_code=ATTENTION if counts["errors"] else 0,
    )


def found_run(context: Context, run: str) -> tuple[str, dict[str, Any]]:
    """The name and the document of a run, given by its name or as the text of its file, which has
    no name."""
    text = run.lstrip("\ufeff \t\r\n")
    if text.startswith(("{", "[")) or not text:
        name, data = "", run.encode()
    else:
        name, data = _in_home(context, run.strip())
    try:
        value = decode(data.strip(), limit=MAX_DOCUMENT)
    except DecodeError as error:
        raise UsageError(f"not the file of a run: {error}", hint=_LIKE) from None
    if not isinstance(value, dict) or "events" not in value:
        raise UsageError("not the file of a run: no object with `events`", hint=_LIKE)
    kind = TEST_RUN if analysis.is_test(value) else CLUSTER_RUN
    findings = kind.read(value).findings
    for each in findings[:_SHOWN]:
        context.warn(f"{each.field}: {each.reason}" if each.field else each.reason)
    if len(findings) > _SHOWN:
        context.warn(f"{len(findings) - _SHOWN} more; `holdfast validate` shows them")
    return name, value


_LIKE = "such as logs/cluster_run_RUN.json or logs/test_run_RUN.json"


def _in_home(context: Context, name: str) -> tuple[str, bytes]:
    home, folder = context.home(), context.layout.path("runs")
    stems = [name] if name.startswith(KINDS) else [f"{kind}{name}" for kind in KINDS]
    if name in run_names(home, context.layout):  # its document may lag behind its log
        with Run(home, name, context.layout) as one:
            if (state := one.state())["run"]:
                return KINDS[0] + name, b"".join(one.chunks(state))
    for stem in stems if len(key_parts(name)) == 1 else ():
        text = home.document(f"{folder}/{stem}.json").read()
        if text is not None:
            return stem, text.data
    known = runs_in(home, folder)[:_SHOWN]
    raise NotFound(
        f"no such run: {name[:80]}",
        hint=f"known: {', '.join(known)}" if known else "`holdfast swarm run` makes one",
    )


def _baseline_of(context: Context, name: str) -> str | None:
    """The run of the single best agent on as many tokens, if there is one."""
    run = name.removeprefix(KINDS[0])
    if name and f"{run}{BASELINE}" in run_names(context.home(), context.layout):
        return f"{run}{BASELINE}"
    return None


def runs_in(home: Home, folder: str) -> list[str]:
    """The names of the runs whose documents are in a folder, the newest first."""
    names = [
        name.removesuffix(".json")
        for name in home.names(folder)
        if name.startswith(KINDS) and name.endswith(".json")
    ]
    return sorted(names, key=lambda name: (name.partition("_run_")[2], name), reverse=True)


# --- for people -----------------------------------------------------------------------------

_MEASURES = (
    ("model", "model"),
    ("agents", "agents"),
    ("ticks", "ticks"),
    ("elapsed_sec", "elapsed, s"),
    ("replies", "replies"),
    ("nonempty_ratio", "replies with text, share"),
    ("tokens.words", "words of replies"),
    ("tokens.prompt_words", "words of prompts"),
    ("tokens.reported_input", "tokens in, reported"),
    ("tokens.reported_output", "tokens out, reported"),
    ("tokens.words_per_second", "words a second"),
    ("cost_usd", "cost, USD"),
    ("latency.measured", "latency measured"),
    ("latency.p50", "latency p50, s"),
    ("latency.p95", "latency p95, s"),
    ("latency.max", "latency max, s"),
    ("load.entropy", "load entropy, bits"),
    ("load.evenness", "load evenness"),
    ("load.std", "load std"),
    ("load.cov", "load std/mean"),
    ("load.max_min", "load max/min"),
    ("baton.mean_drift", "baton drift, mean"),
    ("baton.max_drift", "baton drift, max"),
    ("baton.drift_from_goal", "baton drift from goal"),
    ("errors.count", "errors"),
)


def _measured(runs: Sequence[Mapping[str, Any]], gaps: Mapping[str, float]) -> Iterator[str]:
    more = ["difference"] if len(runs) > 1 else []
    table = [["measure", *(str(each["run"]) for each in runs), *more]]
    for path, label in _MEASURES:
        gap = [f"{gaps[path]:+.4g}" if path in gaps else ""] if more else []
        table.append([label, *(_shown(_at(each, path)) for each in runs), *gap])
    return _table(table)


def _agents(data: Mapping[str, Any]) -> Iterator[str]:
    table = [["agent", "replies", "share", "summaries", "errors", "words", "moe calls"]]
    for name, agent in data["per_agent"].items():
        cells = [*agent.values(), data["moe_distribution"].get(name, 0)]
        table.append([one_line(name), *map(_shown, cells)])
    yield from _table(table)
    yield from (f"error: {clip(one_line(text), 200)}" for text in data["errors"]["first"])


def _at(data: Mapping[str, Any], path: str) -> Any:
    value: Any = data
    for name in path.split("."):
        value = value[name]
    return value


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Names to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        first, *cells = row
        figures = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *figures]).rstrip()
