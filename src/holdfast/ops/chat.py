"""Talking with an agent from a terminal or a script, and the turns of it that are recorded."""

from __future__ import annotations

from difflib import get_close_matches
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.agents import history
from holdfast.agents.agent import Agent, opened
from holdfast.agents.chat import Chat, Question
from holdfast.agents.context import gather
from holdfast.calls.turns import FAILED, LOST, WAITING, Turn, turns
from holdfast.clock import local_stamp, zone
from holdfast.errors import HoldfastError, NoKey, UsageError
from holdfast.ledger.book import agents
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Rows, Show
from holdfast.ops.model import chosen, reply_fields, schema_from
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, checked_limit, known_agent
from holdfast.text import duration

if TYPE_CHECKING:
    from holdfast.store.home import Home

_HELP = (
    "/memory /tasks /inbox show what the agent has, /cost what this came to, /history what was "
    "said; /quit or Ctrl-D ends the session"
)
_WIDEST = 48
_LATEST = 253_402_300_799.0
"""The last second of the year 9999: what is later is no time of ours."""
_WORDS = ("/memory", "/tasks", "/inbox", "/cost", "/history", "/help", "/quit")


@example('holdfast agent chat rio "What is next?" --model scripted:echo')
def chat(
    context: Context,
    agent: Annotated[str, Arg("With whom", positional=True)],
    text: Annotated[
        str | None,
        Arg("What to say; without it you talk line by line", positional=True, or_file=True),
    ] = None,
    *,
    model: Annotated[str | None, Arg("provider:name; see `model list`")] = None,
    max_cost: Annotated[
        float | None, Arg("What all turns may cost together, in USD", metavar="USD")
    ] = None,
    max_tokens: Annotated[int | None, Arg("The most that a reply may have")] = None,
    temperature: Annotated[float | None, Arg("How freely it answers")] = None,
    timeout: Annotated[str, Arg("Give up on a reply after so long", metavar="D")] = "10m",
    schema: Annotated[
        str | None, Arg("A JSON Schema that replies have to meet", or_file=True)
    ] = None,
    sensitive: Annotated[
        bool, Arg("Put what is said on record sealed: only who has the key can read it")
    ] = False,
    fresh: Annotated[bool, Arg("Tell it nothing of what was said before this session")] = False,
) -> Show:
    if text is None and context.listen is None:
        raise UsageError(
            "nothing to say",
            hint="give the text, or - to read it, or use a terminal without --json",
        )
    if text is not None and not text.strip():
        raise UsageError("nothing to say", hint="an empty question would cost as much as any")
    home = context.home_to_change()
    with opened(home, agent, context.layout) as one:
        manner = Question(
            schema=None if schema is None else schema_from(schema),
            max_tokens=max_tokens,
            temperature=temperature,
            timeout=duration(timeout),
            sensitive=sensitive,
        )
        asked = chosen(context, home, one.name, model)
        try:
            with Chat(home, one, asked, manner, max_cost=max_cost, fresh=fresh) as talk:
                if unopened := talk.said.unopened:
                    context.warn(f"{unopened} sealed lines do not open and are left out")
                if text is None:
                    return _line_by_line(context, home, one, talk)
                reply = talk.say(text, context.tell)
                if context.tell is not None:
                    context.tell("\n")
                if talk.said.sealing and not sensitive:
                    context.warn("what was said before is sealed, and so is this")
                data = {"session_id": talk.session, "sealed": talk.said.sealing}
                data |= reply_fields(reply)
        except NoKey as error:
            if not sensitive:
                error.hint = f"{error.hint}; --fresh goes on without what was said before"
            raise
        finally:
            asked.close()
    return Show(data, text=reply.text if context.tell is None else "")


def _line_by_line(context: Context, home: Home, one: Agent, talk: Chat) -> Show:
    assert context.listen is not None and context.tell is not None
    tell = context.tell
    tell(f"{talk.session}: talking with {one.name}. {_HELP}\n")
    if context.recall is not None:
        context.recall([each.text for each in talk.recent() if each.role == "user"])
    while (line := context.listen(f"{one.name}> ")) is not None and line.strip() != "/quit":
        if not line.strip():
            continue
        try:
            if line.startswith("/"):
                tell(_looked_up(home, one, talk, line.strip()))
            else:
                talk.say(line, tell)
            tell("\n")
        except HoldfastError as error:
            # The next question may fare better; what failed is on record.
            tell(f"{error.message}\nhint: {error.hint}\n")
    talk.failed = ""
    data: dict[str, Any] = {"session_id": talk.session, **talk.tally()._asdict()}
    return Show(data, text="")


