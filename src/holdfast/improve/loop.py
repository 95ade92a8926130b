"""The loop: one round after the other, from top to bottom.

A round is a function over recorded steps.  It is run from its first step every time; a step that is
done gives what was recorded and does nothing.  So a round that was cut off anywhere ends as if it
had not been, and what was paid for is not paid for again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from holdfast.codec import Record
from holdfast.errors import HoldfastError, OverBudget, StorageError
from holdfast.improve import records
from holdfast.improve.acceptance import gain
from holdfast.improve.candidates import Workshop
from holdfast.improve.files import (
    FIXED,
    GOAL,
    HARNESS,
    IDEA,
    changed,
    changes,
    checked,
    families_in,
    ideas_in,
    read_goal,
    read_settings,
    with_status,
)
from holdfast.improve.journal import IDLE, State, results
from holdfast.improve.round import Round
from holdfast.improve.sealing import sealed_paths
from holdfast.improve.steps import Halted, Steps
from holdfast.improve.tournament import Outcome, hold
from holdfast.proc.survivors import end_around
from holdfast.text import plural
from holdfast.workspace.repo import Sealed


class Engine:
    """Has the lease of a campaign; used by one thread."""

    def __init__(
        self, steps: Steps, workshop: Workshop, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.steps, self.workshop, self._tell = steps, workshop, tell
        self.journal, self.place = steps.journal, steps.journal.place

    def run(self, rounds: int | None, *, smoke: bool = False) -> State:
        """Round after round until a stop; with `rounds`, so many more at most."""
        end_around(self.steps.around)
        # The last documents of a round: where they are, the others are too.
        names = self.steps.home.names(self.place.key("state/merge_reports"))
        if len(names) < self.journal.known()["iterations"]:
            self.steps.views.rebuild(self.journal.lines.log)
        done = 0
        try:
            while True:
                self.steps.look()
                self._next_phase()
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
        s, branch = self.steps.settings, self.journal.known()["branch"]
        if status == "target_reached" and s.auto_pr:
            self._tell(f"now: gh pr create --base {s.target_branch} --head {branch}\n")

    def _over(self, state: State) -> tuple[str, str] | None:
        """Why no round begins, in the order that counts."""
        s, best = self.steps.settings, state["best"]
        if state["round"] is not None and state["round"]["ended"] is None:
            return None
        if s.target_value is not None and gain(s.target_value, best, higher=s.higher) >= 0:
            return "target_reached", f"{best:g} meets the target {s.target_value:g}"
        if state["plateau"] >= s.plateau_window:
            return "plateau", f"{plural(state['plateau'], 'small gain')} in a row"
        if state["iterations"] >= s.max_iterations:
            return "max_iterations", f"{plural(state['iterations'], 'round')} done"
        if state["breaker"] >= s.circuit_breaker_threshold:
            lost = plural(state["breaker"], "round")
            return "circuit_breaker", f"{lost} in a row without a winner"
        return None

    # -- one round ---------------------------------------------------------------------

    def _round(self, *, smoke: bool) -> None:
        """Everything that a round is, in its order."""
        self.workshop.clean()
        current = self._begun(smoke=smoke)
        plans = current.reviewed(current.planned(current.researched()))
        approved = {name: plan for name, plan in plans.items() if plan["critic_approved"]}
        entrants = current.evaluated(current.executed(approved))
        outcome = hold(self.steps, self.workshop, entrants)
        tags = self.steps.once("archive", "recording", partial(self._archived, outcome))
        ended = records.ended(self.journal.known(), self.steps.settings, outcome, tags["tags"])
        self.journal.write(ended)
        self._push(outcome)
        self.steps.show(now=True)
        self._tell(records.line(self.journal.known()))

    def _begun(self, *, smoke: bool) -> Round:
        """The round under way, or a new one: settings, goal and ideas as they are now."""
        state = self.journal.known()
        if state["round"] is None or state["round"]["ended"] is not None:
            self._read_files(state)
            self._meet_branch()
            state, s = self.journal.known(), self.steps.settings
            ideas = [*ideas_in(self.journal.text(IDEA)), *state["ideas"]]
            line: Record = {"event": "round", "number": state["iterations"] + 1}
            line |= {"seed": s.seed or 0, "head": state["head"], "ideas": ideas}
            many = 1 if smoke else self.steps.planners
            self.journal.write({**line, "planners": many})
        state = self.journal.known()
        base = self.workshop.git.tree(state["base"])
        sealed = Sealed(state["base"], sealed_paths(self.steps.settings.sealed_files, base))
        known = [*self.steps.settings.known_families, *families_in(state["harness"])]
        return Round(self.steps, self.workshop, known, sealed)

    def _read_files(self, state: State) -> None:
        """Take over what people changed in settings.json, goal.md and harness.md."""
        values = checked({**state["settings"], **read_settings(self.journal)}).whole()
        values = {name: value for name, value in values.items() if name not in FIXED}
        lines = changes(state["settings"], values, "settings.json")
        files = {"goal": self.journal.text(GOAL), "harness": self.journal.text(HARNESS)}
        lines += [
            changed(name, None, text, "user") for name, text in files.items() if text != state[name]
        ]
        phases = read_goal(files["goal"]).phases
        active = next((each.phase for each in phases if each.status == "active"), None)
        if state["phase"] not in [each.phase for each in phases] and active != state["phase"]:
            lines.append(changed("current_phase", state["phase"], active, "goal.md"))
        if lines:
            self.journal.write(*lines)
        # Also what `improve set` wrote, from another process.
        self.steps.settings = checked(self.journal.known()["settings"])

    def _meet_branch(self) -> None:
        """See whether the user moved the branch; then its new head is measured."""
        state = self.journal.known()
        branch, head = state["branch"], self.workshop.repo.adopt(state["branch"])
        if head == state["head"]:
            return
        if head is None:
            self.workshop.repo.publish(state["head"], branch, expected=None)
            return
        found = self.steps.evaluator.evaluate(head)
        if found.score is None:
            what = found.failure["what"] if found.failure else "no score"
            raise StorageError(
                f"{branch} was moved to {head[:12]}, which cannot be measured: {what}",
                hint=f"put it back: `git branch -f {branch} {state['head'][:12]}`",
            )
        line: Record = {"event": "moved", "head": head, "from": state["head"]}
        self.journal.write({**line, "score": found.score, "sub_scores": found.sub_scores})
        self._tell(f"{branch} was moved to {head[:12]}: it scores {found.score:g}\n")

    # -- the end of a round ------------------------------------------------------------

    def _archived(self, outcome: Outcome) -> Record:
        """Tag what lost in the user's repository."""
        kept, state = {each.entrant.executor for each in outcome.won}, self.journal.known()
        number = state["round"]["number"]
        tags = {
            f"archive/{state['goal_slug']}/round_{number}_{name}": each["commit"]
            for name, each in results(state, "execute/").items()
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
        phases = read_goal(state["goal"]).phases if state["goal"] else []
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
        self.journal.put(GOAL, text)
        phase = changed("current_phase", state["phase"], new, "engine")
        self.journal.write(phase, changed("goal", None, text, "engine"))
