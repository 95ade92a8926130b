"""The pages: each shows what a few verbs say, and is drawn again when something changes.

A page is a template over envelopes.  What a page can do, its buttons do by the same routes under
/api that anybody may call; here is nothing but looking.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.clock import instant_of, utc_stamp, zone
from holdfast.codec import DecodeError, decode
from holdfast.errors import Corrupt, HoldfastError, NotFound
from holdfast.layout import CACHE
from holdfast.look.page import templates
from holdfast.ops.inbox import Mail, mail_of
from holdfast.ops.jobs import decisions
from holdfast.ops.operation import Table
from holdfast.text import ago
from holdfast.web import improve_pages, job_pages, memory_pages, swarm_pages
from holdfast.web.api import Opener
from holdfast.web.calls import Calls, LookingRouter
from holdfast.web.job_pages import Ask
from holdfast.web.sections import Sections

PAGE_OF_EVENTS = 100
MOST_LETTERS = 30
PAGE_OF_TURNS, MOST_TURNS = 15, 500
PROOF = f"{CACHE}/proof.json"
_MEANINGS = {
    "good": (
        *("idle", "completed", "ok", "answered", "done", "merged", "approved", "success"),
        *("finalized", "target_reached", "max_iterations"),
    ),
    "going": ("busy", "running", "active", "under way"),
    "quiet": ("offline", "unknown"),
    "care": (
        *("stale", "timeout", "parked", "expired", "stopped", "regression", "plateau"),
        *("circuit_breaker", "budget", "user_stopped", "all_rejected", "not merged"),
    ),
    "bad": ("error", "crashed", "dead", "bad", "failed", "interrupted", "rejected"),
}
"""What states mean, which is what their colour and their shape say."""
CLOSED = ("completed", "dropped")
_NO_TALK: dict[str, Any] = {"turns": [], "told": {}, "more_turns": 0, "model": None, "models": []}
_NO_MAIL = Mail([], 0, [])
_NOTHING_SPENT: dict[str, Any] = {"usd": None, "unknown": 0, "left_usd": None}


def _age(seconds: float | None) -> str:
    return "never" if seconds is None else ago(seconds)


def length(row: Mapping[str, Any]) -> str:
    """How long a session took."""
    began, ended = row.get("started_at"), row.get("ended_at")
    if not began or not ended:
        return ""
    try:
        return ago(instant_of(str(ended)) - instant_of(str(began)))
    except ValueError:
        return ""


def money(usd: object) -> str:
    return f"${usd:,.2f}" if isinstance(usd, int | float) else "?"


def meaning(state: object) -> str:
    return next((mean for mean, states in _MEANINGS.items() if state in states), "quiet")


_pages = templates(Path(__file__).parent / "templates")
_FILTERS: dict[str, Any] = {
    "ago": _age,
    "at": utc_stamp,
    "length": length,
    "money": money,
    "meaning": meaning,
}
_pages.filters.update(_FILTERS)


def draw(name: str, **values: Any) -> str:
    return _pages.get_template(name).render(values)


def message(title: str, text: str, hint: str = "", up: str = "/") -> str:
    return draw("message.html", title=title, text=text, hint=hint, up=up)


def trouble(error: HoldfastError, path: str) -> str:
    title = "Not found" if isinstance(error, NotFound) else "That did not work"
    title = "Damaged" if isinstance(error, Corrupt) else title
    up = next((up for up in ("/jobs", "/swarms", "/improve") if path.startswith(f"{up}/")), "/")
    return message(title, error.message, error.hint or "", up)


def routes(table: Table, opened: Opener, calls: Calls, *, read_only: bool) -> APIRouter:
    verbs = {each.name: each for each in table.operations}
    router = LookingRouter(calls, include_in_schema=False, default_response_class=HTMLResponse)

    def ask(name: str, **arguments: Any) -> dict[str, Any]:
        """What a verb says."""
        with opened() as context:
            return verbs[name].answer(context, arguments)

    def page(template: str, **values: Any) -> str:
        with opened() as context:
            home = context.home()
            shared = {"today": home.day(), "zone": zone(home.settings.timezone), "decisions": 0}
            with suppress(HoldfastError):  # the page of jobs shows what is wrong with them
                shared["decisions"] = decisions(context)
        return draw(template, read_only=read_only, **shared, **values)

    job_pages.add(router, ask, page)
    swarm_pages.add(router, opened, ask, page)
    improve_pages.add(router, opened, ask, page)
    memory_pages.add(router, ask, page)

    @router.get("/")
    def fleet() -> str:
        found, spent = ask("status"), ask("budget show")
        recent = ask("ledger list", limit=30)
        return page(
            "fleet.html",
            agents=found["rows"],
            counts=found["counts"],
            spent=spent["rows"][-1],
            events=recent["rows"][::-1],
            proof=_proof(opened),
        )

    @router.get("/agent/{name}")
    def agent(name: str, turns: Annotated[int, Query(ge=1, le=MOST_TURNS)] = PAGE_OF_TURNS) -> str:
        (row,) = ask("status", agent=name)["rows"]
        asked = {"agent": row["agent"]}
        parts = Sections()

        def rows(part: str, verb: str, **more: Any) -> list[dict[str, Any]]:
            return parts.of(part, lambda: ask(verb, **asked, **more)["rows"], [])

        with opened() as context:
            look = partial(mail_of, context, row["agent"], MOST_LETTERS)
            mail = parts.of("inbox", look, _NO_MAIL)
        # Before the tasks: it may add an edit to the journal, which their failures are read from.
        notes = parts.of("notes", lambda: ask("memory show", **asked)["data"]["text"], "")
        board = parts.of("tasks", lambda: ask("task list", **asked, status="all"), {"rows": []})
        parts.tell("tasks", *board.get("warnings", ()))
        tasks = board["rows"]
        return page(
            "agent.html",
            agent=row,
            sessions=rows("sessions", "session list", limit=20)[::-1],
            events=rows("ledger", "ledger list", limit=40)[::-1],
            spent=[*rows("spent", "budget show"), _NOTHING_SPENT][0],
            letters=mail.letters,
            more_letters=mail.more,
            aside=mail.aside,
            tasks=[each for each in tasks if each["state"] not in CLOSED],
            closed=[each for each in tasks if each["state"] in CLOSED],
            notes=notes,
            **parts.of("turns", lambda: _talk(ask, row["agent"], turns), _NO_TALK),
            wrong=parts.wrong,
        )

    @router.get("/session/{id}")
    def session(id: str) -> str:
        return page("session.html", session=ask("session show", session=id)["data"])

    @router.get("/ledger")
    def ledger(
        agent: Annotated[str, Query(max_length=64)] = "",
        event: Annotated[str, Query(max_length=100)] = "",
        task: Annotated[str, Query(max_length=200)] = "",
        session: Annotated[str, Query(max_length=200)] = "",
        since: Annotated[str, Query(max_length=40)] = "",
        until: Annotated[str, Query(max_length=40)] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = PAGE_OF_EVENTS,
    ) -> str:
        given = {"agent": agent, "event": event, "task": task, "session": session}
        given |= {"since": since, "until": until}
        asked: dict[str, Any] = {name: text for name, text in given.items() if text}
        error: HoldfastError | None = None
        found: dict[str, Any] = {"rows": [], "truncated": False, "counts": {}}
        try:
            found = ask("ledger list", **asked, limit=limit)
        except HoldfastError as problem:
            error = problem  # of what was typed into the form, which stays to be mended
        more = urlencode({**asked, "limit": min(1000, limit * 3)}) if found["truncated"] else ""
        return page(
            "ledger.html",
            given=given,
            found=found,
            events=found["rows"][::-1],
            error=error,
            more=more,
        )

    return router


def _proof(opened: Opener) -> dict[str, Any] | None:
    """What whoever tortures this home has counted: acknowledged, killed, lost."""
    with opened() as context:
        text = context.home().document(PROOF).read()
    try:
        found = decode(text.data) if text is not None else None
    except DecodeError:
        return None
    match found:
        case {"acknowledged": int(), "killed": int(), "lost": int()}:
            return found
        case _:
            return None


def _talk(ask: Ask, agent: str, limit: int) -> dict[str, Any]:
    """The turns of an agent, and which models it can be asked with."""
    found, models = ask("agent turns", agent=agent, limit=limit), ask("model list", agent=agent)
    used = [row["model"] for row in found["rows"] if row["model"]]
    known = [
        row["example"] for row in models["rows"] if not row["needs"] and " " not in row["example"]
    ]
    return {
        "turns": found["rows"],
        "told": found["counts"],
        "more_turns": min(MOST_TURNS, limit * 3)
        if found["truncated"] and limit < MOST_TURNS
        else 0,
        "model": models["counts"]["asked"],
        "models": list(dict.fromkeys([*used, *known])),
    }
