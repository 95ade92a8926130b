"""What every role is asked: the request, the folder that it sees, and who it is."""

from __future__ import annotations

import os
from random import Random
from typing import NamedTuple

from holdfast.codec import Record, encode
from holdfast.contracts.goal import Goal
from holdfast.git.repository import Tree
from holdfast.improve.candidates import Files, Workshop
from holdfast.improve.files import in_scope
from holdfast.improve.journal import State
from holdfast.improve.overview import family_statistics
from holdfast.improve.roles import Call, asking, planner_id, request_of
from holdfast.improve.steps import Steps
from holdfast.workspace.repo import Sealed

_TOLD = 30
"""Rounds of which planners hear in full."""


class Context(NamedTuple):
    """What does not change during a round."""

    goal: Goal
    families: list[str]
    sealed: Sealed
    base: Tree
    """The tree of the unchanged repository."""


class Asker:
    """Of one round."""

    def __init__(self, steps: Steps, workshop: Workshop, context: Context) -> None:
        self.steps, self.workshop, self.context = steps, workshop, context

    @property
    def state(self) -> State:
        return self.steps.state

    @property
    def one(self) -> Record:
        """The round under way."""
        return self.state["round"]

    def request(self, role: str, who: str, given: Record) -> Record:
        state, s, one = self.state, self.steps.settings, self.one
        common: Record = {
            "objective": s.objective,
            "goal": state["goal"],
            "phase": state["phase"],
            "metric": s.primary_metric,
            "direction": s.benchmark_direction,
            "target": s.target_value,
            "baseline": state["baseline"]["score"],
            "noise_sd": state["baseline"]["sd"],
            "best": state["best"],
            "harness": state["harness"],
            "sealed": list(s.sealed_files),
            "scope": list(s.scope),
            "history": state["rounds"][-_TOLD:],
            "family_statistics": family_statistics(state),
        }
        made = {**common, **given}
        slug = self.steps.journal.place.slug
        return request_of(role, one["number"], who, one["seed"], slug, made)

    def call(
        self, ref: str, request: Record, commit: str | None, folder: str | None = None
    ) -> Call:
        """A model or command; one that only looks gets the files of a commit in a folder."""
        beside = None
        if ref.startswith("command:"):
            if folder is None and commit is not None:
                name = f"round_{request['round']}_{request['id'].replace('/', '_')}"
                folder = self.workshop.checkout(name, commit).path
            if folder is not None:
                beside = os.path.join(os.path.dirname(folder), "request.json")
                with open(beside, "wb") as file:  # direct write: beside a candidate's files
                    file.write(encode(request))
        return asking(
            ref,
            request,
            clock=self.steps.clock,
            around=self.steps.around,
            timeout=self.steps.settings.role_timeout_s,
            folder=folder,
            beside=beside,
        )

    def files(self, commit: str) -> Files:
        """What a built-in may read and change."""
        sealed, scope = self.context.sealed, self.steps.settings.scope
        return self.workshop.files(
            commit, lambda path: in_scope(path, scope) and not sealed.covers(path)
        )


def parents_of(state: State) -> dict[str, Record]:
    """What each planner builds on: the head, or an older candidate of the population."""
    one, pool = state["round"], state["population"]
    head: Record = {"commit": one["head"], "score": state["best"]}
    found: dict[str, Record] = {}
    for number in range(one["planners"]):
        planner = planner_id(number)
        found[planner] = head
        if number and pool and state["settings"].get("population", 1) > 1:
            rng = Random(f"{one['seed']}/{one['number']}/{planner}")
            # The better its rank, the likelier; the head is one of them.
            ranked = [head, *(each for each in pool if each["commit"] != one["head"])]
            weights = [1 / (rank + 1) for rank in range(len(ranked))]
            (chosen,) = rng.choices(ranked, weights)
            found[planner] = {"commit": chosen["commit"], "score": chosen["score"]}
    return found
