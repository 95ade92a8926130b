"""`holdfast` that stops itself at the n-th step of its protocol, or has a bug on purpose.

    python -m prove.session_wrapper '{"stop_at": 7, "broken": "", "steps": FILE}' WORDS…

Stopped, not killed: so the harness sees what is on disk at that very instant before it strikes.
How many steps there were is written to the file at the end.  Nothing of this is inherited by the
keeper, the command or whatever runs when we are gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from holdfast.agents.agent import Agent, End
from holdfast.cli.main import main
from holdfast.store.failpoints import armed

STEPS = (
    "log.append.written",
    "log.append.unlocked",
    "log.append.synced",
    "segment.written",
    "segment.linked",
    "segment.durable",
    "document.written",
    "document.renamed",
    "sheet.written",
    "sheet.swapped",
    "view.stamped",
)


class Steps:
    def __init__(self, stop_at: int) -> None:
        self.stop_at, self.taken = stop_at, 0

    def hit(self) -> None:
        self.taken += 1
        if self.taken == self.stop_at:
            os.kill(os.getpid(), signal.SIGSTOP)


def break_it(how: str) -> None:
    if how == "ends twice":
        real = Agent.end

        def end(self: Agent, role: str, fence: int, end: End) -> str:
            name = real(self, role, fence, end)
            line = {"event": "session_end", "session_id": name, "outcome": end.outcome}
            self.journal.log.append(line)
            return name

        Agent.end = end
    elif how == "leaves remains":
        assert Agent._end_remains  # a control that replaces what is gone breaks nothing
        Agent._end_remains = lambda self, session: None
    elif how == "forgets the crash":
        assert Agent._obituaries
        Agent._obituaries = lambda self, dead: []


def run() -> int:
    given = json.loads(sys.argv[1])
    break_it(given["broken"])
    steps = Steps(given["stop_at"])
    with ExitStack() as stack:
        for name in STEPS:
            stack.enter_context(armed(name, steps.hit))
        code = main(sys.argv[2:])
    if given["steps"]:
        Path(given["steps"]).write_text(str(steps.taken), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(run())
