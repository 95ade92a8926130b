"""Any agent that speaks the Agent Client Protocol as a model: `acp:COMMAND LINE`.

The command line is split as by a shell and no shell sees it.  For each question the agent is
started, gets a session and one prompt, and is ended: a tree of processes of its own, of which
nothing is left.  It is offered no files and no terminal; every permission that it asks for is
refused, since no person is there to decide.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from contextlib import suppress
from io import FileIO
from threading import Thread
from typing import Any, cast

from acp import PROTOCOL_VERSION, Client, RequestError, text_block
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentMessageChunk,
    AllowedOutcome,
    DeniedOutcome,
    InitializeResponse,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    TextContentBlock,
    UsageUpdate,
)
from acp.schema import Usage as Tokens
from pydantic import ValidationError

from holdfast.clock import SystemClock
from holdfast.errors import Declined, ModelError, NotAuthorised, typed
from holdfast.mask.shown import beginning
from holdfast.models.output import Pieces, checked, too_late, unusable
from holdfast.models.programs import Failing, as_model_errors, limits_for, words_of
from holdfast.models.prompt import as_one_text
from holdfast.models.protocol import OnText, PerCall, Reply, Request, Usage
from holdfast.models.report import usd
from holdfast.proc.command import program_of
from holdfast.proc.limits import Ended
from holdfast.proc.output import Stream
from holdfast.proc.tree import Tree
from holdfast.workspace.command import our_environment, program

_AUTH_REQUIRED = -32000
_PAUSE = 0.01


class Acp(PerCall):
    """An agent that is started for each question; used by one thread at a time."""

    def __init__(self, words: list[str], *, cwd: str | None = None, ref: str | None = None) -> None:
        program_of(words, our_environment(), cwd)
        self._words, self._cwd = words, cwd
        self._failing = Failing(os.path.basename(words[0]))
        self.ref = ref or f"acp:{shlex.join(words)}"
        self.session: str | None = None
        """What the agent calls the session that it had last."""

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        name = self._failing.name
        if request.timeout <= 0:
            raise too_late(name, request.timeout)
        listener = _Listener(Pieces(on_text, SystemClock()))
        with as_model_errors(name), typed("starting the agent"):
            wire = _Wire()
        try:
            with as_model_errors(name):
                tree = program(
                    self._words,
                    limits=limits_for(request),
                    cwd=self._cwd,
                    stdin=wire.theirs.fileno(),
                    # The agent has it: its end is noticed here only if no other process does.
                    on_start=lambda _: wire.theirs.close(),
                    on_output=wire.take,
                )
            failure, answer, ended = _converse(
                tree, wire, listener, as_one_text(request), self._cwd
            )
        finally:
            wire.theirs.close()
            wire.ours.close()
        self.session = listener.session
        usage = _usage(answer.usage if answer is not None else None)
        finish = "length" if answer and answer.stop_reason == "max_tokens" else "stop"
        text, model = listener.pieces.text, listener.agent or self.ref
        reply = listener.pieces.reply(text, model, usage, listener.cost_usd, finish)
        if (error := self._failure(answer, failure, ended, request.timeout)) is not None:
            error.reply = reply if reply.text or reply.cost_usd is not None else None
            raise error
        if not reply.text:
            raise unusable(reply, "with nothing", "run the agent by hand to see what is wrong")
        return checked(request, reply, fenced=True)

    def _failure(
        self, answer: PromptResponse | None, failure: Exception | None, ended: Ended, timeout: float
    ) -> ModelError | None:
        name = self._failing.name
        if answer is not None:
            match answer.stop_reason:
                case "end_turn" | "max_tokens":
                    return None
                case "refusal":
                    return Declined(f"{name} refuses to answer", hint="ask for something else")
                case other:
                    return ModelError(f"{name} stopped: {other}", hint="ask for less at once")
        if isinstance(failure, RequestError):
            if failure.code == _AUTH_REQUIRED:
                return NotAuthorised(f"{name}: {failure}", hint="log in with the agent itself")
            data = (
                ""
                if failure.data is None
                else beginning(json.dumps(failure.data, default=str), 500)
            )
            return self._failing.typed(f"{failure} {data}".strip(), ended, "")
        if isinstance(failure, ValidationError):
            return self._failing.typed("what it says is not of the protocol", ended, "")
        how = self._failing.of(ended, timeout, "it ended before it had answered")
        return how or self._failing.typed("it ended before it had answered", ended, "")


def _usage(tokens: Tokens | None) -> Usage:
    if tokens is None:
        return Usage()
    read, write = tokens.cached_read_tokens or 0, tokens.cached_write_tokens or 0
    thought = tokens.thought_tokens or 0
    given, made = tokens.input_tokens, tokens.output_tokens
    # Whether the special ones are among the others shows in the total only.
    if given + made + thought + read + write == tokens.total_tokens:
        given, made = given + read + write, made + thought
    return Usage(given, made, tokens.cached_read_tokens)


# --- the conversation -----------------------------------------------------------------------


class _Listener:
    """What the agent sends while it works, as a client of the protocol."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.cost_usd: float | None = None
        self.session: str | None = None
        self.agent: str | None = None
        self.raised: asyncio.Future[None] | None = None
        """Fails with what the listener raised; the protocol's own loop would swallow it."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if isinstance(update, UsageUpdate) and update.cost is not None:
            self.cost_usd = usd(update.cost.amount) if update.cost.currency == "USD" else None
        content = update.content if isinstance(update, AgentMessageChunk) else None
        if not isinstance(content, TextContentBlock) or not content.text:
            return
        if self.raised is not None and not self.raised.done():
            try:
                self.pieces.add(content.text)
            except BaseException as error:
                self.raised.set_exception(error)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        for option in options:
            if option.kind == "reject_once":
                chosen = AllowedOutcome(outcome="selected", option_id=option.option_id)
                return RequestPermissionResponse(outcome=chosen)
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


class _Wire:
    """Messages to and from the agent: a pipe to it that stays open, its standard output from it."""

    def __init__(self) -> None:
        theirs, ours = os.pipe()
        os.set_blocking(ours, False)
        self.theirs, self.ours = FileIO(theirs), FileIO(ours, "w")  # direct write: a pipe
        self._partial = bytearray()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._came: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._sending = asyncio.Lock()

    # In the thread of the tree.

    def take(self, stream: Stream, data: bytes) -> None:
        if stream != "out":
            return
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = bytes(self._partial + end)
            self._partial.clear()
            # Else it is talk of the agent, which belongs on stderr.
            with suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict):
                    self.put(cast("dict[str, Any]", message))
        self._partial += rest

    def put(self, message: dict[str, Any] | None) -> None:
        assert self.loop is not None
        with suppress(RuntimeError):  # the conversation is over
            self.loop.call_soon_threadsafe(self._came.put_nowait, message)

    # In the thread of the conversation.

    async def send(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        async with self._sending:
            while data:
                if self.ours.closed:
                    raise ConnectionError("closed")
                if (count := self.ours.write(data)) is None:
                    await asyncio.sleep(_PAUSE)
                else:
                    data = data[count:]

    async def receive(self) -> dict[str, Any] | None:
        return await self._came.get()

    async def close(self) -> None:
        self.ours.close()


def _converse(
    tree: Tree, wire: _Wire, listener: _Listener, prompt: str, cwd: str | None
) -> tuple[Exception | None, PromptResponse | None, Ended]:
    """What the agent answered, or why it did not, and how it ended."""
    kept: list[Ended | BaseException] = []

    def run() -> None:
        try:
            kept.append(tree.run())
        except BaseException as error:
            kept.append(error)
        wire.put(None)

    thread = Thread(target=run, name="acp")

    async def talk() -> PromptResponse:
        wire.loop = asyncio.get_running_loop()
        listener.raised = asyncio.get_running_loop().create_future()
        thread.start()
        asking = asyncio.ensure_future(_asked(wire, listener, prompt, cwd or os.getcwd()))
        try:
            await asyncio.wait([asking, listener.raised], return_when=asyncio.FIRST_COMPLETED)
            if listener.raised.done():
                listener.raised.result()
            return await asking
        finally:
            asking.cancel()
            listener.raised.cancel()
            await wire.close()

    failure, answer = None, None
    try:
        answer = asyncio.run(talk())
    except (RequestError, ValidationError, ConnectionError) as error:
        failure = error
    finally:
        tree.stop()
        if thread.ident is not None:
            thread.join()
    [end] = kept
    if isinstance(end, BaseException):
        with as_model_errors("the agent"):
            raise end
    return failure, answer, end


async def _asked(wire: _Wire, listener: _Listener, prompt: str, cwd: str) -> PromptResponse:
    connection = ClientSideConnection(cast("Client", listener), wire)
    try:
        about: InitializeResponse = await connection.initialize(PROTOCOL_VERSION)
        if about.protocol_version != PROTOCOL_VERSION:
            raise ModelError(
                f"the agent speaks version {about.protocol_version} of the protocol",
                hint=f"find one that speaks version {PROTOCOL_VERSION}",
            )
        listener.agent = about.agent_info.name if about.agent_info is not None else None
        session = await connection.new_session(cwd=os.path.abspath(cwd))
        listener.session = session.session_id
        return await connection.prompt(session_id=session.session_id, prompt=[text_block(prompt)])
    finally:
        await connection.close()


def open_acp(name: str, *, cwd: str | None = None) -> Acp:
    return Acp(words_of(name), cwd=cwd, ref=f"acp:{name}")
