"""The pages of campaigns: all, and one with its scores, rounds, plans, diffs and lessons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from markupsafe import Markup

from holdfast.charts import svg
from holdfast.errors import HoldfastError
from holdfast.improve.overview import curve_of, overview
from holdfast.improve.pictures import pictures
from holdfast.improve.shown import of_home
from holdfast.ops.improve import open_campaign
from holdfast.web.api import Opener
from holdfast.web.job_pages import Ask

MOST_ROUNDS, MOST_LESSONS, MOST_PATCH = 100, 30, 60_000


def add(router: APIRouter, opened: Opener, ask: Ask, page: Callable[..., str]) -> None:
    @router.get("/improve")
    def all_campaigns() -> str:
        return page("campaigns.html", rows=ask("improve list")["rows"])

    @router.get("/improve/{name}")
    def campaign(
        name: str,
        round: Annotated[int | None, Query(ge=1)] = None,
        executor: str | None = None,
    ) -> str:
        with opened() as context, open_campaign(context, context.home(), name, None) as journal:
            data = overview(journal.state(), alive=journal.holder() is not None)
            shown = of_home(context.home(), journal.place.root)
            number = round or data["round"] or data["iterations"]
            plans = list(shown.judged_plans(number))
        curve = curve_of(data)
        patch, wrong = _patch(ask, name, number, executor, data)
        return page(
            "campaign.html",
            campaign=name,
            it=data,
            # `charts` escapes every text.
            charts=[(each.title, Markup(svg([each]))) for each in pictures(curve)],
            number=number,
            chosen=round,
            plans=plans,
            report=shown.merge_report(number),
            executor=executor,
            lines=patch[:MOST_PATCH].split("\n") if patch else [],
            rest=max(0, len(patch) - MOST_PATCH),
            wrong=wrong,
            rounds=data["rounds"][-MOST_ROUNDS:][::-1],
            lessons=curve.lessons[-MOST_LESSONS:][::-1],
        )


def _patch(
    ask: Ask, name: str, number: int, executor: str | None, data: dict[str, Any]
) -> tuple[str, HoldfastError | None]:
    """Of the candidate that is asked for, else what the round merged."""
    merged = any(
        each["iteration"] == number and each["status"] == "merged" for each in data["rounds"]
    )
    if not merged and executor is None:
        return "", None
    try:
        found = ask("improve diff", campaign=name, round=number, executor=executor)
    except HoldfastError as error:
        return "", error
    return str(found["data"]["patch"]).rstrip("\n"), None
