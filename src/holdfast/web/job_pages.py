"""The pages of jobs: all of them, one of them, a call of one, and what waits for a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Query
from fastapi.responses import Response

from holdfast.contracts.job_states import STATES
from holdfast.errors import HoldfastError, NotFound
from holdfast.jobs.report import in_order
from holdfast.ops.job_damage import DAMAGED

PAGE_OF_CALLS, MOST_CALLS = 20, 2000
MOST_DECISIONS = 50
MOST_PATCH = 400_000
"""Characters of a patch, as an export has it: the verb has the rest."""
_ORDER = {"RUNNING": 1, "PENDING": 2, "REVIEWING": 2, "DRAFT": 3}


class Ask(Protocol):
    """What a verb says."""

    def __call__(self, name: str, **arguments: Any) -> dict[str, Any]: ...


def add(router: APIRouter, ask: Ask, page: Callable[..., str]) -> None:
    @router.get("/jobs")
    def jobs(
        status: Annotated[str, Query(max_length=40)] = "", waiting: Annotated[bool, Query()] = False
    ) -> str:
        every = ask("job list")
        found = (
            ask("job list", status=status or None, waiting=waiting) if status or waiting else every
        )
        return page(
            "jobs.html",
            jobs=sorted(found["rows"], key=_first),
            counts=every["counts"],
            states=[each for each in (DAMAGED, *STATES) if each in every["counts"]],
            chosen=status,
            waiting=waiting,
            as_of=found["as_of"],
        )

    @router.get("/jobs/{id}")
    def job(id: str, calls: Annotated[int, Query(ge=1, le=MOST_CALLS)] = PAGE_OF_CALLS) -> str:
        shown = ask("job show", id=id)
        told = ask("job history", id=id, format="json", limit=calls)
        history = told["data"]
        return page(
            "job.html",
            job=shown["data"],
            items=in_order(history["interactions"], history["events"])[::-1],
            asking=history["asking"],
            points=history["recovery_points"][::-1],
            models=_models(shown["data"]["phases"]),
            total=history["calls"],
            shown=len(history["interactions"]),
            more=min(MOST_CALLS, calls * 3),
            as_of=shown["as_of"],
            warnings=told.get("warnings", []),
            verified=history["verified"],
        )

    @router.get("/jobs/{id}/call/{number}")
    def one_call(id: str, number: int) -> str:
        shown = ask("job show", id=id)["data"]
        told = ask("job history", id=id, format="json", only=number)
        found = told["data"]["interactions"]
        # Jobs of other systems, imported before, may have several calls of one number.
        return page("call.html", job=shown, call=found[-1], warnings=told.get("warnings", []))

    @router.get("/jobs/{id}/replay")
    def replay(id: str) -> str:
        shown, found, differs = ask("job show", id=id)["data"], None, None
        try:
            found = ask("job replay", id=id)["data"]
        except HoldfastError as error:
            if error.code not in ("replay_differs", "corrupt"):
                raise
            differs = error
        return page("replay.html", job=shown, found=found, differs=differs)

    @router.get("/decisions")
    def decisions() -> str:
        found = ask("job list", waiting=True)
        some = found["rows"][:MOST_DECISIONS]
        return page(
            "decisions.html",
            jobs=[ask("job show", id=row["job"])["data"] for row in some],
            more=len(found["rows"]) - len(some),
            as_of=found["as_of"],
        )

    _add_files(router, ask, page)


def _add_files(router: APIRouter, ask: Ask, page: Callable[..., str]) -> None:
    """What is read of a job beside its page: its files, and itself as a file."""

    @router.get("/jobs/{id}/files")
    def files(id: str) -> str:
        shown, patch, wrong = ask("job show", id=id)["data"], "", None
        try:
            patch = ask("job diff", id=id, patch=True)["data"]["patch"].rstrip("\n")
        except HoldfastError as error:
            wrong = error
        lines, rest = patch[:MOST_PATCH].split("\n"), len(patch) - MOST_PATCH
        return page("files.html", job=shown, lines=lines if patch else [], rest=rest, wrong=wrong)

    @router.get("/jobs/{id}/{name}.html")
    def export(id: str, name: str) -> Response:
        if name != id:
            raise NotFound("there is no such page", hint=f"/jobs/{id}/{id}.html is the export")
        text = ask("job history", id=id, format="html")["data"]["html"]
        return Response(text, media_type="text/html; charset=utf-8", headers=_kept(f"{id}.html"))

    @router.get("/jobs/{id}/{name}.csv")
    def table(id: str, name: str) -> Response:
        if name != id:
            raise NotFound("there is no such page", hint=f"/jobs/{id}/{id}.csv is the table")
        text = ask("job show", id=id, csv=True)["data"]["csv"]
        return Response(text, media_type="text/csv; charset=utf-8", headers=_kept(f"{id}.csv"))


def _kept(name: str) -> dict[str, str]:
    """As a file: its own style is not one that a page of ours may have."""
    return {"content-disposition": f'attachment; filename="{name}"'}


def _first(row: dict[str, Any]) -> tuple[int, float, str]:
    """Those that need somebody, then those that go on, in the order of the queue."""
    needs = row["waits_for"] or row["runner_gone"] or row["status"] == DAMAGED
    place = 0 if needs else _ORDER.get(row["status"], 4)
    rank = row["rank"]
    return place, float("inf") if rank is None else rank, row["job"]


def _models(phases: list[dict[str, Any]]) -> list[tuple[str | None, list[str]]]:
    """Each model with the phases that it does: a job may have hundreds of them."""
    found: dict[str | None, list[str]] = {}
    for each in phases:
        found.setdefault(each["model"], []).append(each["name"])
    return list(found.items())
