"""An agent that speaks the Agent Client Protocol and does as its first argument says."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import acp
from acp.schema import (
    Cost,
    Implementation,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

HOW = sys.argv[1] if len(sys.argv) > 1 else "echo"
EXAMPLE = '{"answer":"echo","sure":true}'
USAGE = Usage(
    total_tokens=162,
    input_tokens=100,
    output_tokens=20,
    thought_tokens=7,
    cached_read_tokens=30,
    cached_write_tokens=5,
)
OPTIONS = [
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class Agent:
    conn: Any

    def on_connect(self, conn: Any) -> None:
        self.conn = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=protocol_version,
            agent_info=Implementation(name="stand-in", version="1"),
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        assert os.path.isabs(cwd)
        if HOW == "unauthorised":
            raise acp.RequestError.auth_required()
        return NewSessionResponse(session_id="session-1")

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        text = "".join(block.text for block in prompt)
        cost = UsageUpdate(
            session_update="usage_update", used=1, size=2, cost=Cost(amount=0.25, currency="USD")
        )
        await self.conn.session_update(session_id=session_id, update=cost)
        pieces = [EXAMPLE] if "JSON Schema" in text else ["You said: ", text]
        if HOW == "asks":
            options = OPTIONS[:1] if "without-choice" in sys.argv else OPTIONS
            call = ToolCallUpdate(tool_call_id="1", title="Delete everything")
            asked = await self.conn.request_permission(
                session_id=session_id, tool_call=call, options=options
            )
            pieces = [getattr(asked.outcome, "option_id", asked.outcome.outcome)]
        for piece in pieces:
            update = acp.update_agent_message_text(piece)
            await self.conn.session_update(session_id=session_id, update=update)
        return PromptResponse(
            stop_reason="refusal" if HOW == "refuses" else "end_turn", usage=USAGE
        )


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Agent()))  # type: ignore[arg-type]
