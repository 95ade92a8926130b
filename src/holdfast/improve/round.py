"""A round from research to measured candidates: who is asked what, and what becomes of replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from holdfast.codec import Record
from holdfast.contracts.improve import ArchitectReview, ResearchBrief
from holdfast.contracts.kind import read
from holdfast.errors import HoldfastError
from holdfast.git.repository import LINK
from holdfast.improve import rules
from holdfast.improve.candidates import Files, Workshop, apply_reply, out_of_bounds
from holdfast.improve.evaluator import failure
from holdfast.improve.files import IDEA, IDEA_TEMPLATE, ideas_in
from holdfast.improve.journal import State, results
from holdfast.improve.overview import overview
from holdfast.improve.roles import (
    TASKS,
    Answer,
    Call,
    asking,
    built_in,
    is_built_in,
    planner_id,
    seed_of,
)
from holdfast.improve.sealing import violations
from holdfast.improve.steps import Ask, Bar, Steps
from holdfast.improve.tournament import Entrant
from holdfast.text import one_line
from holdfast.workspace.repo import Checkout, Sealed

_HISTORY, _PROPOSALS = 30, 500
"""Rounds that models are shown in full, and plans that built-ins learn from."""


class Round:
    """Every method can be called again after a crash: steps that are done give their results."""

    def __init__(
        self, steps: Steps, workshop: Workshop, known_families: Sequence[str], sealed: Sealed
    ) -> None:
        self.steps, self.workshop, self.families = steps, workshop, known_families
        self.sealed, self.base = sealed, workshop.git.tree(sealed.base)

    @property
    def state(self) -> State:
        return self.steps.state

    @property
    def round(self) -> Record:
        return self.state["round"]

    # -- asking ------------------------------------------------------------------------

    def request(self, role: str, who: str, given: Record) -> Record:
        state, s, number = self.state, self.steps.settings, self.round["number"]
        return {
            "role": role,
            "round": number,
            "id": who,
            "seed": seed_of(self.round["seed"], number, who),
            "slug": self.steps.journal.place.slug,
            "input": {
                "task": TASKS[role],
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
                "history": state["rounds"][-_HISTORY:],
                "family_statistics": overview(state)["families"],
                **given,
            },
        }

    def call(self, ref: str, request: Record, at: str | None, folder: str | None = None) -> Call:
        """A model or command; a command that only looks gets the files of a commit."""
        if ref.startswith("command:") and folder is None and at is not None:
            name = f"round_{request['round']}_{request['id'].replace('/', '_')}"
            folder = self.workshop.checkout(name, at).path
        steps, timeout = self.steps, self.steps.settings.role_timeout_s
        return asking(ref, request, steps.clock, steps.around, timeout, folder)

    def files(self, commit: str) -> Files:
        return self.workshop.files(commit, self.steps.settings.scope, self.sealed)

    def parents(self) -> dict[str, Record]:
        """What each planner builds on: the head, or an older candidate of the population."""
        state, now = self.state, self.round
        head: Record = {"commit": now["head"], "score": state["best"]}
        # The better its rank, the likelier; the head is one of them.
        wide = self.steps.settings.population > 1
        pool: list[Record] = state["population"] if wide else []
        older = [each for each in pool if each["commit"] != now["head"]]
        ranked = [head, *({name: each[name] for name in head} for each in older)]
        weights = [1 / (rank + 1) for rank in range(len(ranked))]
        found: dict[str, Record] = {}
        for planner in map(planner_id, range(now["planners"])):
            rng = Random(f"{now['seed']}/{now['number']}/{planner}")
            (chosen,) = rng.choices(ranked, weights)
            found[planner] = chosen if found else head
        return found

    # -- plans -------------------------------------------------------------------------

    def researched(self) -> Record:
        """The brief of the round; an empty one where there is no researcher, or it failed."""
        ref, steps = self.steps.settings.researcher, self.steps
        blank: Record = {"iteration": self.round["number"], "researcher_id": "none"}
        blank |= {"repo_analysis_summary": "", "ideas": []}

        def take(answer: Answer) -> Record:
            brief = {**blank, **(answer.value or {})}
            brief |= {"iteration": self.round["number"], "researcher_id": "researcher"}
            why = answer.why or _unfit(ResearchBrief, brief)
            return {"brief": blank if why else brief, "why": why}

        if steps.result("research") is None and not ref:
            steps.done("research", {"brief": blank, "why": ""})
        elif steps.result("research") is None:
            request = self.request("researcher", "researcher", {})
            call = self.call(ref, request, self.round["head"])
            steps.ask("research", {"research": Ask(call, take)})
        return self.round["results"]["research"]["brief"]

    def planned(self, brief: Record) -> dict[str, Record]:
        """What each planner replied, made a plan in form."""
        ref, steps, state = self.steps.settings.planner, self.steps, self.state
        free = [each for each in self.families if each != rules.blocked(_winners(state))]
        asks: dict[str, Ask] = {}
        for number, (planner, parent) in enumerate(self.parents().items()):
            if steps.result(f"plan/{planner}") is not None:
                continue
            turn = (number + self.round["number"] - 1) % len(free)
            given: Record = {"families": [*free[turn:], *free[:turn]], "brief": brief}
            given |= {"ideas": [] if number else self.round["ideas"], "parent": parent}
            request = self.request("planner", planner, given)
            if is_built_in(ref):
                # What was planned so far and what it scored.
                rows = [row for row in state["rows"][-_PROPOSALS:] if row["plan"] is not None]
                request["input"]["proposals"] = [
                    {"plan": row["plan"], "score": row["benchmark_score"]} for row in rows
                ]
                request["input"]["constants"] = steps.settings.constants
                call = built_in(ref, request, self.files(parent["commit"]))
            else:
                call = self.call(ref, request, parent["commit"])
            asks[f"plan/{planner}"] = Ask(call, partial(self._as_plan, planner))
        steps.ask("planning", asks)
        if self.round["ideas"]:
            steps.once("ideas", "planning", self._use_up_ideas)
        planned = results(self.state, "plan/")
        return {name: each["plan"] for name, each in planned.items() if each["plan"] is not None}

    def _as_plan(self, planner: str, answer: Answer) -> Record:
        if answer.why or not answer.value:
            return {"plan": None, "why": answer.why or "no plan"}
        number = self.round["number"]
        plan = {**answer.value, "plan_id": f"round_{number}_{planner}", "planner_id": planner}
        return {"plan": {**plan, "round": number, "critic_approved": False}, "why": ""}

    def _use_up_ideas(self) -> Record:
        """Take the ideas of this round out of idea.md; one that came since stays."""
        document = self.steps.home.document(self.steps.journal.place.key(IDEA))

        def without(old: bytes | None) -> bytes:
            left = ideas_in((old or b"").decode("utf-8", "replace"))
            left = [each for each in left if each not in self.round["ideas"]]
            return "\n\n".join([IDEA_TEMPLATE.rstrip(), *left, ""]).encode()

        document.update(without)
        document.close()
        return {"used": len(self.round["ideas"])}

    def reviewed(self, plans: dict[str, Record]) -> dict[str, Record]:
        """The plans with both reviews; the critic's binds, and code is the critic."""
        if (found := self.steps.result("reviewed")) is not None:
            return found["plans"]
        bounds, critic = self._bounds(), self.steps.settings.critic
        advised = self._advised(plans, bounds)
        reviews: dict[str, Record] = {}
        for _ in range(2 if critic else 1):
            taken: list[str] = []
            for planner, plan in plans.items():
                given = self.steps.result(f"critic/{planner}") or {}
                review = rules.rejected_by(rules.review(plan, bounds, taken), given)
                reviews[planner] = review
                if review["verdict"] == "approved":
                    taken.append(str(plan["approach_family"]))
            if critic:
                alive = [name for name in plans if reviews[name]["verdict"] == "approved"]
                self._opinions("critic", critic, {name: plans[name] for name in alive})
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
        links = [path for path, entry in self.base.items() if entry.mode == LINK]
        rows = [row for row in self.state["rows"] if row["failed"]]
        return rules.Bounds(
            self.families,
            _winners(self.state),
            {rules.likeness(row["hypothesis"]): row["status"] for row in rows},
            self.sealed,
            self.steps.settings.scope,
            partial(_leads_out, links),
        )

    def _advised(self, plans: Mapping[str, Record], bounds: rules.Bounds) -> dict[str, Record]:
        ref, paths = self.steps.settings.architect, list(self.base)
        given = self._opinions("architect", ref, plans) if ref else {}
        fit = {name: each for name, each in given.items() if not _unfit(ArchitectReview, each)}
        return {
            name: fit.get(name) or rules.advice(plan, bounds, paths) for name, plan in plans.items()
        }

    def _opinions(self, role: str, ref: str, plans: Mapping[str, Record]) -> dict[str, Record]:
        """What a reviewer replies on each plan; nothing where it failed."""
        asks: dict[str, Ask] = {}
        for planner, plan in plans.items():
            if self.steps.result(f"{role}/{planner}") is None:
                request = self.request(role, f"{role}/{planner}", {"plan": plan})
                call = self.call(ref, request, self.round["head"])
                asks[f"{role}/{planner}"] = Ask(call, _value)
        self.steps.ask("critic_review", asks)
        return {name: self.steps.result(f"{role}/{name}") or {} for name in plans}

    # -- candidates --------------------------------------------------------------------

    def executed(self, plans: Mapping[str, Record]) -> dict[str, Record]:
        """What each approved plan became: a commit, or why there is none."""
        ref, steps, parents = self.steps.settings.executor, self.steps, self.parents()
        asks: dict[str, Ask] = {}
        for number, (planner, plan) in enumerate(plans.items(), 1):
            name, parent = f"executor_{number}", parents[planner]["commit"]
            if steps.result(f"execute/{name}") is not None:
                continue
            files = self.files(parent)
            request = self.request("executor", name, {"plan": plan, "parent": parents[planner]})
            if is_built_in(ref):
                call, taken = built_in(ref, request, files), partial(self._written, files)
            elif not ref.startswith("command:"):
                # A model without hands needs to see the files.
                wanted = [each.removeprefix("./") for each in plan["target_files"]]
                shown = {path: files.read(path)[:100_000] for path in wanted if path in files.tree}
                request["input"]["files"] = shown
                call, taken = self.call(ref, request, None), partial(self._edited, files)
            else:
                checkout = self.workshop.checkout(f"round_{self.round['number']}_{name}", parent)
                self.workshop.with_git(checkout)
                call = self.call(ref, request, None, checkout.path)
                taken = partial(self._left, checkout, parent)
            take = partial(self._candidate, plan, parent, taken)
            asks[f"execute/{name}"] = Ask(call, take)
        steps.ask("execution", asks)
        return results(self.state, "execute/")

    def _candidate(
        self, plan: Record, parent: str, taken: Callable[[Answer], str], answer: Answer
    ) -> Record:
        """The commit of what an executor left, and what is wrong with it."""
        failed, commit = None, parent
        try:
            commit = taken(answer)
        except HoldfastError as error:
            what = f"the edits could not be applied: {error.message}"
            failed = failure(what, error.message, lesson="quote the text as it stands in the file")
        if answer.why:
            category = "timeout" if answer.why.startswith("timed_out") else "logic_error"
            lesson = "a smaller change, which the executor can finish"
            failed = failure(f"the executor failed: {answer.why}", answer.why, category, lesson)
        changed = self.workshop.changed(parent, commit) if commit != parent else {}
        targets = [each.removeprefix("./") for each in plan["target_files"]]
        result: Record = {
            "plan_id": plan["plan_id"],
            "parent": parent,
            "commit": commit,
            "failure": failed or self._wrong(commit, changed),
            "seconds": answer.seconds,
            "at": self.steps.now(),
            "strayed": sorted(path for path in changed if targets and path not in targets)[:20],
        }
        if (hypothesis := (answer.value or {}).get("hypothesis")) and not targets:
            result["hypothesis"] = one_line(str(hypothesis))[:500]
        return result

    def _wrong(self, commit: str, changed: Mapping[str, Any]) -> Record | None:
        if not changed:
            why = "the executor left the files as they were"
            return failure("nothing was changed", why, lesson="no change")
        if found := violations(self.base, self.workshop.git.tree(commit), self.sealed):
            what = f"sealed: {', '.join(found[:5])}"
            return failure(what, "a candidate may not touch them", "sealed_file_violation")
        if strayed := out_of_bounds(changed, self.steps.settings.scope, self.sealed):
            what = f"outside of the scope: {', '.join(strayed[:5])}"
            return failure(what, "the scope is that of the campaign", "scope_error")
        return None

    def _written(self, files: Files, answer: Answer) -> str:
        return self.workshop.written(files, "candidate")

    def _edited(self, files: Files, answer: Answer) -> str:
        apply_reply(files, answer.value or {})
        return self.workshop.written(files, "candidate")

    def _left(self, checkout: Checkout, parent: str, answer: Answer) -> str:
        commit = self.workshop.repo.take(checkout, parent, "candidate")
        checkout.remove()
        return commit

    def evaluated(self, made: Mapping[str, Record]) -> list[Entrant]:
        """Measure each candidate once; those that held even enter the tournament."""
        steps, baseline = self.steps, self.state["baseline"]
        bar = Bar("the benchmark", self.state["best"], baseline["sd"])
        reviewed: Mapping[str, Record] = self.round["results"]["reviewed"]["plans"]
        plans = {each["plan_id"]: each for each in reviewed.values()}
        entrants: list[Entrant] = []
        for name, each in made.items():
            if each["failure"] is not None:
                continue
            commit, step = each["commit"], f"evaluate/{name}"
            if (first := baseline["screen"]) is not None:
                cheap = Bar("the screen", first["score"], first["sd"])
                found = steps.evaluate(f"screen/{name}", "execution", commit, cheap, screen=True)
                if found["status"] != "success":
                    if steps.result(step) is None:
                        steps.done(step, {**found, "score": None})
                    continue
            found = steps.evaluate(step, "execution", commit, bar)
            if found["status"] == "success":
                plan = plans[each["plan_id"]]
                plan = {**plan, "hypothesis": each.get("hypothesis", plan["hypothesis"])}
                entrants.append(Entrant(name, plan, commit, found["score"]))
        return entrants


def _winners(state: State) -> list[str | None]:
    return [each["winner"] and each["winner"]["approach_family"] for each in state["rounds"]]


def _unfit(model: Any, value: Record) -> str:
    """What is wrong with a reply, if it is not in the documented form."""
    wrong = [each for each in read(model, value, strict=True).findings if each.level == "error"]
    return f"{wrong[0].field}: {wrong[0].reason}" if wrong else ""


def _value(answer: Answer) -> Record:
    return answer.value or {}


def _leads_out(links: Sequence[str], path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in links)
