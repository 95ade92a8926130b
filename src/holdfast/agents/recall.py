"""What an agent remembers about the task at hand, for the text that it is given."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast.agents.context import MOST_HITS, Given
from holdfast.agents.findable import origins
from holdfast.errors import StorageError
from holdfast.layout import HOLDFAST, Layout
from holdfast.memory.search import Filters, Recall
from holdfast.memory.sources import CHUNK, SUMMARY, TOPIC, TURN
from holdfast.models.embedders import open_embedder
from holdfast.models.embedding import served
from holdfast.models.marks import in_one_line

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent
    from holdfast.memory.vectors import Embedder
    from holdfast.store.home import Home

LEAST = 1 / 3
"""The share of the best score that a text needs to be worth its room."""


def open_recall(
    home: Home,
    layout: Layout = HOLDFAST,
    *,
    keep: bool = True,
    embedder: Callable[[], Embedder] | None = None,
) -> Recall:
    """The search of a home, with the embedder that its settings name, or another one."""
    opens, ref = embedder, home.settings.embedder
    if opens is None and ref != "none":
        opens = partial(open_embedder, ref)
    return Recall(home, partial(origins, home, layout), keep=keep, embedder=opens or (lambda: None))


def recalled(
    home: Home,
    agent: Agent,
    given: Given,
    about: str = "",
    *,
    seen: Sequence[str] = (),
    keep: bool = True,
    sensitive: bool = False,
) -> Given:
    """The same with what memory has about this, or about the tasks; without what was `seen`.

    Without `keep` nothing is written, not even an index.  What is `sensitive` is not shown to the
    server of an embedder.
    """
    if sensitive and served(home.settings.embedder) is not None:
        return given
    left = given.so_far or given.last or {}
    tasks = [str(task.get("description") or "") for task in given.tasks[:3]]
    about = about or "\n".join(filter(None, [str(left.get("next_priority") or ""), *tasks]))
    if not about:
        return given
    sources = Filters(sources=(TOPIC, TURN, SUMMARY, CHUNK))
    try:
        with open_recall(home, agent.layout, keep=keep) as recall:
            hits = recall.search(about, agents=[agent.name], k=3 * MOST_HITS, filters=sources)
    except (sqlite3.Error, StorageError) as error:
        # The index can be made again; what was asked for is more than a search.
        home.notice("memory_not_searched", f"{agent.name}: {error}")
        return given
    known = {in_one_line(text) for text in (about, *seen)}
    found = [
        hit
        for hit in hits
        if hit.score >= hits[0].score * LEAST
        and not hit.superseded_by
        and "expired" not in hit.parts
        and in_one_line(hit.text) not in known
    ]
    return given._replace(found=found[:MOST_HITS])
