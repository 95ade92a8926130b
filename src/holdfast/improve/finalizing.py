"""The end of a campaign: one commit to review, and the hold-out opened once."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.codec import Record
from holdfast.errors import Conflict, UsageError
from holdfast.improve.campaign import Confirm, Parts, check_trust
from holdfast.improve.control import measure
from holdfast.improve.files import checked
from holdfast.improve.journal import Journal, State
from holdfast.text import one_line, plural


def finalized(
    journal: Journal,
    branch: str | None,
    confirm: Confirm | None,
    tell: Callable[[str], None] | None,
) -> Record:
    """The branch and what the hold-out says; the same again if it was done already.

    Random search is measured unless `tell` is None.
    """
    state = journal.state()
    if state["finalized"]:
        return state["finalized"]
    if state["head"] == state["base"]:
        raise Conflict(
            f"{journal.place.name} has merged nothing yet",
            hint="`holdfast improve run` goes on; a campaign without a gain has nothing to review",
        )
    settings = checked(state["settings"])
    line = check_trust(state, settings, confirm)
    parts = Parts(journal, settings, state["base"])
    name = branch or f"review/{state['goal_slug']}"
    if name == state["branch"]:
        raise UsageError(f"{name} is the branch of the campaign", hint="give another --branch")
    workshop = parts.workshop
    there = workshop.repo.adopt(name)
    tree = workshop.git.root(state["head"])
    if there is not None and workshop.git.root(there) != tree:
        raise Conflict(f"there is a branch {name} already", hint="give another --branch")
    if tell is not None:
        measure(journal, parts, tell)
    holdout = None
    if settings.holdout_command:
        evaluator = parts.evaluator(settings.holdout_command)
        base, result = (evaluator.evaluate(state[which]) for which in ("base", "head"))
        holdout = {"base": base.score, "result": result.score}
        holdout |= {"failure": (base.failure or result.failure or {}).get("what")}
    commit = there or workshop.repo.commit(tree, (state["base"],), _message(state))
    if there is None:
        workshop.repo.publish(commit, name, expected=None)
    made: Record = {"event": "finalized", "branch": name, "commit": commit, "holdout": holdout}
    journal.write(*([line] if line else []), made)
    return journal.known()["finalized"]


def _message(state: State) -> str:
    merged = [each for each in state["rounds"] if each["status"] == "merged"]
    lines = [
        f"{one_line(state['settings'].get('objective', '')) or state['campaign']}: "
        f"{state['baseline']['score']:g} → {state['best']:g}",
        "",
        f"{plural(len(merged), 'gain')} in {plural(state['iterations'], 'round')}, "
        f"measured in {plural(state['evaluations'], 'run')}:",
        "",
    ]
    for each in merged:
        for one in (each["winner"], *each.get("stacked", ())):
            what = one_line(one["hypothesis"])
            lines.append(f"- round {each['iteration']}: {what} ({one['score']:g})")
    return "\n".join(lines)
