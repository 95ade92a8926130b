"""From research to reviewed plans."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from holdfast.codec import Record
from holdfast.contracts.improve import ArchitectReview, ResearchBrief
from holdfast.contracts.kind import read
from holdfast.git.repository import LINK
from holdfast.improve import rules
from holdfast.improve.asker import Asker, parents_of
from holdfast.improve.files import IDEA, IDEA_TEMPLATE, ideas_in
from holdfast.improve.journal import State, results
from holdfast.improve.roles import Answer, is_built_in, planner_id, planning
from holdfast.improve.steps import Ask

_PROPOSALS = 500
"""Plans that a built-in planner hears of."""


class Planning(Asker):
    def researched(self) -> Record:
        """The brief of the round; an empty one where there is no researcher, or it failed."""
        ref, steps = self.steps.settings.researcher, self.steps
        blank: Record = {"iteration": self.one["number"], "researcher_id": "none"}
        blank |= {"repo_analysis_summary": "", "ideas": []}
        if not ref:
            found = steps.result("research") or steps.done("research", {"brief": blank, "why": ""})
            return found["brief"]

        def take(answer: Answer) -> Record:
            brief = {**blank, **(answer.value or {})}
            brief |= {"iteration": self.one["number"], "researcher_id": "researcher"}
            why = answer.why or _unfit(ResearchBrief, brief)
            return {"brief": blank if why else brief, "why": why}

        if steps.result("research") is None:
            request = self.request("researcher", "researcher", {})
            call = self.call(ref, request, self.one["head"])
            steps.ask("research", {"research": Ask(request, call, {}, take)})
        return self.one["results"]["research"]["brief"]

    def planned(self, brief: Record) -> dict[str, Record]:
        """What each planner replied, made a plan in form."""
        ref, steps, state = self.steps.settings.planner, self.steps, self.state
        parents = parents_of(state)
        free = [each for each in self.context.families if each != rules.blocked(_winners(state))]
        asks: dict[str, Ask] = {}
        for number in range(self.one["planners"]):
            planner = planner_id(number)
            if steps.result(f"plan/{planner}") is not None:
                continue
            turn = (number + self.one["number"] - 1) % len(free)
            parent = parents[planner]
            given = {
                "families": [*free[turn:], *free[:turn]],
                "brief": brief,
                "ideas": self.one["ideas"] if number == 0 else [],
                "parent": parent,
            }
            request = self.request("planner", planner, given)
            if is_built_in(ref):
                request["input"]["proposals"] = _proposals(state)
                request["input"]["constants"] = self.steps.settings.constants
                call = planning(ref, request, self.files(parent["commit"]))
            else:
                call = self.call(ref, request, parent["commit"])
            take = partial(self._as_plan, planner)
            asks[f"plan/{planner}"] = Ask(request, call, {}, take)
        steps.ask("planning", asks)
        if self.one["ideas"]:
            steps.once("ideas", "planning", self._use_up_ideas)
        planned = results(self.state, "plan/")
        return {name: each["plan"] for name, each in planned.items() if each["plan"] is not None}

    def _as_plan(self, planner: str, answer: Answer) -> Record:
        if answer.why or not answer.value:
            return {"plan": None, "why": answer.why or "no plan"}
        plan = dict(answer.value)
        plan |= {"plan_id": f"round_{self.one['number']}_{planner}", "planner_id": planner}
        plan |= {"round": self.one["number"], "critic_approved": False}
        return {"plan": plan, "why": ""}

    def _use_up_ideas(self) -> Record:
        """Take the ideas of this round out of idea.md; one that came since stays."""
        document = self.steps.home.document(self.steps.journal.place.key(IDEA))

        def without(old: bytes | None) -> bytes:
            left = ideas_in((old or b"").decode("utf-8", "replace"))
            left = [each for each in left if each not in self.one["ideas"]]
            return "\n\n".join([IDEA_TEMPLATE.rstrip(), *left, ""]).encode()

        document.update(without)
        document.close()
        return {"used": len(self.one["ideas"])}

    def reviewed(self, plans: dict[str, Record]) -> dict[str, Record]:
        """The plans with both reviews; the critic's binds, and code is the critic."""
        if (found := self.steps.result("reviewed")) is not None:
            return found["plans"]
        bounds, settings = self._bounds(), self.steps.settings
        advised = self._advised(plans)
        reviews: dict[str, Record] = {}
        for _ in range(2 if settings.critic else 1):
            taken: list[str] = []
            for planner, plan in plans.items():
                review = rules.review(plan, bounds, taken)
                given = self.steps.result(f"critic/{planner}") or {}
                reviews[planner] = review = rules.rejected_by(review, given)
                if review["verdict"] == "approved":
                    taken.append(str(plan["approach_family"]))
            if settings.critic:
                alive = {
                    name: plans[name] for name in plans if reviews[name]["verdict"] == "approved"
                }
                self._opinions("critic", settings.critic, alive)
        whole = {
            name: {
                **plan,
                "critic_approved": reviews[name]["verdict"] == "approved",
                "critic_review": reviews[name],
                "architect_review": advised[name],
            }
            for name, plan in plans.items()
        }
        return self.steps.done("reviewed", {"plans": whole})["plans"]

    def _bounds(self) -> rules.Bounds:
        state, context = self.state, self.context
        links = {path for path, entry in context.base.items() if entry.mode == LINK}
        failed = {
            rules.likeness(row["hypothesis"]): row["status"]
            for row in state["rows"]
            if row["failed"]
        }
        return rules.Bounds(
            context.families,
            _winners(state),
            failed,
            context.sealed,
            self.steps.settings.scope,
            partial(_leads_out, links),
        )

    def _advised(self, plans: Mapping[str, Record]) -> dict[str, Record]:
        ref, paths = self.steps.settings.architect, list(self.context.base)
        bounds = self._bounds()
        if not ref:
            return {name: rules.advice(plan, bounds, paths) for name, plan in plans.items()}
        given = self._opinions("architect", ref, plans)
        return {
            name: given[name]
            if not _unfit(ArchitectReview, given[name])
            else rules.advice(plan, bounds, paths)
            for name, plan in plans.items()
        }

    def _opinions(self, role: str, ref: str, plans: Mapping[str, Record]) -> dict[str, Record]:
        """What a reviewer replies on each plan; nothing where it failed."""
        asks: dict[str, Ask] = {}
        for planner, plan in plans.items():
            if self.steps.result(f"{role}/{planner}") is None:
                request = self.request(role, f"{role}/{planner}", {"plan": plan})
                call = self.call(ref, request, self.one["head"])
                asks[f"{role}/{planner}"] = Ask(request, call, {}, _value)
        self.steps.ask("critic_review", asks)
        return {name: self.steps.result(f"{role}/{name}") or {} for name in plans}


def _winners(state: State) -> list[str | None]:
    return [each["winner"] and each["winner"]["approach_family"] for each in state["rounds"]]


def _proposals(state: State) -> list[Record]:
    """What was planned so far and what it scored, for built-ins that learn from it."""
    rows = [row for row in state["rows"][-_PROPOSALS:] if row["plan"] is not None]
    return [{"plan": row["plan"], "score": row["benchmark_score"]} for row in rows]


def _unfit(model: Any, value: Record) -> str:
    """What is wrong with a reply, if it is not in the documented form."""
    wrong = [each for each in read(model, value, strict=True).findings if each.level == "error"]
    return f"{wrong[0].field}: {wrong[0].reason}" if wrong else ""


def _value(answer: Answer) -> Record:
    return answer.value or {}


def _leads_out(links: Collection[str], path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in links)
