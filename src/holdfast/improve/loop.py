"""The loop: one round after the other, from top to bottom.

A round is a function over recorded steps.  It is run from its first step every time; a step that is
done gives what was recorded and does nothing.  So a round that was cut off anywhere ends as if it
had not been, and what was paid for is not paid for again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, NamedTuple

from holdfast.codec import Record, encode
from holdfast.contracts.improve import ArchitectReview, ResearchBrief
from holdfast.contracts.kind import read
from holdfast.errors import HoldfastError, OverBudget, StorageError
from holdfast.git.repository import LINK
from holdfast.improve import records, rules
from holdfast.improve.acceptance import gain
from holdfast.improve.candidates import Files, Workshop, apply_reply, out_of_bounds
from holdfast.improve.evaluator import failure
from holdfast.improve.files import (
    FIXED,
    GOAL,
    HARNESS,
    IDEA,
    IDEA_TEMPLATE,
    checked,
    families_in,
    ideas_in,
    in_scope,
    read_goal,
    read_settings,
    text_of,
    with_status,
)
from holdfast.improve.journal import IDLE, State, results
from holdfast.improve.overview import family_statistics
from holdfast.improve.roles import (
    Answer,
    Call,
    asking,
    executing,
    is_built_in,
    planner_id,
    planning,
    request_of,
)
from holdfast.improve.sealing import sealed_paths, violations
from holdfast.improve.steps import Ask, Bar, Halted, Steps
from holdfast.improve.tournament import Entrant, Outcome, hold
from holdfast.proc.survivors import end_around
from holdfast.text import plural
from holdfast.workspace.repo import Sealed

_TOLD = 30
"""Rounds of which planners hear in full."""
_PROPOSALS = 500


class Context(NamedTuple):
    """What does not change during a round."""

    goal: Any
    families: list[str]
    sealed: Sealed
    base: Any
    """The tree of the unchanged repository."""


class Engine:
    """Has the lease of a campaign; used by one thread."""

    def __init__(
        self, steps: Steps, workshop: Workshop, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.steps, self.workshop, self._tell = steps, workshop, tell
        self.journal, self.place = steps.journal, steps.journal.place
        self._context: Context

    def run(self, rounds: int | None, *, smoke: bool = False) -> State:
        """Round after round until a stop; with `rounds`, so many more at most."""
        end_around(self.steps.around)
        names = self.steps.home.names(self.place.key("state/iteration_history"))
        if len(names) < self.journal.known()["iterations"]:
            self.steps.views.rebuild(self.journal.lines.log)
        done = 0
        try:
            while True:
                self.steps.look()
                if (over := self._over(self.journal.known())) is not None:
                    raise Halted(*over)
                if rounds is not None and done >= rounds:
                    raise Halted(IDLE, f"{plural(rounds, 'round')} done")
                self._round(smoke=smoke)
                done += 1
        except Halted as halt:
            self._close(halt.status, halt.why)
        except OverBudget as error:
            self._close("budget", error.message)
        except HoldfastError as error:
            with suppress(HoldfastError):
                self._close("error", error.message)
            raise
        return self.journal.known()

    def _close(self, status: str, why: str) -> None:
        self.workshop.clean()
        self.journal.write({"event": "status", "status": status, "why": why})
        self.steps.show(now=True)

    def _over(self, state: State) -> tuple[str, str] | None:
        """Why no round begins, in the order that counts."""
        s, best = self.steps.settings, state["best"]
        if state["round"] is not None and state["round"]["ended"] is None:
            return None
        if s.target_value is not None and gain(s.target_value, best, higher=s.higher) >= 0:
            return "target_reached", f"{best:g} meets the target {s.target_value:g}"
        if state["plateau"] >= s.plateau_window:
            return "plateau", f"{state['plateau']} small gains in a row"
        if state["iterations"] >= s.max_iterations:
            return "max_iterations", f"{plural(state['iterations'], 'round')} done"
        if state["breaker"] >= s.circuit_breaker_threshold:
            return "circuit_breaker", f"{state['breaker']} rounds in a row without a winner"
        return None

    # -- one round ---------------------------------------------------------------------

    def _round(self, *, smoke: bool) -> None:
        """Everything that a round is, in its order."""
        self.workshop.clean()
        one = self._begun(smoke=smoke)
        brief = self._researched(one)
        plans = self._planned(one, brief)
        plans = self._reviewed(one, plans)
        made = self._executed(one, {name: p for name, p in plans.items() if p["critic_approved"]})
        entrants = self._evaluated(made)
        outcome = hold(self.steps, self.workshop, one, entrants)
        tags = self.steps.once("archive", "recording", partial(self._archived, one, outcome.won))
        ended = records.ended(self.journal.known(), self.steps.settings, outcome, tags["tags"])
        self.journal.write(ended)
        self._next_phase()
        self._push(outcome)
        self.steps.show(now=True)
        self._tell(records.line(self.journal.known()))

    def _begun(self, *, smoke: bool) -> Record:
        """The round under way, or a new one: settings, goal and ideas as they are now."""
        state = self.journal.known()
        if state["round"] is None or state["round"]["ended"] is not None:
            self._read_files(state)
            self._meet_branch()
            state, s = self.journal.known(), self.steps.settings
            ideas = [*ideas_in(text_of(self.steps.home, self.place.key(IDEA))), *state["ideas"]]
            line: Record = {"event": "round", "number": state["iterations"] + 1}
            line |= {"seed": s.seed or 0, "head": state["head"], "ideas": ideas, "smoke": smoke}
            many = 1 if smoke else self.steps.planners
            self.journal.write({**line, "planners": many})
        state = self.journal.known()
        base = self.workshop.git.tree(state["base"])
        self._context = Context(
            read_goal(state["goal"]),
            [*self.steps.settings.known_families, *families_in(state["harness"])],
            Sealed(state["base"], sealed_paths(self.steps.settings.sealed_files, base)),
            base,
        )
        return state["round"]

    def _read_files(self, state: State) -> None:
        """Take over what people changed in settings.json, goal.md and harness.md."""
        lines: list[Record] = []
        given = read_settings(self.steps.home, self.place) or {}
        values = checked({**state["settings"], **given}).whole()
        for field, new in values.items():
            old = state["settings"].get(field)
            if new != old and field not in FIXED:
                lines.append(_changed(field, old, new, "settings.json"))
        for name, key in (("goal", GOAL), ("harness", HARNESS)):
            text = text_of(self.steps.home, self.place.key(key))
            if text != state[name]:
                lines.append(_changed(name, None, text, "user"))
                state = {**state, name: text}
        phases = read_goal(state["goal"]).phases
        active = next((each.phase for each in phases if each.status == "active"), None)
        if state["phase"] not in [each.phase for each in phases] and active != state["phase"]:
            lines.append(_changed("current_phase", state["phase"], active, "goal.md"))
        if lines:
            self.journal.write(*lines)
            self.steps.settings = checked(self.journal.known()["settings"])

    def _meet_branch(self) -> None:
        """See whether the user moved the branch; then what it has now is measured anew."""
        state = self.journal.known()
        branch, head = state["branch"], self.workshop.repo.adopt(state["branch"])
        if head == state["head"]:
            return
        if head is None:
            self.workshop.repo.publish(state["head"], branch, expected=None)
            return
        found = self.steps.evaluator.evaluate(head, fresh=True)
        if found.score is None:
            what = found.failure["what"] if found.failure else "no score"
            raise StorageError(
                f"{branch} was moved to {head[:12]}, which cannot be measured: {what}",
                hint=f"put it back: `git branch -f {branch} {state['head'][:12]}`",
            )
        line: Record = {"event": "moved", "head": head, "from": state["head"]}
        self.journal.write({**line, "score": found.score, "sub_scores": found.sub_scores})
        self._tell(f"{branch} was moved to {head[:12]}: it scores {found.score:g}\n")

    # -- plans -------------------------------------------------------------------------

    def _researched(self, one: Record) -> Record:
        ref, steps = self.steps.settings.researcher, self.steps
        blank: Record = {"iteration": one["number"], "researcher_id": "none"}
        blank |= {"repo_analysis_summary": "", "ideas": []}
        if not ref:
            found = steps.result("research") or steps.done("research", {"brief": blank, "why": ""})
            return found["brief"]

        def take(answer: Answer) -> Record:
            brief = {**blank, **(answer.value or {})}
            brief |= {"iteration": one["number"], "researcher_id": "researcher"}
            why = answer.why or _unfit(ResearchBrief, brief)
            return {"brief": blank if why else brief, "why": why}

        if steps.result("research") is None:
            request = self._request("researcher", one, "researcher", {})
            call = self._call(ref, request, one["head"])
            steps.ask("research", {"research": Ask(request, call, {}, take)})
        return self.journal.known()["round"]["results"]["research"]["brief"]

    def _planned(self, one: Record, brief: Record) -> dict[str, Record]:
        """What each planner replied, made a plan in form."""
        ref, steps, state = self.steps.settings.planner, self.steps, self.journal.known()
        parents = parents_of(state)
        free = [each for each in self._context.families if each != rules.blocked(_winners(state))]
        asks: dict[str, Ask] = {}
        for number in range(one["planners"]):
            planner = planner_id(number)
            if steps.result(f"plan/{planner}") is not None:
                continue
            turn = (number + one["number"] - 1) % len(free)
            parent = parents[planner]
            given = {
                "families": [*free[turn:], *free[:turn]],
                "brief": brief,
                "ideas": one["ideas"] if number == 0 else [],
                "parent": parent,
            }
            request = self._request("planner", one, planner, given)
            if is_built_in(ref):
                request["input"]["proposals"] = _proposals(state)
                request["input"]["constants"] = self.steps.settings.constants
                call = planning(ref, request, self._files(parent["commit"]))
            else:
                call = self._call(ref, request, parent["commit"])
            take = partial(self._as_plan, one, planner)
            asks[f"plan/{planner}"] = Ask(request, call, {}, take)
        steps.ask("planning", asks)
        if one["ideas"]:
            steps.once("ideas", "planning", partial(self._use_up_ideas, one))
        planned = results(self.journal.known(), "plan/")
        return {name: each["plan"] for name, each in planned.items() if each["plan"] is not None}

    def _as_plan(self, one: Record, planner: str, answer: Answer) -> Record:
        if answer.why or not answer.value:
            return {"plan": None, "why": answer.why or "no plan"}
        plan: Record = {"plan_id": f"round_{one['number']}_{planner}", "planner_id": planner}
        plan |= {"round": one["number"], **answer.value}
        plan |= {"plan_id": f"round_{one['number']}_{planner}", "planner_id": planner}
        plan |= {"round": one["number"], "critic_approved": False}
        return {"plan": plan, "why": ""}

    def _use_up_ideas(self, one: Record) -> Record:
        """Take the ideas of this round out of idea.md; one that came since stays."""
        document = self.steps.home.document(self.place.key(IDEA))

        def without(old: bytes | None) -> bytes:
            left = ideas_in((old or b"").decode("utf-8", "replace"))
            left = [each for each in left if each not in one["ideas"]]
            return "\n\n".join([IDEA_TEMPLATE.rstrip(), *left, ""]).encode()

        document.update(without)
        document.close()
        return {"used": len(one["ideas"])}

    def _reviewed(self, one: Record, plans: dict[str, Record]) -> dict[str, Record]:
        """The plans with both reviews; the critic's binds, and code is the critic."""
        if (found := self.steps.result("reviewed")) is not None:
            return found["plans"]
        bounds, settings = self._bounds(), self.steps.settings
        advised = self._advised(one, plans)
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
                self._opinions("critic", settings.critic, one, alive)
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
        state, context = self.journal.known(), self._context
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

    def _advised(self, one: Record, plans: Mapping[str, Record]) -> dict[str, Record]:
        ref, paths = self.steps.settings.architect, list(self._context.base)
        bounds = self._bounds()
        if not ref:
            return {name: rules.advice(plan, bounds, paths) for name, plan in plans.items()}
        given = self._opinions("architect", ref, one, plans)
        return {
            name: given[name]
            if not _unfit(ArchitectReview, given[name])
            else rules.advice(plan, bounds, paths)
            for name, plan in plans.items()
        }

    def _opinions(
        self, role: str, ref: str, one: Record, plans: Mapping[str, Record]
    ) -> dict[str, Record]:
        """What a reviewer replies on each plan; nothing where it failed."""
        asks: dict[str, Ask] = {}
        for planner, plan in plans.items():
            if self.steps.result(f"{role}/{planner}") is None:
                request = self._request(role, one, f"{role}/{planner}", {"plan": plan})
                call = self._call(ref, request, one["head"])
                asks[f"{role}/{planner}"] = Ask(request, call, {}, _value)
        self.steps.ask("critic_review", asks)
        return {name: self.steps.result(f"{role}/{name}") or {} for name in plans}

    # -- candidates --------------------------------------------------------------------

    def _executed(self, one: Record, plans: Mapping[str, Record]) -> dict[str, Record]:
        """What each approved plan became: a commit, or why there is none."""
        ref, steps = self.steps.settings.executor, self.steps
        parents, asks = parents_of(self.journal.known()), dict[str, Ask]()
        for number, (planner, plan) in enumerate(plans.items(), 1):
            name = f"executor_{number}"
            if steps.result(f"execute/{name}") is not None:
                continue
            parent = parents[planner]["commit"]
            files = self._files(parent)
            given = {"plan": plan, "parent": parents[planner]}
            request = self._request("executor", one, name, given)
            if is_built_in(ref):
                call, taken = executing(ref, plan, files), partial(self._written, files)
            elif not ref.startswith("command:"):
                request["input"]["files"] = self._shown(files, plan)
                call, taken = self._call(ref, request, None), partial(self._edited, files)
            else:
                checkout = self.workshop.checkout(f"round_{one['number']}_{name}", parent)
                self.workshop.with_git(checkout)
                call = self._call(ref, request, None, checkout.path)
                taken = partial(self._left, checkout, parent)
            take = partial(self._candidate, plan, parent, taken)
            asks[f"execute/{name}"] = Ask(request, call, {"plan_id": plan["plan_id"]}, take)
        steps.ask("execution", asks)
        return results(self.journal.known(), "execute/")

    def _candidate(
        self, plan: Record, parent: str, taken: Callable[[Answer], str], answer: Answer
    ) -> Record:
        """The commit of what an executor left, and what is wrong with it."""
        told = None
        commit = parent
        try:
            commit = taken(answer)
        except HoldfastError as error:
            told = failure("the edits could not be applied", error.message, "scope_error")
        if answer.why:
            category = "timeout" if answer.why.startswith("timed_out") else "logic_error"
            told = failure("the executor failed", answer.why, category)
        changed = self.workshop.changed(parent, commit) if commit != parent else {}
        told = told or self._wrong(parent, commit, changed)
        targets = [each.removeprefix("./") for each in plan["target_files"]]
        result: Record = {"plan_id": plan["plan_id"], "parent": parent, "commit": commit}
        result |= {"failure": told, "seconds": answer.seconds, "at": self.steps.now()}
        result["strayed"] = sorted(path for path in changed if targets and path not in targets)[:20]
        if (hypothesis := (answer.value or {}).get("hypothesis")) and not targets:
            result["hypothesis"] = str(hypothesis)[:500]
        return result

    def _wrong(self, parent: str, commit: str, changed: Mapping[str, Any]) -> Record | None:
        if not changed:
            told = failure("nothing was changed", "the executor left the files as they were")
            return {**told, "lesson": "no change"}
        context, tree = self._context, self.workshop.git.tree(commit)
        if found := violations(context.base, tree, context.sealed):
            what = f"sealed: {', '.join(found[:5])}"
            return failure(what, "a candidate may not touch them", "sealed_file_violation")
        if strayed := out_of_bounds(changed, self.steps.settings.scope, context.sealed):
            what = f"outside of the scope: {', '.join(strayed[:5])}"
            return failure(what, "the scope is that of the campaign", "scope_error")
        return None

    def _files(self, commit: str) -> Files:
        """What a built-in may read and change."""
        sealed, scope = self._context.sealed, self.steps.settings.scope
        return self.workshop.files(
            commit, lambda path: in_scope(path, scope) and not sealed.covers(path)
        )

    def _written(self, files: Files, answer: Answer) -> str:
        return self.workshop.written(files, "candidate")

    def _edited(self, files: Files, answer: Answer) -> str:
        apply_reply(files, answer.value or {})
        return self.workshop.written(files, "candidate")

    def _left(self, checkout: Any, parent: str, answer: Answer) -> str:
        commit = self.workshop.taken(checkout, parent, "candidate")
        checkout.remove()
        return commit

    def _shown(self, files: Files, plan: Record) -> dict[str, str]:
        """The files that a model without hands needs to see."""
        wanted = [each.removeprefix("./") for each in plan["target_files"]]
        return {path: files.read(path)[:100_000] for path in wanted if path in files.tree}

    def _evaluated(self, made: Mapping[str, Record]) -> list[Entrant]:
        """Measure each candidate once; those that held even enter the tournament."""
        state, steps = self.journal.known(), self.steps
        first = state["baseline"]["screen"]
        plans = {each["plan_id"]: each for each in steps.reviewed.values()}
        entrants: list[Entrant] = []
        for name, each in made.items():
            if each["failure"] is not None:
                continue
            commit, bar = (
                each["commit"],
                Bar("the benchmark", state["best"], state["baseline"]["sd"]),
            )
            if first is not None:
                cheap = Bar("the screen", first["score"], first["sd"])
                step = f"screen/{name}"
                found = steps.evaluate(step, "execution", commit, cheap, screen=True)
                if found["status"] != "success":
                    if steps.result(f"evaluate/{name}") is None:
                        steps.done(f"evaluate/{name}", {**found, "score": None})
                    continue
            found = steps.evaluate(f"evaluate/{name}", "execution", commit, bar)
            if found["status"] == "success":
                plan = plans[each["plan_id"]]
                plan = {**plan, "hypothesis": each.get("hypothesis", plan["hypothesis"])}
                entrants.append(Entrant(name, plan, commit, each["parent"], found["score"]))
        return entrants

    # -- the end of a round ------------------------------------------------------------

    def _archived(self, one: Record, won: list[Any]) -> Record:
        """Tag what lost in the user's repository."""
        kept = {each.entrant.executor for each in won}
        tags = {
            f"archive/round_{one['number']}_{name}": each["commit"]
            for name, each in results(self.journal.known(), "execute/").items()
            if name not in kept and each["commit"] != each["parent"]
        }
        if self.steps.settings.archive_tags:
            self.workshop.archive(tags)
        return {"tags": sorted(tags) if self.steps.settings.archive_tags else []}

    def _push(self, outcome: Outcome) -> None:
        s, branch = self.steps.settings, self.journal.known()["branch"]
        if outcome.won and s.auto_push:
            why = self.workshop.push(branch, s.fork_url or "origin")
            self._tell(f"{branch} was not pushed: {why}\n" if why else f"{branch} was pushed\n")

    def _next_phase(self) -> None:
        """Go on to the next phase if the targets of this one are met."""
        state = self.journal.known()
        phases = self._context.goal.phases
        names = [each.phase for each in phases]
        if state["phase"] not in names:
            return
        at = names.index(state["phase"])
        values = {**state["best_subs"], self.steps.settings.primary_metric: state["best"]}
        if not all(records.meets(values.get(t.dimension), t) for t in phases[at].targets):
            return
        new = names[at + 1] if at + 1 < len(names) else None
        text = with_status(state["goal"], state["phase"], "completed")
        text = with_status(text, new, "active") if new else text
        self.journal.write(
            _changed("current_phase", state["phase"], new, "engine"),
            _changed("goal", None, text, "engine"),
        )
        document = self.steps.home.document(self.place.key(GOAL))
        document.replace(text.encode())
        document.close()

    # -- asking ------------------------------------------------------------------------

    def _request(self, role: str, one: Record, who: str, given: Record) -> Record:
        state, s = self.journal.known(), self.steps.settings
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
        return request_of(role, one["number"], who, one["seed"], self.place.slug, made)

    def _call(
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


def _changed(field: str, old: Any, new: Any, source: str) -> Record:
    return {"event": "changed", "field": field, "old": old, "new": new, "source": source}