def _looked_up(home: Home, one: Agent, talk: Chat, word: str) -> str:
    match word:
        case "/cost":
            spent = talk.tally()
            unknown = f", {spent.unknown} of unknown cost" if spent.unknown else ""
            return f"{spent.turns} turns, {spent.tokens} tokens, {spent.usd:.4f} USD{unknown}"
        case "/memory":
            return gather(home, one).memory or "nothing yet"
        case "/tasks":
            tasks = gather(home, one).tasks
            lines = [f"{t.get('id')} ({t.get('status')}) {t.get('description')}" for t in tasks]
            return "\n".join(lines) or "nothing to do"
        case "/inbox":
            given = gather(home, one)
            mail = (*given.urgent, *given.others)
            lines = [f"{m.record.get('from')}: {m.record.get('subject') or m.id}" for m in mail]
            return "\n".join(lines) or "no messages"
        case "/history":
            return "\n".join(f"{each.role}: {each.text}" for each in talk.recent()) or "nothing yet"
        case "/help":
            return _HELP
        case _:
            near = get_close_matches(word, _WORDS, 1)
            meant = f", did you mean {near[0]}?" if near else "."
            return f"There is no {word}{meant} {_HELP}"


# --- what was asked and answered ----------------------------------------------------------------


@example("holdfast agent turns rio --limit 5", columns="at by model tokens cost took state what")
def list_turns(
    context: Context,
    agent: Annotated[str, Arg("Of whom", positional=True)],
    *,
    limit: Annotated[int, Arg("The newest N; 0 is all")] = 20,
    decrypt: Annotated[bool, Arg("Open what is sealed, with the keys at hand")] = False,
) -> Rows:
    if decrypt and context.from_afar:
        raise UsageError(
            "what is sealed is opened at a terminal only", hint="holdfast agent turns --decrypt"
        )
    home = context.home()
    with Agent(home, known_agent(agent, agents(home, context.layout)), context.layout) as one:
        found = turns(home, one.key, checked_limit(limit) or 1 << 62, decrypt=decrypt)
        # What their sessions were for: chats, phases of jobs and others.
        sessions = history.every_session(one.name, one.lines()) if found.newest else ()
        askers = {each["session_id"]: each["role"] or each["type"] for each in sessions}
    rows = [_row(home, each, askers) for each in reversed(found.newest)]
    counts: dict[str, Any] = {
        "turns": found.of,
        "shown": len(rows),
        "failed": sum(row["state"] == FAILED for row in rows),
        "usd": round(sum(row["cost_usd"] or 0.0 for row in rows), 9),
        "unknown": sum(row["cost"] == "unknown" for row in rows),
    }
    lost = sum(LOST in (row["question"], row["answer"], row["reason"]) for row in rows)
    if lost:
        context.warn(f"{lost} sealed turns do not open; `holdfast check` shows what was changed")
    code = ATTENTION if lost else 0
    return Rows(rows, counts, truncated=len(rows) < found.of, exit_code=code)


def _row(home: Home, turn: Turn, askers: dict[str, str]) -> dict[str, Any]:
    at = turn.asked
    counts = (turn.input_tokens, turn.output_tokens)
    tokens = " + ".join("?" if n is None else str(n) for n in counts)
    cost = "unknown" if turn.cost_usd is None else f"{turn.cost_usd:.4f}"
    tries = f" after {turn.calls} tries" if turn.calls > 1 else ""
    wrong = f"{turn.error}{tries}: " if turn.error else ""
    sealed = f"sealed with the key {turn.sealed}" if turn.sealed and turn.question is None else ""
    whens = local_stamp(at, zone(home.settings.timezone)) if at and 0 < at < _LATEST else None
    return {
        "at": whens,
        "by": askers.get(turn.session_id or ""),
        **{name: value for name, value in turn._asdict().items() if name != "asked"},
        "tries": list(turn.tries),
        "calls": turn.calls,
        "tokens": "" if counts == (None, None) else tokens,
        "cost": "" if turn.state == WAITING else cost,
        "took": None if turn.seconds is None else f"{turn.seconds:.1f} s",
        "what": shorten(wrong + (turn.question or sealed), _WIDEST, placeholder=" …"),
    }
