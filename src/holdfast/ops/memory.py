"""The verbs of memory.md: what an agent knows across its sessions."""

from __future__ import annotations

from typing import Annotated

from holdfast.agents.notes import MOST_SHOWN, bounded
from holdfast.errors import UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg


@example('holdfast memory note --agent rio --section "Dead Ends" "The fee page is empty"')
def note(
    call: Context,
    text: Annotated[str, Arg("What is to be remembered, in a line", positional=True, or_file=True)],
    *,
    agent: Annotated[str, Arg("Who is to remember it")],
    section: Annotated[str, Arg("Under which heading: patterns, dead ends, questions, …")],
) -> Change:
    with call.agent(agent, change=True) as one:
        notes = one.desk.notes
        noted = notes.note(section, text)
    told = "noted" if noted.applied else "known already"
    data = {"agent": notes.agent, "section": noted.section, "line": noted.line}
    return Change(notes.key, noted.applied, f"{told} under {noted.section}: {noted.line}", data)


@example("holdfast memory show --agent rio --for-prompt")
def show(
    call: Context,
    *,
    agent: Annotated[str, Arg("Whose memory")],
    for_prompt: Annotated[
        bool, Arg("Only as much as a prompt gets: the newest entries of each section")
    ] = False,
    most: Annotated[int, Arg("With --for-prompt: so many characters")] = MOST_SHOWN,
) -> Show:
    if most < 1:
        raise UsageError("nothing fits into that", hint="--most 16000, for one")
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
