"""The documented prompts of a swarm, with others' words between marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.models.marks import WARNING, between, in_one_line, mark_of
from holdfast.swarm.spec import Spec

_PEERS, _NOTE = 5, 220
_PART = 2_000
"""Characters of an expert's reply that the summariser gets."""
_OPENINGS = {
    "handoff": "Handoff from {from_} to {to}.",
    "broadcast": "Broadcast to {to}.",
    "moe": "MoE expert call to {to}.",
}


def goal_text(spec: Spec, agent: str) -> str:
    """The goal of an agent: what it is told, and with its roles what the router knows it by."""
    roles = ", ".join(spec.roles.get(agent, ()))
    return (
        f"Global Goal: {spec.goal}\n"
        f"Subgoal for {agent}: {spec.goals.get(agent, spec.goal)}\n"
        f"Keywords: agent_id={agent}; roles={roles}"
    )


def priming(baton: str, said: Mapping[str, str]) -> str:
    """The baton and what the peers said last: the same for every agent of a tick."""
    notes = "\n".join(f"- {agent}: {in_one_line(text)}" for agent, text in said.items())
    mark = mark_of(baton, notes)
    parts = [f"Baton:\n{between('baton', mark, baton)}"]
    if notes:
        parts.append(f"Peer notes (last replies):\n{between('notes', mark, notes)}")
    return "\n".join([*parts, WARNING])


def expert_prompt(kind: str, from_: str, to: str, primed: str, goal: str) -> str:
    opening = _OPENINGS[kind].format(from_=from_, to=to)
    return (
        f"{opening}\nPriming:\n{primed}\nYour goal: {goal}\n"
        "Discuss with peers and advance the baton."
    )


def summary_prompt(parts: Mapping[str, str], sentences: int | None) -> str:
    limit = "(concise)" if sentences is None else f"(<= {sentences} sentences)"
    notes = joined(parts, "\n")
    return (
        "You are the cluster summarizer. Aggregate the following expert notes into a single, "
        f"concise baton {limit} that maintains continuity for the next step.\n\n"
        f"{between('notes', mark_of(notes), notes)}\n{WARNING}"
    )


def joined(parts: Mapping[str, str], by: str = " | ") -> str:
    """The replies of a tick; the baton of one without a summary."""
    return by.join(f"{agent}: {text.strip()[:_PART]}" for agent, text in parts.items())


def limited(text: str, spec: Spec) -> str:
    """A baton within its limits of characters and sentences."""
    short = text.strip()[: spec.baton_chars]
    if spec.baton_sentences is not None:
        sentences = short.split(". ")
        if len(sentences) > spec.baton_sentences:
            short = ". ".join(sentences[: spec.baton_sentences]).rstrip(".") + "."
    return short[: spec.baton_chars]


def noted(said: Mapping[str, str], new: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The last replies of peers, the newest last: as many as are told, and as much of each."""
    notes = {agent: text for agent, text in said.items() if agent not in dict(new)}
    notes |= {agent: text[:_NOTE] for agent, text in new}
    return dict(list(notes.items())[-_PEERS:])
