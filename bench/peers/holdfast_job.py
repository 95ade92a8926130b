"""A job of ours: one call of its worker for each message, which says it."""

import json
from pathlib import Path

from driver import Gate, Message, start

from bench.job_steps import running
from holdfast.jobs import history


def run(store: Path, form: str, said: list[Message], gate: Gate) -> None:
    begun = False

    def asked(number: int) -> bool:
        nonlocal begun
        if not begun:
            begun = True
            answers = [each["response"]["raw_response"] for each in history.calls(runner.job)]
            gate.resumed([json.loads(each)["notes"] for each in answers if each is not None])
        elif number > gate.count:
            gate.kept(number)  # now that the next step begins, the one before is kept
        return number + 1 < len(said)

    gate.close = lambda: None
    with running(store, asked, text=lambda number: said[number]["content"]) as runner:
        runner.run()
        gate.kept(len(said))


if __name__ == "__main__":
    start(run)
