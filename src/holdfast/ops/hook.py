"""The verbs that agents' own programs call at each step, so that nobody has to write glue.

Whatever goes wrong here is ours: the agent is told on standard error and goes on.  Only one thing
stops it: a session for which there is no money, since somebody said how much may be spent.
"""

from __future__ import annotations

import json
import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from holdfast.agents.history import Type
from holdfast.errors import BadValue, HoldfastError, OverBudget
from holdfast.ids import agent_id, mapped_agent_id, session_id
from holdfast.ops.context import Context
from holdfast.ops.envelope import Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.text import duration

if TYPE_CHECKING:
    from holdfast.agents.hooked import Heard, Told
    from holdfast.clock import Clock

MOST_INPUT = 64 << 20
_PATIENCE = 10.0
"""Seconds for an event to arrive."""
_NOT_KEPT = frozenset({"PreToolUse", "PermissionRequest", "Notification"})
_STOPPED_BY_CODE = frozenset({"SessionStart", "UserPromptSubmit"})
"""Claude Code shows its user what a hook says with code 2, and drops the prompt."""
_STOPPED_BY_ANSWER = frozenset({"PostToolUse", "PostToolUseFailure"})
"""It stops when told so; code 2 would only tell the model.  After a Stop it would go on."""


@example("holdfast hook claude-code --agent rio")
def claude_code(
    context: Context,
    *,
    agent: Annotated[
        str | None, Arg("Whose session; else $HOLDFAST_AGENT, else the project's folder")
    ] = None,
    type: Annotated[Type, Arg("What a session that begins is for")] = "ad-hoc",
    timeout: Annotated[
        str | None, Arg("Silence after which it counts as crashed: 6h", metavar="D")
    ] = None,
    strict: Annotated[bool, Arg("Fail when something fails, instead of warning")] = False,
) -> Show:
    named = None if agent is None else agent_id(agent).lower()
    silence = None if timeout is None else duration(timeout)
    try:
        return _hear(context, named, type, silence)
    except Exception as error:
        if strict:
            raise
        said = error.message if isinstance(error, HoldfastError) else f"{error!r}"
        context.warn(f"this event was not kept: {said[:500]}")
        hint = error.hint if isinstance(error, HoldfastError) else None
        if hint:
            context.warn(hint)
        return Show({"did": "nothing", "error": said[:500]}, text="")


def _hear(context: Context, agent: str | None, type: Type, silence: float | None) -> Show:
    from holdfast.agents import hooked

    told = hooked.parse(_input(context.clock))
    if told.name in _NOT_KEPT:
        return Show({"did": "nothing", "event": told.name}, text="")
    project = os.environ.get("CLAUDE_PROJECT_DIR", "")
    if project:
        # An agent that changes its directory stays who it is, in the home where it began.
        with suppress(OSError):
            os.chdir(project)
    within = context.called_in_session(agent)
    place = hooked.Place(
        within,
        type,
        hooked.SILENCE if silence is None else silence,
        has_context=bool(within and os.environ.get("HOLDFAST_CONTEXT_GIVEN")),
    )
    name = _name(agent, within, project or told.text("cwd"))

    from holdfast.agents.agent import Agent

    home = context.home(create=True)
    with Agent(home, name, context.layout) as one:
        try:
            heard = hooked.hear(home, one, told, place)
        except OverBudget as error:
            return _refused(context, name, told, error)
    return _shown(name, told, heard)


def _refused(context: Context, agent: str, told: Told, error: OverBudget) -> Show:
    """Stop Claude Code, in the way that it takes at this event."""
    context.warn(f"no session was begun: {error.message}")
    context.warn(str(error.hint))
    data = {"event": told.name, "agent": agent, "did": "refused", "error": error.message}
    answer = {"continue": False, "stopReason": f"Holdfast: {error.message}"}
    text = json.dumps(answer) if told.name in _STOPPED_BY_ANSWER else ""
    return Show(data, text=text, exit_code=2 if told.name in _STOPPED_BY_CODE else 0)


def _shown(agent: str, told: Told, heard: Heard) -> Show:
    data = {"event": told.name, "agent": agent, "session_id": heard.session}
    data |= {"did": heard.did, "detail": heard.detail}
    if not heard.context:
        return Show(data, text="")
    said = {"hookEventName": told.name, "additionalContext": heard.context}
    # ASCII: no character of it can be taken for anything on the way.
    text = json.dumps({"hookSpecificOutput": said})
    return Show({**data, "context": heard.context}, text=text)


def _name(agent: str | None, within: str | None, folder: str) -> str:
    if agent is not None:
        return agent
    if within is not None:
        return session_id(within).agent
    if named := os.environ.get("HOLDFAST_AGENT"):
        return agent_id(named).lower()
    return mapped_agent_id(os.path.basename(os.path.abspath(folder or os.getcwd())))


def _input(clock: Clock) -> bytes:
    """All of standard input, but neither endlessly much nor endlessly long."""
    if os.isatty(0):
        raise BadValue("no event on standard input", hint="Claude Code gives it to its hooks")
    parts: list[bytes] = []
    size, until = 0, clock.boottime() + _PATIENCE
    while True:
        if not select.select([0], [], [], max(0.0, until - clock.boottime()))[0]:
            if parts:
                # Another process may hold the pipe open; whether it is all will show.
                return b"".join(parts)
            raise BadValue("standard input did not end", hint="close it after the event")
        part = os.read(0, 1 << 20)
        if not part:
            return b"".join(parts)
        size += len(part)
        # What is too much is still taken off the pipe: whoever writes it must not be stopped.
        if size <= MOST_INPUT:
            parts.append(part)
        elif parts:
            parts = [b"too large"]
