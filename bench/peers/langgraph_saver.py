"""LangGraph with its `SqliteSaver`: a graph whose one node adds a message and comes round again.

Forms: DURABILITY-CHANNEL.  Durability is `sync` (a checkpoint is kept before the next step
begins) or `async` (LangGraph's default: kept while the next step runs).  The channel is
`messages` (`MessagesState` with message objects, as the documentation has it), `list` (plain
dicts joined by `operator.add`, the leanest there is) or `delta` (`DeltaChannel`, a beta: only
what a step added, and everything each hundredth time).
"""

import operator
import sqlite3
from pathlib import Path
from typing import Annotated, Any, TypedDict

from driver import Gate, Message, start
from langchain_core.messages import AIMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph


class ListState(TypedDict):
    messages: Annotated[list[Message], operator.add]


def extended(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


class DeltaState(TypedDict):
    messages: Annotated[list[AIMessage], DeltaChannel(extended)]


STATES: dict[str, Any] = {"messages": MessagesState, "list": ListState, "delta": DeltaState}


def run(store: Path, form: str, said: list[Message], gate: Gate) -> None:
    store.mkdir(exist_ok=True)
    durability, _, channel = form.partition("-")
    connection = sqlite3.connect(store / "checkpoints.sqlite", check_same_thread=False)
    last = len(said)

    def add(state: Any) -> Any:
        count = len(state["messages"])
        # Now that the next step begins, the one before is kept, as far as it ever is.
        if count > gate.count:
            gate.kept(count)
        message = said[count]
        if channel == "list":
            return {"messages": [message]}
        return {"messages": [AIMessage(content=message["content"], id=str(count))]}

    builder = StateGraph(STATES[channel])
    builder.add_node("add", add)
    builder.add_edge(START, "add")
    builder.add_conditional_edges(
        "add", lambda state: END if len(state["messages"]) >= last else "add", ["add", END]
    )
    graph = builder.compile(checkpointer=SqliteSaver(connection))
    config: Any = {"configurable": {"thread_id": "rio"}, "recursion_limit": last + 10}
    found = graph.get_state(config)
    messages = found.values.get("messages", [])
    gate.close = connection.close
    gate.resumed([each["content"] if channel == "list" else each.content for each in messages])
    given = None if found.created_at else {"messages": []}
    graph.invoke(given, config, durability=durability)
    if gate.count < last:
        gate.kept(last)


if __name__ == "__main__":
    start(run)
