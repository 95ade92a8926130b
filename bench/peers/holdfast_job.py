"""A job of ours: one call of its worker for each message, which says it."""

import json
from pathlib import Path

from driver import Gate, Message, start

from bench.job_steps import running
from holdfast.jobs import history


def run(store: Path, form: str, said: list[Message], gate: Gate) -> None:
    with running(store, text=lambda number: said[number]["content"]) as runner:
        answers = [each["response"]["raw_response"] for each in history.calls(runner.job)]
        gate.close = runner.job.close
        gate.resumed([json.loads(each)["notes"] for each in answers])
        while gate.count < len(said):
            runner.step()
            gate.kept(gate.count + 1)


if __name__ == "__main__":
    start(run)
