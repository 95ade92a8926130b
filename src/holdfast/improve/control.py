"""The control of a campaign: random search over the same numbers, with as many evaluations.

It shares nothing with the loop but the benchmark.  A loop that is not clearly better than this has
found nothing that chance would not have found.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.codec import Record
from holdfast.errors import NotFound
from holdfast.improve.campaign import Parts
from holdfast.improve.journal import Journal
from holdfast.improve.proposers import builtin, carry_out
from holdfast.text import plural


def measure(journal: Journal, parts: Parts, tell: Callable[[str], None]) -> Record:
    """Go on until it has had as many evaluations as the campaign; each is recorded at once."""
    state, settings = journal.state(), parts.settings
    wanted: int = state["evaluations"] - state["baseline"]["runs"]
    plan = builtin("search:random")
    for number in range(state["control"]["n"] + 1, wanted + 1):
        files = parts.workshop.files(state["base"], settings.scope, parts.sealed)
        given = {"direction": settings.benchmark_direction, "constants": settings.constants}
        request: Record = {"role": "planner", "round": number, "id": "control_a"}
        request |= {"seed": settings.seed or 0, "slug": journal.place.slug, "input": given}
        try:
            carry_out(plan(request, files), files)
        except NotFound as error:
            journal.write({"event": "control", "score": None, "why": error.message})
            break
        commit = parts.workshop.written(files, f"control {number}")
        found = parts.benchmark.evaluate(commit)
        journal.write({"event": "control", "score": found.score, "why": None})
        if number % 20 == 0:
            tell(f"control: {number} of {plural(wanted, 'evaluation')}\n")
    return journal.state()["control"]
