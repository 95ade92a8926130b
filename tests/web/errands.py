"""A home with jobs in every state that people meet: made by verbs, answered by scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.clock import SystemClock
from tests.ledger.shell import Shell, Verbs
from tests.web.aftermath import HOSTILE, RIGHT_TO_LEFT

COLOURED = "\x1b[31mred\x1b[0m \x1b]0;title\x07"


def said(action: str, summary: str, *files: str, **more: Any) -> dict[str, Any]:
    """A reply of a script."""
    answer = {"action": action, "evidence_files": list(files), "summary_for_supervisor": summary}
    return {"reply": json.dumps(answer), **more}


def spent(cost: float, read: int, written: int) -> dict[str, Any]:
    return {"cost_usd": cost, "usage": {"input_tokens": read, "output_tokens": written}}


class Errands:
    """Jobs are made in this process: a hundred processes would take a minute to do it."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.verbs = Verbs(str(shell.home), SystemClock())

    def script(self, name: str, *replies: dict[str, Any] | str) -> str:
        """The model that gives these replies in turn."""
        file = self.shell.place / f"{name}.json"
        file.write_text(json.dumps({"replies": replies}), encoding="utf-8")
        return f"scripted:{file}"

    def make(self, id: str, prompt: str, worker: str, **more: Any) -> None:
        self.verbs("job new", id=id, prompt=prompt, worker=worker, **more)

    def spec(self, id: str, **told: Any) -> None:
        file = self.shell.place / f"{id}.spec.json"
        file.write_text(json.dumps(told), encoding="utf-8")
        self.verbs("job new", spec=str(file), id=id)

    def run(self, id: str) -> int:
        return self.verbs("job run", id=id).exit_code

    def show(self, id: str) -> dict[str, Any]:
        return dict(self.verbs("job show", id=id).data)


def an_approval(errands: Errands, id: str = "release-notes") -> None:
    """A job whose first phase waits for a person, and has another one after it."""
    wrote = said("COMPLETED", "Wrote the notes for 4.2.", "notes.md", **spent(0.031, 5200, 640))
    again = said("COMPLETED", "Wrote them again, shorter.", "notes.md", **spent(0.02, 5900, 320))
    errands.spec(
        id,
        description="Write the release notes of 4.2",
        prompt="Write the release notes of 4.2 from the changelog.",
        phases=[
            {"name": "write", "approval": True, "instructions": "No more than a page."},
            {"name": "publish", "instructions": "Put them on the site."},
        ],
        models={"worker": errands.script(f"{id}-worker", wrote, again, said("COMPLETED", "Done."))},
        budget={"max_cost": 0.1},
    )
    assert errands.run(id) == 1


def a_stuck_one(errands: Errands, id: str = "flaky-test") -> None:
    asks = said(
        "STUCK", "The test needs a database. Which port may it use?", **spent(0.012, 3100, 90)
    )
    done = said("COMPLETED", "The test waits for the port that it was told.", **spent(0.01, 10, 9))
    errands.make(id, "Fix the flaky test of the queue", errands.script(id, asks, done))
    assert errands.run(id) == 1


def a_second_try(errands: Errands, id: str = "parse-dates") -> None:
    """Finished, after the supervisor had sent the first try back."""
    worker = errands.script(
        f"{id}-worker",
        said("COMPLETED", "Dates are parsed.", "dates.py", **spent(0.021, 4100, 800)),
        said("COMPLETED", "Dates of leap years too.", "dates.py", **spent(0.019, 5200, 410)),
    )
    supervisor = errands.script(
        f"{id}-supervisor",
        said("RETRY", "29 February is refused. Take leap years in.", **spent(0.008, 2100, 60)),
        said("COMPLETED", "All dates of the samples are parsed.", **spent(0.008, 2300, 50)),
    )
    errands.make(id, "Parse dates as people write them", worker, supervisor=supervisor)
    assert errands.run(id) == 0


def errands(place: Path) -> Errands:
    shell = Shell(place)
    made = Errands(shell)
    made.verbs("init", agent=["rio"])
    a_second_try(made)
    an_approval(made)
    a_stuck_one(made)
    made.make("no-json", "Say it in JSON", made.script("no-json", "Sure! I did it all."))
    made.run("no-json")
    dear = said("COMPLETED", "Read half of it.", **spent(0.09, 60000, 900))
    made.spec(
        "read-it-all",
        prompt="Read the whole archive and tell what is in it.",
        phases=[{"name": "read"}, {"name": "tell"}],
        models={"worker": made.script("dear", dear, dear)},
        budget={"max_cost": 0.08},
    )
    made.run("read-it-all")
    made.make("draft", "Think about what is next", "scripted:echo")
    made.make("queued", "Sweep the old branches", "scripted:echo", activate=True)
    made.make("later", "Rewrite it in another language", "scripted:echo", activate=True)
    made.verbs("job suspend", id="later", reason="after the release")
    made.make("never-mind", "Rename everything", "scripted:echo", activate=True)
    made.verbs("job cancel", id="never-mind", reason="nobody wants it")
    return made


def hostile(made: Errands, id: str = "hostile") -> None:
    """A job in which everybody says what a page must not do."""
    text = " ".join([*HOSTILE, RIGHT_TO_LEFT])
    file = HOSTILE[0].replace("/", "")
    worker = made.script(id, said("STUCK", f"Said: {text}", file, HOSTILE[1][:30]))
    made.make(id, f"{text} {COLOURED}", worker, description=HOSTILE[0])
    made.run(id)
