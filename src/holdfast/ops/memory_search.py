"""The verbs that find what agents recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from holdfast.clock import utc_stamp
from holdfast.errors import UsageError
from holdfast.ledger.book import agents
from holdfast.memory.sources import SOURCES
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Row, Rows
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, Since, known_agent, moment

if TYPE_CHECKING:
    from holdfast.memory.search import MemoryHit

_SHOWN = 200


@example(
    'holdfast memory search "Which port does the API use?" --agent rio',
    columns="score agent source when text",
)
def search(
    call: Context,
    query: Annotated[str, Arg("What to look for, in any words", positional=True, or_file=True)],
    *,
    agent: Annotated[Sequence[str], Arg("Only this agent's memory; repeatable")] = (),
    all: Annotated[bool, Arg("The memory of all agents, and jobs")] = False,
    topic: Annotated[str | None, Arg("Only under this topic", metavar="a/b")] = None,
    source: Annotated[
        Sequence[str], Arg(f"Only of this kind: {', '.join(SOURCES)}; repeatable")
    ] = (),
    tag: Annotated[Sequence[str], Arg("Only with this tag; repeatable")] = (),
    since: Since = None,
    until: Annotated[str | None, Arg("Before then: 2h, 7d, a date or a time", metavar="T")] = None,
    k: Annotated[int, Arg("At most so many hits")] = 8,
    by_session: Annotated[bool, Arg("The best text of each session, job or file")] = False,
    decay: Annotated[
        float | None, Arg("A text keeps exp(-DECAY) of its score for each day of its age")
    ] = None,
    fresh: Annotated[float | None, Arg("A new text gets up to so much in addition")] = None,
    diversity: Annotated[float, Arg("Lower what repeats a better hit: 0 to 1")] = 0.0,
    explain: Annotated[bool, Arg("Show what each score is made of")] = False,
) -> Rows:
    from holdfast.agents.recall import open_recall
    from holdfast.memory.search import Filters, Recency

    if not query.strip():
        raise UsageError(
            "nothing to search for: the query is empty",
            hint="give words; `holdfast memory show --agent NAME --topic /` lists all data",
        )
    if bool(agent) == all:
        raise UsageError("give either --agent or --all", hint="--agent NAME, or --all")
    if unknown := set(source) - set(SOURCES):
        kinds = ", ".join(SOURCES)
        raise UsageError(f"no such source: {min(unknown)[:80]!r}", hint=f"one of {kinds}")
    home = call.home()
    usual = home.settings.recency
    recency = Recency(usual[0] if decay is None else decay, usual[1] if fresh is None else fresh)
    if k < 1 or min(recency) < 0 or not 0 <= diversity <= 1:
        raise UsageError("--k is below 1, or a weight is out of its range", hint="--k 8 --decay 0")
    known = [] if all else agents(home, call.layout)
    names = [known_agent(name, known) for name in agent]
    with open_recall(home, call.layout, keep=call.adopted) as recall:
        hits = recall.search(
            query,
            agents=None if all else names,
            k=k,
            filters=Filters(
                topic or "",
                source,
                tag,
                moment(since, home) if since else None,
                moment(until, home) if until else None,
            ),
            recency=recency,
            diversity=diversity,
            by_session=by_session,
            patience=None,
            progress=call.progress("indexing"),
        )
        for warning in recall.warnings:
            call.warn(warning)
    rows = [_row(hit) for hit in hits]
    plain = [line for row in rows for line in _explained(row)] if explain else None
    return Rows(rows, {"hits": len(rows)}, plain=plain)


def _row(hit: MemoryHit) -> Row:
    return {
        "id": hit.id,
        "score": round(hit.score, 4),
        "agent": hit.agent,
        "source": hit.source,
        "topic": hit.topic,
        "session": hit.session,
        "when": utc_stamp(hit.ts) if hit.ts is not None else None,
        "text": hit.text,
        "from": hit.reported_by or None,
        "superseded_by": hit.superseded_by or None,
        "parts": {name: round(value, 4) for name, value in hit.parts.items()},
    }


def _explained(row: Row) -> list[str]:
    text = " ".join(row["text"].split())
    parts = " ".join(f"{name}={value:g}" for name, value in row["parts"].items())
    corrected = f"  superseded by {row['superseded_by']}" if row["superseded_by"] else ""
    if row["from"]:
        corrected += f"  from {row['from']}"
    where = f"{row['agent'] or 'job'}  {row['source']}  {row['topic']}  {row['when'] or 'undated'}"
    return [
        f"{row['score']:.4f}  {where}  {row['id']}",
        f"  {text[:_SHOWN]}{'…' if len(text) > _SHOWN else ''}",
        f"  {parts}{corrected}",
    ]


@example("holdfast memory reindex")
def reindex(call: Context) -> Change:
    """Texts whose words did not change keep their vectors. Each agent's fmm.json then describes the
    index of vectors under `retrieval/ivf`.
    """
    from holdfast.agents.recall import open_recall
    from holdfast.memory.index import FOLDER
    from holdfast.memory.topics import Topics

    home = call.home_to_change()
    with open_recall(home, call.layout) as recall:
        read = recall.reindex(call.progress("reading"))
        texts, built = recall.index.size(), recall.build(call.progress("embedding"))
        for warning in recall.warnings:
            call.warn(warning)
    for name, known in built.items():
        with call.agent(name, change=True) as agent, Topics(home, agent.key) as topics:
            topics.set_index(known)
    detail = f"{texts} texts indexed from {read} lines and files"
    ivf = next(iter(built.values()), None)
    detail += f"; {sum(each['count'] for each in built.values())} vectors" if ivf else ""
    data = {"texts": texts, "read": read, "vectors": built}
    return Change(FOLDER, applied=True, detail=detail, data=data)
