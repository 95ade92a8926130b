"""OpenAI Agents SDK: one item added to a `SQLiteSession` for each step."""

import asyncio
from pathlib import Path

from agents import SQLiteSession
from driver import Gate, Message, start


def run(store: Path, form: str, said: list[Message], gate: Gate) -> None:
    store.mkdir(exist_ok=True)
    asyncio.run(converse(SQLiteSession("rio", store / "session.sqlite"), said, gate))


async def converse(session: SQLiteSession, said: list[Message], gate: Gate) -> None:
    gate.close = session.close
    gate.resumed([item["content"] for item in await session.get_items()])
    for index in range(gate.count, len(said)):
        await session.add_items([said[index]])
        gate.kept(index + 1)


if __name__ == "__main__":
    start(run)
