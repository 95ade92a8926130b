"""The verbs of an agent's memory: memory.md, and its data by topic."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.agents.notes import MOST_SHOWN, bounded
from holdfast.clock import utc_stamp
from holdfast.codec import encode
from holdfast.errors import UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun, moment

if TYPE_CHECKING:
    from holdfast.memory.datum import Datum
    from holdfast.memory.topics import Topics

_MOST_DATA = 100
Ids = Annotated[Sequence[str], Arg("A proposal; may be repeated", positional=True)]
OfMemory = Annotated[str, Arg("The agent whose memory it is")]
Decider = Annotated[str | None, Arg("Who decides, if not the user", metavar="NAME")]


@example('holdfast memory note --agent rio --section "Dead Ends" "The fee page is empty"')
def note(
    call: Context,
    text: Annotated[str, Arg("What to remember, in one line", positional=True, or_file=True)],
    *,
    agent: Annotated[str, Arg("The agent that remembers it")],
    section: Annotated[str, Arg("The heading: patterns, dead ends, questions, …")],
) -> Change:
    with call.agent(agent, change=True) as one:
        notes = one.desk.notes
        noted = notes.note(section, text)
    outcome = "noted" if noted.applied else "known already"
    data = {"agent": notes.agent, "section": noted.section, "line": noted.line}
    return Change(notes.key, noted.applied, f"{outcome} under {noted.section}: {noted.line}", data)


@example("holdfast memory show --agent rio --for-prompt")
def show(
    call: Context,
    *,
    agent: Annotated[str, Arg("The agent")],
    topic: Annotated[
        str | None, Arg("The data at and below this topic instead; / is all", metavar="a/b")
    ] = None,
    newest: Annotated[int, Arg("With --topic: so many data, 0 for all")] = _MOST_DATA,
    for_prompt: Annotated[
        bool, Arg("Only as much as a prompt gets: the newest entries of each section")
    ] = False,
    most: Annotated[int, Arg("With --for-prompt: so many characters")] = MOST_SHOWN,
) -> Show:
    if topic is not None:
        with _topics(call, agent) as topics:
            return _shown(call, topics, topic.strip("/") or "/", newest)
    if most < 1:
        raise UsageError("--most is below 1", hint="--most 16000")
    with call.agent(agent) as one:
        notes = one.desk.notes
        text = notes.read() if call.adopted else notes.look()
    shown = bounded(text, most) if for_prompt else text
    data = {
        "agent": notes.agent,
        "text": shown,
        "characters": len(text),
        "left_out": max(0, len(text) - len(shown)),
    }
    return Show(data, text=shown)


# --- by topic -------------------------------------------------------------------------------


@example('holdfast memory add --agent rio --topic decisions/fees --text "Fees are 2 %"')
def add(
    call: Context,
    *,
    agent: Annotated[str, Arg("The agent that remembers it")],
    topic: Annotated[str, Arg("Names joined by /", metavar="a/b")],
    text: Annotated[str, Arg("What to remember", or_file=True)] = "",
    meta: Annotated[str | None, Arg("An object about it", metavar="JSON", or_file=True)] = None,
    data: Annotated[str | None, Arg("Any value", metavar="JSON", or_file=True)] = None,
    tag: Annotated[Sequence[str], Arg("A label; may be repeated")] = (),
    supersedes: Annotated[
        Sequence[str], Arg("A datum that it corrects; may be repeated", metavar="ID")
    ] = (),
    proposed: Annotated[
        bool, Arg("Keep it apart, correcting nothing, until `memory accept`")
    ] = False,
    source: Annotated[
        str | None, Arg("Where it comes from; by default the session of the caller")
    ] = None,
    until: Annotated[str | None, Arg("Valid until then: a date or a time", metavar="T")] = None,
) -> Change:
    """The rule for topics is in docs/memory.md. `memory show --topic` prints the ids of data."""
    metadata = None if meta is None else _json(meta, "--meta")
    if metadata is not None and not isinstance(metadata, dict):
        raise UsageError("--meta is not an object", hint='such as {"by": "ana"}')
    with _topics(call, agent, change=True) as topics:
        id = topics.add(
            topic,
            text.rstrip("\n"),
            meta=metadata,
            data=None if data is None else _json(data, "--data"),
            tags=tag,
            supersedes=supersedes,
            source=source or call.called_in_session(topics.agent) or "",
            valid_until=None if until is None else moment(until, call.home()),
            proposed=proposed,
        )
    _warn(call, topics)
    detail = f"{id} {'proposed for' if proposed else 'added to'} {topic}"
    return Change(id, True, detail, {"id": id, "topic": topic})


@example("holdfast memory accept rio#2 --agent rio --by ana")
def accept(call: Context, id: Ids = (), *, agent: OfMemory, by: Decider = None) -> Change:
    """An accepted proposal becomes a datum under its id, with `accepted_by`, and corrects what it
    supersedes. Programs that Holdfast runs are refused: no agent decides about its own memory.
    """
    return _decided(call, id, agent, by, accepted=True)


@example("holdfast memory refuse rio#2 --agent rio --by ana")
def refuse(call: Context, id: Ids = (), *, agent: OfMemory, by: Decider = None) -> Change:
    """A refused proposal is shown no more; its line stays in the log."""
    return _decided(call, id, agent, by, accepted=False)


def _decided(
    call: Context, ids: Sequence[str], agent: str, by: str | None, *, accepted: bool
) -> Change:
    call.check_person()
    if not ids:
        raise UsageError("no proposal was named", hint="`memory show --topic /` prints their ids")
    with _topics(call, agent, change=True) as topics:
        decider = call.person(by)
        found = topics.decide(ids, accepted=accepted, by=decider)
    _warn(call, topics)
    names = [datum.id for datum in found]
    detail = f"{', '.join(names)} {'accepted' if accepted else 'refused'} by {decider}"
    data = {"ids": names, "topics": sorted({datum.topic for datum in found}), "by": decider}
    return Change(topics.agent, True, detail, data)


@example("holdfast memory tree --agent rio --depth 2", columns="topic data newest")
def tree(
    call: Context,
    *,
    agent: Annotated[str, Arg("The agent")],
    topic: Annotated[str, Arg("From this topic down", metavar="a/b")] = "/",
    depth: Annotated[int, Arg("Count deeper topics with the one above; 0 is all levels")] = 0,
) -> Rows:
    rows: dict[str, dict[str, Any]] = {}
    with _topics(call, agent) as topics:
        for each in topics.topics(topic.strip("/") or "/"):
            names = each.topic.split("/")
            name = "/".join(names[:depth] if depth > 0 else names) or "/"
            row = rows.setdefault(name, {"topic": name, "data": 0, "newest": each.newest})
            row["data"] += each.data
            row["newest"] = max(row["newest"], each.newest)
        if topics.log.segments() and (state := topics.behind()):
            call.warn(f"{topics.fmm} is {state}; `holdfast rebuild` writes it")
    shown = [{**row, "newest": utc_stamp(row["newest"])} for row in rows.values()]
    return Rows(shown, {"topics": len(rows), "data": sum(row["data"] for row in rows.values())})


@example("holdfast memory forget rio#2 --agent rio")
def forget(
    call: Context,
    id: Annotated[Sequence[str], Arg("A datum; may be repeated", positional=True)] = (),
    *,
    agent: Annotated[str, Arg("The agent that forgets it")],
    topic: Annotated[
        str | None, Arg("All data at and below this topic; / is all", metavar="a/b")
    ] = None,
    dry_run: DryRun = False,
) -> Change:
    """Forgotten data leave fmm.json, `memory show` and the search index before this returns. Their
    lines stay in the log as evidence.
    """
    if not id and topic is None:
        raise UsageError("nothing to forget was named", hint="give ids, or --topic")
    with _topics(call, agent, change=not dry_run) as topics:
        below = topics.under(topic.strip("/") or "/") if topic is not None else []
        found = topics.get([*id, *(datum.id for datum in below)])
        for each in set(id) - found.keys():
            call.warn(f"no such datum: {each[:80]}")
        if not dry_run:
            topics.forget(found)
    if found and not dry_run:
        _clean(call, topics.agent)
    verb = "would forget" if dry_run else "forgot"
    some = f": {', '.join([*found][:5])}{', …' if len(found) > 5 else ''}" if found else ""
    data = {"forgotten": [*found], "topics": sorted({each.topic for each in found.values()})}
    applied = bool(found) and not dry_run
    detail = f"{verb} {_count(len(found), 'datum', 'data')}{some}"
    return Change(topics.agent, applied, detail, data, dry_run)


@example("holdfast memory compact --agent rio")
def compact(
    call: Context,
    *,
    agent: Annotated[str, Arg("The agent")],
    dry_run: DryRun = False,
) -> Change:
    """Exact duplicates and superseded data leave search and fmm.json, which counts them. The newest
    of equal data stays. Their lines stay in the log.
    """
    with _topics(call, agent, change=not dry_run) as topics:
        found = topics.compaction() if dry_run else topics.compact()
    applied = any(found) and not dry_run
    if applied:
        _clean(call, topics.agent)
    removed = f"{_count(len(found.duplicates), 'duplicate', 'duplicates')}, "
    removed += f"{len(found.superseded)} superseded"
    detail = f"{'would take out' if dry_run else 'took out'} {removed}"
    return Change(topics.agent, applied, detail, found._asdict(), dry_run)


@example("holdfast memory ingest ./docs notes.txt --agent rio")
def ingest(
    call: Context,
    path: Annotated[
        Sequence[str],
        Arg("A text file, or a folder of them; may be repeated", positional=True, is_path=True),
    ],
    *,
    agent: Annotated[str, Arg("The agent that remembers them")],
    prune: Annotated[bool, Arg("Forget files that are not there any more")] = False,
) -> Change:
    """Each file becomes data of at most 1,200 characters under `ingest/NAME`, with its path and
    sha256. A file that did not change is skipped; one that did replaces its data.
    """
    from holdfast.memory.ingest import ingest as take_in

    with _topics(call, agent, change=True) as topics:
        done = take_in(topics, path, prune=prune)
    _warn(call, topics)
    for file, why in done.skipped.items():
        call.warn(f"skipped {file}: {why}")
    for file in done.gone:
        kept = "forgotten" if prune else "still remembered; --prune forgets it"
        call.warn(f"{file} is not there any more: {kept}")
    if done.changed or (done.gone and prune):
        _clean(call, topics.agent)
    detail = f"{_count(len(done.added), 'file', 'files')} added, {len(done.changed)} changed, "
    detail += f"{done.unchanged} unchanged; {_count(done.pieces, 'datum', 'data')} added"
    applied = bool(done.added or done.changed or (done.gone and prune))
    return Change(topics.agent, applied, detail, asdict(done))


@contextmanager
def _topics(call: Context, agent: str, *, change: bool = False) -> Generator[Topics]:
    from holdfast.memory.topics import Topics

    with (
        call.agent(agent, change=change) as one,
        Topics(call.home(), one.key, keep=call.adopted) as topics,
    ):
        yield topics


def _warn(call: Context, topics: Topics) -> None:
    for kept in topics.kept_aside:
        call.warn(f"{topics.fmm} was edited by hand; kept as {kept}")
    if topics.stale is not None:
        call.warn(f"{topics.fmm} does not show it: {topics.stale.message}")


def _clean(call: Context, agent: str) -> None:
    """Have the search index take in what was forgotten, if there is one."""
    from holdfast.agents.recall import open_recall
    from holdfast.memory.index import FOLDER

    if call.home().keys(FOLDER):
        with open_recall(call.home(), call.layout) as recall:
            recall.read_on([agent])


def _shown(call: Context, topics: Topics, topic: str, newest: int) -> Show:
    data, corrected = topics.under(topic, newest or None), topics.superseded()
    waiting = topics.proposals(topic)
    if newest and len(data) == newest:
        call.warn(f"the newest {newest} are shown; --newest 0 shows all")
    lines = [
        _line(each, f"superseded by {corrected[each.id]}" if each.id in corrected else "")
        for each in data
    ]
    lines += [_line(each, _proposed(each)) for each in waiting]
    shown = {
        "agent": topics.agent,
        "topic": topic,
        "data": [{"topic": each.topic, **each.shown(corrected.get(each.id))} for each in data],
        "proposals": [{"topic": each.topic, **each.shown()} for each in waiting],
    }
    return Show(shown, text="\n".join(lines) or f"no data under {topic}")


def _proposed(datum: Datum) -> str:
    return f"proposed in place of {' '.join(datum.supersedes)}" if datum.supersedes else "proposed"


def _line(datum: Datum, state: str) -> str:
    notes = ", ".join(filter(None, [datum.source, *(f"#{tag}" for tag in datum.tags), state]))
    words = " ".join(datum.text.split()) or encode(datum.data).decode()
    about = f"  ({notes})" if notes else ""
    return f"{datum.id}  {utc_stamp(datum.ts)}  {datum.topic}: {words}{about}"


def _json(text: str, what: str) -> object:
    from holdfast.byhand import parse

    return parse(text.encode(), what)


def _count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
