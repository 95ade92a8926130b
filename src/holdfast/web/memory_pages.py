"""The page of an agent's memory: its topics as a tree, the data of one, and what a search finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from holdfast.web.job_pages import Ask
from holdfast.web.sections import Sections

LEVELS, MOST_TOPICS = 4, 400
MOST_DATA, MOST_HITS = 50, 20
_NO_DATA: dict[str, Any] = {"data": {"data": []}}
_NO_ROWS: dict[str, Any] = {"rows": [], "counts": {}}


def add(router: APIRouter, ask: Ask, page: Callable[..., str]) -> None:
    @router.get("/agent/{name}/memory")
    def memory(
        name: str,
        topic: Annotated[str, Query(max_length=1000)] = "",
        q: Annotated[str, Query(max_length=2000)] = "",
    ) -> str:
        (row,) = ask("status", agent=name)["rows"]
        agent, parts = row["agent"], Sections()
        levels = LEVELS + (len(topic.split("/")) if topic else 0)
        look = partial(ask, "memory tree", agent=agent, topic=topic or "/", depth=levels)
        tree = parts.of("tree", look, _NO_ROWS)
        data, hits = _NO_DATA, _NO_ROWS
        if q.strip():
            find = partial(ask, "memory search", query=q, agent=[agent], k=MOST_HITS)
            hits = parts.of("hits", partial(find, topic=topic or None), _NO_ROWS)
        elif topic:
            show = partial(ask, "memory show", agent=agent, topic=topic, newest=MOST_DATA)
            data = parts.of("data", show, _NO_DATA)
        for part, found in (("tree", tree), ("data", data), ("hits", hits)):
            parts.tell(part, *found.get("warnings", ()))
        return page(
            "memory.html",
            agent=agent,
            topic=topic,
            above="/".join(topic.split("/")[:-1]),
            q=q,
            tree=_nested(tree["rows"][:MOST_TOPICS]),
            counts=tree["counts"],
            more_topics=max(0, len(tree["rows"]) - MOST_TOPICS),
            data=data["data"]["data"][::-1],
            hits=hits["rows"],
            wrong=parts.wrong,
        )


def _nested(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The topics as a tree; a name that has no data of its own stands there for those below it."""
    top: dict[str, Any] = {"below": {}}
    for row in rows:
        at, names = top, row["topic"].split("/") if row["topic"] != "/" else ["/"]
        for number, name in enumerate(names, 1):
            new: dict[str, Any] = {"name": name, "topic": "/".join(names[:number]), "data": 0}
            at = at["below"].setdefault(name, {**new, "below": {}})
        at |= {"data": row["data"], "newest": row["newest"]}
    return _listed(top)


def _listed(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**inner, "below": _listed(inner)} for inner in node["below"].values()]
