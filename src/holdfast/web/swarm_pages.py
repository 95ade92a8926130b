"""The pages of swarms: all runs, and one run with its pictures, its ticks and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Query
from markupsafe import Markup

from holdfast.charts import Chart, svg
from holdfast.contracts.kind import objects_in
from holdfast.errors import NotFound
from holdfast.ops.swarm_study import found_run, runs_in
from holdfast.swarm import analysis, pictures
from holdfast.swarm.state import EVENTS
from holdfast.web.api import Opener
from holdfast.web.job_pages import Ask

PAGE_OF_TICKS, MOST_TICKS = 10, 500
MOST_ERRORS, MOST_RUNS = 20, 200
OWN = "cluster_run_"


def add(router: APIRouter, opened: Opener, ask: Ask, page: Callable[..., str]) -> None:
    @router.get("/swarms")
    def swarms() -> str:
        own = ask("swarm list")["rows"]
        known = {OWN + row["run"] for row in own}
        with opened() as context:
            every = runs_in(context.home(), context.layout.path("runs"))
        others = [name for name in every if name not in known]
        return page(
            "swarms.html",
            runs=own[:MOST_RUNS],
            others=others[:MOST_RUNS],
            more=max(0, len(own) - MOST_RUNS) + max(0, len(others) - MOST_RUNS),
        )

    @router.get("/swarms/{run}")
    def swarm(run: str, ticks: Annotated[int, Query(ge=1, le=MOST_TICKS)] = PAGE_OF_TICKS) -> str:
        try:
            shown = ask("swarm show", id=run.removeprefix(OWN))["data"]
        except NotFound:
            shown = None  # of a test, or of another system: only the document is there
        with opened() as context:
            try:
                name, document = found_run(context, OWN + shown["run"] if shown else run)
            except NotFound:
                if shown is None:
                    raise
                name, document = run, {"agents": [call["agent"] for call in shown["calls"]]}
            warnings = context.take_warnings()
        found, groups = analysis.analyze(document), list(_ticks(document))
        return page(
            "swarm.html",
            run=shown["run"] if shown else name,
            shown=shown,
            found=found,
            charts=[*_drawn(document)],
            step="Step" if found["kind"] == "test-run" else "Tick",
            ticks=groups[-ticks:][::-1],
            all_ticks=len(groups),
            more=min(MOST_TICKS, ticks * 3) if len(groups) > ticks and ticks < MOST_TICKS else 0,
            errors=[row for _, rows in groups for row in rows if row["error"]][-MOST_ERRORS:][::-1],
            warnings=warnings,
        )


def _drawn(document: Mapping[str, Any]) -> Iterator[tuple[str, Markup]]:
    several = not analysis.is_test(document)
    charts = [pictures.topology(document) if several else None, *pictures.pictures(document)]
    for chart in charts:
        if isinstance(chart, Chart):
            yield chart.title, Markup(svg([chart]))  # `charts` escapes every text


def _ticks(document: Mapping[str, Any]) -> Iterator[tuple[int | None, list[dict[str, Any]]]]:
    """The events by their ticks, those without one with the tick before; of a test each alone."""
    tick: int | None = None
    placed: list[tuple[int | None, dict[str, Any]]] = []
    for step, event in enumerate(objects_in(document.get("events")), 1):
        number = step if analysis.is_test(document) else event.get("tick")
        tick = number if isinstance(number, int) else tick
        if event.get("type") != "input_goal":
            placed.append((tick, _row(event, tick)))
    for number, group in groupby(placed, key=lambda each: each[0]):
        yield number, [row for _, row in group]


def _row(event: Mapping[str, Any], tick: int | None) -> dict[str, Any]:
    """An event as it is shown, whichever fields it has."""
    kind = str(event.get("type"))
    texts = ("from", "reason", "prompt", "reply", "error", "child_id")
    row = {name: str(event[name]) if event.get(name) is not None else None for name in texts}
    agent = event.get(EVENTS.get(kind, "agent"))
    lines = [event.get("tail_mem"), event.get("tail_ev")] if kind == "status" else None
    figures = {name: analysis.number(event.get(name)) for name in ("seconds", "cost_usd")}
    return {**row, **figures, "kind": kind, "agent": agent or "", "tick": tick, "lines": lines}
