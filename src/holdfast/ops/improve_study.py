"""The verbs that study campaigns: what was tried, what it gave, and whether it can be had again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.charts import png, svg
from holdfast.codec import Record
from holdfast.contracts.kind import object_of
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.improve.journal import Journal, campaigns
from holdfast.improve.overview import curve_of, overview
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, Show, tally
from holdfast.ops.improve import Campaign, Session, Trust, confirm, open_campaign, summary
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.text import clip, one_line, plural
from holdfast.userfile import put_over

if TYPE_CHECKING:
    from holdfast.improve.campaign import Parts

Round = Annotated[int | None, Arg("Of which round")]
Executor = Annotated[str | None, Arg("Which candidate of the round, such as executor_2")]
Study = Annotated[
    str | None,
    Arg("Which campaign, or the folder of one; the only one unless given", positional=True),
]
_ROW = (
    *("campaign", "status", "iterations", "merged", "baseline", "best", "gain_percent"),
    *("evaluations", "cost_usd", "unknown_costs", "updated", "objective"),
)
_KINDS = (".svg", ".png", ".html")


@example("holdfast improve list", columns="campaign status iterations merged baseline best")
def list_(call: Context) -> Rows:
    home = call.home()
    rows: list[Record] = []
    for place in campaigns(home):
        with Journal(home, place) as journal:
            data = overview(journal.state(), alive=journal.holder() is not None)
        if data["campaign"]:
            rows.append({name: data[name] for name in _ROW})
    return Rows(rows, tally(rows, "status"))


@example("holdfast improve show sort --round 1")
def show(
    call: Context, campaign: Campaign = None, *, round: Round = None, session_id: Session = None
) -> Show:
    """The rounds of a campaign; with --round the plans of one with their reviews, its results,
    failures and lessons.
    """
    from holdfast.improve.shown import of_home

    with open_campaign(call, call.home(), campaign, session_id) as journal:
        data = overview(journal.state(), alive=journal.holder() is not None)
        root = journal.place.root
    if round is None:
        rounds = (_round_line(each) for each in data["rounds"])
        return Show(_brief(data), text="".join([summary(data), "\n", *rounds]))
    shown = of_home(call.home(), root)
    plans = shown.plans(round)
    if not plans and not shown.merge_report(round):
        raise NotFound(f"no such round: {round}", hint=f"1 to {data['iterations']}")
    found = {"campaign": data["campaign"], "round": round, "plans": plans}
    found |= {"brief": shown.brief(round), "results": shown.results(round)}
    found |= {"history": shown.history(round), "merge_report": shown.merge_report(round)}
    return Show(found, text="\n".join(_round_lines(found, shown.judged_plans(round))))


@example("holdfast improve plot sort --out sort.svg")
def plot(
    call: Context,
    campaign: Study = None,
    *,
    out: Annotated[
        str, Arg("A name that ends in .svg, .png or .html", metavar="FILE", is_path=True)
    ],
    session_id: Session = None,
) -> Change:
    """Scores by round with winners, losers, baseline and its noise, target and families. The
    campaign may be a folder that another system left. PNG needs the extra `plot`. A file of that
    name is replaced.
    """
    from holdfast.improve.pictures import page, pictures

    kind = os.path.splitext(out)[1].lower()
    if kind not in _KINDS:
        raise UsageError(f"not a picture: {out}", hint="name a file that ends in .svg, .png, .html")
    title, curve = _curve(call, campaign, session_id)
    charts = pictures(curve)
    picture = page(curve, title) if kind == ".html" else svg(charts, alone=True)
    content = png(picture) if kind == ".png" else picture.encode()
    applied = put_over(out, content)
    fields = {"bytes": len(content), "charts": [chart.title for chart in charts]}
    fields |= {"candidates": len(curve.points), "best": curve.best}
    return Change(out, applied, f"{plural(len(curve.points), 'candidate')} in {out}", fields)


@example("holdfast improve report sort")
def report(
    call: Context,
    campaign: Campaign = None,
    *,
    control: Annotated[
        bool, Arg("Measure random search first, with as many evaluations as the campaign had")
    ] = False,
    session_id: Session = None,
    trust: Trust = False,
) -> Show:
    """Markdown. Opens with what blocks and what to do next. Beside the result stand the best of
    the candidates that were made from the unchanged repository, and random search over its numbers.
    """
    from holdfast.improve.report import report as written

    if control:
        from holdfast.improve.control import measure

        with open_campaign(call, call.home_to_change(), campaign, session_id) as journal:
            parts = _trusted_parts(call, journal, trust=trust)
            measure(journal, parts, call.tell or (lambda _: None))
            journal.lines.flush()
    with open_campaign(call, call.home(), campaign, session_id) as journal:
        data = overview(journal.state(), alive=journal.holder() is not None)
    return Show(_brief(data), text=written(data), exact=True)


@example("holdfast improve diff sort --round 1")
def diff(
    call: Context,
    campaign: Campaign = None,
    *,
    round: Round = None,
    executor: Executor = None,
    session_id: Session = None,
) -> Show:
    """The patch of the whole campaign; with --round of what that round merged, or of the candidate
    that --executor names.
    """
    with open_campaign(call, call.home(), campaign, session_id) as journal:
        state = journal.state()
        old, new = state["base"], state["head"]
        if round is not None or executor is not None:
            row = _row(state, round, executor)
            old, new = row["parent"], row["commit"] or row["parent"]
        patch = _parts(journal).workshop.diff(old, new)
    return Show({"from": old, "to": new, "patch": patch}, text=patch, exact=True)


@example("holdfast improve replay sort --round 1")
def replay(
    call: Context,
    campaign: Campaign = None,
    *,
    round: Annotated[int, Arg("Of which round")],
    executor: Executor = None,
    session_id: Session = None,
    trust: Trust = False,
) -> Show:
    """Measures what merged in that round, or the candidate that --executor names, in pairs with
    what it was made from. Nothing that was recorded changes. Exits with 1 if the outcome is another
    one now.
    """
    from holdfast.improve.acceptance import contest

    with open_campaign(call, call.home(), campaign, session_id) as journal:
        state = journal.state()
        row = _row(state, round, executor)
        if row["commit"] is None:
            raise NotFound(f"{row['executor']} of round {round} changed nothing")
        parts = _trusted_parts(call, journal, trust=trust)

        def pair(number: int) -> tuple[float, float]:
            scores = [_score(parts, row[name], number) for name in ("parent", "commit")]
            return scores[0], scores[1]

        exact, higher = state["baseline"]["sd"] == 0, parts.settings.higher
        decided = contest(pair, higher=higher, exact=exact)
    data = {"campaign": state["campaign"], "round": round, "executor": row["executor"]}
    data |= {"recorded": row["benchmark_score"], "won_then": row["is_winner"]}
    data |= {"now": decided.candidate, "base_now": decided.base, "better_now": decided.accepted}
    data |= {"pairs": decided.pairs, "interval": decided.interval, "why": decided.why}
    same = decided.accepted == row["is_winner"]
    text = f"{row['executor']} of round {round}: {decided.why}, {decided.candidate:g} against "
    text += (
        f"{decided.base:g} in {plural(decided.pairs, 'pair')}; recorded {_figure(data['recorded'])}"
    )
    text += ", the same outcome" if same else ", and another outcome"
    code = 0 if same else ATTENTION
    return Show({**data, "same_outcome": same}, text=text, exit_code=code)


# --- shared ---------------------------------------------------------------------------------


def _parts(journal: Journal) -> Parts:
    from holdfast.improve.campaign import Parts
    from holdfast.improve.files import checked

    state = journal.state()
    return Parts(journal, checked(state["settings"]), state["base"])


def _trusted_parts(call: Context, journal: Journal, *, trust: bool) -> Parts:
    """What measures, once the user trusts the command."""
    from holdfast.improve.campaign import check_trust

    parts = _parts(journal)
    check_trust(journal.state(), parts.settings, confirm(call, trust=trust))
    return parts


def _score(parts: Parts, commit: str, seed: int) -> float:
    found = parts.benchmark.evaluate(commit, seed=seed)
    if found.score is None:
        raise NotFound(f"{commit[:12]} has no score: {object_of(found.failure).get('what')}")
    return found.score


def _row(state: Record, round: int | None, executor: str | None) -> Record:
    """A candidate: of the last round unless one is named, what merged unless another is."""
    number = round or (state["rounds"][-1]["iteration"] if state["rounds"] else 0)
    rows = [row for row in state["rows"] if row["iteration"] == number]
    known = [
        row for row in rows if row["executor"] == executor or (not executor and row["is_winner"])
    ]
    if not known:
        names = ", ".join(str(row["executor"]) for row in rows)
        what = f"no {executor} in round {number}" if executor else f"round {number} merged nothing"
        raise NotFound(
            what, hint=f"--executor: {names}" if names else "`improve show` lists rounds"
        )
    return known[0]


def _curve(call: Context, name: str | None, session: str | None) -> tuple[str, Any]:
    """A campaign of the home, or of a folder, and its curve; a folder of its name comes second."""
    from holdfast.improve.shown import in_folder

    folder = name if name is not None and not call.from_afar and os.path.isdir(name) else None
    if folder is None or os.sep not in folder:
        try:
            with open_campaign(call, call.home(), name, session) as journal:
                return journal.place.name, curve_of(overview(journal.state()))
        except HoldfastError:
            if folder is None:
                raise
    return folder, in_folder(folder).curve


def _round_line(one: Record) -> str:
    what = object_of(one["winner"]).get("hypothesis") or one["reason"] or ""
    columns = f"round {one['iteration']:<4} {one['status']:<15} {_figure(one['best']):<10}"
    return f"{columns} {clip(one_line(str(what)), 100)}\n"


def _round_lines(found: Record, plans: Iterable[Record]) -> Iterator[str]:
    """Each plan with its reviews and what came of it."""
    report = found["merge_report"]
    outcome = report.get("status", "under way")
    why = f": {report['reason']}" if report.get("reason") else ""
    yield f"round {found['round']} of {found['campaign']}: {outcome}{why}"
    for plan in plans:
        critic, architect = plan["critic"], plan["architect"]
        yield f"\n{plan.get('planner_id')}, {plan.get('approach_family')}: {plan.get('hypothesis')}"
        reason = f": {critic['rejection_reason']}" if critic.get("rejection_reason") else ""
        yield f"  critic: {critic.get('verdict', 'not yet')}{reason}"
        advice = [architect.get("feedback"), *(architect.get("structural_concerns") or ())]
        yield f"  architect: {': '.join(filter(None, [architect.get('verdict', 'none'), *advice]))}"
        if result := plan["result"]:
            score = _figure(result["benchmark_score"])
            yield f"  {result['executor_id']}: {plan['outcome']} {score}"
        if failure := plan["failure"]:
            yield f"  {failure['category']}: {failure['what']}; lesson: {failure['lesson']}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _brief(data: Record) -> Record:
    return {name: value for name, value in data.items() if name not in ("rows", "population")}
