"""From approved plans to candidates that were measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast.codec import Record
from holdfast.errors import HoldfastError
from holdfast.improve.asker import Asker, parents_of
from holdfast.improve.candidates import Files, apply_reply, out_of_bounds
from holdfast.improve.evaluator import failure
from holdfast.improve.journal import results
from holdfast.improve.roles import Answer, executing, is_built_in
from holdfast.improve.sealing import violations
from holdfast.improve.steps import Ask, Bar
from holdfast.improve.tournament import Entrant
from holdfast.text import one_line
from holdfast.workspace.repo import Checkout


class Making(Asker):
    def executed(self, plans: Mapping[str, Record]) -> dict[str, Record]:
        """What each approved plan became: a commit, or why there is none."""
        ref, steps = self.steps.settings.executor, self.steps
        parents, asks = parents_of(self.state), dict[str, Ask]()
        for number, (planner, plan) in enumerate(plans.items(), 1):
            name = f"executor_{number}"
            if steps.result(f"execute/{name}") is not None:
                continue
            parent = parents[planner]["commit"]
            files = self.files(parent)
            given = {"plan": plan, "parent": parents[planner]}
            request = self.request("executor", name, given)
            if is_built_in(ref):
                call, taken = executing(ref, plan, files), partial(self._written, files)
            elif not ref.startswith("command:"):
                request["input"]["files"] = self._shown(files, plan)
                call, taken = self.call(ref, request, None), partial(self._edited, files)
            else:
                checkout = self.workshop.checkout(f"round_{self.one['number']}_{name}", parent)
                self.workshop.with_git(checkout)
                call = self.call(ref, request, None, checkout.path)
                taken = partial(self._left, checkout, parent)
            take = partial(self._candidate, plan, parent, taken)
            asks[f"execute/{name}"] = Ask(request, call, {"plan_id": plan["plan_id"]}, take)
        steps.ask("execution", asks)
        return results(self.state, "execute/")

    def _candidate(
        self, plan: Record, parent: str, taken: Callable[[Answer], str], answer: Answer
    ) -> Record:
        """The commit of what an executor left, and what is wrong with it."""
        failed = None
        commit = parent
        try:
            commit = taken(answer)
        except HoldfastError as error:
            lesson = "quote the text as it stands in the file"
            what = f"the edits could not be applied: {error.message}"
            failed = failure(what, error.message, lesson=lesson)
        if answer.why:
            category = "timeout" if answer.why.startswith("timed_out") else "logic_error"
            lesson = "a smaller change, which the executor can finish"
            failed = failure(f"the executor failed: {answer.why}", answer.why, category, lesson)
        changed = self.workshop.changed(parent, commit) if commit != parent else {}
        failed = failed or self._wrong(parent, commit, changed)
        targets = [each.removeprefix("./") for each in plan["target_files"]]
        result: Record = {"plan_id": plan["plan_id"], "parent": parent, "commit": commit}
        result |= {"failure": failed, "seconds": answer.seconds, "at": self.steps.now()}
        result["strayed"] = sorted(path for path in changed if targets and path not in targets)[:20]
        if (hypothesis := (answer.value or {}).get("hypothesis")) and not targets:
            result["hypothesis"] = one_line(str(hypothesis))[:500]
        return result

    def _wrong(self, parent: str, commit: str, changed: Mapping[str, Any]) -> Record | None:
        if not changed:
            why = "the executor left the files as they were"
            return failure("nothing was changed", why, lesson="no change")
        context, tree = self.context, self.workshop.git.tree(commit)
        if found := violations(context.base, tree, context.sealed):
            what = f"sealed: {', '.join(found[:5])}"
            return failure(what, "a candidate may not touch them", "sealed_file_violation")
        if strayed := out_of_bounds(changed, self.steps.settings.scope, context.sealed):
            what = f"outside of the scope: {', '.join(strayed[:5])}"
            return failure(what, "the scope is that of the campaign", "scope_error")
        return None

    def _written(self, files: Files, answer: Answer) -> str:
        return self.workshop.written(files, "candidate")

    def _edited(self, files: Files, answer: Answer) -> str:
        apply_reply(files, answer.value or {})
        return self.workshop.written(files, "candidate")

    def _left(self, checkout: Checkout, parent: str, answer: Answer) -> str:
        commit = self.workshop.taken(checkout, parent, "candidate")
        checkout.remove()
        return commit

    def _shown(self, files: Files, plan: Record) -> dict[str, str]:
        """The files that a model without hands needs to see."""
        wanted = [each.removeprefix("./") for each in plan["target_files"]]
        return {path: files.read(path)[:100_000] for path in wanted if path in files.tree}

    def evaluated(self, made: Mapping[str, Record]) -> list[Entrant]:
        """Measure each candidate once; those that held even enter the tournament."""
        state, steps = self.state, self.steps
        first = state["baseline"]["screen"]
        bar = Bar("the benchmark", state["best"], state["baseline"]["sd"])
        plans = {each["plan_id"]: each for each in steps.reviewed.values()}
        entrants: list[Entrant] = []
        for name, each in made.items():
            if each["failure"] is not None:
                continue
            commit = each["commit"]
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
