"""The verb that people want most: a command as a session."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Literal, Unpack

from holdfast.agents.agent import Agent, Start
from holdfast.agents.history import Type
from holdfast.agents.run import Plan
from holdfast.agents.run import run as run_plan
from holdfast.errors import UsageError
from holdfast.ids import agent_id
from holdfast.ops.context import Context
from holdfast.ops.envelope import Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.ops.session import MaxCost, StartFields, in_journal, refuse_parked
from holdfast.proc.limits import Limits
from holdfast.text import duration, size


@example("holdfast run --agent rio --type research --timeout 90m -- claude -p 'Read on'")
def run(
    call: Context,
    command: Annotated[Sequence[str], Arg("What to run, after `--`", positional=True)],
    *,
    agent: Annotated[str, Arg("Whose session it is")],
    type: Annotated[Type, Arg("What it is for")] = "ad-hoc",
    role: Annotated[str, Arg("As what, if the agent does several things at once")] = "",
    task: Annotated[str | None, Arg("The task it works on", metavar="ID")] = None,
    timeout: Annotated[str | None, Arg("End it after so long: 90m", metavar="D")] = None,
    max_cost: MaxCost = None,
    max_output: Annotated[
        str | None, Arg("End it after so much output: 200MB", metavar="N")
    ] = None,
    max_memory: Annotated[str | None, Arg("End it beyond so much memory: 2GB", metavar="N")] = None,
    context: Annotated[
        Literal["file", "env", "stdin"], Arg("How the command gets its context")
    ] = "file",
    stdin: Annotated[
        str | None, Arg("Text for the command; {context} stands for the context", or_file=True)
    ] = None,
    quiet: Annotated[bool, Arg("Do not show what the command prints")] = False,
    **given: Unpack[StartFields],
) -> Show:
    if not command:
        raise UsageError("nothing to run", hint="give the command after `--`")
    fields = ({} if task is None else {"task": task}) | in_journal(given)
    seconds = duration(timeout) if timeout is not None else None
    limits = Limits(
        time=seconds,
        output=size(max_output) if max_output is not None else None,
        memory=size(max_memory) if max_memory is not None else None,
    )
    name = agent_id(agent).lower()
    start = Start(type, role, seconds, fields, max_cost=max_cost)
    plan = Plan(command, start, limits, context, stdin)
    home, echo = call.home(create=True), _Echo(quiet=quiet)
    try:
        with Agent(home, name, call.layout) as one:
            refuse_parked(one, task)
            ran = run_plan(home, one, plan, echo)
    finally:
        # Whoever is to read it may take his time: all that matters is on record.
        echo.finish()
    if echo.failed:
        call.warn(f"the output could not be shown: {echo.failed}; it is kept with the session")
    for warning in ran.warnings:
        call.warn(warning)
    if ran.end.outcome != "completed" and ran.end.error is not None:
        call.warn(f"{ran.session}: {ran.end.error['message']}")
    data = {
        "session_id": ran.session,
        "agent": name,
        "outcome": ran.end.outcome,
        "cause": ran.end.cause,
        **ran.end.fields,
    }
    # One that says that it failed has not completed, whatever its code: `run … && next` stops.
    code = ran.ended.exit_code or int(ran.end.outcome != "completed")
    # The command's own output is the output: nothing of ours comes after it.
    return Show(data, text="", exit_code=code)


_AT_ONCE = 4096
"""Bytes that a pipe takes without waiting if it takes anything."""


class _Echo:
    """Shows what the command prints, as long as somebody can hear it.

    A reader that went away (`| head -1`, a full disk behind `> log`) is no reason to end an agent:
    what it prints is kept with the session all the same.  One that is slow is waited for, but
    never in here, where nobody would look at the clock.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._silent = quiet
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.failed = ""

    def __call__(self, stream: str, data: bytes) -> None:
        if not self._silent:
            self._waiting.append((1 if stream == "out" else 2, data))
            self.blocked()

    def blocked(self) -> int | None:
        while self._waiting:
            target, data = self._waiting.popleft()
            while data:
                if not _takes(target, 0):
                    self._waiting.appendleft((target, data))
                    return target
                data = self._passed_on(target, data)
        return None

    def finish(self) -> None:
        while (target := self.blocked()) is not None:
            _takes(target, None)

    def _passed_on(self, target: int, data: bytes) -> bytes:
        """What is left of it; past Python's buffers, where what fails once fails at exit again."""
        try:
            return data[os.write(target, data[:_AT_ONCE]) :]
        except BlockingIOError:
            return data
        except OSError as error:
            self._silent, self.failed = True, error.strerror or str(error)
            self._waiting.clear()
            return b""


def _takes(target: int, milliseconds: int | None) -> bool:
    """Whether a write to it would not wait, now or within that time."""
    asked = select.poll()
    asked.register(target, select.POLLOUT)
    return bool(asked.poll(milliseconds))
